"""``ascii-typography-v1``: the spelling that the built-in model was trained on, applied when a prompt is built.

Documents keep their own typography for display; ``spelt_letters`` leads from the model's spelling back to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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


def normaliser(name: str | None) -> Callable[[str], str]:
    """The mapping of a prompt.json's ``normalise``; none named, none applied. Raises UnsupportedModelError."""
    if name is None:
        return str
    if name == ASCII_TYPOGRAPHY:
        return ascii_typography
    from ..errors import UnsupportedModelError

    raise UnsupportedModelError(
        f"prompt.json asks for the text form {name!r}", allowed=ASCII_TYPOGRAPHY, remedy="Update TriForce Chat."
    )


def spelt_letters(text: str, normalise: Callable[[str], str]) -> tuple[str, list[int]]:
    """Return what ``normalise`` makes of a text, white space left out, and the index of the character each letter came
    from.

    normalise: one that treats every character but white space for itself, as the ones here do."""
    spelt = {character: "".join(normalise(character).split()) for character in set(text)}
    sources = [at for at, character in enumerate(text) for _ in spelt[character]]
    return "".join(spelt[character] for character in text), sources
