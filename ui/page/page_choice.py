"""The dialogs that choose what is read: a document's pages, by chapters or as text, and several documents together.

What counts is the line of pages; chapters.js keeps the ticks in step with it, so that nothing is redrawn under a hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import Document, DocumentFit, TriForceError, page_ranges, ranges_text

from ..app.context_budget import Part, Weighing, answer_room, fitting_pages
from ..app.library import Entry, Ranges
from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from .html import CANCEL, button, esc, part_colour
from .panel import PRIVATE, Actions, Outputs, Panel, block, noticing

PART_FITS = "About {fitting} of your {pages} fit"
IN_CONTEXT = "Only {chosen} of {pages}, {tokens} tokens"
TOO_LONG = "The document has {tokens} tokens; the model can read {most} beside questions and answers."
TOO_LARGE = "The document has {tokens} tokens; the memory that is free holds {most}."
CHOICES = "You decide what is left out: read the pages below, write others, or load a model with a larger context."
CHOICES_CHAPTERS = ("You decide what is left out: read the pages below, tick other chapters, or load a model with a "
                    "larger context.")
WHOLE = "the whole document"
SEVERAL = "all {count} documents"
TITLE = "What should be read?"
FITS = "The document has {tokens} tokens on {pages}; {most} fit."
UNKNOWN = "The document has {pages}."
WHICH = "pages {ranges}"
TO = "–"
PAGES = "Pages, counted from the first of the file"
READ = "Read these pages"
BAD = "Write pages from 1 to {pages}, such as 1-12, 40."
NONE = "None"
ROOM = "Room for questions and answers"

DROP_ONE = "Without “{title}” it would fit."
ADD_MORE = "Add documents"
PICK_HELP = ("Every document that you tick is read in full, in the order in which you tick them. A new conversation "
             "begins; earlier ones stay with their documents.")
DROP_MORE = "Leave out two or more, or choose chapters afterwards."
ROOM_UNKNOWN = "What fits is known once a model is loaded."
ESTIMATED = "Documents that were not read yet are estimated; they are counted before anything is read."

MOST_NAMED = 3  # ranges of pages in one phrase
Split = Callable[[Ranges], Sequence[tuple[str, int]]]


def context_bar(parts: Sequence[Part], most: int, room: int, legend: bool = True, css: str = "") -> str:
    """Return what some documents or pages take of the context. most: tokens that fit. room: tokens kept for questions
    and answers beside them. legend: a line for each part."""
    used = sum(part.tokens for part in parts)
    scale = max(1, max(most, used) + room)
    rows = [(part_colour(n), part.title, fmt.tokens(part.tokens, part.estimated), part.tokens)
            for n, part in enumerate(parts)]
    if room:
        rows.append(("tf-room-kept", ROOM, fmt.count(room), room))
    rows.append(("tf-room-free", "Free", fmt.count(most - used), most - used) if used <= most
                else ("tf-room-over", "Too many", fmt.count(used - most), 0))
    segments = "".join(f'<span class="{colour}" style="width:{100 * tokens / scale:.3f}%" '
                       f'title="{esc(title)}: {size} tokens"></span>' for colour, title, size, tokens in rows
                       if tokens or colour not in ("tf-room-free", "tf-room-over"))
    limit = f'<i class="tf-limit" style="left:{100 * most / scale:.2f}%"></i>' if used > most else ""
    words = f"{fmt.tokens(used, any(part.estimated for part in parts))} of {fmt.count(most)} tokens"
    listed = "".join(f'<li><i class="{colour}"></i><span>{esc(title)}</span> <b>{size}</b></li>'
                     for colour, title, size, _ in rows)
    return (f'<div class="tf-budget {css}"><div class="tf-budget-bar" role="img" aria-label="{words}">'
            f"{segments}{limit}</div>" + (f'<ul class="tf-budget-parts">{listed}</ul>' if legend else "") + "</div>")


def which(ranges: Ranges) -> str:
    """Return pages in words: 'pages 1–12, 40'."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return f"page {ranges[0][0]}"
    return WHICH.format(ranges=ranges_text(ranges).replace("-", TO))


def scope(entry: Entry) -> str:
    """Return in words what answers are written from: 'the whole document', 'pages 1–36'."""
    if entry.chosen and len(entry.ranges) > MOST_NAMED:
        chosen = sum(last - first + 1 for first, last in entry.ranges)
        return f"{fmt.count(chosen)} of {fmt.pages(entry.pages)}"
    if entry.chosen:
        return f"{which(entry.ranges)} of {fmt.count(entry.pages)}"
    return SEVERAL.format(count=len(entry.parts)) if entry.parts else WHOLE


def what_fits(entry: Entry, fit: DocumentFit | None, chapters: bool = False) -> str:
    """Return what fits, and what can be done where not all does. chapters: whether there are any to tick."""
    title, text, larger, pages = TITLE, UNKNOWN, "", fmt.pages(entry.pages)
    if fit is not None:
        text = FITS
        if not fit.fits:
            title = PART_FITS.format(fitting=fmt.count(fitting_pages(fit)), pages=pages)
            text = TOO_LARGE if fit.limited_by == "memory" else TOO_LONG
            text += f" {CHOICES_CHAPTERS if chapters else CHOICES}"
            larger = '<button type="button" class="tf-btn tf-quiet" data-tab="models">Look for a larger model</button>'
        text = text.format(tokens=fmt.tokens(fit.tokens, fit.estimated), pages=pages, most=fmt.count(fit.max_tokens))
    return f"<h2>{esc(title)}</h2><p>{esc(text.format(pages=pages))} {larger}</p>"


def range_words(entry: Entry, fit: DocumentFit | None, typed: str, context: int = 0, split: Split | None = None) -> str:
    """Return whether the pages typed so far fit, and the bar of what they take. context: the model's, 0 if unknown.
    split: title and tokens of each of several documents, for the pages of some ranges."""
    ranges = _ranges(entry, typed)
    if ranges is None:
        return f'<p class="tf-bad">{esc(BAD.format(pages=entry.pages))}</p>'
    if fit is None:
        return ""
    tokens, chosen = _tokens(fit, ranges), f"{which(ranges).capitalize()} of {fmt.count(entry.pages)}"
    good = tokens <= fit.max_tokens
    text = f"{chosen}: {fmt.count(tokens)} tokens" + (
        f". Fits ({fmt.percent(tokens, fit.max_tokens)})." if good
        else f", {fmt.count(tokens - fit.max_tokens)} too many.")
    parts = [Part(title, taken) for title, taken in (split(ranges) if split else [(chosen, tokens)])]
    weighing = Weighing(tuple(parts), fit.max_tokens, answer_room(fit, context))
    drawn = context_bar(parts, weighing.most, weighing.room, legend=split is not None, css="tf-inline")
    if split:
        text += "".join(" " + DROP_ONE.format(title=part.title) for part in weighing.enough[:1])
    return f'{drawn}<p class="{"tf-good" if good else "tf-bad"}">{esc(text)}</p>'


def readable(entry: Entry, fit: DocumentFit | None, typed: str) -> bool:
    """Return whether the pages typed so far are some, and are not known to be too many."""
    ranges = _ranges(entry, typed)
    return ranges is not None and (fit is None or fit.estimated or _tokens(fit, ranges) <= fit.max_tokens)


def _ranges(entry: Entry, typed: str) -> Ranges | None:
    try:
        return page_ranges(typed, entry.pages)
    except TriForceError:
        return None


def _tokens(fit: DocumentFit, ranges: Ranges) -> int:
    return sum(sum(fit.page_tokens[first - 1 : last]) for first, last in ranges)


def chapter_list(document: Document, fit: DocumentFit | None, typed: str) -> str:
    """Return the chapters to tick, each with what it takes: tokens where they were counted, words otherwise; "" where
    there are none. typed: the pages chosen so far."""
    if not document.chapters:
        return ""
    each: Sequence[int] = fit.page_tokens if fit else [len(page.text.split()) for page in document.pages]
    unit = "tokens" if fit else "words"
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><label><input type="checkbox" data-chapter="{number}" '
        f'data-first="{chapter.first}" data-last="{chapter.last}" data-level="{chapter.level}">'
        f'<span class="tf-chapter-title">{esc(chapter.title)}</span><span class="tf-chapter-size">'
        f"{fmt.count(sum(each[chapter.first - 1 : chapter.last]))} {unit}</span></label></li>"
        for number, chapter in enumerate(document.chapters))
    tools = "".join(f'<button type="button" class="tf-btn tf-quiet" data-chapters="{which}">{label}</button>'
                    for which, label in (("all", "All"), ("none", NONE)))
    return (f'<fieldset class="tf-chapters" data-pages="{len(document.pages)}" data-chosen="{esc(typed)}">'
            f"<legend>Chapters</legend>{tools}<ul>{items}</ul></fieldset>")


def document_list(entries: Sequence[Entry], picked: Sequence[str], weighing: Weighing) -> str:
    """Return the documents to tick, those ``picked`` first. weighing: of the entries, in their order."""
    rows = []
    for entry, part in sorted(zip(entries, weighing.parts, strict=True),
                              key=lambda item: picked.index(item[0].id) if item[0].id in picked else len(picked)):
        off = "" if entry.state == "ready" else " disabled"
        on = " checked" if entry.id in picked else ""
        size = "not read" if off else f"{fmt.tokens(part.tokens, part.estimated)} tokens"
        rows.append(f'<li><label><input type="checkbox" data-action="pick" data-document="{esc(entry.id)}"{on}{off}>'
                    f'<span class="tf-chapter-title">{esc(part.title)}</span>'
                    f'<span class="tf-chapter-size">{size}</span></label></li>')
    return (f"<h2>Which documents should be read together?</h2><p>{PICK_HELP}</p>"
            f'<fieldset class="tf-chapters tf-pick"><legend class="tf-hidden">Documents</legend>'
            f'<ul>{"".join(rows)}</ul></fieldset>')


def verdict(weighing: Weighing) -> str:
    """Return whether the documents fit, and if not, which of them to leave out."""
    if weighing.over <= 0:
        used = fmt.tokens(sum(part.tokens for part in weighing.parts), any(part.estimated for part in weighing.parts))
        return f'<p class="tf-good">{used} of {fmt.count(weighing.most)} tokens. Fits.</p>'
    out = DROP_ONE.format(title=weighing.enough[0].title) if weighing.enough else DROP_MORE
    return f'<p class="tf-bad">{fmt.count(weighing.over)} tokens too many. {esc(out)}</p>'


def picked_budget(weighing: Weighing) -> str:
    """Return the bar of the ticked documents, what it means, and what to do next."""
    drawn = fits = ""
    if weighing.parts and not weighing.most:
        drawn = f'<p class="tf-note">{ROOM_UNKNOWN}</p>'
    elif weighing.parts:
        drawn, fits = context_bar(weighing.parts, weighing.most, weighing.room), verdict(weighing)
        if any(part.estimated for part in weighing.parts):
            drawn += f'<p class="tf-note">{ESTIMATED}</p>'
    read = button("Read these together", "read-together", css="tf-primary")
    if len(weighing.parts) < 2:
        read = read.replace("<button ", "<button disabled ")
    return f'{drawn}<div class="tf-dialog-row">{fits}{read}{button(CANCEL, "leave-together")}</div>'


def build(services: Services, tabs: Tabs) -> Outputs:
    """Return both dialogs, which are always in the page; shelf.css hides each while it has no heading."""
    with gr.Column(elem_id="choice", elem_classes="tf-dialog tf-by-heading"):
        text, chapters = block("choice-text"), block("chapters")
        wanted = gr.Textbox(label=PAGES, placeholder="Such as 1-12, 40", elem_id="pages-wanted", lines=1, max_lines=1)
        room = block("range-text")
        with gr.Row():
            read = gr.Button(READ, variant="primary", elem_id="read-pages", size="md", scale=0, min_width=150)
            leave = gr.Button(CANCEL, elem_id="leave-pages", size="md", scale=0, min_width=90)
    with gr.Column(elem_id="together", elem_classes="tf-dialog tf-by-heading"):
        pick, pick_budget = block("pick", clicks=True), block("pick-budget", clicks=True)

    def typed(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        if services.choosing(view):  # a late word from a closed dialog does not open it again
            view.choosing = pages

    def read_pages(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        entry = services.choosing(view)
        if entry and readable(entry, services.collection.fit(entry), pages):  # Enter passes the button by
            with noticing(view):
                services.choose_pages(view, pages)

    def leave_pages(request: gr.Request) -> None:
        tabs.get(request.session_hash).choosing = None

    # Not ``input``: Gradio keeps the first one that follows a value of ours to itself.
    wanted.change(typed, [wanted], None, queue=False, trigger_mode="always_last", **PRIVATE)
    for event in (read.click, wanted.submit):
        event(read_pages, [wanted], None, queue=False, **PRIVATE)
    leave.click(leave_pages, None, None, queue=False, **PRIVATE)
    return {"choice_text": text, "chapters": chapters, "pages_wanted": wanted, "range_text": room, "read_pages": read,
            "pick": pick, "pick_budget": pick_budget}


def actions(services: Services) -> Actions:
    def choose_pages(view: TabView, data: dict[str, str]) -> None:
        entry, view.picking = services.library.get(view.document), None
        view.choosing = ranges_text(services.collection.suggestion(entry)) if entry else None

    def together(view: TabView, data: dict[str, str]) -> None:
        """Ask which documents; the open one, or what it consists of, is ticked."""
        entry = services.library.get(view.document)
        view.choosing = None
        view.picking = tuple(part.id for part in services.library.parts(entry)) if entry else ()

    def leave(view: TabView, data: dict[str, str]) -> None:
        view.picking = None

    def pick(view: TabView, data: dict[str, str]) -> None:
        """Tick a document or take the tick off; the last one ticked is the last to be read."""
        picked, document = view.picking or (), data.get("document", "")
        view.picking = tuple(key for key in picked if key != document) if document in picked else (*picked, document)

    return {"choose-pages": choose_pages, "together": together, "leave-together": leave, "pick": pick,
            "read-together": lambda view, data: services.read_together(view)}


def panels(services: Services) -> list[Panel]:
    queue, library = services.queue, services.library

    def choosing(view: TabView) -> tuple[Entry, DocumentFit | None] | None:
        entry = services.choosing(view)
        return (entry, services.collection.fit(entry)) if entry else None

    def typed(view: TabView, entry: Entry) -> str:
        return ranges_text(services.collection.suggestion(entry)) if view.choosing is None else view.choosing

    def draw_words(view: TabView) -> str:
        shown = choosing(view)
        document = library.document(shown[0].id) if shown else None
        return what_fits(*shown, bool(document and document.chapters)) if shown else ""

    def draw_chapters(view: TabView) -> str:
        shown = choosing(view)
        document = library.document(shown[0].id) if shown else None
        return chapter_list(document, shown[1], typed(view, shown[0])) if shown and document else ""

    def draw_pages(view: TabView) -> dict[str, Any]:
        shown = choosing(view)
        return gr.update(value=typed(view, shown[0])) if shown else gr.update()

    def draw_budget(view: TabView) -> str:
        shown = choosing(view)
        if shown is None:
            return ""
        (entry, fit), context = shown, queue.model.max_context if queue.model else 0
        split = partial(services.collection.split, entry, fit) if entry.parts and fit else None
        return range_words(entry, fit, typed(view, entry), context, split)

    def draw_read(view: TabView) -> dict[str, Any]:
        shown = choosing(view)
        return gr.update(interactive=shown is None or readable(*shown, typed(view, shown[0])))

    def key(view: TabView) -> tuple[object, ...]:
        shown = choosing(view)
        return view.document, shown is not None, shown is not None and shown[1]

    return [
        Panel("choice_text", key, draw_words),
        Panel("chapters", key, draw_chapters),
        Panel("pages_wanted", lambda view: (view.document, choosing(view) is not None), draw_pages),
        Panel("range_text", lambda view: (key(view), view.choosing), draw_budget),
        Panel("read_pages", lambda view: (key(view), view.choosing), draw_read),
        *_together_panels(services),
    ]


def _together_panels(services: Services) -> list[Panel]:
    def pickable() -> list[Entry]:
        """Return the documents with files of their own."""
        return [entry for entry in services.library.entries() if not entry.parts]

    def draw_list(view: TabView) -> str:
        if view.picking is None:
            return ""
        entries = pickable()
        return document_list(entries, view.picking, services.collection.weigh([entry.id for entry in entries]))

    def draw_budget(view: TabView) -> str:
        return picked_budget(services.collection.weigh(view.picking)) if view.picking is not None else ""

    def states(view: TabView) -> object:
        return view.picking is not None and tuple((entry.id, entry.state) for entry in pickable())

    def weighed(view: TabView) -> object:
        return view.picking, states(view), len(services.queue.fits), services.queue.model

    return [Panel("pick", states, draw_list), Panel("pick_budget", weighed, draw_budget)]
