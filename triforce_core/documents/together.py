"""Several documents as one: their pages one after the other, each labelled with a short name of its document. Pure.

The labels stand in the page markers that the model reads, so it can tell the documents apart and name their pages."""

from __future__ import annotations

from collections.abc import Sequence

from .chapters import MOST_CHAPTERS, MOST_LEVELS
from .document import LONGEST_LABEL, Chapter, Document, Page

KIND = "together"
_LONGEST_NAME, _SHORTEST_NAME = 24, 8


def together(documents: Sequence[Document]) -> Document:
    """One chapter for each document, with its own beneath it. Nothing is left out; two or more."""
    assert len(documents) > 1
    names = short_names(documents)
    pages: list[Page] = []
    chapters: list[Chapter] = []
    own = sum(len(document.chapters) for document in documents) + len(documents) <= MOST_CHAPTERS
    for document, name in zip(documents, names, strict=True):
        before = len(pages)
        pages += [Page(f"{name}, {page.label}", page.text) for page in document.pages]
        chapters.append(Chapter(document.title, 1, before + 1, len(pages)))
        chapters += [Chapter(chapter.title, chapter.level + 1, chapter.first + before, chapter.last + before)
                     for chapter in document.chapters if own and chapter.level < MOST_LEVELS]
    named = list(zip(documents, names, strict=True))
    warnings = tuple(f"{name}: {warning}" for document, name in named for warning in document.warnings)
    notes = tuple(f"{name}: {note}" for document, name in named for note in document.notes)
    languages = {document.language for document in documents}
    return Document(" + ".join(document.title for document in documents), KIND, tuple(pages), KIND, warnings,
                    tuple(chapters), languages.pop() if len(languages) == 1 else "", notes)


def short_names(documents: Sequence[Document]) -> list[str]:
    """The beginning of each title, cut between words so that it fits into a page marker; no two the same."""
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
