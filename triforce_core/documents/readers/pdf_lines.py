"""Spans -> lines in the order in which they are read: raised marks told from words, columns one after the other, a
table's row on one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .pdf_spans import HYPHEN, Placed, Span

RAISED, LOWERED = "\x0e", "\x0f"  # stand around a raised mark in a line's text until it is known what it marks
_MARK = re.compile(r"(?:\d{1,3}|[*†‡§¶]{1,3}|\[\d{1,3}\]|[a-z])(?:[,–-]\s?\d{1,3})*,?\Z")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|e|ème)\Z")
_SMALL = 0.82  # of the size beside it: a raised mark
_APART = 2.0  # ems between two pieces of a row that may be cells
ITEM_MARK = r"(?:[•◦▪‣●○·–—*-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])"
_ITEM = re.compile(ITEM_MARK + r"\Z")
_STACKED = 1.7  # line heights between the lines of one cell
_STACKED_BESIDE = 2.7  # ... that stands beside another: it may have several paragraphs
_SAME = 3.0  # points


@dataclass(slots=True)
class Line(Placed):
    """One line of text as it is read. row: a table's row or a list item put together, which no other line joins."""

    row: bool = False


Cells = list[list[Line]]


def page_lines(spans: Sequence[Span]) -> list[Line]:
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
            lines += [line for column in range(width) for cells in groups[at:end] if column < len(cells)
                      for line in cells[column]]
            at = end
        else:
            lines += [_row(cells, " | ") for cells in groups[at:end]]
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
            kept[-1] = Span(cap.text + " " * alone + span.text, cap.left, span.right, span.base, span.size, span.bold,
                            cap.spaced)
        else:
            kept.append(span)
    return kept


def _pieces(spans: Sequence[Span]) -> list[Line]:
    """Spans that stand side by side without a wide gap, as one line each."""
    rows: list[list[Span]] = []
    for span in spans:
        last = rows[-1][-1] if rows else None
        if last is not None and span.turn == last.turn and not last.text.endswith(HYPHEN):
            size = max(span.size, last.size)
            step = abs(span.base - last.base)
            mark = min(span.size, last.size) < _SMALL * size or any(
                _MARK.match(part.text.strip()) for part in (span, last))
            level = step < (0.8 if mark else 0.3) * size
            if level and -0.6 * size < span.left - last.right < _APART * size:
                rows[-1].append(span)
                continue
        rows.append([span])
    return [_piece(row) for row in rows]


def _piece(row: Sequence[Span]) -> Line:
    main = max(row, key=lambda span: (span.size * min(len(span.text), 12), span.size))
    text, right = "", row[0].left
    for at, span in enumerate(row):
        words = span.text
        raised = (span.size < _SMALL * main.size or span.base - main.base > 0.25 * main.size) and (
            span.base - main.base > 0.12 * main.size)
        lowered = span.size < _SMALL * main.size and main.base - span.base > 0.05 * main.size
        gap = span.left - right
        spaced = gap > 0.25 * main.size or (span.spaced and gap > 0.1 * main.size)
        if raised and _MARK.match(words.strip()) and not _ORDINAL.match(words):
            mark = f"{RAISED}{words.strip()}{LOWERED}"
            text += mark
            right = span.right
            continue
        if at and not text.endswith(" ") and not lowered and (spaced or (span.spaced and not raised)):
            text += " "
        text += words
        right = span.right
    solid = [span for span in row if any(map(str.isalnum, span.text))]
    return Line(text, row[0].left, max(span.right for span in row), main.base, main.size,
                bool(solid) and all(span.bold for span in solid))


def _groups(pieces: Sequence[Line]) -> list[Cells]:
    """Cells side by side, each a stack of lines; a group without a neighbour has one cell."""
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
    """Whether another row close by has a cell that begins, ends or stands in the middle where one of this row does. The
    mark of a list item is no cell."""
    if _item(groups[at]):
        return False
    for other in (*groups[max(0, at - 2) : at], *groups[at + 1 : at + 3]):
        if len(other) > 1 and not _item(other):
            for mine in groups[at][1:]:
                for theirs in other[1:]:
                    if any(abs(a - b) < _SAME for a, b in zip(_edges(mine), _edges(theirs), strict=True)):
                        return True
    return False


def _item(cells: Cells) -> bool:
    return len(cells) == 2 and len(cells[0]) == 1 and _ITEM.match(cells[0][0].text.strip()) is not None


def _edges(cell: Sequence[Line]) -> tuple[float, float, float]:
    left, right = min(line.left for line in cell), max(line.right for line in cell)
    return left, right, (left + right) / 2


def _columns(rows: Sequence[Cells]) -> bool:
    """Columns of running text that the file holds row by row: many rows of full lines, none with a cell of several."""
    if len(rows) < 5 or any(len(cell) > 1 for cells in rows for cell in cells):
        return False
    firsts = [cells[0][0] for cells in rows]
    widest = max(line.right - line.left for line in firsts)
    full = median((line.right - line.left) / max(widest, 1.0) for line in firsts) > 0.8
    return full and median(len(cell[0].text.split()) for cells in rows for cell in cells) >= 4


def _loose(cells: Cells) -> list[Line]:
    """Return what is no table's row: lines as they stand, those on one level joined."""
    if len(cells) == 1:
        return cells[0]
    if _item(cells):
        return [_row(cells, " ")]
    if all(len(cell) == 1 for cell in cells) and all(
        abs(left[0].base - right[0].base) < 0.5 * left[0].size for left, right in pairwise(cells)
    ):
        line = _row(cells, " ")
        line.row = False
        return [line]
    return [line for cell in cells for line in cell]


def _row(cells: Cells, between: str) -> Line:
    lines = [line for cell in cells for line in cell]
    texts = []
    for cell in cells:
        text = cell[0].text
        for line in cell[1:]:
            text += line.text if text.endswith(HYPHEN) else f" {line.text}"
        texts.append(text)
    top = max(lines, key=lambda line: line.base)
    return Line(between.join(texts), lines[0].left, max(line.right for line in lines), top.base, lines[-1].size,
                all(line.bold for line in lines), True)
