"""The library: cards of documents, their conversations, and what saved readings take."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence

from ..page import number_format as fmt
from ..page.figures import TOKEN_UNIT
from ..page.html import esc, meter, part_colour
from ..page.number_format import pages
from ..state.conversations import Conversation
from ..state.library import Entry
from ..state.snapshots import SnapshotSpace
from ..state.tab_view import LISTED
from ..words import library as library_words
from ..words import storage as storage_words
from ..words import together as together_words
from .languages import in_words


def pages_read(entry: Entry) -> str:
    """How many pages there are, or, where only some are read, how many of them."""
    if not entry.chosen:
        return pages(entry.pages)
    chosen = sum(last - first + 1 for first, last in entry.ranges)
    return library_words.PAGES_READ.format(chosen=fmt.count(chosen), pages=fmt.count(entry.pages))


def delete_button(what: str, key: str, description: str) -> str:
    return (f'<button type="button" class="tf-delete" title="{esc(description)}" '
            f'data-action="delete-{what}" data-{what}="{esc(key)}" '
            f'data-sure="{esc(library_words.DELETE_SURE)}" data-label="{esc(library_words.DELETE)}" '
            f'aria-label="{esc(description)}">'
            f"{esc(library_words.DELETE)}</button>")


def undo_offer(title: str) -> str:
    """That something was deleted, and the way back."""
    return (f'<div class="tf-toast" role="status"><span>{esc(library_words.DELETED.format(title=title))}</span>'
            f'<button type="button" class="tf-btn" id="undo" data-action="undo">{esc(library_words.UNDO)}</button>'
            "</div>")


def cover(entry: Entry) -> str:
    """The first page of a PDF, small; of anything else, or where it cannot be drawn, the kind of file."""
    if entry.parts:
        colours = "".join(f'<b class="{part_colour(n)}"></b>' for n in range(len(entry.parts)))
        return f'<span class="tf-cover tf-covers" aria-hidden="true">{colours}</span>'
    picture = ""
    if entry.state == "ready" and entry.kind == "pdf":
        picture = f'<span style="background-image: url(/pages/{entry.id}/1/picture?width=160)"></span>'
    return f'<span class="tf-cover" aria-hidden="true"><i>{esc(entry.extension.lstrip(".")[:4])}</i>{picture}</span>'


def day(moment: float, now: float) -> str:
    """When a document was opened last, in words."""
    days = (datetime.date.fromtimestamp(now) - datetime.date.fromtimestamp(moment)).days
    if days <= 1:
        return library_words.YESTERDAY if days == 1 else time.strftime("%H:%M", time.localtime(moment))
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def about(entry: Entry, saved: int, model: str, now: float, parts: Sequence[Entry] = ()) -> str:
    """What there is to know about the open document. parts: the documents that it was put together from."""
    rows = []
    if entry.words:
        rows.append((library_words.WORDS, fmt.count(entry.words)))
    if entry.tokens:
        rows.append((library_words.TOKENS, fmt.count(entry.tokens)))
    language = in_words(entry.language)
    if language:
        rows.append((library_words.LANGUAGE, language))
    rows += [(library_words.NOT_READ if not n else "", note) for n, note in enumerate(entry.notes)]
    if entry.read_with:
        same = entry.read_with == model or not model
        rows.append((library_words.READ_WITH, entry.read_with if same
                     else library_words.OTHER_MODEL.format(model=entry.read_with)))
    if entry.opened_at:
        rows.append((library_words.OPENED, day(entry.opened_at, now)))
    if entry.parts:
        rows += [(together_words.CONSISTS if not n else "", part.title or part.name) for n, part in enumerate(parts)]
    else:
        rows.append((library_words.FILE, f"{entry.name}, {fmt.size(entry.bytes)}"))
    rows.append((library_words.SAVED, fmt.size(saved) if saved else library_words.NOT_SAVED))
    facts = "".join(f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in rows)
    forget = ""
    if saved:
        label = library_words.FORGET
        forget = (f'<button type="button" class="tf-btn tf-quiet" data-action="forget-reading" '
                  f'data-document="{entry.id}" data-sure="{esc(library_words.DELETE_SURE)}" data-label="{esc(label)}" '
                  f'title="{esc(library_words.FORGET_HELP)}">{esc(label)}</button>')
    return f'<details class="tf-about"><summary>{esc(library_words.ABOUT)}</summary><dl>{facts}</dl>{forget}</details>'


def room_line(room: SnapshotSpace) -> str:
    """What saved readings take, and of how much."""
    words = library_words.ROOM.format(used=fmt.size(room.used), quota=fmt.size(room.quota), free=fmt.size(room.free))
    bar = meter(room.used / max(1, room.quota), "tf-meter-thin", library_words.SAVED)
    return f'<div class="tf-room" title="{esc(library_words.ROOM_HELP)}"><span>{esc(words)}</span>{bar}</div>'


def removed_readings(count: int, size: int) -> tuple[str, str, str] | None:
    """The notice that saved readings were removed at the start, and what that freed (bytes); None: there were none."""
    return ("info", storage_words.REMOVED_READINGS_TITLE, storage_words.REMOVED_READINGS.format(
        count=count, size=fmt.size(size))) if count else None


def document_item(entry: Entry, phase: str, current: bool) -> str:
    """One document: cover, title, size, where it stands."""
    facts = [together_words.COUNT.format(count=len(entry.parts))] if entry.parts else []
    facts += [pages_read(entry)] if entry.pages else []
    facts.append(fmt.count(entry.tokens) + " " + TOKEN_UNIT if entry.tokens else fmt.size(entry.bytes))
    title = entry.title or entry.name
    return (f'<li class="tf-doc{" tf-current" if current else ""}">'
            f'<button type="button" class="tf-doc-open" data-action="open" data-document="{entry.id}" '
            f'title="{esc(entry.name)}"{" aria-current=true" if current else ""}>'
            f'{cover(entry)}<span class="tf-doc-title">{esc(title)}</span>'
            f'<span class="tf-doc-facts">{esc(" · ".join(facts))}</span>'
            f'<span class="tf-phase tf-phase-{phase}">{esc(library_words.PHASES[phase])}</span></button>'
            f"{delete_button('document', entry.id, library_words.DELETE_DOCUMENT.format(title=title))}</li>")


def conversation_list(conversations: Sequence[Conversation], current: str | None, most: int) -> str:
    """The first ``most`` conversations of the open document, with a way to a new one, and to more if there are more."""
    items = "".join(
        f'<li class="tf-talk{" tf-current" if talk.id == current else ""}"><button type="button" class="tf-talk-open" '
        f'data-action="conversation" data-conversation="{esc(talk.id)}">{esc(talk.title)}</button>'
        f"{delete_button('conversation', talk.id, library_words.DELETE_CONVERSATION)}</li>"
        for talk in conversations[:most])
    more = (f'<button type="button" class="tf-btn tf-quiet tf-wide" data-action="more-conversations">'
            f"{esc(library_words.MORE_CONVERSATIONS)}</button>" if len(conversations) > most else "")
    return (f'<div class="tf-talks"><button type="button" class="tf-btn tf-wide" id="new-conversation" '
            f'data-action="new-conversation">{esc(library_words.NEW_CONVERSATION)}</button><ul>{items}</ul>{more}</div>')


def together_button() -> str:
    return (f'<button type="button" class="tf-btn tf-wide" id="together-button" data-action="together" '
            f'title="{esc(together_words.TOGETHER_HELP)}">{esc(together_words.TOGETHER)}</button>')


def listing(rows: Sequence[tuple[Entry, str]], current: str | None, own: Sequence[Conversation],
            conversation: str | None, details: str = "", room: str = "", most: int = LISTED) -> str:
    """The whole panel. rows: documents with their phase. own: conversations, of which ``most`` are listed. details:
    about the current document; room: of saved readings."""
    if not rows:
        return f'<p class="tf-note">{esc(library_words.LIBRARY_EMPTY)}</p>'
    items = []
    for entry, phase in rows:
        items.append(document_item(entry, phase, entry.id == current))
        if entry.id == current and entry.state == "ready":
            items.append(f'<li class="tf-nested">{details}{conversation_list(own, conversation, most)}</li>')
    several = sum(not entry.parts for entry, _ in rows) > 1
    more = f'<div class="tf-together">{together_button()}</div>' if several else ""
    return f'<ul class="tf-docs">{"".join(items)}</ul>{more}{room}'
