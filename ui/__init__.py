"""The page. Imports ``triforce_core`` by its top name only; ``launch`` alone brings Gradio in.

``import ui`` stays cheap (``python app.py --help`` must answer at once), so the heavy half loads on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from triforce_core import EngineConfig, TriForceError

from .app.arguments import Arguments, command_name, parse

MakeEngine = Callable[[EngineConfig], Any]


def main(argv: Sequence[str] | None = None, make_engine: MakeEngine | None = None) -> int:
    """Run the command ``python app.py``, or ``triforce-chat`` where it is installed; return its exit status.

    make_engine: makes the engine, instead of what the command line asks for."""
    arguments = parse(argv)
    try:
        return check(arguments) if arguments.check else launch(arguments, make_engine)
    except TriForceError as error:
        print(f"{command_name()}: {error}", file=sys.stderr)
        return 2


def launch(arguments: Arguments, make_engine: MakeEngine | None = None) -> int:
    """Run the app until a signal ends it; return the exit status."""
    from .server.lifecycle import serve

    return serve(arguments, make_engine)


def check(arguments: Arguments) -> int:
    """Print what this machine can run and why. Return 1 if it can run nothing."""
    from .server.preflight import check as report

    return report(arguments)


__all__ = ["check", "launch", "main", "parse"]
