"""Read pages that are pictures: straighten them, recognise their lines and put these in reading order.

Two small networks of the package rapidocr (PP-OCRv6: one finds lines, one reads them) run in onnxruntime, in the
reader's process. They are loaded before that process limits itself and can start no thread; nothing is fetched."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import cos, radians, sin, tan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .document import Word
from .limits import LONG_SIDE
from .ocr_layout import Box, reading_order, spans_of
from .ocr_letters import Reader, UnknownLayerError
from .readers.pdf_lines import lines_of_spans
from .readers.pdf_spans import Line

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

_FIND_SIDE = 1_024  # pixels that lines are found in; they are read in all
_PATIENCE = 60.0  # seconds for all threads to start
_MOST_AT_ONCE = 4  # pages, each with 0.3 GB
_PROFILE_SIDE = 800  # pixels in which the skew is measured
_MOST_SKEW = 4.0  # degrees
_INK = 24  # levels of grey darker than around it
_UNSURE = 0.8  # mean score of a page below which it may stand upside down
_UNCLEAR = 0.65  # score of a line below which it is noise: textures, parts of pictures
_MANY = 8  # signs of a line that is noise if no more than two of them differ: waves, zigzags


@dataclass(frozen=True)
class Recognised:
    """What a picture of a page says. words: in the order of the lines, their boxes in shares of the picture. score: the
    mean certainty of a character; upright: the share of the text in lines that are wider than tall; unclear: lines that
    were left out."""

    lines: list[Line]
    words: list[Word]
    score: float = 0.0
    upright: float = 1.0
    unclear: int = 0


class Recognisers:
    """A ``Recogniser`` at work on a page for each core. Raises ModuleNotFoundError where the packages are not
    installed."""

    def __init__(self) -> None:
        count = min(_MOST_AT_ONCE, os.cpu_count() or 1)
        self._recogniser = Recogniser()
        started = threading.Barrier(count, timeout=_PATIENCE)  # all threads start now: a limited process can start none
        self._pool = ThreadPoolExecutor(count)
        for ready in [self._pool.submit(started.wait) for _ in range(count)]:
            ready.result()
        self._free = threading.Semaphore(count + 1)  # one page is drawn ahead

    def page(self, picture: Image, points: float) -> Future[Recognised]:
        """Have ``Recogniser.page`` read a picture; wait until there is room for it."""
        self._free.acquire()
        reading = self._pool.submit(self._recogniser.page, picture, points)
        reading.add_done_callback(lambda _: self._free.release())
        return reading


class Recogniser:
    """The two networks, each on the thread that asks."""

    def __init__(self) -> None:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy is not loaded yet; a limited process starts no threads
        import cv2
        import onnxruntime
        import rapidocr

        cv2.setNumThreads(1)
        models = Path(str(rapidocr.__file__)).parent / "models"
        named = {f"{part}.model_path": str(next(models.glob(f"*_{part.lower()}_*.onnx"))) for part in ("Det", "Rec")}
        engine: Any = rapidocr.RapidOCR(params=named | {
            "Global.use_cls": False, "Global.log_level": "critical", "Global.max_side_len": LONG_SIDE * 2,
            "Global.text_score": 0.0,
            "Det.limit_type": "max", "Det.limit_side_len": _FIND_SIDE,
            "Rec.rec_batch_num": 1,  # lines one by one need no padding, and less memory than a core's cache
            "EngineConfig.onnxruntime.enable_cpu_mem_arena": True,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1})
        self._engine, blank = engine, _white(320, 64)
        engine(blank, use_det=False)  # both load at their first use
        engine(blank, use_rec=False, use_det=True)
        engine.update_params(use_det=True, use_rec=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        with suppress(UnknownLayerError):  # the library runs the whole of another network, which takes a little longer
            engine.text_rec.session = Reader(Path(named["Rec.model_path"]).read_bytes(), lambda model: (
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])))

    def page(self, picture: Image, points: float) -> Recognised:
        """Read a picture that is so many points wide, in whichever of four directions it stands."""
        picture = picture.convert("RGB")
        turn = 0
        best = self._turned(picture, turn, points)
        if best.upright < 0.5:
            turn = 90
            best = self._turned(picture, turn, points)
        if (best.lines or best.unclear) and best.score < _UNSURE:
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
        words = found.word_results
        if len(words) != len(found.txts):  # the library leaves out lines that it parts into no words
            words = [((text, 0.0, corners),) for text, corners in zip(found.txts, found.boxes, strict=True)]
        clear = [_Read(text, Box.of(corners), float(score), tuple(parts)) for text, corners, score, parts in zip(
            found.txts, found.boxes, found.scores, words, strict=True) if score >= _UNCLEAR and not _is_pattern(text)]
        unclear = len(found.txts) - len(clear)
        wide = [len(text) for text, box in zip(found.txts, map(Box.of, found.boxes), strict=True)
                if len(text) < 3 or box.height < box.width]
        upright = sum(wide) / max(1, sum(map(len, found.txts)))
        if not clear:
            return Recognised([], [], upright=upright, unclear=unclear)
        order = reading_order([line.box for line in clear], [line.text for line in clear])
        clear = [clear[at] for at in order]
        lines = lines_of_spans(spans_of([line.text for line in clear], [line.box for line in clear],
                                        np.asarray(straight.convert("L")), points / picture.width))
        place = _Place(angle, straight.size, picture.size)
        letters = sum(len(line.text) for line in clear)
        return Recognised(
            lines, [Word(text, *place.box(Box.of(corners))) for line in clear for text, _, corners in line.words],
            sum(line.score * len(line.text) for line in clear) / letters, upright, unclear)


@dataclass(frozen=True)
class _Read:
    """A line as the networks give it. words: text, score and corners of each."""

    text: str
    box: Box
    score: float
    words: tuple[Any, ...]


def _is_pattern(text: str) -> bool:
    signs = "".join(text.casefold().split())
    return len(signs) >= _MANY and len(set(signs)) <= 2 and not any(map(str.isdigit, signs))


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
class _Place:
    """From a picture that was turned by ``angle`` degrees back to the one it was made of."""

    angle: float
    turned: tuple[int, int]
    picture: tuple[int, int]

    def box(self, box: Box) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom in shares of the picture."""
        corners = [self._back(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
        return (min(x for x, _ in corners), min(y for _, y in corners),
                max(x for x, _ in corners), max(y for _, y in corners))

    def _back(self, x: float, y: float) -> tuple[float, float]:
        x, y = x - self.turned[0] / 2, y - self.turned[1] / 2
        along, across = cos(radians(self.angle)), sin(radians(self.angle))
        width, height = self.picture
        return (round((x * along - y * across) / width + 0.5, 4), round((x * across + y * along) / height + 0.5, 4))
