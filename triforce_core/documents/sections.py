"""Sections stand in for pages in formats that have none. About 3,000 characters, cut at paragraph borders."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set

from .readers.source import Heading

SECTION = 3_000
_LONGEST = 2 * SECTION  # a paragraph longer than this is cut at a sentence or a space


def split_sections(text: str, titles: Set[str] = frozenset()) -> list[str]:
    """Cut a text, losing nothing but the blank space at the cuts. titles: paragraphs that go with those behind them."""
    sections: list[str] = []
    paragraphs: list[str] = []
    size = 0

    def cut() -> None:
        nonlocal paragraphs, size
        keep = len(paragraphs)
        while keep and paragraphs[keep - 1] in titles:
            keep -= 1
        keep = keep or len(paragraphs)  # nothing but titles
        sections.append("\n\n".join(paragraphs[:keep]))
        paragraphs = paragraphs[keep:]
        size = sum(len(title) + 2 for title in paragraphs)

    for paragraph in text.split("\n\n"):
        for piece in _pieces(paragraph):
            if paragraphs and size + len(piece) > SECTION + SECTION // 2:
                cut()
            paragraphs.append(piece)
            size += len(piece) + 2
            if size >= SECTION:
                cut()
    if paragraphs:
        sections.append("\n\n".join(paragraphs))
    return [section for section in sections if section.strip()]


def placed(headings: Iterable[tuple[str, int]], sections: Sequence[str], before: int = 0) -> list[Heading]:
    """Return the section in which each heading (title, level) stands as a line of its own, in their order; one that the
    text has not is left out. before: pages that stand before the first section."""
    wanted = [(" ".join(title.split()), level) for title, level in headings]
    lines = _standing({title for title, _ in wanted}, sections)
    found, at = [], 0
    for title, level in wanted:
        places = lines.get(title, [])
        here = bisect_left(places, (at + 1, 0))
        if here < len(places):
            at, page = places[here]
            found.append(Heading(title, level, before + page))
    return found


def first_places(titles: Set[str], sections: Sequence[str]) -> dict[str, int]:
    """Return the section in which each title (words with single spaces) first stands as a line of its own."""
    return {title: places[0][1] for title, places in _standing(titles, sections).items()}


def _standing(titles: Set[str], sections: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the number of each line that is one of ``titles``, and of its section."""
    lines: dict[str, list[tuple[int, int]]] = {}
    at = 0
    for page, section in enumerate(sections):
        for line in section.split("\n"):
            at += 1
            words = " ".join(line.split()) if len(line) < SECTION else ""
            if words and words in titles:
                lines.setdefault(words, []).append((at, page))
    return lines


def _pieces(paragraph: str) -> list[str]:
    """Return a paragraph whole, or, if it is too long, cut near every SECTION characters."""
    pieces, start = [], 0
    while len(paragraph) - start > _LONGEST:
        low, high = start + SECTION // 2, start + SECTION
        cut = max(paragraph.rfind(mark, low, high) + len(mark.rstrip()) for mark in (". ", "\n", "! ", "? "))
        if cut <= low:
            cut = paragraph.rfind(" ", low, high)
        cut = cut if cut > low else high
        pieces.append(paragraph[start:cut].strip("\n").rstrip())
        start = cut
    return [*pieces, paragraph[start:].strip("\n").rstrip()] if pieces else [paragraph]
