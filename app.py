"""TriForce Chat: a page on this machine for talking with whole long documents.

    python app.py                 opens the page (the built-in model, no internet needed)
    python app.py book.pdf        the same, with a document opened
    python app.py --check         says what this machine can run, and why

Where the package is installed, ``triforce-chat`` is the same command.
"""

from __future__ import annotations

import sys

import ui

if __name__ == "__main__":
    sys.exit(ui.main())
