"""TriForce Chat: a page on this machine for talking with whole long documents.

    python app.py                 opens the page (the built-in model, no internet needed)
    python app.py book.pdf        the same, with a document opened
    python app.py --check         says what this machine can run, and why
"""

from __future__ import annotations

import sys

import ui
from triforce_core import TriForceError


def main(argv: list[str] | None = None) -> int:
    arguments = ui.parse(argv)
    try:
        return ui.check(arguments) if arguments.check else ui.launch(arguments)
    except TriForceError as error:
        print(f"app.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
