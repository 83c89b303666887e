"""What was deleted and can be brought back: hidden everywhere for a moment, then gone for good.

What is in the trash stands in the database alone, so a reload shows it and an end of the app is final.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from triforce_core import TriForceError

from .conversations import Conversations
from .library import Entry, Library

log = logging.getLogger(__name__)
SECONDS = 10.0  # in which Undo is offered


@dataclass(frozen=True)
class Deleted:
    """document: the id of the conversation's, or its own."""

    kind: Literal["document", "conversation"]
    id: str
    title: str
    document: str
    at: float


class Trash:
    """Any thread. erase: of a document in the trash, everything that is kept."""

    def __init__(self, library: Library, conversations: Conversations, erase: Callable[[Entry], None],
                 seconds: float = SECONDS) -> None:
        self._library, self._conversations, self._erase = library, conversations, erase
        self.seconds = seconds
        self._lock = threading.Lock()
        self._timers: set[threading.Timer] = set()
        self._items: tuple[Deleted, ...] = ()
        self._seen: object = None

    def items(self) -> tuple[Deleted, ...]:
        """The last deleted first."""
        now = self._library.version, self._conversations.version
        if now != self._seen:
            found = [Deleted("document", entry.id, entry.title or entry.name, entry.id, entry.deleted_at or 0.0)
                     for entry in self._library.hidden()]
            found += [Deleted("conversation", talk.id, talk.title, talk.document, talk.deleted_at or 0.0)
                      for talk in self._conversations.hidden()]
            self._items, self._seen = tuple(sorted(found, key=lambda item: -item.at)), now
        return self._items

    def put(self, kind: Literal["document", "conversation"], key: str) -> None:
        (self._library.hide if kind == "document" else self._conversations.hide)(key)
        timer = threading.Timer(self.seconds, self._expired)
        timer.daemon = True
        with self._lock:
            self._timers = {each for each in self._timers if each.is_alive()} | {timer}
        timer.start()

    def restore(self, item: Deleted) -> None:
        (self._library.restore if item.kind == "document" else self._conversations.restore)(item.id)

    def empty(self, until: float | None = None, of: str | None = None) -> None:
        """Forget for good what was deleted up to then (None: all). of: this document alone."""
        for item in self.items():
            if (until is None or item.at <= until) and of in (None, item.id):
                self._forget(item)

    def close(self) -> None:
        with self._lock:
            for timer in self._timers:
                timer.cancel()
        self.empty()

    def _expired(self) -> None:
        self.empty(time.time() - self.seconds + 0.05)

    def _forget(self, item: Deleted) -> None:
        try:
            if item.kind == "conversation":
                return self._conversations.delete(item.id, hidden=True)
            for entry in self._library.hidden():
                if entry.id == item.id:
                    self._erase(entry)
        except TriForceError:  # a full disk; it stays hidden, and the next start tries again
            log.warning("what was deleted could not be removed yet")
