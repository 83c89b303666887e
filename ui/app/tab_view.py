"""The view of one browser tab."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

from .quotes import Place

LISTED = 100  # conversations in the list; as many more on demand


@dataclass(eq=False)
class TabView:
    """The view of one browser tab. Handlers change it, the tab's painter draws it.

    page: the open one, counted from 1. spot: the places marked in it. openings: how often one was opened from outside
    the page view. traced: the answer shown token by token. editing: the answer whose question is being reworded.
    renaming, instructing: a box of the conversation is open. system: instructions of a conversation that nothing was
    asked in yet. sought: words searched for. listed: how many of the document's conversations are. choosing: pages, as
    typed so far. picking: documents to be read together. notice: (kind, title, text). asked: how many of the
    browser's visits to an address the view has followed; stepping: held meanwhile. watcher: the loop that draws this
    tab; None while the tab sleeps."""

    document: str | None = None
    conversation: str | None = None
    page: int | None = None
    spot: tuple[Place, ...] = ()
    openings: int = 0
    traced: str | None = None
    editing: str | None = None
    renaming: bool = False
    instructing: bool = False
    system: str = ""
    sought: str = ""
    listed: int = LISTED
    choosing: str | None = None
    picking: tuple[str, ...] | None = None
    notice: tuple[str, str, str] | None = None
    asked: int = 0
    stepping: threading.Lock = field(default_factory=threading.Lock, repr=False)
    watcher: object = None

    def show(self, document: str | None, conversation: str | None) -> None:
        """Turn to another document: every box is closed."""
        self.document, self.conversation = document, conversation
        self.listed, self.page, self.spot, self.sought, self.system = LISTED, None, (), "", ""
        self.choosing = self.picking = self.notice = self.editing = None
        self.renaming = self.instructing = False


class TabViews:
    """The views of all tabs, as long as they are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[TabView] = weakref.WeakSet()

    def add(self, view: TabView) -> TabView:
        with self._lock:
            self._known.add(view)
        return view

    def documents(self) -> set[str]:
        """Return the documents that somebody has open in front."""
        with self._lock:
            return {view.document for view in self._known if view.document}
