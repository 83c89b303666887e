"""Browser tabs from their load until they are closed, and the part of their address behind '#'.

``document=3f1c09ab77e2&conversation=9d…&page=17&at=17:120-188``: ids are the beginnings of those in the library,
``page`` counts from 1 in the document, ``at`` marks a passage. ``page=17`` alone means a page of the open document.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from .library import Entry
from .quotes import places, spot
from .services import Services
from .tab_view import TabView

NO_DOCUMENT = "That document is not in this library"
NO_DOCUMENT_MORE = "The link may come from another library, or the document was deleted. Open one on the left."
NO_CONVERSATION = "That conversation is not here"
NO_CONVERSATION_MORE = ("It was deleted, or the link comes from another library. The document's other conversations "
                        "are on the left.")

LETTERS = 12  # of an id: one library has no two documents that begin alike
MOST_TABS = 256  # views kept, those of tabs that were closed asleep among them


class Tabs:
    """The views of all open browser tabs, by Gradio's session id."""

    def __init__(self, services: Services, notice: tuple[str, str, str] | None = None) -> None:
        """notice: for the first tab that is opened, where no database was set aside."""
        self._services = services
        self._views: dict[str, TabView] = {}
        aside = services.database.set_aside
        self._first_notice = ("warn", *aside) if aside else notice

    def open(self, session: str, remembered: Any) -> TabView:
        """Return the view of a tab that was just loaded: what this browser showed last, if it still exists."""
        view, known = self.get(session), remembered if isinstance(remembered, dict) else {}
        view.notice, self._first_notice = self._first_notice, None
        if known.get("address"):
            visit(self._services, view, str(known["address"]), read=False)
            return view
        document = known.get("document")
        if self._services.opening and known.get("start") != self._services.start_id:
            document = self._services.opening
        entry = self._services.library.get(document)
        if entry is not None:
            view.document = entry.id
            talk = self._services.conversations.get(known.get("conversation"))
            newest = self._services.conversations.of(entry.id, 1)
            kept = talk.id if talk and talk.document == entry.id else None
            page = known.get("page") if known.get("document") == entry.id else None
            if isinstance(page, int):
                view.page, view.openings = page, 1
            view.conversation = kept or (newest[0].id if newest and known.get("conversation") else None)
        return view

    def get(self, session: str | None) -> TabView:
        view = self._services.views.add(self._views.setdefault(session or "", TabView()))
        while len(self._views) > MOST_TABS:
            self._views.pop(next(iter(self._views)))
        return view

    def known(self, session: str) -> bool:
        return session in self._views

    def close(self, session: str) -> None:
        self._views.pop(session, None)


def of_view(view: TabView) -> str:
    """Return the address of what a tab shows; "" where no document is open."""
    if not view.document:
        return ""
    parts = [f"document={view.document[:LETTERS]}"]
    parts += [f"conversation={view.conversation[:LETTERS]}"] if view.conversation else []
    parts += [f"page={view.page}"] if view.page else []
    parts += [f"at={spot(view.spot)}"] if view.page and view.spot else []
    return "&".join(parts)


def visit(services: Services, view: TabView, address: str, read: bool = True) -> None:
    """Show what an address names, with a notice where it is not there. read: put the document into the cache."""
    named = {name: values[-1] for name, values in parse_qs(address, separator="&").items()}
    entry = _document(services, view, named)
    if entry is None:
        view.document = view.conversation = view.page = None
        if "document" in named:
            view.notice = ("info", NO_DOCUMENT, NO_DOCUMENT_MORE)
        return
    if entry.id != view.document:
        if read:
            services.open(view, entry.id)
        view.document = entry.id
    view.editing, view.renaming, view.instructing = None, False, False
    if "conversation" in named:
        begin = named["conversation"]
        view.conversation = next((talk.id for talk in services.conversations.of(entry.id)
                                  if len(begin) >= LETTERS and talk.id.startswith(begin)), None)
        if view.conversation is None:
            view.notice = ("info", NO_CONVERSATION, NO_CONVERSATION_MORE)
    elif "document" in named:
        view.conversation = None
    page = named.get("page", "")
    view.page = int(page) if page.isdecimal() and len(page) < 7 and 1 <= int(page) <= entry.pages else None
    view.spot = places(named.get("at", "")) if view.page else ()
    view.openings += 1


def _document(services: Services, view: TabView, named: dict[str, str]) -> Entry | None:
    if "document" not in named:
        return services.library.get(view.document) if "page" in named else None
    begin = named["document"]
    return next((entry for entry in services.library.entries()
                 if len(begin) >= LETTERS and entry.id.startswith(begin)), None)
