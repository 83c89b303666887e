"""``ascii-typography-v1``: the spelling that the built-in model was trained on, applied when a prompt is built.

Documents keep their own typography for display; ``find_quote`` leads from the model's spelling back to it.
"""

from __future__ import annotations

import re

ASCII_TYPOGRAPHY = "ascii-typography-v1"

_CHARACTERS = str.maketrans(
    dict.fromkeys("“”„‟«»″", '"') | dict.fromkeys("‘’‚‛‹›′", "'") | dict.fromkeys("—―", "--")
    | dict.fromkeys("–‒‐‑−", "-") | {"…": "..."} | dict.fromkeys("\r\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
)  # fmt: skip
_PICTURES = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0e\ufe0f\u20e3]")
_SPACES = re.compile(r"[^\S\n]+")


def ascii_typography(text: str) -> str:
    """Straight quotes, ``--``, ``-``, ``...``, single spaces; no tabs, zero-width characters or emoji."""
    text = text.replace("\r\n", "\n").translate(_CHARACTERS)
    return _SPACES.sub(" ", _PICTURES.sub("", text))


def normaliser(name: str | None):
    """The mapping of a prompt.json's ``normalise``; none named, none applied. Raises UnsupportedModelError."""
    if name is None:
        return str
    if name == ASCII_TYPOGRAPHY:
        return ascii_typography
    from ..errors import UnsupportedModelError

    raise UnsupportedModelError(
        f"prompt.json asks for the text form {name!r}", allowed=ASCII_TYPOGRAPHY, remedy="Update TriForce Chat."
    )


def find_quote(page_text: str, quote: str, *, nth: int = 0) -> tuple[int, int] | None:
    """Characters [start, end) of page_text whose ascii typography is the quote; white space counts as equal.

    nth chooses among several equal places, counted from 0."""
    wanted = "".join(ascii_typography(quote).split())
    if not wanted:
        return None
    letters: list[str] = []
    places: list[int] = []
    for at, character in enumerate(page_text):
        if not character.isspace():
            for letter in _PICTURES.sub("", character.translate(_CHARACTERS)):
                letters.append(letter)
                places.append(at)
    solid, start = "".join(letters), -1
    for _ in range(nth + 1):
        start = solid.find(wanted, start + 1)
        if start < 0:
            return None
    return places[start], places[start + len(wanted) - 1] + 1
