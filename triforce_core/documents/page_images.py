"""Pages of a PDF as pictures and as characters with places, drawn in a child process: the file may be hostile."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..sandbox.child import NOTHING, ChildProcess
from .document import Word
from .limits import READERS, ReadLimits

PATIENCE = 15.0  # seconds for one page
MOST_BYTES = 64 << 20  # of pictures that are kept
MOST_PAGES = 64  # whose text is kept
MOST_FAILURES = 3  # children that one file may cost

Box = tuple[float, float, float, float]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class PageLayout:
    """One page as the file sets it. width, height: points. boxes: per character of ``text`` left, top, right and
    bottom in shares of the page; None for white space."""

    width: float
    height: float
    text: str
    boxes: tuple[Box | None, ...]


def layout_of_words(sheet: PageLayout, words: Sequence[Word]) -> PageLayout:
    """Return the layout of a sheet whose words were recognised in its picture; a word's characters share its box."""
    boxes: list[Box | None] = []
    for word in words:
        step = (word.right - word.left) / max(1, len(word.text))
        boxes += [(word.left + at * step, word.top, word.left + (at + 1) * step, word.bottom)
                  for at in range(len(word.text))]
        boxes.append(None)
    return PageLayout(sheet.width, sheet.height, "".join(f"{word.text} " for word in words), tuple(boxes))


class _Drawer:
    """A child with one file open. path: what it is asked about, or was last. busy: somebody waits for its answer."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.busy = False
        self._child: ChildProcess | None = None
        self._opened: Path | None = None  # by the child

    def ask(self, request: dict[str, Any], limits: ReadLimits, patience: float) -> dict[str, Any] | None:
        """Return the child's answer about ``path``; None: it died; NOTHING: it hangs."""
        if self._child is None or self._opened != self.path:
            self.end()
            self._child, self._opened = ChildProcess("triforce_core.documents.page_process"), self.path
            self._child.ask({"path": str(self.path), "limits": dataclasses.asdict(limits)}, last=False)
        self._child.ask(request, last=False)
        until = time.monotonic() + patience
        answer: dict[str, Any] | None = NOTHING
        while answer is NOTHING and time.monotonic() < until:
            answer = self._child.next(0.05)
        return answer

    def end(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None


class PageImages:
    """Thread-safe. A few children, for the files asked for last: one that takes its time over a file holds up nobody
    who asks for another. What was drawn is kept within bounds."""

    def __init__(self, limits: ReadLimits | None = None, patience: float = PATIENCE) -> None:
        self._limits, self._patience = limits or ReadLimits(), patience
        self._turn = threading.Condition()
        self._drawers = [_Drawer() for _ in range(READERS)]  # the one used last stands last
        self._failures: dict[Path, int] = {}
        self._pictures: OrderedDict[tuple[Path, int, int], bytes] = OrderedDict()
        self._layouts: OrderedDict[tuple[Path, int], PageLayout] = OrderedDict()

    def picture(self, path: Path, page: int, width: int) -> bytes | None:
        """Return a PNG of page ``page`` (from 1), ``width`` pixels wide or less if it is very tall; None if it cannot
        be drawn (damaged, protected, too large, not a PDF)."""
        drawn = self._kept(self._pictures, (path, page, width))
        if drawn is None:
            drawn = _picture(self._ask(path, {"page": page - 1, "width": width}))
            if drawn is not None:
                with self._turn:
                    self._pictures[path, page, width] = drawn
                    while len(self._pictures) > 1 and sum(map(len, self._pictures.values())) > MOST_BYTES:
                        self._pictures.popitem(last=False)
        return drawn

    def layout(self, path: Path, page: int) -> PageLayout | None:
        """Return the characters of page ``page`` (from 1) and their places; None as for ``picture``."""
        layout = self._kept(self._layouts, (path, page))
        if layout is None:
            layout = _layout(self._ask(path, {"page": page - 1}))
            if layout is not None:
                with self._turn:
                    self._layouts[path, page] = layout
                    if len(self._layouts) > MOST_PAGES:
                        self._layouts.popitem(last=False)
        return layout

    def close(self) -> None:
        for drawer in self._drawers:
            drawer.end()

    def _kept(self, store: OrderedDict[Key, Value], key: Key) -> Value | None:
        with self._turn:
            if key in store:
                store.move_to_end(key)
            return store.get(key)

    def _ask(self, path: Path, request: dict[str, Any]) -> dict[str, Any]:
        """Return the child's answer, or {} if it had none; a child that dies or hangs is ended."""
        with self._turn:
            drawer = self._free(path)
            while drawer is None:
                self._turn.wait()
                drawer = self._free(path)
            if self._failures.get(path, 0) >= MOST_FAILURES:
                return {}
            drawer.path, drawer.busy = path, True
            self._drawers.remove(drawer)
            self._drawers.append(drawer)
        answer: dict[str, Any] | None = None
        try:
            answer = drawer.ask(request, self._limits, self._patience)
        finally:
            if not answer:
                drawer.end()
            with self._turn:
                if not answer:
                    self._failures[path] = self._failures.get(path, 0) + 1
                drawer.busy = False
                self._turn.notify_all()
        return answer or {}

    def _free(self, path: Path) -> _Drawer | None:
        """Return the child to be asked about a file: the one that has it open, else the one that was idle longest."""
        for drawer in self._drawers:
            if drawer.path == path:
                return None if drawer.busy else drawer
        return next((drawer for drawer in self._drawers if not drawer.busy), None)


def _picture(answer: dict[str, Any]) -> bytes | None:
    try:
        drawn = base64.b64decode(answer.get("png", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        return None
    return drawn if drawn.startswith(b"\x89PNG") else None


def _layout(answer: dict[str, Any]) -> PageLayout | None:
    """Return the child's answer, checked: it is not trusted."""
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
