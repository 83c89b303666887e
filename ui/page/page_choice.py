"""Which pages are to be read: chapters with their tokens to tick, the pages as text, and whether they fit.

What counts is the line of pages; chapters.js keeps the ticks in step with it, so that nothing is redrawn under a hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import Chapter, Document, DocumentFit, TriForceError, page_ranges, ranges_text

from ..app.context_budget import Part, Weighing, answer_room, fitting_pages
from ..app.library import Entry, Ranges
from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import number_format as fmt
from .figures import TOKEN_UNIT
from .html import CANCEL, esc, part_colour
from .number_format import pages
from .panel import PRIVATE, Panel, block, safely

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
PAGES = "Pages"
READ = "Read these pages"
BAD = "Write pages from 1 to {pages}, such as 1-12, 40."
CHAPTERS = "Chapters"
NONE = "None"
TOKENS = "{tokens} tokens"
WORDS = "{words} words"
ROOM = "Room for questions and answers"
FREE = "Free"
BUDGET = "{used} of {most} tokens"

DROP_ONE = "Without “{title}” it would fit."


def context_bar(parts: Sequence[Part], most: int, room: int, legend: bool = True, css: str = "") -> str:
    """most: tokens that fit. room: kept for questions and answers beside them. legend: a line for each part."""
    used = sum(part.tokens for part in parts)
    scale = max(1, max(most, used) + room)
    about = any(part.estimated for part in parts)
    rows = [(part_colour(n), part.title, fmt.tokens(part.tokens, part.estimated)) for n, part in enumerate(parts)]
    segments = [_segment(colour, part.tokens / scale, f"{title}: {size}")
                for part, (colour, title, size) in zip(parts, rows, strict=True)]
    if room:
        segments.append(_segment("tf-room-kept", room / scale, f"{ROOM}: {fmt.count(room)}"))
    if used < most:
        segments.append(_segment("tf-room-free", (most - used) / scale, f"{FREE}: {fmt.count(most - used)}"))
    limit = f'<i class="tf-limit" style="left:{100 * most / scale:.2f}%"></i>' if used > most else ""
    words = BUDGET.format(used=fmt.tokens(used, about), most=fmt.count(most))
    if room:
        rows.append(("tf-room-kept", ROOM, fmt.count(room)))
    rows.append(("tf-room-free", FREE, fmt.count(most - used)) if used <= most
                else ("tf-room-over", "Too many", fmt.count(used - most)))
    listed = "".join(f'<li><i class="{css}"></i><span>{esc(title)}</span> <b>{esc(count)}</b></li>'
                     for css, title, count in rows)
    return (f'<div class="tf-budget {css}"><div class="tf-budget-bar" role="img" '
            f'aria-label="{esc(words)}">{"".join(segments)}{limit}</div>'
            + (f'<ul class="tf-budget-parts">{listed}</ul>' if legend else "") + "</div>")


def _segment(css: str, share: float, title: str) -> str:
    return (f'<span class="{css}" style="width:{100 * share:.3f}%" '
            f'title="{esc(title)} {esc(TOKEN_UNIT)}"></span>')


MOST_NAMED = 3  # ranges of pages in one phrase
Split = Callable[[Ranges], Sequence[tuple[str, int]]]


def which(ranges: Ranges) -> str:
    """Pages in words: 'pages 1 to 12, 40'."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return f"page {ranges[0][0]}"
    return WHICH.format(ranges=ranges_text(ranges).replace("-", TO))


def scope(entry: Entry) -> str:
    """What answers are written from, in words: 'the whole document', 'pages 1–36'."""
    if entry.chosen and len(entry.ranges) > MOST_NAMED:
        chosen = sum(last - first + 1 for first, last in entry.ranges)
        return f"{fmt.count(chosen)} of {pages(entry.pages)}"
    if entry.chosen:
        return which(entry.ranges)
    return SEVERAL.format(count=len(entry.parts)) if entry.parts else WHOLE


def what_fits(entry: Entry, fit: DocumentFit | None, chapters: bool = False) -> str:
    """What fits, and what can be done where not all does. chapters: whether there are any to tick."""
    larger = ""
    if fit is None:
        title, text = TITLE, UNKNOWN.format(pages=pages(entry.pages))
    elif fit.fits:
        title, text = TITLE, FITS
    else:
        title = PART_FITS.format(fitting=fmt.count(fitting_pages(fit)), pages=pages(entry.pages))
        text = TOO_LARGE if fit.limited_by == "memory" else TOO_LONG
        text += " " + (CHOICES_CHAPTERS if chapters else CHOICES)
        larger = ('<button type="button" class="tf-btn tf-quiet" data-tab="models">Look for a larger model'
                  "</button>")
    if fit is not None:
        text = text.format(tokens=fmt.tokens(fit.tokens, fit.estimated), pages=pages(entry.pages),
                           most=fmt.count(fit.max_tokens))
    return f"<h2>{esc(title)}</h2><p>{esc(text)} {larger}</p>"


def range_words(entry: Entry, fit: DocumentFit | None, typed: str, context: int = 0, split: Split | None = None) -> str:
    """Whether the pages typed so far fit, and the bar of what they take. context: the model's, 0 if it is not known.
    split: title and tokens of each of several documents, for the pages of some ranges."""
    try:
        ranges = page_ranges(typed, entry.pages)
    except TriForceError:
        return f'<p class="tf-bad">{esc(BAD.format(pages=entry.pages))}</p>'
    if fit is None:
        return ""
    tokens = _tokens(fit, ranges)
    chosen = which(ranges).capitalize()
    if tokens > fit.max_tokens:
        good, text = False, f"{chosen}: {fmt.count(tokens)} tokens, {fmt.count(tokens - fit.max_tokens)} too many."
    else:
        good, text = True, f"{chosen}: {fmt.count(tokens)} tokens. Fits ({fmt.percent(tokens, fit.max_tokens)})."
    parts = [Part(title, taken) for title, taken in (split(ranges) if split else [(chosen, tokens)])]
    weighing = Weighing(tuple(parts), fit.max_tokens, answer_room(fit, context))
    drawn = context_bar(parts, weighing.most, weighing.room, legend=split is not None, css="tf-inline")
    if split:
        text += "".join(" " + DROP_ONE.format(title=part.title) for part in weighing.enough[:1])
    return f'{drawn}<p class="{"tf-good" if good else "tf-bad"}">{esc(text)}</p>'


def readable(entry: Entry, fit: DocumentFit | None, typed: str) -> bool:
    """Whether the pages typed so far are some, and are not known to be too many."""
    try:
        ranges = page_ranges(typed, entry.pages)
    except TriForceError:
        return False
    return fit is None or fit.estimated or _tokens(fit, ranges) <= fit.max_tokens


def _tokens(fit: DocumentFit, ranges: Ranges) -> int:
    return sum(sum(fit.page_tokens[first - 1 : last]) for first, last in ranges)


def listed(document: Document, fit: DocumentFit | None, typed: str) -> str:
    """The chapters to tick, each with what it takes; "" where there are none. typed: the pages chosen so far."""
    if not document.chapters:
        return ""
    sizes = _sizes(document, fit)
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><label><input type="checkbox" data-chapter="{number}" '
        f'data-first="{chapter.first}" data-last="{chapter.last}" data-level="{chapter.level}">'
        f'<span class="tf-chapter-title">{esc(chapter.title)}</span>'
        f'<span class="tf-chapter-size">{esc(size)}</span></label></li>'
        for number, (chapter, size) in enumerate(zip(document.chapters, sizes, strict=True)))
    tools = "".join(f'<button type="button" class="tf-btn tf-quiet" data-chapters="{which}">{esc(label)}</button>'
                    for which, label in (("all", "All"), ("none", NONE)))
    return (f'<fieldset class="tf-chapters" data-pages="{len(document.pages)}" data-chosen="{esc(typed)}">'
            f"<legend>{esc(CHAPTERS)}</legend>{tools}<ul>{items}</ul></fieldset>")


def _sizes(document: Document, fit: DocumentFit | None) -> list[str]:
    """What each chapter takes: tokens where they were counted, words otherwise."""
    each: Sequence[int] = fit.page_tokens if fit else [len(page.text.split()) for page in document.pages]

    def size(chapter: Chapter) -> str:
        count = fmt.count(sum(each[chapter.first - 1 : chapter.last]))
        return TOKENS.format(tokens=count) if fit else WORDS.format(words=count)

    return [size(chapter) for chapter in document.chapters]


@dataclass(frozen=True)
class Choice:
    text: gr.HTML
    chapters: gr.HTML
    pages: gr.Textbox
    budget: gr.HTML
    read: gr.Button
    leave: gr.Button


def build() -> Choice:
    """Always in the page, for chapters.js; shelf.css hides it while it has no heading."""
    with gr.Column(elem_id="choice", elem_classes="tf-dialog tf-by-heading"):
        text = block("choice-text")
        chapters = block("chapters")
        wanted = gr.Textbox(label=PAGES, placeholder="Such as 1-12, 40", elem_id="pages-wanted", lines=1, max_lines=1)
        room = block("range-text")
        with gr.Row():
            read = gr.Button(READ, variant="primary", elem_id="read-pages", size="md", scale=0, min_width=150)
            leave = gr.Button(CANCEL, elem_id="leave-pages", size="md", scale=0, min_width=90)
    return Choice(text, chapters, wanted, room, read, leave)


def panels(services: Services) -> list[Panel]:
    queue, library = services.queue, services.library

    def choosing(view: TabView) -> tuple[Entry, DocumentFit | None] | None:
        entry = services.choosing(view)
        return (entry, services.collection.fit(entry)) if entry else None

    def is_open(view: TabView) -> bool:
        return choosing(view) is not None

    def typed(view: TabView, entry: Entry) -> str:
        return ranges_text(services.collection.suggestion(entry)) if view.choosing is None else view.choosing

    def draw_words(view: TabView) -> str:
        shown = choosing(view)
        document = library.document(shown[0].id) if shown else None
        return what_fits(*shown, bool(document and document.chapters)) if shown else ""

    def draw_chapters(view: TabView) -> str:
        shown = choosing(view)
        document = library.document(shown[0].id) if shown else None
        return listed(document, shown[1], typed(view, shown[0])) if shown and document else ""

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
        Panel("pages_wanted", lambda view: (view.document, is_open(view)), draw_pages),
        Panel("range_text", lambda view: (key(view), view.choosing), draw_budget),
        Panel("read_pages", lambda view: (key(view), view.choosing), draw_read),
    ]


def wire(services: Services, tabs: Tabs, chosen: Choice) -> None:
    def typed(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        if services.choosing(view):  # a late word from a closed dialog does not open it again
            view.choosing = pages

    def read(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        entry = services.choosing(view)
        if entry and readable(entry, services.collection.fit(entry), pages):  # Enter passes the button by
            safely(view, lambda: services.choose_pages(view, pages))

    def leave(request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        entry = services.library.get(view.document)
        view.choosing = None
        if entry and services.phase(entry) == "too_long":
            view.document = view.conversation = None

    # Not ``input``: Gradio keeps the first one that follows a value of ours to itself.
    chosen.pages.change(typed, [chosen.pages], None, queue=False, trigger_mode="always_last", **PRIVATE)
    for event in (chosen.read.click, chosen.pages.submit):
        event(read, [chosen.pages], None, queue=False, **PRIVATE)
    chosen.leave.click(leave, None, None, queue=False, **PRIVATE)
