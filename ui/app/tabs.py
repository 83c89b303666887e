"""Browser tabs: what each looks at, from its load until it is closed."""

from __future__ import annotations

from typing import Any

from .address import visit
from .services import Services
from .tab_view import TabView

SET_ASIDE_TITLE = "The database was damaged"
SET_ASIDE = ("It was set aside as {path}; nothing in it was deleted. The app begins with a new one: add your documents "
             "again.")

MOST_TABS = 256  # views kept, those of tabs that were closed asleep among them


class Tabs:
    """The views of all open browser tabs, by Gradio's session id."""

    def __init__(self, services: Services, notice: tuple[str, str, str] | None = None) -> None:
        """notice: for the first tab that is opened, where there is nothing worse to tell."""
        self._services = services
        self._views: dict[str, TabView] = {}
        aside = services.database.set_aside
        self._first_notice = ("warn", SET_ASIDE_TITLE,
                              SET_ASIDE.format(path=aside)) if aside else notice

    def open(self, session: str, remembered: Any) -> TabView:
        """The view of a tab that was just loaded: what this browser showed last, if it still exists."""
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
