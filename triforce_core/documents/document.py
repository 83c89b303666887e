"""A document as values: pages in reading order, and its chapters. Knows no tokens (``prompt`` makes those) and no file
formats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from ..events import whole_text

LONGEST_LABEL = 40  # characters of a page's label that the model reads


@dataclass(frozen=True, slots=True)
class Page:
    """One page (or section, for formats without pages). label is what a reader calls it: "iv", "85"."""

    label: str
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", whole_text(self.label))
        object.__setattr__(self, "text", whole_text(self.text))


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the document, by its outline or its headings. level: 1 for the largest. first, last: its pages, counted
    from 1; a page on which one chapter ends and another begins belongs to both."""

    title: str
    level: int
    first: int
    last: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", whole_text(self.title))


@dataclass(frozen=True, slots=True)
class Document:
    """Hold what was read from a file. warnings and notes are sentences fit to show: warnings say what may be lost or
    wrong (pages without text, damaged parts, odd encodings...), notes what was left out as it should be, counted
    (pictures, comments, hidden text...)."""

    title: str
    kind: str  # "pdf", "txt", "markdown", "rst", "html", "docx", "epub"
    pages: tuple[Page, ...]
    reader: str  # which reader made it: page maps of two readers never mix
    warnings: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    language: str = ""  # what the file says that it is written in (BCP 47), such as "de" or "pt-BR"; "": it does not
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", whole_text(self.title))

    @property
    def id(self) -> str:
        """SHA-256 over labels and texts: the same words are the same document, whatever the file."""
        digest = hashlib.sha256()
        for page in self.pages:
            digest.update(f"{page.label}\x00{page.text}\x01".encode())
        return digest.hexdigest()

    @property
    def characters(self) -> int:
        return sum(len(page.text) for page in self.pages)

    def select(self, first: int, last: int) -> Document:
        """Pages first..last, counted from 1, both included. Raises PageRangeError."""
        return self.pick([(first, last)])

    def pick(self, ranges: Iterable[tuple[int, int]]) -> Document:
        """The pages of several ranges (as of ``select``), one after the other. Raises PageRangeError."""
        from ..errors import PageRangeError

        pages: list[Page] = []
        for first, last in ranges:
            if not 1 <= first <= last <= len(self.pages):
                raise PageRangeError(f"Pages {first}-{last} were asked for", allowed=f"1-{len(self.pages)}")
            pages += self.pages[first - 1 : last]
        return Document(self.title, self.kind, tuple(pages), self.reader, self.warnings, language=self.language,
                        notes=self.notes)
