"""Where recognised lines stand and in which order they are read: by their boxes, and by their ink in the picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import log
from typing import TYPE_CHECKING, Any

from .readers.pdf_figures import raised
from .readers.pdf_spans import Span
from .reflow import median

if TYPE_CHECKING:
    import numpy as np

_DENSE = 0.35  # of the darkest row of a line: between its base and the height of an x
_X_HEIGHT, _CAP_HEIGHT = 0.47, 0.68  # of the size of type
_LONG = 20  # characters of a line that is measured well
_ODD = 0.3  # logarithm of what a line's height and width may differ by
_SAME_SIZE = 0.12  # how far measured sizes of one size are apart
_NEAR = 0.2  # how far those of lines next to each other are
_SMALLER = 0.94  # of the usual size: notes
_NOTE = re.compile(r"(\d{1,3})\s?(?=[A-Z“\"(])")
_PAGE_AT_END = re.compile(r"(?<!\d)\d{1,4}\Z")
_APART = 1.4  # heights of an x between a line's words and its page number, at least
_DIGIT = 1.7  # heights of an x that one of its figures takes, at most
_FEW = 4  # characters, at most, whose size and base are not measured
_GUTTER = 0.6  # line heights, at least, between two columns
_TIGHT = 1.2  # of the steps between the lines of cells: those between rows are wider
_NEAR_STEPS = 6
_COLUMN_LINES = 4
_COLUMN_WORDS = 3


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def of(cls, corners: Any) -> Box:
        across, down = [float(x) for x, _ in corners], [float(y) for _, y in corners]
        return cls(min(across), min(down), max(across), max(down))

    @cached_property
    def height(self) -> float:
        return self.bottom - self.top

    @cached_property
    def width(self) -> float:
        return self.right - self.left


def spans_of(texts: Sequence[str], boxes: Sequence[Box], grey: np.ndarray, scale: float) -> list[Span]:
    """Return lines as the readers of PDF have them. grey: the picture; scale: points of one of its pixels."""
    found = [_ink(box, grey) for box in boxes]
    gaps = [_before_page_number(text, ink, grey) for text, ink in zip(texts, found, strict=True)]
    widths = [(ink.right - ink.left - gap) / max(1.0, sum(map(_width, text)))
              for text, ink, gap in zip(texts, found, gaps, strict=True)]  # sizes, if all type were equally wide
    wide = [ink.height / _X_HEIGHT / width for text, ink, width in zip(texts, found, widths, strict=True)
            if len(text) > _LONG and sum(map(_is_tall, text)) < len(text) / 8]
    type_of_page = median(wide) if wide else 1.0
    spans = []
    for text, ink, width, gap in zip(texts, found, widths, gaps, strict=True):
        likely = width * type_of_page
        size = min((ink.height / share for share in (_X_HEIGHT, _CAP_HEIGHT)), key=lambda it: abs(log(it / likely)))
        if abs(log(size / likely)) > _ODD:
            size = likely
        spans.append(Span(_PAGE_AT_END.sub(r"  \g<0>", text) if gap else text, ink.left * scale, ink.right * scale,
                          -ink.bottom * scale, size * scale, False))
    return _with_marks(_levelled(_same_sizes(spans), boxes))


def _before_page_number(text: str, ink: Box, grey: np.ndarray) -> float:
    """Return how wide the gap is between a line's words and a page number that stands apart at its end; 0.0: none is
    there. They may be read as one."""
    import numpy as np

    found = _PAGE_AT_END.search(text)
    part = grey[int(ink.top) : int(ink.bottom) + 1, int(ink.left) : int(ink.right) + 1]
    if found is None or not part.size:
        return 0.0
    inked = np.flatnonzero((part < (np.percentile(part, 80) + np.percentile(part, 1)) / 2).any(axis=0))
    gaps = np.flatnonzero(np.diff(inked) > _APART * ink.height)
    if not len(gaps) or inked[-1] - inked[gaps[-1] + 1] > _DIGIT * ink.height * len(found[0]):
        return 0.0
    return float(inked[gaps[-1] + 1] - inked[gaps[-1]])


def _levelled(spans: list[Span], boxes: Sequence[Box]) -> list[Span]:
    """Give pieces of a few letters, whose ink says little, the base and the size of a line that they stand beside."""
    lines = [(box, span) for box, span in zip(boxes, spans, strict=True) if len(span.text) > _FEW]
    found = []
    for span, box in zip(spans, boxes, strict=True):
        near = [(abs(line.top + line.bottom - box.top - box.bottom), at) for at, (line, _) in enumerate(lines)
                if abs(line.height / box.height - 1) < _ODD] if len(span.text) <= _FEW else []
        host = lines[min(near)[1]][1] if near and min(near)[0] < box.height / 2 else span
        found.append(replace(span, base=host.base, size=host.size))
    return found


def _ink(box: Box, grey: np.ndarray) -> Box:
    """Return what the ink of a line takes, which is less than its box: from its base to the height of most letters."""
    import numpy as np

    top, left = max(0, int(box.top)), max(0, int(box.left))
    part = grey[top : int(box.bottom) + 1, left : int(box.right) + 1]
    ink = part < (np.percentile(part, 80) + np.percentile(part, 1)) / 2 if part.size else part
    columns = np.flatnonzero(ink.sum(axis=0) > 1)
    if len(columns) < 2:
        return box
    rows = ink.sum(axis=1) / ink.sum(axis=1).max() - _DENSE
    dense = np.flatnonzero(rows >= 0)
    apart = np.flatnonzero(np.diff(dense) > max(2, len(rows) // 8)) + 1  # lines above and below reach in
    own = min(np.split(dense, apart), key=lambda rows: abs(rows[0] + rows[-1] - len(ink)))
    return Box(left + float(columns[0]), top + _edge(rows, int(own[0]), -1),
               left + float(columns[-1]) + 1, top + _edge(rows, int(own[-1]), 1))


def _edge(rows: np.ndarray, at: int, step: int) -> float:
    """Return where the ink of a line ends that reaches row ``at``, in parts of a row. rows: what each has too much."""
    beyond = float(rows[at + step]) if 0 <= at + step < len(rows) else -_DENSE
    return at + 0.5 + step * (float(rows[at]) / max(0.01, float(rows[at]) - beyond))


def _width(letter: str) -> float:
    """Return about how wide a letter is, in shares of its size."""
    if letter in " iljtfrI.,;:!|'()[]":
        return 0.3
    return 0.75 if letter in "mwMW" or ord(letter) > 0x2E80 else 0.65 if letter.isupper() else 0.5


def _is_tall(letter: str) -> bool:
    return letter.isupper() or letter.isdigit()


def _same_sizes(spans: list[Span]) -> list[Span]:
    """Give the lines of a page whose sizes differ by no more than what measuring leaves open the same one."""
    by_size = sorted(spans, key=lambda span: span.size)
    below = accumulate((len(span.text) for span in by_size), initial=0)
    usual = [span.size for span, count in zip(by_size, below, strict=False)
             if 2 * count <= sum(len(span.text) for span in spans)][-1]
    sizes = list[float]()
    for at, span in enumerate(spans):  # a line is as large as those above and below it, where it might be
        sizes.append(median(other.size for other in spans[max(0, at - 1) : at + 2]
                            if abs(other.base - span.base) < 2 * usual and abs(other.size / span.size - 1) < _NEAR))
    left = dict(enumerate(sizes))
    while left:
        for at in [at for at, size in left.items() if abs(size / usual - 1) < _SAME_SIZE]:
            sizes[at] = usual
            del left[at]
        weights = {at: sum(len(spans[other].text) for other, near in left.items() if abs(near / size - 1) < _SAME_SIZE)
                   for at, size in left.items()}
        usual = left[max(left, key=weights.__getitem__)] if left else usual  # that of most of the others
    return [replace(span, size=size) for span, size in zip(spans, sizes, strict=True)]


def _with_marks(spans: list[Span]) -> list[Span]:
    """Raise the figures that refer to notes in smaller type on the same page, and those before the notes."""
    weights = Counter[float]()
    for span in spans:
        weights[span.size] += len(span.text)
    limit = _SMALLER * weights.most_common(1)[0][0]
    notes = {match[1]: span for span in spans if span.size < limit and (match := _NOTE.match(span.text))}
    for mark, note in notes.items():
        behind = re.compile(rf"(?<=[^\W\d_]|[.,;:!?\"'”’)\]]){mark}(?=\s|$)")
        found = [(span, match) for span in spans if span.size >= limit for match in behind.finditer(span.text)]
        if len(found) == 1:
            span, match = found[0]
            span.text = span.text[: match.start()] + raised(mark) + span.text[match.end() :]
            note.text = f"{raised(mark)} {note.text[len(mark) :].lstrip()}"
    return spans


def reading_order(boxes: Sequence[Box], texts: Sequence[str]) -> list[int]:
    """Return the numbers of lines in the order in which they are read: row by row, but columns of running text one
    after the other, between the lines that cross all of them."""
    return _ordered(list(range(len(boxes))), boxes, texts)


def _ordered(lines: list[int], boxes: Sequence[Box], texts: Sequence[str]) -> list[int]:
    gutter = _gutter(lines, boxes, texts)
    if gutter is None:
        return _by_rows(lines, boxes, texts)
    across = sorted((at for at in lines if boxes[at].left < gutter < boxes[at].right), key=lambda at: boxes[at].top)
    rest, found = [at for at in lines if at not in set(across)], list[int]()
    for line in (*across, None):
        above = rest if line is None else [at for at in rest if boxes[at].top < boxes[line].top]
        rest = [at for at in rest if at not in set(above)]
        for side in (True, False):
            column = [at for at in above if (boxes[at].right <= gutter) is side]
            found += _ordered(column, boxes, texts) if column else []
        found += [] if line is None else [line]
    return found


def _gutter(lines: Sequence[int], boxes: Sequence[Box], texts: Sequence[str]) -> float | None:
    """Return where, from left to right, the lines are parted into two columns of running text; None: nowhere."""
    if len(lines) < 2 * _COLUMN_LINES:
        return None
    apart = _GUTTER * median(boxes[at].height for at in lines)
    best: tuple[int, float] | None = None
    for start in sorted({boxes[at].left for at in lines}):
        middle = start - apart / 2
        left = [at for at in lines if boxes[at].right <= start - apart]
        right = [at for at in lines if boxes[at].left >= start - 1]
        crossing = len(lines) - len(left) - len(right)
        if crossing * 4 <= len(lines) and all(_is_text(side, boxes, texts) for side in (left, right)):
            best = min(best or (crossing, middle), (crossing, middle))
    return best[1] if best else None


def _is_text(lines: Sequence[int], boxes: Sequence[Box], texts: Sequence[str]) -> bool:
    """Say whether lines are a column of running text, not a table's cells: most are nearly as wide as the widest."""
    if len(lines) < _COLUMN_LINES or median(len(texts[at].split()) for at in lines) < _COLUMN_WORDS:
        return False
    return median(boxes[at].width for at in lines) > 0.75 * max(boxes[at].width for at in lines)


def _by_rows(lines: Sequence[int], boxes: Sequence[Box], texts: Sequence[str]) -> list[int]:
    """Return lines from top to bottom, those of one level from left to right, but whole cells of several lines."""
    rows: list[list[int]] = []
    for at in sorted(lines, key=lambda at: boxes[at].top + boxes[at].bottom):
        middle = (boxes[at].top + boxes[at].bottom) / 2
        last = boxes[rows[-1][0]] if rows else None
        if last is not None and middle - (last.top + last.bottom) / 2 < min(last.height, boxes[at].height) / 2:
            rows[-1].append(at)
        else:
            rows.append([at])
    rows = [sorted(row, key=lambda at: boxes[at].left) for row in rows]
    levels = [median(boxes[at].top + boxes[at].bottom for at in row) / 2 for row in rows]
    steps = [below - above for above, below in pairwise(levels)]
    tight = [_is_tight(steps, at) for at in range(len(steps))]
    order, first, known = list[int](), 0, False  # known: there are cells of several lines
    while first < len(rows):
        end = first + 1
        while end < len(rows) and tight[end - 1]:
            end += 1
        cells = _by_cells(rows[first:end], boxes, texts, known)
        known = known or bool(cells)
        order += cells or [at for row in rows[first:end] for at in row]
        first = end
    return order


def _is_tight(steps: Sequence[float], at: int) -> bool:
    """Say whether a step from a level to the next is one inside of a cell: some step close by is wider, none is much
    narrower."""
    near = steps[max(0, at - _NEAR_STEPS) : at + _NEAR_STEPS + 1]
    return steps[at] < _TIGHT * min(near) and max(near) > _TIGHT * steps[at]


def _by_cells(rows: Sequence[Sequence[int]], boxes: Sequence[Box], texts: Sequence[str], known: bool) -> list[int]:
    """Return the lines of a table's row cell by cell: each begins on the first level and has no gap, not all have a
    last line (nor a second one, unless such rows are known), and none goes on with a number. []: it is none."""
    if len(rows) < 2 or len(rows[-1 if known else 1]) >= len(rows[0]) or not all(
            any(map(str.isalpha, texts[at])) for row in rows[1:] for at in row):
        return []
    cells = [[at] for at in rows[0]]
    for above, row in pairwise(rows):
        for at in row:
            own = [cell for cell in cells if cell[-1] in above and boxes[cell[-1]].left < boxes[at].right
                   and boxes[at].left < boxes[cell[-1]].right]
            if len(own) != 1:
                return []
            own[0].append(at)
    return [at for cell in cells for at in cell]
