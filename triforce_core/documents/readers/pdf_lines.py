"""Turn a PDF page's spans into lines in reading order: raised marks apart from words, columns one after the other, a
table's row on one line."""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from ..reflow import median
from .pdf_figures import is_raised_figure, lowered, raised
from .pdf_forms import with_annotations
from .pdf_hidden import Box, Hidden
from .pdf_listings import Typeface, parted
from .pdf_spans import HYPHEN, SMALL, Line, Span, spans_of_page

ITEM_MARK = r"(?:[•◦▪‣●○·–—*-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])"
_APART = 2.0  # ems between two pieces of a row that may be cells ...
_CELL, _TIGHT = 1.0, 0.35  # ... where a gap goes on through the two, or three, lines above and below
_CLOSE = 4.0  # ems from a heading to the first row below it
_NEAR = 15  # ems, at most, to these
_WORDS = 4  # more, all as far apart, are those of a justified line
_LABEL = re.compile(rf"\[[^\]\s]{{1,24}}\]|{ITEM_MARK}")
_COUNT = re.compile(r"[\d.]{1,8}")
_LEADERS = re.compile(r"(?:[.·…]\s?){3}")
_ITEM = re.compile(ITEM_MARK + r"\Z")
_STACKED = 1.7  # line heights between the lines of one cell
_STACKED_BESIDE = 2.7  # ... that stands beside another: it may have several paragraphs
_MOST_UNSEEN = 0.6  # of the words of a page must be seen, or else all of them count
_SAME = 3.0  # points

Cells = list[list[Line]]


def lines_of_page(page: Any, forms: Any, off: Collection[str], seen: Typeface, c: Any) -> tuple[list[Line], int]:
    """Return the lines of a page of PDFium's, and how many words on it nobody sees. forms: the document's form
    environment, or None; off: the names of layers that are off; seen: of the pages before."""
    hidden = Hidden(page, off, c)
    spans = spans_of_page(page, hidden, c)
    solid = sum(len(span.text) * (1 if span.turn == spans[0].turn else -1) for span in spans)
    if solid > 0 and spans[0].turn != page.get_rotation() // 90:  # PDFium orders lines as they stand on the turned page
        page.set_rotation(90 * spans[0].turn)
        spans = spans_of_page(page, hidden, c)
    shown = [span for span in spans if not span.hidden]
    visible = [span for span in shown if not span.unseen]
    if len(visible) < len(shown) and _words(visible) < _MOST_UNSEEN * _words(shown):
        visible = shown  # a layer of text without its picture, or paper of a wrong size
    left_out = _words(spans) - _words(visible) if len(visible) < len(spans) else 0
    visible = _with_bullets(visible, hidden.discs() if len(visible) > 1 else [])
    return with_annotations(lines_of_spans(visible, seen), page, forms, c), left_out


def _with_bullets(spans: list[Span], discs: Sequence[Box]) -> list[Span]:
    """Return spans with a bullet before each word that has a disc right before it, below or above another such disc."""
    lefts = Counter(round(disc[0]) for disc in discs)
    discs = [disc for disc in discs if lefts[round(disc[0])] > 1]
    if not discs:
        return spans
    kept: list[Span] = []
    for span in spans:
        for left, low, right, high in discs:
            above = ((low + high) / 2 - span.base) / span.size
            if 0.1 < (span.left - right) / span.size < 1.5 and 0.1 < above < 0.5 and not span.turn and any(
                    map(str.isalpha, span.text)):
                kept.append(replace(span, text="•", left=left, right=right, bold=False, pitch=0.0))
                break
        kept.append(span)
    return kept


def _words(spans: Sequence[Span]) -> int:
    return sum(len(span.text.split()) for span in spans)


def lines_of_spans(spans: Sequence[Span], seen: Typeface | None = None) -> list[Line]:
    """Return lines in reading order: listings as they stand, the columns and tables among the others put together."""
    lines: list[Line] = []
    for part, listing in parted(_pieces(_without_drop_caps(spans)), seen or Typeface()):
        lines += part if listing else _set_lines(_groups(part))
    return lines


def _set_lines(groups: Sequence[Cells]) -> list[Line]:
    tabular = [len(cells) > 1 and _aligned(groups, at) for at, cells in enumerate(groups)]
    for at in range(1, len(groups) - 1):
        tabular[at] = tabular[at] or (tabular[at - 1] and tabular[at + 1] and _is_first_cell(*groups[at - 1 : at + 2]))
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


def _is_first_cell(above: Cells, cells: Cells, below: Cells) -> bool:
    """Say whether a short line between two rows of a table is a row whose other cells are empty."""
    line, first = cells[0][0], below[0][0]
    return (len(cells) == len(cells[0]) == 1 and abs(line.left - first.left) < _SAME and len(line.text.split()) < 9
            and max(above[0][-1].base - line.base, line.base - first.base) < 3 * line.size)


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
    """Return spans that stand side by side without a wide gap as one line; between cells that stand below others, any
    gap is wide."""
    rows: list[list[Span]] = []
    gutters = _Gutters(spans)
    for at, span in enumerate(spans):
        last = rows[-1][-1] if rows else None
        if last is not None and span.turn == last.turn and not last.text.endswith(HYPHEN):
            size, step = span.size if span.size > last.size else last.size, abs(span.base - last.base)
            if last.size < SMALL * rows[-1][0].size:  # an index may stand between
                step = min(step, abs(span.base - rows[-1][-2].base))
            level = step < 0.3 * size or (step < 0.8 * size and (min(span.size, last.size) < SMALL * size or any(
                is_raised_figure(part.text.strip()) for part in (span, last))))
            if level and -0.6 * size < span.left - last.right < _APART * size and not gutters.part(at):
                rows[-1].append(span)
                continue
        rows.append([span])
    return [_piece(row) for row in rows]


class _Gutters:
    """Find gaps between spans that go on through the lines above and below, as those between a table's columns do."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._gap = cache(self._gap_before)

    def _gap_before(self, at: int) -> float:
        """Return the ems from the span before on the same line; -1.0: there is none."""
        if not 0 < at < len(self._spans):
            return -1.0
        last, span = self._spans[at - 1], self._spans[at]
        em = span.size if span.size > last.size else last.size
        level = span.turn == last.turn and abs(span.base - last.base) < 0.3 * em and span.left > last.left
        return max((span.left - last.right) / em, 0.0) if level else -1.0

    @cached_property
    def _levels(self) -> tuple[list[float], list[list[Span]]]:
        """Return the bases of the page's lines, upwards, and what stands on each."""
        levels: list[list[Span]] = []
        for span in sorted(self._spans, key=lambda span: span.base):
            if levels and span.base - levels[-1][0].base < 0.3 * span.size:
                levels[-1].append(span)
            else:
                levels.append([span])
        return [level[0].base for level in levels], levels

    def part(self, at: int) -> bool:
        """Say whether a gutter lies before a span. The number of a heading or a line of code, the label of an item and
        dots that lead are no cells, nor are the words of a justified line."""
        last, span, gap = self._spans[at - 1], self._spans[at], self._gap(at)
        if gap < _TIGHT or _LEADERS.search(last.text[-6:]) or _LEADERS.match(span.text):
            return False
        if self._gap(at - 1) < 0 and (_LABEL.fullmatch(last.text) or (
                _COUNT.fullmatch(last.text) and self._gap(at + 1) < _TIGHT)):
            return False
        gaps = [gap]
        for step in (-1, 1):
            beside = at + step
            while (other := self._gap(beside)) >= 0:
                gaps.append(other)
                beside += step
        if len(gaps) > _WORDS and max(gaps) < 1.25 * min(gaps):
            return False
        prose = last.text[-1] in ",-" or span.text[0].islower()
        return self._rows(at, 1) + self._rows(at, -1) >= (2 if gap > _CELL else 6 if prose else 3)

    def _rows(self, at: int, step: int) -> int:
        """Count the lines above (step 1) or below (-1) that have a gap where a span has one before it. What leaves one
        of two cells empty counts for nothing."""
        low, high = self._spans[at - 1].right, self._spans[at].left
        (bases, levels), span = self._levels, self._spans[at]
        number = bisect(bases, span.base + step * 0.5 * span.size) - (step < 0)
        rows = 0
        while 0 <= number < len(levels) and abs(bases[number] - span.base) < _NEAR * span.size:
            end, start, before, behind = low, high, False, False
            for other in levels[number]:
                if other.left < low or (other.right < high and other.left - low < high - other.right):
                    end, before = other.right if other.right > end else end, True
                else:
                    start, behind = other.left if other.left < start else start, True
            low, high = end, start
            if high - low < 0.2 * span.size:
                break
            rows += before and behind
            number += step
        return rows


def _piece(row: Sequence[Span]) -> Line:
    if len(row) == 1:
        row[0].bold = row[0].bold and any(map(str.isalnum, row[0].text))
        return row[0]
    main = max(row, key=lambda span: (span.size * min(len(span.text), 12), span.size))
    pitch = _pitch(row)
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
            if pitch and at:
                text += " " * max(round(gap / pitch), spaced)
            elif at and not text.endswith(" ") and (spaced or (span.spaced and level and not shift)):
                text += " "
            text += span.text
        right, level = span.right, not shift
    solid = [span for span in row if any(map(str.isalnum, span.text))]
    return Line(text, row[0].left, max(span.right for span in row), main.base, main.size,
                bool(solid) and all(span.bold for span in solid), pitch=pitch)


def _pitch(row: Sequence[Span]) -> float:
    """Return the pitch of spans whose letters and figures are all of one fixed pitch, or 0.0."""
    pitches = [span.pitch for span in row if span.pitch or any(map(str.isalnum, span.text))]
    even = pitches and max(pitches) < 1.05 * min(pitches)
    return pitches[0] if even else 0.0


def _shifted(row: Sequence[Span], main: Span) -> Iterator[tuple[Span, int]]:
    """Yield spans with 1 where one is raised above ``main``, -1 where it is lowered, else 0. What is set in several
    fonts, such as the sign and the figure of an exponent, comes as one."""
    whole: Span | None = None
    shifts = 0
    for span in row:
        small, step = span.size < SMALL * main.size, span.base - main.base
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
            if len(cells) == 1 and not beside and _ends_apart(cell, piece):
                beside = len(cell) - 1
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


def _ends_apart(cell: Sequence[Line], piece: Line) -> bool:
    """Say whether the last line of what may be a cell begins a row with ``piece``, and is no end of the lines above."""
    above, last = cell[-2:] if len(cell) > 1 else (piece, piece)
    return abs(last.base - piece.base) < 0.1 * piece.size and (
        above.base - last.base > 1.35 * last.size or above.bold != last.bold)


def _aligned(groups: Sequence[Cells], at: int) -> bool:
    """Say whether another row close by has a cell that begins, ends or has its middle where one of this row does. The
    mark of a list item is no cell."""
    if _item(groups[at]):
        return False
    others = [other for other in (*groups[max(0, at - 2) : at], *groups[at + 1 : at + 3]) if not _item(other)]
    return any(_matches(groups[at], other) for other in others) or any(
        abs(a - b) < _SAME for mine in groups[at][1:] for other in others for theirs in other[1:]
        for a, b in zip(_edges(mine), _edges(theirs), strict=True))


def _matches(cells: Cells, others: Cells) -> bool:
    """Say whether two rows have as many cells, each of which stands above or below its own one only."""
    mine, theirs = ([_edges(cell) for cell in row] for row in (cells, others))
    (high, low), (top, foot) = ((row[0][0].base, row[0][-1].base) for row in (cells, others))
    near = min(abs(low - top), abs(foot - high)) < _CLOSE * cells[0][0].size
    return near and len(mine) == len(theirs) > 1 and all(
        max(one[1], two[1]) < min(after[0], below[0]) for one, two, after, below in zip(
            mine, theirs, mine[1:], theirs[1:], strict=False))


def _item(cells: Cells) -> bool:
    return len(cells) == 2 and len(cells[0]) == 1 and _ITEM.match(cells[0][0].text.strip()) is not None


def _edges(cell: Sequence[Line]) -> tuple[float, float, float]:
    left, right = cell[0].left, cell[0].right
    for line in cell[1:]:
        left, right = min(left, line.left), max(right, line.right)
    return left, right, (left + right) / 2


def _columns(rows: Sequence[Cells]) -> bool:
    """Say whether rows are columns of running text: rows of full lines, none with a cell of several; where they are
    few, each column's sentences run on from line to line."""
    if _is_margin(rows):
        return True
    if any(len(cell) > 1 for cells in rows for cell in cells) or (len(rows) < 5 and not _runs_on(rows)):
        return False
    firsts = [cells[0][0] for cells in rows]
    widest = max(line.right - line.left for line in firsts)
    full = median((line.right - line.left) / max(widest, 1.0) for line in firsts) > 0.8
    return full and median(len(cell[0].text.split()) for cells in rows for cell in cells) >= 4


def _is_margin(rows: Sequence[Cells]) -> bool:
    """Say whether first cells are notes in the margin: sentences beside them go on from row to row."""
    steps = [(above[1][-1], below[1][0]) for above, below in pairwise(rows) if len(above) == len(below) == 2]
    runs = sum(below.text[0].islower() and above.text[-1] not in ".:;!?" and len(above.text.split()) > 4
               and above.base - below.base < 1.45 * below.size for above, below in steps)
    return 3 * runs > len(rows) - 1 and all(len(cells) == 2 for cells in rows)


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
