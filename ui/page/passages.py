"""Attended chunks -> sentences a person can read. Pure.

A chunk is eight tokens or so and begins in the middle of a word; what is shown is the sentence around it, found again
in the page's text, and chunks of one sentence add up. A chunk that is not found word for word is left out. A page is
told by its place in the file; its label is only shown.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from triforce_core import Document

from ..app.quotes import Place

PASSAGES = "Most attended passages"

LEAST_WORDS = 3  # of a sentence: "95." is none
LONGEST = 420  # characters shown of one sentence: of most, all
_END = re.compile(r"[.!?…][\"'”’)\]]*\s|\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """One sentence: page number (from 1), its label, the share of the attention, its words and where they stand."""

    number: int
    label: str
    share: float
    text: str
    start: int = 0

    @property
    def place(self) -> Place:
        return Place(self.number, self.start, self.start + len(self.text))


def passages(chunks: Sequence[Mapping[str, Any]], document: Document, most: int = 3) -> list[Passage]:
    """The most attended sentences, the first one first."""
    shares: dict[tuple[int, int, int], float] = {}
    for chunk in chunks:
        found = [(number, *place) for number in _meant(chunk.get("page"), document)
                 if (place := sentence(document.pages[number - 1].text, str(chunk.get("text", ""))))]
        if len(found) == 1 and _is_sentence(document, *found[0]):
            shares[found[0]] = shares.get(found[0], 0.0) + float(chunk.get("share", 0.0))
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return [Passage(number, document.pages[number - 1].label, share, document.pages[number - 1].text[start:end], start)
            for (number, start, end), share in ranked]


def _is_sentence(document: Document, page: int, start: int, end: int) -> bool:
    return len(document.pages[page - 1].text[start:end].split()) >= LEAST_WORDS


def _meant(page: object, document: Document) -> Sequence[int]:
    """The pages that a chunk may stand on: its own. Older versions stored a label, which several may have."""
    if isinstance(page, str):
        return [number for number, each in enumerate(document.pages, 1) if each.label == page]
    return [page] if isinstance(page, int) and 1 <= page <= len(document.pages) else []


def sentence(page: str, chunk: str) -> tuple[int, int] | None:
    """Where the sentence of the page around a chunk begins and ends, or None if the chunk's words are not there, or
    more than once (which of them was attended is not known)."""
    words = chunk.split()
    if len("".join(words)) < 6:
        return None
    matches = list(islice(re.finditer(r"\s+".join(map(re.escape, words)), page), 2))
    if len(matches) != 1:
        return None
    (match,) = matches
    middle = (match.start() + match.end()) // 2
    low, high = max(0, middle - LONGEST), min(len(page), middle + LONGEST)
    ends = [end.end() for end in _END.finditer(page, low, high)]
    start = max((end for end in ends if end <= middle), default=_word(page, max(0, middle - LONGEST // 2)))
    stop = min((end for end in ends if end > middle), default=_word(page, min(len(page), middle + LONGEST // 2)))
    text = page[start:stop]
    start, stop = start + len(text) - len(text.lstrip()), stop - len(text) + len(text.rstrip())
    return (start, stop) if start < stop else None


def _word(page: str, at: int) -> int:
    """Where the word begins that a place lies in."""
    while 0 < at < len(page) and not page[at - 1].isspace():
        at -= 1
    return at


def shown(text: str) -> str:
    """Short enough for a list; what is longer ends after a whole word."""
    return textwrap.shorten(text, LONGEST, placeholder=" …", break_on_hyphens=False)
