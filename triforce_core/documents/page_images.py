"""Pages of a PDF as pictures and as characters with places, drawn in a child process: the file may be hostile."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .child import NOTHING, ChildProcess
from .limits import ReadLimits

PATIENCE = 15.0  # seconds for one page
MOST_BYTES = 64 << 20  # of pictures that are kept
MOST_PAGES = 64  # whose text is kept
MOST_FAILURES = 3  # children that one file may cost

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class PageLayout:
    """One page as the file sets it. width, height: points. boxes: per character of ``text`` left, top, right and
    bottom in shares of the page; None for white space."""

    width: float
    height: float
    text: str
    boxes: tuple[Box | None, ...]


class PageImages:
    """Thread-safe. One child at a time, for the file asked for last; what was drawn is kept within bounds."""

    def __init__(self, limits: ReadLimits | None = None, patience: float = PATIENCE) -> None:
        self._limits, self._patience = limits or ReadLimits(), patience
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._path: Path | None = None
        self._failures: dict[Path, int] = {}
        self._pictures: OrderedDict[tuple[Path, int, int], bytes] = OrderedDict()
        self._layouts: OrderedDict[tuple[Path, int], PageLayout] = OrderedDict()

    def picture(self, path: Path, page: int, width: int) -> bytes | None:
        """A PNG of page ``page`` (from 1), ``width`` pixels wide or less if it is very tall; None if it cannot be drawn
        (damaged, protected, too large, not a PDF)."""
        key = (path, page, width)
        with self._lock:
            if key not in self._pictures:
                answer = self._ask(path, {"page": page - 1, "width": width})
                try:
                    drawn = base64.b64decode(answer.get("png", ""), validate=True)
                except (binascii.Error, TypeError, ValueError):
                    drawn = b""
                if not drawn.startswith(b"\x89PNG"):
                    return None
                self._pictures[key] = drawn
                while len(self._pictures) > 1 and sum(map(len, self._pictures.values())) > MOST_BYTES:
                    self._pictures.popitem(last=False)
            self._pictures.move_to_end(key)
            return self._pictures[key]

    def layout(self, path: Path, page: int) -> PageLayout | None:
        """The characters of page ``page`` (from 1) and where they stand; None as for ``picture``."""
        key = (path, page)
        with self._lock:
            if key not in self._layouts:
                layout = _layout(self._ask(path, {"page": page - 1}))
                if layout is None:
                    return None
                self._layouts[key] = layout
                if len(self._layouts) > MOST_PAGES:
                    self._layouts.popitem(last=False)
            self._layouts.move_to_end(key)
            return self._layouts[key]

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, path: Path, request: dict[str, Any]) -> dict[str, Any]:
        """The child's answer, or {} if it had none; a child that dies or hangs is ended."""
        if self._failures.get(path, 0) >= MOST_FAILURES:
            return {}
        if self._child is None or self._path != path:
            self._end()
            self._child, self._path = ChildProcess("page_process"), path
            self._child.ask({"path": str(path), "limits": dataclasses.asdict(self._limits)}, last=False)
        self._child.ask(request, last=False)
        until = time.monotonic() + self._patience
        answer: dict[str, Any] | None = NOTHING
        while answer is NOTHING and time.monotonic() < until:
            answer = self._child.next(0.05)
        if not answer:  # NOTHING: it hangs; None: it died
            self._failures[path] = self._failures.get(path, 0) + 1
            self._end()
            return {}
        return answer

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = self._path = None


def _layout(answer: dict[str, Any]) -> PageLayout | None:
    """What the child said, checked: it is not trusted."""
    try:
        width, height, text = float(answer["width"]), float(answer["height"]), str(answer["text"])
        boxes = tuple(None if box is None else _box(box) for box in answer["boxes"])
    except (KeyError, TypeError, ValueError):
        return None
    good = len(boxes) == len(text) and 0 < width < 1e6 and 0 < height < 1e6
    return PageLayout(width, height, text, boxes) if good else None


def _box(values: Any) -> Box:
    left, top, right, bottom = (min(2.0, max(-1.0, float(value))) for value in values)
    return left, top, right, bottom
