"""Packages that only some of the work needs: looked for before that work begins, not in the middle of it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from .errors import ConfigError

# What finding the sentences that answer a question takes, in models that quote.
FOR_QUOTES = ("snowballstemmer", "wordllama")


def require(names: Sequence[str], what: str) -> None:
    """Raise ConfigError where a package is not installed. what: the beginning of its sentence."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {' and '.join(missing)}, not installed here",
                          remedy=f"Run pip install {' '.join(missing)}") from ModuleNotFoundError(
                              f"No module named {missing[0]!r}", name=missing[0])
