"""Files that ship with the engine. They lie beside this one in a checkout and where the package is installed alike."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent
BUILTIN_FOLDER = _HERE / "builtin"  # tokenizer, and the built-in pair in target/ and draft/
WORDS_FOLDER = _HERE / "words"  # weights of what finds sentences
HANDBOOK = _HERE / "sample" / "handbook.pdf"  # the first document to try
