"""Questions about a document whose text is still being taken out, or of which pages must be chosen first: they wait
here, and go to the engine then.

Knows neither Gradio nor HTML.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from triforce_core import TriForceError

from .engine_queue import EngineQueue
from .jobs import Request, Selection
from .runs import Run


@dataclass(frozen=True, eq=False)
class _Early:
    run: Run
    request: Callable[[Selection], Request]


class EarlyQuestions:
    """Any thread may ask. A question is here or in the engine's queue, never in both."""

    def __init__(self, queue: EngineQueue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._waiting: list[_Early] = []

    def add(self, run: Run, request: Callable[[Selection], Request]) -> None:
        with self._lock:
            self._waiting.append(_Early(run, request))

    def waits(self, run: Run) -> bool:
        return any(each.run is run for each in self._waiting)

    def text_is_there(self, document: str, selection: Callable[[], Selection]) -> None:
        """Ask them, in their order. selection: the pages that are chosen now."""
        for each in self._take(lambda run: run.document == document):
            try:
                self._queue.take_over(each.run, each.request(selection()))
            except TriForceError as error:
                self._queue.end(each.run, "failed", str(error))

    def end(self, document: str, why: str) -> None:
        """Of a document whose text will not come."""
        for each in self._take(lambda run: run.document == document):
            self._queue.end(each.run, "failed", why)

    def stop(self, run: Run) -> bool:
        """False: it does not wait here."""
        taken = self._take(lambda one: one is run)
        for each in taken:
            each.run.cancelled.set()
            self._queue.end(each.run, "stopped")
        return bool(taken)

    def _take(self, which: Callable[[Run], bool]) -> list[_Early]:
        with self._lock:
            taken = [each for each in self._waiting if which(each.run)]
            self._waiting = [each for each in self._waiting if each not in taken]
        return taken
