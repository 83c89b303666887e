"""What a page is called: by its label, and by its document's title where several are read together. Pure."""

from __future__ import annotations

CITED_PAGE = "p. {label}"
CITED_PAGE_OF = "{title}, p. {label}"  # of one of several documents

STRIP_PAGE = "Page {label}"
STRIP_PAGE_OF = "{title}, page {label}"  # of one of several documents

BETWEEN = ", "  # title and label, as ``triforce_core.together`` joins them


def short(label: str) -> str:
    """'85' -> 'p. 85', 'Moby Dick, 85' -> 'Moby Dick, p. 85'."""
    title, _, own = label.rpartition(BETWEEN)
    shape = CITED_PAGE_OF if title else CITED_PAGE
    return shape.format(title=title, label=own)


def long(label: str) -> str:
    """'85' -> 'Page 85', 'Moby Dick, 85' -> 'Moby Dick, page 85'."""
    title, _, own = label.rpartition(BETWEEN)
    shape = STRIP_PAGE_OF if title else STRIP_PAGE
    return shape.format(title=title, label=own)
