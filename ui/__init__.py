"""The page. Imports ``triforce_core`` by its top name only; ``launch`` alone brings Gradio in.

``import ui`` stays cheap (``python app.py --help`` must answer at once), so the heavy half loads on first use.
"""

from __future__ import annotations

from .state.arguments import Arguments, parse


def launch(arguments: Arguments) -> int:
    """Run the app until it is told to stop; returns the exit status."""
    from .server.lifecycle import serve

    return serve(arguments)


def check(arguments: Arguments) -> int:
    """Print what this machine can run and why; 1 if it can run nothing."""
    from .server.preflight import check as report

    return report(arguments)


__all__ = ["check", "launch", "parse"]
