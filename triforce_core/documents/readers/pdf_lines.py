"""Turn a PDF page's characters into spans, and these into lines in reading order: raised marks apart from words,
columns one after the other, a table's row on one line, the values of form fields beside their labels.

A span is a run of characters of one text object (one show operator), which has one size and one baseline: asking PDFium
about every character would take several times as long as reading the page, so only the ends of an object are asked
about, and found by bisection."""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from .pdf_figures import is_raised_figure, lowered, raised
from .pdf_hidden import Hidden

HYPHEN = "\ufffe"  # PDFium's mark of a hyphen at a line's end, which hides the line break; U+0002 in old versions
_BREAK = re.compile("\r\n|\r|\n|(?<=\ufffe)")
_BOLD = re.compile(r"bold|black|demi", re.IGNORECASE)
_LOOSE = 0.62  # a wider set line, in ems per character, may hide the gaps of a table
_GAP = 2.0  # ems between two words: they may be cells of a table
_WORD = re.compile(r"\S+")
_SMALL = 0.82  # of the size beside it: a raised mark
_APART = 2.0  # ems between two pieces of a row that may be cells
ITEM_MARK = r"(?:[•◦▪‣●○·–—*-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])"
_ITEM = re.compile(ITEM_MARK + r"\Z")
_STACKED = 1.7  # line heights between the lines of one cell
_STACKED_BESIDE = 2.7  # ... that stands beside another: it may have several paragraphs
_MOST_UNSEEN = 0.6  # of the words of a page must be seen, or else all of them count
_SAME = 3.0  # points
_MOST_ANNOTATIONS = 2_000  # of one page
_LONGEST_VALUE = 1 << 18  # bytes
_HIDDEN = 2 | 32  # flags: hidden, no view


@dataclass(slots=True)
class Line:
    """One line of text as it is read. left, right, base (its baseline, upwards) and size in points; a page of text that
    runs upwards is turned. row: a table's row or a list item put together, which no other line joins."""

    text: str
    left: float
    right: float
    base: float
    size: float
    bold: bool
    row: bool = False


@dataclass(slots=True)
class Span(Line):
    """Characters of one text object. spaced: white space stands before it. turn: quarters, against the clock.
    hidden: nobody sees it; unseen: it is invisible and lies on no picture, or beside the paper."""

    spaced: bool = True
    turn: int = 0
    hidden: bool = False
    unseen: bool = False


Cells = list[list[Line]]


def lines_of_page(page: Any, forms: Any, off: Collection[str], c: Any) -> tuple[list[Line], int]:
    """Return the lines of a page of PDFium's, and how many words on it nobody sees. forms: the document's form
    environment, or None; off: the names of layers that are off."""
    hidden = Hidden(page, off, c)
    spans = _spans(page, hidden, c)
    solid = sum(len(span.text) * (1 if span.turn == spans[0].turn else -1) for span in spans)
    if solid > 0 and spans[0].turn != page.get_rotation() // 90:  # PDFium orders lines as they stand on the turned page
        page.set_rotation(90 * spans[0].turn)
        spans = _spans(page, hidden, c)
    shown = [span for span in spans if not span.hidden]
    seen = [span for span in shown if not span.unseen]
    if _words(seen) < _MOST_UNSEEN * _words(shown):  # a layer of text without its picture, or paper of a wrong size
        seen = shown
    return _with_annotations(lines_of_spans(seen), page, forms, c), _words(spans) - _words(seen)


def _words(spans: Sequence[Span]) -> int:
    return sum(len(span.text.split()) for span in spans)


def _spans(page: Any, hidden: Hidden, c: Any) -> list[Span]:
    """Return spans in the order of the file. Only the page's main direction of writing is kept in place; a stamp at the
    margin comes last."""
    text_page = page.get_textpage()
    text = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) != count:  # a character without a meaning, or of two halves: take one by one
        text = "".join(chr(c.FPDFText_GetUnicode(text_page.raw, at) or 0xFFFD) for at in range(count))
    spans = list(_Asker(text.replace("\x02", HYPHEN), text_page.raw, hidden, c).spans())
    text_page.close()
    turns = Counter[int]()
    for span in spans:
        turns[span.turn] += len(span.text)
    main = turns.most_common(1)[0][0] if turns else 0
    return sorted(spans, key=lambda span: span.turn != main)


def _whole(text: str) -> str:
    """Join the halves of characters beyond U+FFFF, of which PDFium counts each as a character."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Asker:
    def __init__(self, text: str, raw: Any, hidden: Hidden, c: Any) -> None:
        self._text, self._raw, self._hidden, self._c = text, raw, hidden, c
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
        """Return where the object of ``at`` ends; it goes no further than ``last``, and neither is white space."""
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
        """Yield the span, cut where a gap in it is wide."""
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
        last = end - 1
        while last > first and (text[last - first] == HYPHEN or "\udc00" <= text[last - first] < "\ue000"):
            last -= 1
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
        where = (left, low, right, high)
        return Span(_whole(text), *place, size or 1.0, self._bold(found), spaced=spaced, turn=turn,
                    unseen=self._hidden.unseen(found, where),
                    hidden=self._hidden.hides(found, where, size, end - first))

    def _bold(self, text_object: Any) -> bool:
        if not text_object:
            return False
        c = self._c
        font = c.FPDFTextObj_GetFont(text_object)
        key = ctypes.addressof(font.contents) if font else 0
        if key not in self._fonts:
            name = ctypes.create_string_buffer(128)
            if font:
                c.FPDFFont_GetBaseFontName(font, name, 128)
            thick = bool(font) and c.FPDFFont_GetWeight(font) >= 600
            self._fonts[key] = thick or _BOLD.search(name.value.decode("latin-1")) is not None
        return self._fonts[key]


def lines_of_spans(spans: Sequence[Span]) -> list[Line]:
    """Return lines in reading order, the columns and tables among them put together."""
    groups = _groups(_pieces(_without_drop_caps(spans)))
    tabular = [len(cells) > 1 and _aligned(groups, at) for at, cells in enumerate(groups)]
    lines: list[Line] = []
    at = 0
    while at < len(groups):
        end = at
        while end < len(groups) and tabular[end]:
            end += 1
        if end == at:
            lines += _loose(groups[at])
            at += 1
        elif _columns(groups[at:end]):
            width = max(map(len, groups[at:end]))
            while end < len(groups) and _goes_on_below(groups[end - 1], groups[end]):
                end += 1  # the end of a first column that is longer
            lines += [line for column in range(width) for cells in groups[at:end] if column < len(cells)
                      for line in cells[column]]
            at = end
        else:
            lines += [_row(cells, " | ", places) for cells, places in zip(groups[at:end], _places(groups[at:end]),
                                                                         strict=True)]
            at = end
    return lines


def _without_drop_caps(spans: Sequence[Span]) -> list[Span]:
    """A first letter several lines high joins its word."""
    kept: list[Span] = []
    for span in spans:
        cap = kept[-1] if kept else None
        if (cap is not None and len(cap.text) <= 2 and cap.text[-1:].isupper() and cap.size > 1.8 * span.size
                and -0.2 * span.size < span.left - cap.right < span.size and span.text[:1].isalpha()
                and -0.2 * span.size < span.base - cap.base < cap.size):
            alone = cap.text in ("A", "I", "O") and span.left - cap.right > 0.2 * span.size
            kept[-1] = replace(span, text=cap.text + " " * alone + span.text, left=cap.left, spaced=cap.spaced, turn=0)
        else:
            kept.append(span)
    return kept


def _pieces(spans: Sequence[Span]) -> list[Line]:
    """Return spans that stand side by side without a wide gap as one line."""
    rows: list[list[Span]] = []
    for span in spans:
        last = rows[-1][-1] if rows else None
        if last is not None and span.turn == last.turn and not last.text.endswith(HYPHEN):
            size = max(span.size, last.size)
            beside = rows[-1][-2:] if last.size < _SMALL * rows[-1][0].size else [last]  # an index may stand between
            step = min(abs(span.base - part.base) for part in beside)
            mark = min(span.size, last.size) < _SMALL * size or any(
                is_raised_figure(part.text.strip()) for part in (span, last))
            level = step < (0.8 if mark else 0.3) * size
            if level and -0.6 * size < span.left - last.right < _APART * size:
                rows[-1].append(span)
                continue
        rows.append([span])
    return [_piece(row) for row in rows]


def _piece(row: Sequence[Span]) -> Line:
    main = max(row, key=lambda span: (span.size * min(len(span.text), 12), span.size))
    text, right, level = "", row[0].left, True
    for at, (span, shift) in enumerate(_shifted(row, main)):
        words = span.text.strip()
        gap = span.left - right
        spaced = gap > 0.25 * main.size or (span.spaced and gap > 0.1 * main.size)
        if shift > 0 and is_raised_figure(words):
            text += " " * (spaced and at > 0 and not text.endswith(" ")) + raised(words)
        elif shift < 0 and gap < 0.25 * main.size:
            text = lowered(text, words)
        else:
            if at and not text.endswith(" ") and (spaced or (span.spaced and level and not shift)):
                text += " "
            text += span.text
        right, level = span.right, not shift
    solid = [span for span in row if any(map(str.isalnum, span.text))]
    return Line(text, row[0].left, max(span.right for span in row), main.base, main.size,
                bool(solid) and all(span.bold for span in solid))


def _shifted(row: Sequence[Span], main: Span) -> Iterator[tuple[Span, int]]:
    """Yield spans with 1 where one is raised above ``main``, -1 where it is lowered, else 0. What is set in several
    fonts, such as the sign and the figure of an exponent, comes as one."""
    whole: Span | None = None
    shifts = 0
    for span in row:
        small, step = span.size < _SMALL * main.size, span.base - main.base
        shift = int((small and step > 0.12 * main.size) or step > 0.25 * main.size) - int(
            small and step < -0.05 * main.size)
        if whole is not None and shift and shift == shifts and span.left - whole.right < 0.25 * main.size and (
                abs(span.base - whole.base) < 0.1 * main.size):
            between = " " if span.spaced and span.left - whole.right > 0.15 * main.size else ""
            whole = replace(whole, text=whole.text + between + span.text, right=span.right)
            continue
        if whole is not None:
            yield whole, shifts
        whole, shifts = span, shift
    if whole is not None:
        yield whole, shifts


def _groups(pieces: Sequence[Line]) -> list[Cells]:
    """Return cells side by side, each a stack of lines; a group without a neighbour has one cell."""
    groups: list[Cells] = []
    for piece in pieces:
        cells = groups[-1] if groups else None
        if cells is not None:
            cell, size = cells[-1], max(piece.size, 1.0)
            beside = len(cell)
            while beside and cell[beside - 1].right < piece.left - 0.3 * size:
                beside -= 1
            standing = cell[beside:]
            if standing and standing[-1].base - 0.5 * size < piece.base < standing[0].base + 9 * size:
                if beside and len(cells) == 1:
                    groups[-1:] = [[cell[:beside]], [standing]]
                groups[-1].append([piece])
                continue
            last = cell[-1]
            reach = _STACKED if len(cells) == 1 else _STACKED_BESIDE
            below = 0.5 * size < last.base - piece.base < reach * size and abs(last.size - piece.size) < 0.15 * size
            inside = len(cells) == 1 or piece.left > max(line.right for line in cells[-2])
            if below and inside and piece.left < last.right + size and piece.right > last.left - size:
                cell.append(piece)
                continue
        groups.append([[piece]])
    return groups


def _aligned(groups: Sequence[Cells], at: int) -> bool:
    """Say whether another row close by has a cell that begins, ends or has its middle where one of this row does. The
    mark of a list item is no cell."""
    if _item(groups[at]):
        return False
    others = [other for other in (*groups[max(0, at - 2) : at], *groups[at + 1 : at + 3]) if not _item(other)]
    return any(abs(a - b) < _SAME for mine in groups[at][1:] for other in others for theirs in other[1:]
               for a, b in zip(_edges(mine), _edges(theirs), strict=True))


def _item(cells: Cells) -> bool:
    return len(cells) == 2 and len(cells[0]) == 1 and _ITEM.match(cells[0][0].text.strip()) is not None


def _edges(cell: Sequence[Line]) -> tuple[float, float, float]:
    left, right = min(line.left for line in cell), max(line.right for line in cell)
    return left, right, (left + right) / 2


def _columns(rows: Sequence[Cells]) -> bool:
    """Say whether rows are columns of running text: rows of full lines, none with a cell of several; where they are
    few, each column's sentences run on from line to line."""
    if any(len(cell) > 1 for cells in rows for cell in cells) or (len(rows) < 5 and not _runs_on(rows)):
        return False
    firsts = [cells[0][0] for cells in rows]
    widest = max(line.right - line.left for line in firsts)
    full = median((line.right - line.left) / max(widest, 1.0) for line in firsts) > 0.8
    return full and median(len(cell[0].text.split()) for cells in rows for cell in cells) >= 4


def _runs_on(rows: Sequence[Cells]) -> bool:
    columns = [[cells[at][0].text for cells in rows] for at in range(len(rows[0]))
               ] if len({len(cells) for cells in rows}) == 1 else []
    return len(rows) > 1 and bool(columns) and all(
        min(len(text.split()) for text in column[:-1]) > 3 and not any(" | " in text for text in column)
        and all(above[-1].isalnum() or above[-1] in ",-" + HYPHEN for above in column[:-1])
        and 2 * sum(text[0].islower() for text in column[1:]) >= len(column) - 1 for column in columns)


def _goes_on_below(cells: Cells, below: Cells) -> bool:
    """Say whether a line that stands alone goes on with the first of two columns."""
    last, line = cells[0][-1], below[0][0]
    return (len(below) == 1 and abs(line.left - last.left) < _SAME and abs(line.size - last.size) < 0.5
            and 0 < last.base - line.base < _STACKED * line.size
            and (len(cells) == 1 or line.right < cells[1][0].left))


def _places(rows: Sequence[Cells]) -> list[list[int]]:
    """Return the column of each cell of each row. The longest rows show where columns are; where these overlap, or most
    rows do not fit into them, cells are counted from the left."""
    width = max(map(len, rows))
    spans = [[_edges(cells[column]) for cells in rows if len(cells) == width] for column in range(width)]
    columns = [(min(edge[0] for edge in edges), max(edge[1] for edge in edges)) for edges in spans]
    apart = all(one[1] < two[0] for one, two in pairwise(columns))
    counted = [list(range(len(cells))) for cells in rows]
    found = [_best_places(cells, columns) if apart and len(cells) < width else by for cells, by in zip(rows, counted,
                                                                                                    strict=True)]
    if 2 * found.count([]) > len(found):
        return counted
    return [places or by for places, by in zip(found, counted, strict=True)]


def _best_places(cells: Cells, columns: Sequence[tuple[float, float]]) -> list[int]:
    """Return columns for cells, from left to right, that are the least far away in sum; [] where one is far from any or
    reaches over several."""
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (len(columns) + 1)  # by how many columns are used up
    for number, cell in enumerate(cells):
        left, right, middle = _edges(cell)
        following: list[tuple[float, list[int]]] = [(math.inf, [])] * (number + 1)
        for at in range(number, len(columns)):
            first, last = columns[at]
            beside = max(first - right, left - last, 0.0)
            skewed = min(abs(left - first), abs(right - last), abs(middle - (first + last) / 2)) / 1000
            cost, places = best[at]
            following.append(min(following[-1], (cost + beside + skewed, [*places, at])))
        best = following
    cost, places = best[-1]
    wide = any(sum(left < last and right > first for first, last in columns) > 1
               for left, right, _ in map(_edges, cells))
    return [] if wide or cost > cells[0][0].size else places


def _loose(cells: Cells) -> list[Line]:
    """Return the lines of a group that is no table's row as they stand, those on one level joined."""
    if len(cells) == 1:
        return cells[0]
    if _item(cells):
        return [_row(cells, " ")]
    if all(len(cell) == 1 for cell in cells) and all(
        abs(left[0].base - right[0].base) < 0.5 * left[0].size for left, right in pairwise(cells)
    ):
        return [replace(_row(cells, "  "), row=False)]
    return [line for cell in cells for line in cell]


def _row(cells: Cells, between: str, places: Sequence[int] = ()) -> Line:
    """Return a row as one line, the lines of each cell joined. places: the columns of the cells; others stay empty."""
    lines = [line for cell in cells for line in cell]
    texts: list[str] = []
    for cell in cells:
        text = cell[0].text
        for line in cell[1:]:
            text += line.text if text.endswith(HYPHEN) else f" {line.text}"
        if places:
            texts += [""] * (places[len(texts) - texts.count("")] - len(texts))
        texts.append(text)
    top = max(lines, key=lambda line: line.base)
    words = between.join(texts).replace("  ", " ").strip() if places else between.join(texts)  # "a | | c"
    return Line(words, lines[0].left, max(line.right for line in lines), top.base, lines[-1].size,
                all(line.bold for line in lines), True)


# -- words that stand on a page without being of it


def _with_annotations(lines: list[Line], page: Any, forms: Any, c: Any) -> list[Line]:
    """Add filled form fields and FreeText annotations: behind the words to their left, as on the page, or else on lines
    of their own at the page's end."""
    added: list[Line] = []
    for text, (left, bottom, right, top) in _values(page, forms, c):
        label = max((line for line in lines if bottom - 4 < line.base < top and line.right < left + 4),
                    key=lambda line: line.right, default=None)
        height = min(top - bottom, 12.0)
        if label is not None and "\n" not in text.strip():
            label.text, label.right = f"{label.text.rstrip()} {text.strip()}", right
            label.row = True  # what was filled in runs into no other line
        else:
            added += [Line(part.strip(), left, right, bottom, height, False, True)
                      for part in text.splitlines() if part.strip()]
    return lines + added


def _values(page: Any, forms: Any, c: Any) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    box = c.FS_RECTF()
    for index in range(min(c.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            text = "" if c.FPDFAnnot_GetFlags(annotation) & _HIDDEN else _value(annotation, forms, c)
            if text.strip() and c.FPDFAnnot_GetRect(annotation, box):
                yield text, (min(box.left, box.right), min(box.bottom, box.top), max(box.left, box.right),
                             max(box.bottom, box.top))
        finally:
            c.FPDFPage_CloseAnnot(annotation)


def _value(annotation: Any, forms: Any, c: Any) -> str:
    kind = c.FPDFAnnot_GetSubtype(annotation)
    if kind == c.FPDF_ANNOT_FREETEXT:
        return _string(lambda room, size: c.FPDFAnnot_GetStringValue(annotation, b"Contents", room, size), c)
    if kind != c.FPDF_ANNOT_WIDGET or forms is None:
        return ""
    field = c.FPDFAnnot_GetFormFieldType(forms, annotation)
    if field in (c.FPDF_FORMFIELD_CHECKBOX, c.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if c.FPDFAnnot_IsChecked(forms, annotation) else ""
    if field in (c.FPDF_FORMFIELD_TEXTFIELD, c.FPDF_FORMFIELD_COMBOBOX, c.FPDF_FORMFIELD_LISTBOX):
        return _string(lambda room, size: c.FPDFAnnot_GetFormFieldValue(forms, annotation, room, size), c)
    return ""


def _string(ask: Any, c: Any) -> str:
    size = ask(None, 0)
    if not 2 < size <= _LONGEST_VALUE:
        return ""
    room = ctypes.create_string_buffer(size)
    ask(ctypes.cast(room, ctypes.POINTER(c.FPDF_WCHAR)), size)
    return room.raw[: size - 2].decode("utf-16-le", "ignore").replace("\r\n", "\n").replace("\r", "\n")
