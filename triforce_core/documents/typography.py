"""Typography that models read apart, made one."""

from __future__ import annotations

import re

_CHARACTERS = str.maketrans(
    dict.fromkeys("“”„‟«»″", '"') | dict.fromkeys("‘’‚‛‹›′", "'") | dict.fromkeys("—―", "--")
    | dict.fromkeys("–‒‐‑−", "-") | {"…": "..."} | dict.fromkeys("\r\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
)  # fmt: skip
_PICTURES = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0e\ufe0f\u20e3]")
_SPACES = re.compile(r"[^\S\n]+")


def ascii_typography(text: str) -> str:
    """Return a text with straight quotes, ``--``, ``-``, ``...``, single spaces; no tabs, zero-width characters or
    emoji."""
    text = text.replace("\r\n", "\n").translate(_CHARACTERS)
    return _SPACES.sub(" ", _PICTURES.sub("", text))
