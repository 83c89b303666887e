"""What one browser tab looks at."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

from .quotes import Place

LISTED = 100  # conversations in the list; as many more on demand


@dataclass(eq=False)
class TabView:
    """What one browser tab looks at. Handlers change it, the tab's painter draws it.

    page: the open one, counted from 1. spot: the places marked in the document. openings: how often one was opened
    from outside the page view. traced: the answer shown token by token. editing: the answer whose question is being
    reworded. renaming: the conversation. instructing: its instructions are being written. system: those of a
    conversation that nothing was asked in yet. sought: words searched for in all conversations. listed: how many
    of the document's conversations are. choosing: pages
    are being chosen, as typed so far. picking: documents are, to be read together. notice: (kind, title, text).
    asked: how often the browser went to an address, as it tells, and the view followed it. stepping: held while it
    does."""

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
    watcher: object = None  # the loop that draws this tab; None while the tab sleeps


class TabViews:
    """Those of all tabs, as long as they are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[TabView] = weakref.WeakSet()

    def add(self, view: TabView) -> TabView:
        with self._lock:
            self._known.add(view)
        return view

    def documents(self) -> set[str]:
        """That somebody has open in front."""
        with self._lock:
            return {view.document for view in self._known if view.document}
