"""What a page is called: by its label, and by its document's title where several are read together. Pure."""

from __future__ import annotations

from ..words import chat as chat_words
from ..words import strip as strip_words

BETWEEN = ", "  # title and label, as ``triforce_core.documents.together`` joins them


def short(label: str) -> str:
    """'85' -> 'p. 85', 'Moby Dick, 85' -> 'Moby Dick, p. 85'."""
    title, _, own = label.rpartition(BETWEEN)
    shape = chat_words.CITED_PAGE_OF if title else chat_words.CITED_PAGE
    return shape.format(title=title, label=own)


def long(label: str) -> str:
    """'85' -> 'Page 85', 'Moby Dick, 85' -> 'Moby Dick, page 85'."""
    title, _, own = label.rpartition(BETWEEN)
    shape = strip_words.STRIP_PAGE_OF if title else strip_words.STRIP_PAGE
    return shape.format(title=title, label=own)
