"""Read what PDFium knows of a page's characters: runs of one text object with their place, size and weight.

Asking about every character would take several times as long as reading the page. A text object (one show operator)
has one size and one baseline, so only its ends are asked about; where it ends is found by bisection."""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

HYPHEN = "\ufffe"  # PDFium's mark of a hyphen at a line's end, which hides the line break; U+0002 before 2021
_BREAK = re.compile("\r\n|\r|\n|(?<=\ufffe)")
_BOLD = re.compile(r"bold|black|demi", re.IGNORECASE)
_LOOSE = 0.62  # a wider set line, in ems per character, may hide the gaps of a table
_GAP = 2.0  # ems between two words: they may be cells of a table
_WORD = re.compile(r"\S+")


@dataclass(slots=True)
class Placed:
    """Text and where it stands: left, right, base (its baseline, upwards) and size in points, as they are read: a page
    of text that runs upwards is turned."""

    text: str
    left: float
    right: float
    base: float
    size: float
    bold: bool


@dataclass(slots=True)
class Span(Placed):
    """Characters of one text object. spaced: white space stands before it."""

    spaced: bool
    turn: int = 0  # quarters, against the clock


def page_spans(text_page: Any, c: Any) -> list[Span]:
    """In the order of the file. Only the page's main direction of writing is kept in place; what runs in another (a
    stamp at the margin) comes last."""
    text = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # a character without a meaning: take one by one
        text = "".join(map(_letter, (c.FPDFText_GetUnicode(text_page.raw, at) for at in range(count))))
    spans = list(_Asker(text.replace("\x02", HYPHEN), text_page.raw, c).spans())
    turns = Counter[int]()
    for span in spans:
        turns[span.turn] += len(span.text)
    main = turns.most_common(1)[0][0] if turns else 0
    return sorted(spans, key=lambda span: span.turn != main)


def _letter(code: int) -> str:
    return chr(code) if 0 < code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "\ufffd"


class _Asker:
    def __init__(self, text: str, raw: Any, c: Any) -> None:
        self._text, self._raw, self._c = text, raw, c
        self._box, self._matrix = c.FS_RECTF(), c.FS_MATRIX()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._fonts: dict[int, bool] = {}

    def spans(self) -> Iterator[Span]:
        start, spaced = 0, True
        for end in [*(found.end() for found in _BREAK.finditer(self._text)), len(self._text)]:
            at = start
            last = start + len(self._text[start:end].rstrip()) - 1
            while at <= last:
                if self._text[at].isspace():
                    at, spaced = at + 1, True
                    continue
                stop = self._object_end(at, last)
                yield from self._pieces(at, stop, spaced)
                at, spaced = stop, False
            spaced = spaced or self._text[last + 1 : end] != ""
            start = end

    def _object(self, at: int) -> int:
        found = self._c.FPDFText_GetTextObject(self._raw, at)
        return ctypes.addressof(found.contents) if found else 0

    def _object_end(self, at: int, last: int) -> int:
        """Where the object of ``at`` ends; it goes no further than ``last``, and neither is white space."""
        own = self._object(at)
        if self._object(last) == own or (self._text[last] == HYPHEN and last > at and self._object(last - 1) == own):
            return last + 1
        low, high = at, last
        while high - low > 1:
            middle = (low + high) // 2
            solid = middle
            while solid < high and self._text[solid].isspace():  # white space that PDFium made has no object
                solid += 1
            if solid == high:
                high = middle
            elif self._object(solid) == own:
                low = solid
            else:
                high = middle
        return high

    def _pieces(self, first: int, end: int, spaced: bool) -> Iterator[Span]:
        """The span, cut where a gap in it is wide."""
        end = first + len(self._text[first:end].rstrip())
        span = self._span(first, end, spaced)
        tight = span.right - span.left < _LOOSE * span.size * (end - first) and "  " not in span.text
        if tight or span.turn:
            yield span
            return
        words = list(_WORD.finditer(self._text, first, end))
        cuts = [first]
        for before, after in pairwise(words):
            gap = self._edge(after.start(), 0) - self._edge(before.end() - 1, 1)
            if gap > _GAP * span.size:
                cuts.append(after.start())
        for start, stop in pairwise([*cuts, end]):
            yield self._span(start, start + len(self._text[start:stop].rstrip()), spaced or start > first)

    def _edge(self, at: int, side: int) -> float:
        self._c.FPDFText_GetLooseCharBox(self._raw, at, self._box)
        return float(self._box.right if side else self._box.left)

    def _span(self, first: int, end: int, spaced: bool) -> Span:
        c, raw, matrix = self._c, self._raw, self._matrix
        text = self._text[first:end]
        last = end - 2 if text.endswith(HYPHEN) and end - first > 1 else end - 1
        found = c.FPDFText_GetTextObject(raw, first)
        c.FPDFText_GetMatrix(raw, first, matrix)
        size = c.FPDFText_GetFontSize(raw, first) * math.hypot(matrix.c, matrix.d)
        c.FPDFText_GetCharOrigin(raw, first, self._x, self._y)
        turn = round(math.atan2(matrix.b, matrix.a) / (math.pi / 2)) % 4
        c.FPDFText_GetLooseCharBox(raw, first, self._box)
        box = [self._box.left, self._box.bottom, self._box.right, self._box.top]
        c.FPDFText_GetLooseCharBox(raw, last, self._box)
        left, right = min(box[0], self._box.left), max(box[2], self._box.right)
        low, high = min(box[1], self._box.bottom), max(box[3], self._box.top)
        x, y = self._x.value, self._y.value
        place = [(left, right, y), (low, high, -x), (-right, -left, -y), (-high, -low, x)][turn]
        return Span(text, *place, size or 1.0, self._bold(found), spaced, turn)

    def _bold(self, text_object: Any) -> bool:
        if not text_object:
            return False
        c = self._c
        font = c.FPDFTextObj_GetFont(text_object)
        key = ctypes.addressof(font.contents) if font else 0
        if key not in self._fonts:
            name = ctypes.create_string_buffer(128)
            if font and hasattr(c, "FPDFFont_GetBaseFontName"):
                c.FPDFFont_GetBaseFontName(font, name, 128)
            thick = bool(font) and c.FPDFFont_GetWeight(font) >= 600
            self._fonts[key] = thick or _BOLD.search(name.value.decode("latin-1")) is not None
        return self._fonts[key]
