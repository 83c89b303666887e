"""In place of the processes that run the Models tab's errands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from triforce_core import EngineConfig


class Errands:
    """In place of the processes: what each errand yields, and what was asked of them."""

    def __init__(self, says: dict[str, list[Any]]) -> None:
        """says: errand -> what it yields, or raises."""
        self.sent: list[tuple[str, EngineConfig]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.closed = 0
        self.says = says

    def __call__(self, config: EngineConfig, factory: str) -> Errands._One:
        self.sent.append((factory, config))
        return Errands._One(self, factory)

    class _One:
        def __init__(self, errands: Errands, errand: str) -> None:
            self._errands, self._errand, self._ended = errands, errand, threading.Event()

        def check(self) -> Iterator[Any]:
            for event in self._errands.says[self._errand]:
                if isinstance(event, Exception):
                    raise event
                yield event
            while not self._errands.hold.wait(0.01) and not self._ended.is_set():
                pass

        def close(self) -> None:
            self._ended.set()
            self._errands.closed += 1
