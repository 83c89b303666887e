"""Sections: what stands in for pages in formats that have none. About 3,000 characters, cut at paragraph borders."""

from __future__ import annotations

SECTION = 3_000
_LONGEST = 2 * SECTION  # a paragraph longer than this is cut at a sentence or a space


def split_sections(text: str) -> list[str]:
    """The text in order, nothing lost but the blank space at the cuts."""
    sections: list[str] = []
    paragraphs: list[str] = []
    size = 0
    for paragraph in text.split("\n\n"):
        for piece in _pieces(paragraph):
            if paragraphs and size + len(piece) > SECTION + SECTION // 2:
                sections.append("\n\n".join(paragraphs))
                paragraphs, size = [], 0
            paragraphs.append(piece)
            size += len(piece) + 2
            if size >= SECTION:
                sections.append("\n\n".join(paragraphs))
                paragraphs, size = [], 0
    if paragraphs:
        sections.append("\n\n".join(paragraphs))
    return [section for section in sections if section.strip()]


def _pieces(paragraph: str) -> list[str]:
    """A paragraph whole, or, if it is too long, cut near every SECTION characters."""
    pieces, start = [], 0
    while len(paragraph) - start > _LONGEST:
        low, high = start + SECTION // 2, start + SECTION
        cut = max(paragraph.rfind(mark, low, high) + len(mark.rstrip()) for mark in (". ", "\n", "! ", "? "))
        if cut <= low:
            cut = paragraph.rfind(" ", low, high)
        cut = cut if cut > low else high
        pieces.append(paragraph[start:cut].strip())
        start = cut
    return [*pieces, paragraph[start:].strip()] if pieces else [paragraph]
