"""Text that grows piece by piece, with what lies between two pieces decided when the second one comes."""

from __future__ import annotations

import re

_GAPS = ("", " ", "\n", "\n\n")
NONE, SPACE, LINE, PARAGRAPH = range(4)
_SPACES = re.compile(r"\s+")
_CLOSING = (".", ",", ";", ":", "!", "?", ")", "]", "’", "”")


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
        self._dropped = False  # a note's mark stood here

    def words(self, data: str) -> None:
        """Text of the file: white space runs together."""
        if self.raw:
            self.pieces.append(data)
            return
        text = _SPACES.sub(" ", data)
        core = text.strip(" ")
        if text[:1] == " ":
            self.gap = max(self.gap, SPACE)
        if core:
            if self._dropped and self.gap == SPACE and core.startswith(_CLOSING):
                self.gap = NONE
            self.put(core)
            self.gap = SPACE if text[-1] == " " else NONE

    def put(self, text: str) -> None:
        if self.pieces:
            self.pieces.append(_GAPS[self.gap])
        self.pieces.append(self.prefix + text)
        self.gap, self.prefix, self._close, self._dropped = NONE, "", False, False

    def separate(self, gap: int) -> None:
        """LINE or PARAGRAPH. An item without words yet keeps what comes beside its mark."""
        if self.raw:
            if gap == LINE:
                self.pieces.append("\n")
        elif not self.prefix:
            self.gap = max(self.gap, min(gap, LINE) if self._close else gap)

    def line_break(self) -> None:
        """Two of them make a paragraph."""
        self.separate(PARAGRAPH if self.gap == LINE and not self.raw else LINE)

    def paragraph(self, text: str) -> None:
        self.separate(PARAGRAPH)
        self.put(text)
        self.gap = PARAGRAPH

    def page_break(self) -> None:
        """A form feed; the words on both sides stay apart."""
        self.pieces += ["\n" if self.gap == LINE else "\n\n" if self.gap == PARAGRAPH else "", "\f"]
        if self.gap > SPACE:
            self.gap = NONE

    def keep_close(self) -> None:
        """Let what comes stand in the next line, even if it is a paragraph."""
        self.separate(LINE)
        self._close = True

    def drop(self) -> None:
        """A note's mark stood here; the sentence goes on without it."""
        self._dropped = True

    @property
    def dropped(self) -> bool:
        return self._dropped

    def tail(self) -> str:
        """The last characters, if nothing lies between them and what comes next."""
        return self.pieces[-1][-12:] if self.pieces and self.gap == NONE else ""

    def text(self) -> str:
        return "".join(self.pieces)

    def line(self) -> str:
        return " ".join(self.text().split())
