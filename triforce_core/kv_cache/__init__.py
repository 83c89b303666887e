"""Keys and values: one contract (``base``), one file for each kind, and readings on disk (``snapshot``)."""

from __future__ import annotations

from collections.abc import Iterable


def shared_prefix(one: Iterable[object], other: Iterable[object]) -> int:
    """Return how many tokens (or digests of tokens) both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
