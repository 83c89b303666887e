"""A PDF page's characters as spans: runs of one text object (one show operator), which has one size and one baseline.

Asking PDFium about every character would take several times as long as reading the page, so only the ends of an object
are asked about, and found by bisection."""

from __future__ import annotations

import ctypes
import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, pairwise
from typing import Any

from .pdf_bidi import SMALL, Glyph, Row, cells, rows_of_page, usual_size
from .pdf_calls import address, quick
from .pdf_figures import RAISED, RAISED_END, is_raised_figure, lowered, raised
from .pdf_hidden import Hidden

HYPHEN = "\ufffe"  # PDFium's mark of a hyphen at a line's end, which hides the line break; U+0002 in old versions
_BREAK = re.compile("\r\n|\r|\n|\ufffe(?:\r\n|\r|\n)?")
_BOLD = re.compile(r"bold|black|demi", re.IGNORECASE)
_LOOSE = 0.62  # a wider set line, in ems per character, may hide the gaps of a table
_GAP = 2.0  # ems between two words: they may be cells of a table
_WORD = re.compile(r"\S+")
_FIXED = re.compile(r"mono(?!type)|courier|consol|menlo|monaco|typewriter|tt\d|tt\Z|fixed|nimbusmon|inconsolata"
                    r"|code(?!\d)|andale|lucida ?con",
                    re.IGNORECASE)
_FIXED_FLAG = 1  # of a font's descriptor ...
_NOT_FIXED = re.compile(r"times|arial|helvetica|roman|serif|calibri|cambria", re.IGNORECASE)  # ... that is wrong
_MOST_BLANKS = 200  # between two words
_LONGEST_MARK = 6  # characters of one that is drawn apart from its line ...
_HIGHEST, _BESIDE = 0.7, 0.35  # ... ems above it, and beside what stands there
_WIDE = 0.75  # ems: Han and kana are all as wide, and no code


@dataclass(slots=True)
class Line:
    """One line of text as it is read. left, right, base (its baseline, upwards) and size in points; a page of text that
    runs upwards is turned. row: a table's row or a list item put together, which no other line joins. pitch: the points
    from one character to the next, of a typeface in which all are as wide; code: a line of a listing."""

    text: str
    left: float
    right: float
    base: float
    size: float
    bold: bool
    row: bool = False
    pitch: float = 0.0
    code: bool = False


@dataclass(slots=True)
class Span(Line):
    """Characters of one text object. spaced: white space stands before it. turn: quarters, against the clock.
    hidden: nobody sees it; unseen: it is invisible and lies on no picture, or beside the paper. first, end: the
    characters that it is made of, by their numbers on the page; leftward: it is read from the right."""

    spaced: bool = True
    leftward: bool = False
    turn: int = 0
    hidden: bool = False
    unseen: bool = False
    first: int = 0
    end: int = 0


def spans_of_page(page: Any, hidden: Hidden, c: Any) -> list[Span]:
    """Return spans in the order of the file. Only the page's main direction of writing is kept in place; a stamp at the
    margin comes last."""
    text_page = page.get_textpage()
    text = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # a character without a meaning, or of two halves: take one by one
        text = "".join(chr(c.FPDFText_GetUnicode(text_page.raw, at) or 0xFFFD) for at in range(count))
    # Glyphs without a meaning come as any control character, also as those that stand around raised figures.
    solid = text.replace("\x02", HYPHEN).replace(RAISED, "\x10").replace(RAISED_END, "\x10")
    asker = _Asker(solid, text_page.raw, hidden, c)
    spans = asker.with_marks(asker.spans())
    if rows := rows_of_page(text, text_page.raw, page, c):
        spans = _mirrored(list(asker.with_rows(spans, rows)))
    text_page.close()
    turns = Counter[int]()
    for span in spans:
        turns[span.turn] += len(span.text)
    if len(turns) < 2:
        return spans
    main = turns.most_common(1)[0][0]
    return sorted(spans, key=lambda span: span.turn != main)


def _shift(glyph: Glyph, main: Glyph) -> int:
    """Return 1 for a glyph that is raised above the others of its row, -1 for a lowered one, else 0."""
    if glyph.size > SMALL * main.size or not glyph.at:
        return 0
    return (glyph.base - main.base > 0.12 * main.size) - (glyph.base - main.base < -0.05 * main.size)


def _mirrored(spans: list[Span]) -> list[Span]:
    """Mirror what is read from the right, so that it begins at the left like all else: the whole page where most of it
    is read so, then each block that is read the other way, in its place."""
    pieces: list[list[Span]] = []
    for span in spans:
        last = pieces[-1][-1] if pieces else None
        if last is not None and not span.leftward and not last.leftward and abs(last.base - span.base) < span.size and (
                -span.size < span.left - last.right < _GAP * span.size):
            pieces[-1].append(span)
        else:
            pieces.append([span])
    leftward = sum(len(span.text) * (1 if span.leftward else -1) for span in spans) > 0
    if leftward:
        _mirror(pieces)
    levels = {(span.turn, round(span.base)) for span in spans if span.leftward}
    blocks: list[list[list[Span]]] = []
    for piece in pieces:
        span = piece[0]
        if span.leftward == leftward or (leftward and (span.turn, round(span.base)) in levels):
            continue
        block = next((block for block in blocks if abs(block[-1][0].base - span.base) < 3 * span.size and any(
            span.left < other[-1].right and other[0].left < piece[-1].right for other in block)), None)
        if block is None:
            blocks.append([piece])
        else:
            block.append(piece)
    for block in blocks:
        _mirror(block)
    return spans


def _mirror(pieces: Sequence[Sequence[Span]]) -> None:
    """Mirror where pieces stand, each of one or more spans, but not the order inside them."""
    width = min(piece[0].left for piece in pieces) + max(piece[-1].right for piece in pieces)
    for piece in pieces:
        step = width - piece[-1].right - piece[0].left
        for span in piece:
            span.left, span.right = span.left + step, span.right + step


class _Asker:
    def __init__(self, text: str, raw: Any, hidden: Hidden, c: Any) -> None:
        self._text, self._hides, self._c = text, hidden.hides, c
        self._raw = address(raw)
        self._object = cache(partial(quick(c, "FPDFText_GetTextObject", "ppi"), self._raw))
        self._fonts: dict[int, tuple[bool, bool]] = {}
        self._box, self._matrix, self._origin = c.FS_RECTF(), c.FS_MATRIX(), (ctypes.c_double * 2)()
        self._at_box, self._at_matrix, x = map(ctypes.addressof, (self._box, self._matrix, self._origin))
        self._at_origin = x, x + 8
        self._box_of, self._matrix_of, self._origin_of, self._size_of, self._font_of = (quick(c, *how) for how in (
            ("FPDFText_GetLooseCharBox", "ipip"), ("FPDFText_GetMatrix", "ipip"), ("FPDFText_GetCharOrigin", "ipipp"),
            ("FPDFText_GetFontSize", "dpi"), ("FPDFTextObj_GetFont", "pp")))

    def spans(self) -> list[Span]:
        start, spaced, text = 0, True, self._text
        found: list[Span] = []
        for end in [*(line.end() for line in _BREAK.finditer(text)), len(text)]:
            at = start
            last = start + len(text[start:end].rstrip()) - 1
            while at <= last:
                if text[at].isspace():
                    at, spaced = at + 1, True
                    continue
                stop = self._object_end(at, last)
                self._add_pieces(found, at, stop, spaced)
                at, spaced = stop, False
            spaced = spaced or last + 1 < end
            start = end
        return found

    def _object_end(self, at: int, last: int) -> int:
        """Return where the object of ``at`` ends; it goes no further than ``last``, and neither is white space."""
        own = self._object(at)
        if self._object(last) == own or (
                self._text[last] == HYPHEN and last > at and self._object(last - 1) == own):
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

    def _add_pieces(self, found: list[Span], first: int, end: int, spaced: bool) -> None:
        """Add the span, cut where a gap in it is wide."""
        while self._text[end - 1].isspace():
            end -= 1
        span = self._span(first, end, spaced)
        loose = _LOOSE if not span.pitch else 1.02 * span.pitch / span.size
        tight = span.right - span.left < loose * span.size * (end - first) and "  " not in span.text
        if tight or span.turn:
            found.append(span)
            return
        words = list(_WORD.finditer(self._text, first, end))
        cuts = [first]
        for before, after in pairwise(words):
            gap = self._edge(after.start(), 0) - self._edge(before.end() - 1, 1)
            if gap > _GAP * span.size:
                cuts.append(after.start())
        for start, stop in pairwise([*cuts, end]):
            part = span if not cuts[1:] else self._span(
                start, start + len(self._text[start:stop].rstrip()), spaced or start > first)
            if part.pitch:
                part.text = self._on_grid([word for word in words if start <= word.start() < stop], part)
            found.append(part)

    def _on_grid(self, words: Sequence[re.Match[str]], span: Span) -> str:
        """Return the words of a span of fixed pitch with the blanks that stand between them on the page: in the file
        they may be one, or none."""
        longest = max(words, key=lambda word: len(word[0]))
        if len(longest[0]) > 2:  # its letters may stand farther apart than they are wide
            span.pitch = (self._edge(longest.end() - 1, 0) - self._edge(longest.start(), 0)) / (len(longest[0]) - 1)
        text = ""
        for word in words:
            column = round((self._edge(word.start(), 0) - span.left) / max(span.pitch, 0.1))
            text += " " * max(min(column - len(text), _MOST_BLANKS), bool(text)) + word[0]
        return text

    def with_marks(self, spans: list[Span]) -> list[Span]:
        """Return spans, and the raised marks that are drawn before or after their line put where they stand in it."""
        small = SMALL * max((span.size for span in spans), default=0.0)
        marks = {at: span for at, span in enumerate(spans) if span.size < small and len(span.text) <= _LONGEST_MARK
                 and is_raised_figure(span.text.strip()) and not (at and _touch(spans[at - 1], span))
                 and not (at + 1 < len(spans) and _touch(span, spans[at + 1]))}
        if not marks:
            return spans
        hosts = [[] if at in marks else [span] for at, span in enumerate(spans)]  # and the marks put beside each
        ordered = sorted(range(len(spans)), key=lambda at: spans[at].base)
        bases = [spans[at].base for at in ordered]
        for own, mark in marks.items():
            near = ordered[bisect(bases, mark.base - 3 * mark.size) : bisect(bases, mark.base)]
            found = ((host, at, parts) for host in (hosts[number] for number in near) for at, span in enumerate(host)
                     if (parts := self._with_mark(span, mark)))
            host, at, parts = next(found, (hosts[own], 0, [mark]))
            host[at : at + 1] = parts
        return [span for host in hosts for span in host]

    def _with_mark(self, host: Span, mark: Span) -> list[Span]:
        """Return a span with the mark that stands behind, before or in it; [] where there is no room for it."""
        em = host.size
        if mark.size >= SMALL * em or not 0.12 < (mark.base - host.base) / em < _HIGHEST or host.turn != mark.turn:
            return []
        if abs(mark.left - host.right) < _BESIDE * em:
            return [host, mark]
        if abs(host.left - mark.right) < _BESIDE * em:
            return [mark, host]
        if not host.left < mark.left < host.right or host.pitch or host.turn:
            return []
        for before, after in pairwise(_WORD.finditer(self._text, host.first, host.end)):
            left, right = self._edge(before.end() - 1, 1), self._edge(after.start(), 0)
            if left - 0.1 * em < mark.left and mark.right < right + 0.1 * em:
                rest = self._span(after.start(), host.end, spaced=True)
                return [self._span(host.first, before.end(), host.spaced), mark, replace(rest, text=f" {rest.text}")]
        return []

    def _edge(self, at: int, side: int) -> float:
        self._box_of(self._raw, at, self._at_box)
        return float(self._box.right if side else self._box.left)

    def _span(self, first: int, end: int, spaced: bool) -> Span:
        raw, matrix, box = self._raw, self._matrix, self._box
        text = self._text[first:end]
        last = end - 1
        if not text.isascii():
            while last > first and (text[last - first] == HYPHEN or "\udc00" <= text[last - first] < "\ue000"):
                last -= 1
            # Join the halves of characters beyond U+FFFF, of which PDFium counts each as a character.
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        found = self._object(first)
        self._matrix_of(raw, first, self._at_matrix)
        size = self._size_of(raw, first) * math.hypot(matrix.c, matrix.d)
        self._origin_of(raw, first, *self._at_origin)
        turn = round(math.atan2(matrix.b, matrix.a) / (math.pi / 2)) % 4 if matrix.b or matrix.a < 0 else 0
        self._box_of(raw, first, self._at_box)
        left, low, right, high = box.left, box.bottom, box.right, box.top
        bold, fixed = self._font(found)
        pitch = right - left if fixed and turn == 0 and right - left < _WIDE * size else 0.0
        if last > first:
            self._box_of(raw, last, self._at_box)
            # Without min and max, which take longer and are called for every word.
            left, right = (box.left if box.left < left else left), (box.right if box.right > right else right)
            low, high = (box.bottom if box.bottom < low else low), (box.top if box.top > high else high)
        hidden, unseen = self._hides(found, (left, low, right, high), size, end - first)
        x, y = self._origin
        if turn:
            left, right, y = [(low, high, -x), (-right, -left, -y), (-high, -low, x)][turn - 1]
        return Span(text, left, right, y, size or 1.0, bold, False, pitch, False, spaced, False, turn, hidden, unseen,
                    first, end)

    def with_rows(self, spans: Sequence[Span], rows: Sequence[tuple[Row, bool]]) -> Iterator[Span]:
        """Yield spans, with those of rows that hold letters from right to left put together anew."""
        row_of = {at: number for number, (row, _) in enumerate(rows) for glyph in row for at in glyph.at}
        starts = sorted((span.first, span.hidden, span.unseen) for span in spans)
        done: set[int] = set()
        for span in spans:
            number = row_of.get(span.first)
            if number is None:
                yield span
            elif number not in done:
                done.add(number)
                row, leftward = rows[number]
                parts: dict[tuple[bool, bool], Row] = {}
                seen = span.hidden, span.unseen
                for glyph in row:
                    if glyph.at:
                        seen = starts[max(0, bisect(starts, (glyph.at[0], True, True)) - 1)][1:]
                    parts.setdefault(seen, []).append(glyph)
                for (hidden, unseen), part in parts.items():
                    found = cells(part, not leftward)
                    for cell in found[::-1] if leftward else found:
                        yield replace(self._of_cell(cell), hidden=hidden, unseen=unseen, leftward=leftward)

    def _of_cell(self, cell: Sequence[Glyph]) -> Span:
        """Return a cell as a span, with raised and lowered figures told."""
        solid = [glyph for glyph in cell if glyph.at]
        size = usual_size(solid)
        main = next(glyph for glyph in solid if glyph.size == size)
        text = ""
        for shift, part in groupby(cell, key=lambda glyph: _shift(glyph, main)):
            words = "".join(glyph.text for glyph in part)
            text = text + raised(words) if shift > 0 and is_raised_figure(words) else lowered(
                text, words) if shift < 0 else text + words
        bold, _ = self._font(self._object(main.at[0]))
        return Span(text, min(glyph.left for glyph in solid), max(glyph.right for glyph in solid), main.base, main.size,
                    bold, turn=main.turn)

    def _font(self, text_object: int) -> tuple[bool, bool]:
        """Return whether an object's font is bold, and whether all its characters are as wide."""
        if not text_object:
            return False, False
        key = self._font_of(text_object)
        if key not in self._fonts:
            c, font, name = self._c, ctypes.cast(key, self._c.FPDF_FONT), ctypes.create_string_buffer(128)
            if font:
                c.FPDFFont_GetBaseFontName(font, name, 128)
            named = name.value.decode("latin-1")
            thick = bool(font) and c.FPDFFont_GetWeight(font) >= 600
            fixed = _FIXED.search(named) or (font and c.FPDFFont_GetFlags(font) & _FIXED_FLAG and not _NOT_FIXED.search(
                named))
            self._fonts[key] = thick or _BOLD.search(named) is not None, bool(fixed)
        return self._fonts[key]


def _touch(span: Span, after: Span) -> bool:
    """Say whether a span stands right behind another one, on its line or a little above or below."""
    return span.turn == after.turn and (
        -0.6 < (after.left - span.right) / max(span.size, after.size) < 1
        and abs(after.base - span.base) < _HIGHEST * max(span.size, after.size))
