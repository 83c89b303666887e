"""Deterministic clean-up of characters and spaces. Raise CLEANUP_VERSION when the same file would give other text."""

from __future__ import annotations

import re
import unicodedata

CLEANUP_VERSION = 2

_LIGATURES = dict(zip("ﬀﬁﬂﬃﬄﬅﬆ", ["ff", "fi", "fl", "ffi", "ffl", "st", "st"], strict=True))
_SPACES = dict.fromkeys(
    "\t\v\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
)
_BREAKS = dict.fromkeys("\f\u0085\u2028\u2029", "\n")
_CONTROLS = {chr(c): "" for c in [*range(9), *range(14, 32), *range(127, 160), 0xAD] if c != 0x85}
_CHARACTERS = str.maketrans(_LIGATURES | _SPACES | _BREAKS | _CONTROLS)
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_RUNS = re.compile("  +")
_EMPTY_LINES = re.compile(r"\n{3,}")
_HYPHENATED = re.compile("[\u0002\ufffe] ?\n?")
_GARBLED = re.compile("[\ufffd\ue000-\uf8ff\u0000-\u0008\u000e-\u001f]")


def clean(text: str, laid_out: bool = False) -> tuple[str, int]:
    """Clean text and the number of hidden characters taken out (zero width, writing direction, tags).

    NFC, ligatures spelt out, white space made single spaces and newlines, control characters dropped, U+FFFE and U+0002
    (PDFium's marks of a hyphenated line end, new and old) dropped so that the word is whole again. laid_out: the blanks
    inside lines and at their beginning stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x02" in text or "\ufffe" in text:
        text = _HYPHENATED.sub("", text)
    text = text.translate(_CHARACTERS)
    if not text.isascii():
        text, hidden = _HIDDEN.subn("", _SURROGATES.sub("\ufffd", text))
        text = unicodedata.normalize("NFC", text)
    else:
        hidden = 0
    lines = (line.rstrip() if laid_out else _RUNS.sub(" ", line).strip() for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n"), hidden


def one_line(text: str, longest: int = 200) -> str:
    """A title or label: clean, on one line, of bounded length."""
    return " ".join(clean(text[: longest * 4])[0].split())[:longest]


def letters(raw: str) -> int:
    """Characters that carry text; a garbled layer (mostly private-use or replacement characters) counts as none."""
    solid = len("".join(raw.split()))
    return 0 if len(_GARBLED.findall(raw)) * 2 > solid else solid
