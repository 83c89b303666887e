"""What a tab shows as the part of its address behind '#', and back: ids and page numbers, no words.

``document=3f1c09ab77e2&conversation=9d…&page=17&at=17:120-188``: ids are the beginnings of what the library has,
``page`` counts from 1 in the document, ``at`` marks a passage. ``page=17`` alone means a page of the open document.
"""

from __future__ import annotations

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


def of_view(view: TabView) -> str:
    """The address of what a tab shows; "" where no document is open."""
    if not view.document:
        return ""
    parts = [f"document={view.document[:LETTERS]}"]
    parts += [f"conversation={view.conversation[:LETTERS]}"] if view.conversation else []
    parts += [of_page(view)] if view.page else []
    return "&".join(parts)


def of_page(view: TabView) -> str:
    marked = spot(view.spot)
    return f"page={view.page}" + (f"&at={marked}" if marked else "")


def visit(services: Services, view: TabView, address: str, read: bool = True) -> None:
    """Show what an address names; what is not there is told. read: put the document into the cache, as opening does."""
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
