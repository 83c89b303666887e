"""Decide what a raised figure means: a power, the mark of a note, or the end of a word."""

from __future__ import annotations

import re

# A number, a bracket, a letter or a unit has a power; a word or the end of a sentence has a note.
_BASE = re.compile(r"(?:\d|[)\]}]|[=+*/×·<>(][^\W\d_]{1,3}|(?<![^\W\d_])(?:[^\W\d_]|km|cm|mm|nm|ft|sec|kg|yd))\Z")
_ORDINAL = re.compile(r"st|nd|rd|th|d|er|re|e|o|a|me|mes|ère|ème|lle|c|º|ª|tm|sm|\(?r\)?|™|®", re.IGNORECASE)
_POWER = re.compile(r"[-−–+]?[\w./*·+−-]{1,12}")
_MARK = re.compile(r"[\[(]?\s*(?:\d{1,4}(?:\s*[,–-]\s*\d{1,4})*|[*†‡§¶]{1,3})\s*[\])]?")


def raised_text(text: str, tail: str) -> str | None:
    """Return what to add behind ``tail``, the last characters before: "^30" for a power, "" for a note's mark; None:
    the words as they are ("1st")."""
    if not text or not tail:
        return None
    base = _BASE.search(tail)
    if base and _POWER.fullmatch(text) and not _ORDINAL.fullmatch(text):
        return f"^{text}" if text.lstrip("-−–+").isalnum() else f"^({text})"
    return "" if not base and _MARK.fullmatch(text) else None
