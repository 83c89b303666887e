"""A document as values: pages in reading order, and its chapters. Knows no tokens (``prompt`` makes those) and no file
formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import PageRangeError
from ..surrogates import whole_text

LONGEST_LABEL = 40  # characters of a page's label that the model reads
MOST_CHAPTERS = 400  # a longer list helps nobody to choose
MOST_LEVELS = 3
TOGETHER = "together"  # the kind of several documents that are read as one
_LONGEST_NAME, _SHORTEST_NAME = 24, 8


@dataclass(frozen=True, slots=True)
class Word:
    """A word that was recognised in a picture of its page. Its box is in shares of the page."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page (or section, for formats without pages). label: its printed number, such as "iv" or "85". words: where
    they stand, if the page was scanned and they were recognised."""

    label: str
    text: str
    words: tuple[Word, ...] = ()

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
    kind: str  # "pdf", "txt", "markdown", "rst", "html", "docx", "epub", "picture", TOGETHER
    pages: tuple[Page, ...]
    reader: str  # which reader made it: page maps of two readers never mix
    warnings: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    language: str = ""  # that the file names as its own (BCP 47), such as "de" or "pt-BR"; "": it does not
    notes: tuple[str, ...] = ()
    recognised: str = ""  # the language of its text, such as "de"; "": not clear

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", whole_text(self.title))

    @property
    def id(self) -> str:
        """Return the SHA-256 of labels and texts: the same words are the same document, whatever the file."""
        import hashlib  # here: the process that reads a file has no use for it

        digest = hashlib.sha256()
        for page in self.pages:
            digest.update(f"{page.label}\x00{page.text}\x01".encode())
        return digest.hexdigest()

    @property
    def spoken(self) -> str:
        """Return the language that it is in, such as "pt"; "" where that is not known."""
        return self.recognised or re.split("[-_]", self.language)[0].lower()

    @property
    def characters(self) -> int:
        return sum(len(page.text) for page in self.pages)

    @property
    def blank(self) -> bool:
        """Return whether there is nothing to read in it: what is asked then is asked of the model alone."""
        return not any(page.text.strip() for page in self.pages)

    def select(self, first: int, last: int) -> Document:
        """Return pages first..last, counted from 1, both included. Raises PageRangeError."""
        return self.pick([(first, last)])

    def pick(self, ranges: Iterable[tuple[int, int]]) -> Document:
        """Return the pages of several ranges (as of ``select``), one after the other. Raises PageRangeError."""
        pages: list[Page] = []
        for first, last in ranges:
            if not 1 <= first <= last <= len(self.pages):
                raise PageRangeError(f"Pages {first}-{last} were asked for", allowed=f"1-{len(self.pages)}")
            pages += self.pages[first - 1 : last]
        return replace(self, pages=tuple(pages), chapters=())


def together(documents: Sequence[Document]) -> Document:
    """Return two or more documents as one: their pages one after the other, a chapter for each document with its own
    beneath it. Each page is labelled with a short name of its document: page markers carry it to the model."""
    assert len(documents) > 1
    names = short_names(documents)
    pages: list[Page] = []
    chapters: list[Chapter] = []
    own = sum(len(document.chapters) for document in documents) + len(documents) <= MOST_CHAPTERS
    for document, name in zip(documents, names, strict=True):
        before = len(pages)
        pages += [Page(f"{name}, {page.label}", page.text, page.words) for page in document.pages]
        chapters.append(Chapter(document.title, 1, before + 1, len(pages)))
        chapters += [Chapter(chapter.title, chapter.level + 1, chapter.first + before, chapter.last + before)
                     for chapter in document.chapters if own and chapter.level < MOST_LEVELS]
    named = list(zip(documents, names, strict=True))
    warnings = tuple(f"{name}: {warning}" for document, name in named for warning in document.warnings)
    notes = tuple(f"{name}: {note}" for document, name in named for note in document.notes)
    languages = {document.language for document in documents}
    recognised = {document.recognised for document in documents}
    title = " + ".join(document.title for document in documents)
    return Document(title, TOGETHER, tuple(pages), TOGETHER, warnings, tuple(chapters),
                    languages.pop() if len(languages) == 1 else "", notes,
                    recognised.pop() if len(recognised) == 1 else "")


def short_names(documents: Sequence[Document]) -> list[str]:
    """Return the beginning of each title, cut between words so that it fits into a page marker; no two the same."""
    names: list[str] = []
    for document in documents:
        longest = max(len(page.label) for page in document.pages)
        room = max(_SHORTEST_NAME, min(_LONGEST_NAME, LONGEST_LABEL - 2 - longest))
        name, number = _cut(document.title, room), 1
        while name in names:
            number += 1
            name = f"{_cut(document.title, room - len(f' ({number})'))} ({number})"
        names.append(name)
    return names


def _cut(title: str, room: int) -> str:
    words = " ".join(title.replace(",", " ").split()) or "Document"
    if len(words) <= room:
        return words
    whole = words[: room + 1].rpartition(" ")[0]
    return whole if len(whole) * 2 >= room else words[:room].rstrip()
