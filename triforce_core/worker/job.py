"""One request to the engine as its asker sees it: an iterator of events that can be waited for and cancelled."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from ..events import Event, Finished

JobKind = Literal["check", "load", "tune", "measure", "open", "ask", "prepare"]
DOING: Mapping[JobKind, str] = {"check": "looking around", "load": "starting", "tune": "measuring this machine",
                                "measure": "measuring a document", "open": "reading", "ask": "answering",
                                "prepare": "making ready for the next answer"}


class _End:
    """The last item of a job's queue."""


class Job(Iterator[Event]):
    """Iterate for the events; the last one is the verb's result. Errors are raised where they happened, after every
    event that came before them. One thread iterates; any thread may look and cancel."""

    def __init__(self, kind: JobKind, cancel: Callable[[Job], None], position: Callable[[Job], int | None]) -> None:
        self.kind = kind
        self.cancelled = False  # asked to end early; it may not have ended yet
        self.ended = False
        self.finished = False  # a Finished has been delivered
        self._cancel, self._position = cancel, position
        self._items: queue.SimpleQueue[Event | BaseException | _End] = queue.SimpleQueue()
        self._exhausted = False

    @property
    def position(self) -> int | None:
        """0: running; n: n-th in the queue; None: ended."""
        return self._position(self)

    def cancel(self) -> None:
        """End early. An answer still ends with Finished("cancelled"); what had come is kept."""
        self._cancel(self)

    def close(self) -> None:
        """As a generator's: the asker has lost interest."""
        self.cancel()
        self._exhausted = True

    def __next__(self) -> Event:
        if self._exhausted:
            raise StopIteration
        item = self._items.get()
        if isinstance(item, _End):
            self._exhausted = True
            raise StopIteration
        if isinstance(item, BaseException):
            self._exhausted = True
            raise item
        return item

    def deliver(self, event: Event) -> None:
        """For the client: one more event."""
        self.finished = self.finished or isinstance(event, Finished)
        self._items.put(event)

    def end(self, error: BaseException | None = None) -> None:
        """For the client: no more events. Of several calls the first counts."""
        if not self.ended:
            self.ended = True
            self._items.put(error if error is not None else _End())
