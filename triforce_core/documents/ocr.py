"""Read pages that are pictures: straighten them, recognise their lines and put these in reading order.

Two small networks of the package rapidocr (PP-OCRv6: one finds lines, one reads them) run in onnxruntime, in the
reader's process. They are loaded before that process limits itself, for they start threads; nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import cos, radians, sin, tan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from .document import Word
from .limits import LONG_SIDE
from .readers.pdf_lines import Line, Span, lines_of_spans

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

_FIND_SIDE = 1_280  # pixels that lines are found in; they are read in all
_MOST_THREADS = 4  # more make a page no faster
_PROFILE_SIDE = 800  # pixels in which the skew is measured
_MOST_SKEW = 4.0  # degrees
_INK = 24  # levels of grey darker than around it
_UNSURE = 0.8  # mean score of a page below which it may stand upside down
_SAME_SIZE = 0.8  # of the usual height of lines: boxes are no finer than that
_GUTTER = 0.6  # line heights, at least, between two columns
_COLUMN_LINES = 4
_COLUMN_WORDS = 3


@dataclass(frozen=True)
class Recognised:
    """What a picture of a page says. words: in the order of the lines, their boxes in shares of the picture. score: the
    mean certainty of a character; upright: the share of the text in lines that are wider than tall."""

    lines: list[Line]
    words: list[Word]
    score: float = 0.0
    upright: float = 1.0


class Recogniser:
    """The two networks. Raises ModuleNotFoundError where they are not installed."""

    def __init__(self) -> None:
        import cv2
        import onnxruntime  # noqa: F401  # so that its absence is named here
        import rapidocr

        cv2.setNumThreads(1)  # a limited process starts no threads
        models = Path(str(rapidocr.__file__)).parent / "models"
        named = {f"{part}.model_path": str(next(models.glob(f"*_{part.lower()}_*.onnx"))) for part in ("Det", "Rec")}
        self._engine: Any = rapidocr.RapidOCR(params=named | {
            "Global.use_cls": False, "Global.log_level": "critical", "Global.max_side_len": LONG_SIDE * 2,
            "Det.limit_type": "max", "Det.limit_side_len": _FIND_SIDE,
            "EngineConfig.onnxruntime.intra_op_num_threads": min(_MOST_THREADS, os.cpu_count() or 1),
            "EngineConfig.onnxruntime.inter_op_num_threads": 1})
        blank = _white(320, 64)
        self._engine(blank, use_det=False)  # both load at their first use
        self._engine(blank, use_rec=False, use_det=True)
        self._engine.update_params(use_det=True, use_rec=True)

    def page(self, picture: Image, points: float) -> Recognised:
        """Read a picture that is so many points wide, in whichever of four directions it stands."""
        picture = picture.convert("RGB")
        turn = 0
        best = self._turned(picture, turn, points)
        if best.upright < 0.5:
            turn = 90
            best = self._turned(picture, turn, points)
        if best.lines and best.score < _UNSURE:
            best = max(best, self._turned(picture, turn + 180, points), key=lambda found: found.score)
        return best

    def _turned(self, picture: Image, turn: int, points: float) -> Recognised:
        import numpy as np
        from PIL.Image import Resampling

        angle = turn + skew(picture.rotate(turn, expand=True))
        straight = picture.rotate(angle, Resampling.BICUBIC, expand=True, fillcolor=(255, 255, 255))
        found = self._engine(np.ascontiguousarray(np.asarray(straight)[:, :, ::-1]), return_word_box=True)
        if not found.txts:
            return Recognised([], [])
        boxes = [_Box.of(corners) for corners in found.boxes]
        order = reading_order(boxes, [len(text.split()) for text in found.txts])
        usual = median(box.height for box in boxes)
        scale = points / picture.width
        place = _Place(angle, straight.size, picture.size)
        length = [len(text) for text in found.txts]
        lines = lines_of_spans([_span(found.txts[at], boxes[at], usual, scale) for at in order])
        words = [Word(text, *place.box(_Box.of(corners)))
                 for at in order for text, _, corners in found.word_results[at]]
        return Recognised(lines, words, sum(map(_product, found.scores, length)) / sum(length),
                          sum(n for n, box in zip(length, boxes, strict=True) if n < 3 or box.height < box.width)
                          / sum(length))


def _product(score: float, length: int) -> float:
    return float(score) * length


def _white(width: int, height: int) -> np.ndarray:
    import numpy as np

    return np.full((height, width, 3), 255, np.uint8)


def skew(picture: Image) -> float:
    """Return the degrees by which a picture must be turned against the clock so that its lines lie level: those at
    which its rows have most and least ink. 0.0 where it has none."""
    import numpy as np
    from PIL.ImageFilter import BoxBlur

    small = picture.convert("L")
    small.thumbnail((_PROFILE_SIDE, _PROFILE_SIDE))
    around = np.asarray(small.filter(BoxBlur(12)), np.int16)
    y, x = np.nonzero(around - np.asarray(small, np.int16) > _INK)
    if not len(x):
        return 0.0
    across = x - small.width / 2

    def sharpness(angle: float) -> tuple[float, float]:
        rows = (y - across * tan(radians(angle)) + small.width).astype(np.int32)
        return float((np.diff(np.bincount(rows)).astype(np.float64) ** 2).sum()), -abs(angle)

    coarse = max(np.arange(-_MOST_SKEW, _MOST_SKEW + 0.01, 0.4).tolist(), key=sharpness)
    return float(max(np.arange(coarse - 0.4, coarse + 0.41, 0.05).tolist(), key=sharpness))


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def of(cls, corners: Any) -> _Box:
        across, down = [float(x) for x, _ in corners], [float(y) for _, y in corners]
        return cls(min(across), min(down), max(across), max(down))

    @cached_property
    def height(self) -> float:
        return self.bottom - self.top

    @cached_property
    def width(self) -> float:
        return self.right - self.left


@dataclass(frozen=True)
class _Place:
    """From a picture that was turned by ``angle`` degrees back to the one it was made of."""

    angle: float
    turned: tuple[int, int]
    picture: tuple[int, int]

    def box(self, box: _Box) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom in shares of the picture."""
        corners = [self._back(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
        return (min(x for x, _ in corners), min(y for _, y in corners),
                max(x for x, _ in corners), max(y for _, y in corners))

    def _back(self, x: float, y: float) -> tuple[float, float]:
        x, y = x - self.turned[0] / 2, y - self.turned[1] / 2
        along, across = cos(radians(self.angle)), sin(radians(self.angle))
        width, height = self.picture
        return (round((x * along - y * across) / width + 0.5, 4), round((x * across + y * along) / height + 0.5, 4))


def _span(text: str, box: _Box, usual: float, scale: float) -> Span:
    """Return a line as the readers of PDF have it, in points upwards. Lines about as high as usual have one size."""
    height = usual if _SAME_SIZE < box.height / usual < 1 / _SAME_SIZE else box.height
    middle = (box.top + box.bottom) / 2
    return Span(text, box.left * scale, box.right * scale, -(middle + height / 4) * scale, height * scale, False)


def reading_order(boxes: Sequence[_Box], words: Sequence[int]) -> list[int]:
    """Return the numbers of lines in the order in which they are read: row by row, but columns of running text one
    after the other, between the lines that cross all of them."""
    return _ordered(list(range(len(boxes))), boxes, words)


def _ordered(lines: list[int], boxes: Sequence[_Box], words: Sequence[int]) -> list[int]:
    gutter = _gutter(lines, boxes, words)
    if gutter is None:
        return _by_rows(lines, boxes)
    across = sorted((at for at in lines if boxes[at].left < gutter < boxes[at].right), key=lambda at: boxes[at].top)
    rest, found = [at for at in lines if at not in set(across)], list[int]()
    for line in (*across, None):
        above = rest if line is None else [at for at in rest if boxes[at].top < boxes[line].top]
        rest = [at for at in rest if at not in set(above)]
        for side in (True, False):
            column = [at for at in above if (boxes[at].right <= gutter) is side]
            found += _ordered(column, boxes, words) if column else []
        found += [] if line is None else [line]
    return found


def _gutter(lines: Sequence[int], boxes: Sequence[_Box], words: Sequence[int]) -> float | None:
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
        if crossing * 4 <= len(lines) and all(_is_text(side, boxes, words) for side in (left, right)):
            best = min(best or (crossing, middle), (crossing, middle))
    return best[1] if best else None


def _is_text(lines: Sequence[int], boxes: Sequence[_Box], words: Sequence[int]) -> bool:
    """Say whether lines are a column of running text, not a table's cells: most are nearly as wide as the widest."""
    if len(lines) < _COLUMN_LINES or median(words[at] for at in lines) < _COLUMN_WORDS:
        return False
    return median(boxes[at].width for at in lines) > 0.75 * max(boxes[at].width for at in lines)


def _by_rows(lines: Sequence[int], boxes: Sequence[_Box]) -> list[int]:
    """Return lines from top to bottom, those of one level from left to right."""
    rows: list[list[int]] = []
    for at in sorted(lines, key=lambda at: boxes[at].top + boxes[at].bottom):
        middle = (boxes[at].top + boxes[at].bottom) / 2
        last = boxes[rows[-1][0]] if rows else None
        if last is not None and middle - (last.top + last.bottom) / 2 < min(last.height, boxes[at].height) / 2:
            rows[-1].append(at)
        else:
            rows.append([at])
    return [at for row in rows for at in sorted(row, key=lambda at: boxes[at].left)]
