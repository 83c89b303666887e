"""Left: upload, the documents, and the open document's conversations."""

from __future__ import annotations

import datetime
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from triforce_core import TriForceError

from ..app.conversations import Conversation
from ..app.library import EXTENSIONS, PHASES, Entry, SnapshotSpace
from ..app.services import Services
from ..app.tab_view import LISTED, TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from .conversations import results
from .html import esc, meter, part_colour
from .panel import PRIVATE, Actions, Outputs, Panel, block, noticing

DROP_HERE = "Drop documents here, or click"
DROP_HELP = "PDF, Word, EPUB, web pages, text,\nMarkdown, CSV, mail, pictures"
DROP_ANYWHERE = "Drop it anywhere to add it to the library"
DROP_OTHER = "Not added: {names}. Documents are PDF, Word, EPUB, HTML, text, Markdown, CSV, mail or pictures."
DELETE = "Delete"
DELETE_SURE = "Delete?"
UPLOAD_REFUSED = "That file did not come through this page's upload. Drop it again."
OTHER_MODEL = "{model}, not yet with the model in use"
SAVED = "Saved reading"
NOT_SAVED = "none: reading a short document again is faster"
FORGET = "Delete the saved reading"
FORGET_HELP = "Frees the disk. The document and its conversations stay; opening it reads it again."
ROOM_HELP = "When this is full, the one unused for longest is deleted first. Nothing is saved on a full disk."
SEARCH = "Search all conversations"
REMOVED_READINGS_TITLE = "Old saved readings were removed"
REMOVED_READINGS = ("{count} of an earlier version of this app, or damaged, which it can no longer open: {size} of the "
                    "disk are free again. These documents are read again when you ask. Readings of other models stay.")


def in_words(stored: str) -> str:
    """Return what a card says of what ``library.language`` keeps; "" where nothing is known."""
    base = {tag: re.split("[-_]", tag)[0].lower() for tag in stored.split("~")}
    names = {tag: fmt.LANGUAGES.get(own, tag) for tag, own in base.items()}
    said, _, guess = stored.partition("~")
    if not said:
        return f"probably {names[guess]}" if guess else ""
    if guess and base[said] != guess:
        return f"{names[said]} (stated in the file), but by its words probably {names[guess]}"
    return f"{names[said]} (stated in the file)"


def pages_read(entry: Entry) -> str:
    """Return how many pages there are, or, where only some are read, how many of them."""
    if not entry.chosen:
        return fmt.pages(entry.pages)
    chosen = sum(last - first + 1 for first, last in entry.ranges)
    return f"{fmt.count(chosen)} of {fmt.count(entry.pages)} pages"


def delete_button(what: str, key: str, description: str) -> str:
    return (f'<button type="button" class="tf-delete" title="{esc(description)}" '
            f'data-action="delete-{what}" data-{what}="{esc(key)}" data-sure="{DELETE_SURE}" data-label="{DELETE}" '
            f'aria-label="{esc(description)}">{DELETE}</button>')


def undo_offer(title: str) -> str:
    return (f'<div class="tf-toast" role="status"><span>{esc(f"Deleted “{title}”")}</span>'
            '<button type="button" class="tf-btn" id="undo" data-action="undo">Undo</button></div>')


def cover(entry: Entry) -> str:
    """Return the first page of a PDF or picture, small; or else, or where it cannot be drawn, the kind of file."""
    if entry.parts:
        colours = "".join(f'<b class="{part_colour(n)}"></b>' for n in range(len(entry.parts)))
        return f'<span class="tf-cover tf-covers" aria-hidden="true">{colours}</span>'
    picture = ""
    if entry.state == "ready" and entry.is_drawn:
        picture = f'<span style="background-image: url(/pages/{entry.id}/1/picture?width=160)"></span>'
    return f'<span class="tf-cover" aria-hidden="true"><i>{esc(entry.extension.lstrip(".")[:4])}</i>{picture}</span>'


def day(moment: float, now: float) -> str:
    """Return when a document was opened or added, in words: today's time, or the date."""
    days = (datetime.date.fromtimestamp(now) - datetime.date.fromtimestamp(moment)).days
    if days <= 1:
        return "yesterday" if days == 1 else time.strftime("%H:%M", time.localtime(moment))
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def about(entry: Entry, saved: int, model: str, now: float, parts: Sequence[Entry] = ()) -> str:
    """Return what is known of the open document. saved: bytes of its reading. parts: the documents it consists of."""
    other = model and entry.read_with != model
    rows = [
        ("Words", fmt.count(entry.words) if entry.words else ""),
        ("Tokens", fmt.count(entry.tokens) if entry.tokens else ""),
        ("Language", in_words(entry.language)),
        *(("" if n else "Left out", note) for n, note in enumerate(entry.notes)),
        ("Read with", OTHER_MODEL.format(model=entry.read_with) if entry.read_with and other else entry.read_with),
        ("Last opened", day(entry.opened_at, now) if entry.opened_at else ""),
        *(("" if n else "Consists of", part.title or part.name) for n, part in enumerate(parts if entry.parts else ())),
        ("File", "" if entry.parts else f"{entry.name}, {fmt.size(entry.bytes)}"),
        (SAVED, fmt.size(saved) if saved else NOT_SAVED),
    ]
    facts = "".join(f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in rows if value)
    return (f'<details class="tf-about"><summary>About this document</summary><dl>{facts}</dl>'
            f'{forget(entry, FORGET) if saved else ""}</details>')


def forget(entry: Entry, words: str) -> str:
    """Return the button that deletes a document's saved readings."""
    return (f'<button type="button" class="tf-btn tf-quiet" data-action="forget-reading" data-document="{entry.id}" '
            f'data-sure="{DELETE_SURE}" data-label="{words}" title="{FORGET_HELP}">{words}</button>')


def room_line(room: SnapshotSpace, each: Sequence[tuple[Entry, int]] = ()) -> str:
    """Return what saved readings take, and of how much; and ``each`` document's bytes, the largest first."""
    words = f"Saved readings: {fmt.size(room.used)} of {fmt.size(room.quota)}, disk {fmt.size(room.free)} free"
    bar = meter(room.used / max(1, room.quota), "tf-meter-thin", SAVED)
    rows = "".join(f"<li><span>{esc(one.title or one.name)}</span> <b>{fmt.size(size)}</b>{forget(one, DELETE)}</li>"
                   for one, size in sorted(each, key=lambda row: -row[1]) if size)
    return (f'<details class="tf-room"><summary title="{ROOM_HELP}">{words}{bar}</summary>'
            f'<ul>{rows}</ul><p class="tf-note">{ROOM_HELP}</p></details>')


def removed_readings(count: int, size: int) -> tuple[str, str, str] | None:
    """Return the notice that saved readings were removed at the start, freeing ``size`` bytes; None for none."""
    words = REMOVED_READINGS.format(count=count, size=fmt.size(size))
    return ("info", REMOVED_READINGS_TITLE, words) if count else None


def document_item(entry: Entry, phase: str, current: bool, added: str = "") -> str:
    """Return one document: cover, title, size, where it stands. added: when it came, where its title names several."""
    facts = [f"added {added}"] if added else []
    facts += [f"{len(entry.parts)} documents"] if entry.parts else []
    facts += [pages_read(entry)] if entry.pages else []
    facts.append(f"{fmt.count(entry.tokens)} tokens" if entry.tokens else fmt.size(entry.bytes))
    title = entry.title or entry.name
    return (f'<li class="tf-doc{" tf-current" if current else ""}">'
            f'<button type="button" class="tf-doc-open" data-action="open" data-document="{entry.id}" '
            f'title="{esc(entry.name)}"{" aria-current=true" if current else ""}>'
            f'{cover(entry)}<span class="tf-doc-title">{esc(title)}</span>'
            f'<span class="tf-doc-facts">{esc(" · ".join(facts))}</span>'
            f'<span class="tf-phase tf-phase-{phase}">{esc(PHASES[phase])}</span></button>'
            f"{delete_button('document', entry.id, f'Delete {title} with its conversations')}</li>")


def conversation_list(conversations: Sequence[Conversation], current: str | None, most: int) -> str:
    """Return the first ``most`` conversations of the open document, with a way to a new one and to the others."""
    items = "".join(
        f'<li class="tf-talk{" tf-current" if talk.id == current else ""}"><button type="button" class="tf-talk-open" '
        f'data-action="conversation" data-conversation="{esc(talk.id)}">{esc(talk.title)}</button>'
        f"{delete_button('conversation', talk.id, 'Delete this conversation')}</li>"
        for talk in conversations[:most])
    more = ('<button type="button" class="tf-btn tf-quiet tf-wide" data-action="more-conversations">'
            "Earlier conversations</button>" if len(conversations) > most else "")
    return (f'<div class="tf-talks"><button type="button" class="tf-btn tf-wide" id="new-conversation" '
            f'data-action="new-conversation">New conversation</button><ul>{items}</ul>{more}</div>')


def listing(rows: Sequence[tuple[Entry, str]], current: str | None, own: Sequence[Conversation],
            conversation: str | None, details: str = "", room: str = "", most: int = LISTED) -> str:
    """Return the whole panel. rows: documents with their phase. own: conversations, of which ``most`` are listed.
    details: about the current document; room: of saved readings."""
    if not rows:
        return '<p class="tf-note">No documents yet. Drop one anywhere on this window.</p>'
    items, titles, now = [], Counter(entry.title or entry.name for entry, _ in rows), time.time()
    for entry, phase in rows:
        added = day(entry.added_at, now) if titles[entry.title or entry.name] > 1 else ""
        items.append(document_item(entry, phase, entry.id == current, added))
        if entry.id == current and entry.state == "ready":
            items.append(f'<li class="tf-nested">{details}{conversation_list(own, conversation, most)}</li>')
    more = ('<div class="tf-together"><button type="button" class="tf-btn tf-wide" id="together-button" '
            'data-action="together" title="Ask about several documents at once; each is read in full">'
            "Read several together</button></div>" if sum(not entry.parts for entry, _ in rows) > 1 else "")
    return f'<ul class="tf-docs">{"".join(items)}</ul>{more}{room}'


def build(services: Services, tabs: Tabs) -> Outputs:
    upload = gr.File(label=DROP_HERE, file_count="multiple", file_types=list(EXTENSIONS), height=112,
                     elem_id="upload", show_label=False)
    sought = gr.Textbox(placeholder=SEARCH, label=SEARCH, show_label=False, container=False, max_lines=1,
                        max_length=200, elem_id="search")

    def add(files: list[dict[str, Any]] | None, request: gr.Request) -> None:
        """Take in what was uploaded: the page lets no other path through."""
        view, paths = tabs.get(request.session_hash), [Path(file["path"]) for file in files or ()]
        others = [path.name for path in paths if path.suffix.lower() not in EXTENSIONS]
        try:
            with noticing(view):
                if others:  # from no browser: the component asks there
                    raise TriForceError(DROP_OTHER.format(names=", ".join(others)))
                services.add(view, [(path, path.name) for path in paths])
        finally:
            for path in paths:  # the library has its own copy
                if path.is_file():
                    path.unlink()

    def search(words: str, request: gr.Request) -> None:
        tabs.get(request.session_hash).sought = words.strip()

    # Not preprocessed: Gradio would leave an empty file for each upload, and the upload itself where it refuses one.
    added = upload.upload(add, [upload], None, queue=False, preprocess=False, **PRIVATE)
    added.then(lambda: None, None, [upload], queue=False, **PRIVATE)
    # Not ``input``: Gradio keeps that of an emptied line to itself. The last is sent, in the order of typing.
    sought.change(search, [sought], None, queue=False, trigger_mode="always_last", **PRIVATE)
    return {"documents": block("documents", clicks=True)}


def actions(services: Services) -> Actions:
    return {
        "open": lambda view, data: services.open(view, data.get("document", "")),
        "delete-document": lambda view, data: services.delete(view, data.get("document", "")),
        "forget-reading": lambda view, data: services.delete_snapshots(data.get("document", "")),
        "undo": lambda view, data: services.undo(view),
    }


def panels(services: Services) -> list[Panel]:
    def rows() -> list[tuple[Entry, str]]:
        """Return documents with their phase; one is ready only while a question about it is answered at once."""
        busy = {} if services.queue.idle else {"ready": "busy"}
        return [(entry, busy.get(phase := services.phase(entry), phase)) for entry in services.library.entries()]

    def key(view: TabView) -> tuple[object, ...]:
        return (view.sought, services.snapshots.refresh(), services.library.version, services.conversations.version,
                view.document, view.conversation, view.listed,
                tuple(phase for _, phase in rows()))

    def draw(view: TabView) -> str:
        if view.sought:
            return results(services, view)
        own = services.conversations.of(view.document, view.listed + 1) if view.document else []
        entry, model = services.library.get(view.document), services.queue.model
        details = about(entry, services.snapshots.size(entry.readings), model.reader if model else "",
                        time.time(), services.library.parts(entry)) if entry else ""
        room, each = services.snapshots.space(), [(one, services.snapshots.size(one.readings)) for one, _ in rows()]
        line = room_line(room, each) if room.used else ""
        return listing(rows(), view.document, own, view.conversation, details, line, view.listed)

    def draw_undo(view: TabView) -> str:
        deleted = services.trash.items()
        return undo_offer(deleted[0].title) if deleted else ""

    return [Panel("documents", key, draw, 0.2), Panel("undo", lambda view: services.trash.items(), draw_undo)]
