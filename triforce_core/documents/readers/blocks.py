"""Collect what the reader of plain text finds: paragraphs, headings, items, rows, code and notes, laid out as one text.

A blank line stands between any two of them but for the items of a list and the rows of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set

_LONGEST_HEADING = 300  # longer ones are paragraphs
_MOST_HEADINGS = 20_000
CONTENTS = re.compile(r"(?:table of )?contents", re.IGNORECASE)
_MARKED = re.compile(  # a note's mark that nothing sets apart from a sentence's end: 'memorials."9 Some'
    r"((?:[.,;:!?][\"'”’)]|[^\W\d_]{3}[.!?]))(\d{1,3})(?=\s+[\"“(]?[A-ZÀ-Þ]|\s*\Z)", re.MULTILINE
)
_BRACKETED = re.compile(r"(?<=[^\s\[(])\[(\d{1,3}|[*†‡])\](?!\()")
# What follows what line by line; "head" is the first row of a table.
_TOGETHER = {("item", "item"), ("row", "row"), ("row", "head")}


class Blocks:
    """Blocks of text in the order of the document."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, str, int]] = []  # kind, text, level if it is a heading
        self._marks: set[str] = set()  # of notes

    def heading(self, words: str, level: int) -> None:
        self._add("heading", " ".join(words.split()), level)

    def paragraph(self, text: str) -> None:
        """text: a line break in it stays one."""
        self._add("paragraph", in_lines(text))

    def item(self, marker: str, text: str) -> None:
        """Add a list item, one line if its text is one; marker: "-" or "3."."""
        self._add("item", in_lines(f"{marker} {text}"))

    def row(self, cells: Iterable[str], first: bool = False) -> None:
        """Add a row of a table; first: one of another table than the row before.

        A bar stands before the second cell where the first is empty: columns stay apart."""
        line = " | ".join(" ".join(cell.split()) for cell in cells)
        if line.strip("| "):
            self._add("head" if first else "row", line.rstrip("| ").lstrip(" "))

    def note(self, mark: str, text: str) -> None:
        self._marks.add(mark)
        self._add("note", " ".join(f"[{mark}] {text}".split()))

    def code(self, lines: Sequence[str]) -> None:
        """Lines as they stand, blanks at their beginning included."""
        self._add("code", "\n".join(line.rstrip() for line in lines).strip("\n"))

    def finish(self) -> tuple[str, list[tuple[str, int]]]:
        """Return the text, and its headings (words, level) in their order, each a line of its own in it."""
        self._contents_as_headings()
        pieces: list[str] = []
        before = ""
        for kind, text, _ in self._blocks:
            close = (kind, before) in _TOGETHER
            marked = self._marks and kind in ("paragraph", "item")
            pieces += ["\n" if close else "\n\n", unmarked(text, self._marks) if marked else text]
            before = kind
        found = [(text, level) for kind, text, level in self._blocks if kind == "heading"]
        headings = [item for item in found if len(item[0]) <= _LONGEST_HEADING]
        return "".join(pieces[1:]), headings[:_MOST_HEADINGS]

    def _contents_as_headings(self) -> None:
        """Lines that a table of contents names are headings, in files whose headings are marked as nothing else."""
        listed: set[str] = set()
        level = 0
        for number, (kind, text, own) in enumerate(self._blocks):
            if kind == "heading":
                level = own if CONTENTS.fullmatch(text) else 0
            elif level and kind == "item":
                listed.add(bare(text.partition(" ")[2]))
            elif kind == "paragraph" and len(text) <= _LONGEST_HEADING and "\n" not in text and bare(text) in listed:
                self._blocks[number] = ("heading", text, 1)

    def _add(self, kind: str, text: str, level: int = 0) -> None:
        if text.strip():
            self._blocks.append((kind, text, level))


def in_lines(text: str) -> str:
    """Single spaces, no blanks at the ends of lines, no empty lines."""
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))


def unmarked(text: str, marks: Set[str]) -> str:
    """Return a sentence without those marks of notes that nothing but their place sets apart from it."""
    text = _MARKED.sub(lambda found: found[1] if found[2] in marks else found[0], text)
    return _BRACKETED.sub(lambda found: "" if found[1] in marks else found[0], text)


def bare(text: str) -> str:
    """Return the words as two lines of one document are compared."""
    return " ".join(text.casefold().split())
