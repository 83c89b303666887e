"""Deleted documents and conversations that can be brought back: hidden everywhere for a moment, then gone for good.

The trash stands in the database alone, so a reload shows it and an end of the app is final.
"""

from __future__ import annotations

import logging
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
    """Hides, restores and forgets. Any thread may call."""

    def __init__(self, library: Library, conversations: Conversations, erase: Callable[[Entry], None],
                 seconds: float = SECONDS) -> None:
        """erase: deletes everything that is kept of a document in the trash."""
        self._library, self._conversations, self._erase = library, conversations, erase
        self.seconds = seconds
        self._items: tuple[Deleted, ...] = ()
        self._seen: object = None

    def items(self) -> tuple[Deleted, ...]:
        """Return what can be brought back, the last deleted first."""
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

    def restore(self, item: Deleted) -> None:
        (self._library.restore if item.kind == "document" else self._conversations.restore)(item.id)

    def expire(self) -> None:
        """Forget for good what has been here for its time."""
        until = time.time() - self.seconds
        for item in self.items():
            if item.at <= until:
                self._forget(item)

    def empty(self, of: str | None = None) -> None:
        """Forget everything for good. of: this document alone."""
        for item in self.items():
            if of in (None, item.id):
                self._forget(item)

    def _forget(self, item: Deleted) -> None:
        try:
            if item.kind == "conversation":
                return self._conversations.delete(item.id, hidden=True)
            for entry in self._library.hidden():
                if entry.id == item.id:
                    self._erase(entry)
        except TriForceError:  # a full disk; it stays hidden, and the next poll or start tries again
            log.warning("what was deleted could not be removed yet")
