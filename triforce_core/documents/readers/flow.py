"""Text that grows piece by piece, with what lies between two pieces decided when the second one comes; the rows of a
table as lines of it; and what raised figures mean in it."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field

from ..reflow import UNSPACED_BREAK, between_lines

_GAPS = ("", " ", "\n", "\n\n")
NONE, SPACE, LINE, PARAGRAPH = range(4)
_SPACES = re.compile(r"\s+")
_CLOSING = (".", ",", ";", ":", "!", "?", ")", "]", "’", "”")
_LONGEST_CELL = 2_000  # characters; a longer one is a part of the page, not of a row
_LONGEST_REPEATED = 80  # of a cell that spans rows: short ones stand in each of them
_MOST_SPANNED = 50
# A number, a bracket, a letter or a unit has a power; a word or the end of a sentence may have a note.
_BASE = re.compile(r"(?:\d|[)\]}]|[=+*/×·<>(]\s?[^\W\d_]{1,3}|(?<![^\W\d_])(?:[^\W\d_]|km|cm|mm|nm|ft|sec|kg|yd))\Z")
_ORDINAL = re.compile(r"st|nd|rd|th|d|er|re|e|o|a|me|mes|ère|ème|lle|c|º|ª|tm|sm|\(?r\)?|™|®", re.IGNORECASE)
_SCRIPT = re.compile(r"[-−–+]?[^\W_][\w./*·+−–,-]{0,11}|[-−–+]")
_FIGURES = re.compile(r"\d{1,4}(?:\s*[,–-]\s*\d{1,4})*")
_FIGURE = re.compile(r"\d+")
_SYMBOLS = re.compile(r"[*†‡§¶]{1,3}")


class Flow:
    """gap: what is to stand before the next words, the widest that was asked for. prefix: "- " of an item that has no
    words yet. apart: it holds what cannot stand in one line with others, such as a heading or a table."""

    def __init__(self, raw: bool = False) -> None:
        self.pieces: list[str] = []
        self.gap = NONE
        self.prefix = ""
        self.apart = False
        self.raw = raw  # white space means something
        self._close = False  # the next paragraph belongs to the line before it
        self._broken = False  # what came last ended with its line
        self.dropped = False  # a note's mark stood here; the sentence goes on without it

    def words(self, data: str) -> None:
        """Add text of the file: white space runs together."""
        if self.raw:
            self.pieces.append(data)
            return
        if "\n" in data and not data.isascii():
            data = re.sub(UNSPACED_BREAK, "", data)
        text = _SPACES.sub(" ", data)
        core = text.strip(" ")
        if text[:1] == " ":
            self._broken = self._broken or "\n" in data
            self.gap = max(self.gap, SPACE)
        if core:
            if self.dropped and self.gap == SPACE and core.startswith(_CLOSING):
                self.gap = NONE
            if self.gap == SPACE and self._broken and self.pieces and not core.isascii():
                self.gap = SPACE if between_lines(self.pieces[-1], core) else NONE
            self.put(core)
            self._broken = text[-1] == " " and data.rstrip(" \t").endswith("\n")
            self.gap = SPACE if text[-1] == " " else NONE

    def put(self, text: str) -> None:
        if self.pieces:
            self.pieces.append(_GAPS[self.gap])
        self.pieces.append(self.prefix + text)
        self.gap, self.prefix, self._close, self.dropped = NONE, "", False, False

    def separate(self, gap: int) -> None:
        """Ask for LINE or PARAGRAPH before the next words. An item without words keeps what comes beside its mark."""
        if self.raw:
            if gap == LINE:
                self.pieces.append("\n")
        elif not self.prefix:
            self.gap = max(self.gap, min(gap, LINE) if self._close else gap)

    def line_break(self) -> None:
        """Break the line; two breaks make a paragraph."""
        self.separate(PARAGRAPH if self.gap == LINE and not self.raw else LINE)

    def paragraph(self, text: str) -> None:
        self.separate(PARAGRAPH)
        self.put(text)
        self.gap = PARAGRAPH

    def page_break(self) -> None:
        """Add a form feed; the words on both sides stay apart."""
        self.pieces += ["\n" if self.gap == LINE else "\n\n" if self.gap == PARAGRAPH else "", "\f"]
        if self.gap > SPACE:
            self.gap = NONE

    def keep_close(self) -> None:
        """Let what comes stand in the next line, even if it is a paragraph."""
        self.separate(LINE)
        self._close = True

    def tail(self) -> str:
        """Return the last characters, if nothing lies between them and what comes next."""
        return self.pieces[-1][-12:] if self.pieces and self.gap == NONE else ""

    def text(self) -> str:
        return "".join(self.pieces)

    def line(self) -> str:
        return " ".join(self.text().split())


@dataclass
class Table:
    """The table that is being read. spans: column -> (further rows, text) of cells that reach down."""

    spans: dict[int, tuple[int, str]] = field(default_factory=dict)
    row: list[tuple[Flow, int, int]] = field(default_factory=list)

    def add(self, cell: Flow, rows: int = 1, columns: int = 1) -> None:
        """Add the next cell of the row, which spans so many rows and columns."""
        self.row.append((cell, min(max(rows, 1), _MOST_SPANNED), min(max(columns, 1), _MOST_SPANNED)))

    def end_row(self, flow: Flow) -> None:
        row, self.row = self.row, []
        cells = [cell for cell, _, _ in row]
        if not any(cell.pieces for cell in cells):
            return
        apart = any(cell.apart or len(cell.text()) > _LONGEST_CELL for cell in cells)
        if apart or (len(cells) == 1 and "\n\n" in cells[0].text()):
            flow.apart = True
            for cell in cells:
                if cell.pieces and not _line_numbers(cell):
                    flow.paragraph(cell.text())
            return
        words = self._spread(row)
        while words and not words[-1]:
            words.pop()
        flow.separate(LINE)
        flow.put(" | ".join(words).replace("  ", " ").strip())  # "a | | c"
        flow.separate(LINE)

    def _spread(self, row: list[tuple[Flow, int, int]]) -> list[str]:
        """Return the words of each column, also where a cell spans several rows or columns."""
        words: list[str] = []
        for cell, rows, columns in row:
            self._reaching_down(words)
            text = cell.line()
            if rows > 1:
                self.spans[len(words)] = (rows - 1, text if len(text) <= _LONGEST_REPEATED else "")
            words += [text, *[""] * (columns - 1 if len(row) > 1 else 0)]
        self._reaching_down(words)
        return words

    def _reaching_down(self, words: list[str]) -> None:
        while len(words) in self.spans:
            column = len(words)
            rows, text = self.spans.pop(column)
            if rows > 1:
                self.spans[column] = (rows - 1, text)
            words.append(text)


def _line_numbers(cell: Flow) -> bool:
    """Return whether a cell holds the line numbers of a listing."""
    numbers = [int(word) for word in cell.text().split() if word.isascii() and word.isdigit() and len(word) < 7]
    return len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(cell.text().split())))


def raised_text(text: str, tail: str, marks: Set[str]) -> str | None:
    """Return what to add behind ``tail``, the last characters before: "^30" for a power, "" for the mark of a note;
    None: the words as they are ("1st"). marks: of the document's notes."""
    if not tail or not (tail[-1].isalnum() or tail[-1] in ")]}'’”\".,;:!?°%"):
        return None
    base = _BASE.search(tail)
    figures = _FIGURES.fullmatch(text)
    if (figures or _SYMBOLS.fullmatch(text)) and not base and set(_FIGURE.findall(text) or [text]) <= marks:
        return ""
    if figures or (_SCRIPT.fullmatch(text) and not _ORDINAL.fullmatch(text)
                   and (base or any(map(str.isdigit, text)) or not text[0].isalpha())):
        return script("^", text)
    return None


def lowered_text(text: str, tail: str) -> str | None:
    """Return "_2" for an index; None: the words as they are."""
    if not tail or not (tail[-1].isalnum() or tail[-1] in ")]}") or not _SCRIPT.fullmatch(text):
        return None
    return script("_", text)


def script(sign: str, text: str) -> str:
    """Return a raised ("^") or lowered ("_") text: ^2, ^-5, ^(n+1)."""
    core = text.rstrip(".,")
    if len(core) < 2 or core.strip("-−–+").isalnum() or core.count("(") != core.count(")"):
        return f"{sign}{text}"
    return f"{sign}({core}){text[len(core) :]}"
