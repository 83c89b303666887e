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

from ..state.collection import Weighing
from ..state.context_budget import Part, answer_room
from ..state.library import Entry, Ranges
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view import context_bar
from ..view import number_format as fmt
from ..view.charts import esc
from ..view.painter import Panel
from ..words import page as page_words
from ..words import page_choice as choice_words
from ..words import together as together_words
from . import html
from .events import PRIVATE, safely
from .library import pages

Split = Callable[[Ranges], Sequence[tuple[str, int]]]


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
        text = html("choice-text")
        chapters = html("chapters")
        wanted = gr.Textbox(label=choice_words.PAGES, placeholder=choice_words.PAGES_HELP, elem_id="pages-wanted",
                            lines=1, max_lines=1)
        room = html("range-text")
        with gr.Row():
            read = gr.Button(choice_words.READ, variant="primary", elem_id="read-pages", size="md", scale=0,
                             min_width=150)
            leave = gr.Button(page_words.KEEP_AS_IS, elem_id="leave-pages", size="md", scale=0, min_width=90)
    return Choice(text, chapters, wanted, room, read, leave)


def which(ranges: Ranges) -> str:
    """Pages in words: 'pages 1 to 12, 40'."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return choice_words.WHICH_ONE.format(page=ranges[0][0])
    return choice_words.WHICH.format(ranges=ranges_text(ranges).replace("-", choice_words.TO))


def words(entry: Entry, fit: DocumentFit | None) -> str:
    if fit is None:
        title, text = choice_words.TITLE, choice_words.UNKNOWN.format(pages=pages(entry.pages))
    else:
        too_much = choice_words.TOO_LARGE_TITLE if fit.limited_by == "memory" else choice_words.TOO_LONG_TITLE
        title = choice_words.TITLE if fit.fits else too_much
        text = (choice_words.FITS if fit.fits else choice_words.TOO_LONG).format(
            tokens=fmt.tokens(fit.tokens, fit.estimated), pages=pages(entry.pages), most=fmt.count(fit.max_tokens))
    return f"<h2>{esc(title)}</h2><p>{esc(text)}</p>"


def range_words(entry: Entry, fit: DocumentFit | None, typed: str, context: int = 0,
                split: Split | None = None) -> str:
    """Whether the pages typed so far fit, and the bar of what they take. context: the model's, 0 if it is not known.
    split: title and tokens of each of several documents, for the pages of some ranges."""
    try:
        ranges = page_ranges(typed, entry.pages)
    except TriForceError:
        return f'<p class="tf-bad">{esc(choice_words.BAD.format(pages=entry.pages))}</p>'
    if fit is None:
        return ""
    tokens = sum(sum(fit.page_tokens[first - 1 : last]) for first, last in ranges)
    chosen = which(ranges).capitalize()
    if tokens > fit.max_tokens:
        good, text = False, choice_words.CHOSEN_TOO_LONG.format(
            chosen=chosen, tokens=fmt.count(tokens), over=fmt.count(tokens - fit.max_tokens))
    else:
        good, text = True, choice_words.CHOSEN_FITS.format(
            chosen=chosen, tokens=fmt.count(tokens), percent=fmt.percent(tokens, fit.max_tokens))
    parts = [Part(title, taken) for title, taken in (split(ranges) if split else [(chosen, tokens)])]
    weighing = Weighing(tuple(parts), fit.max_tokens, answer_room(fit, context))
    drawn = context_bar.bar(parts, weighing.most, weighing.room, legend=split is not None, css="tf-inline")
    if split:
        text += "".join(" " + together_words.DROP_ONE.format(title=part.title) for part in weighing.enough[:1])
    return f'{drawn}<p class="{"tf-good" if good else "tf-bad"}">{esc(text)}</p>'


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
                    for which, label in (("all", choice_words.ALL), ("none", choice_words.NONE)))
    return (f'<fieldset class="tf-chapters" data-pages="{len(document.pages)}" data-chosen="{esc(typed)}">'
            f"<legend>{esc(choice_words.CHAPTERS)}</legend>{tools}<ul>{items}</ul></fieldset>")


def _sizes(document: Document, fit: DocumentFit | None) -> list[str]:
    """What each chapter takes: tokens where they were counted, words otherwise."""
    each: Sequence[int] = fit.page_tokens if fit else [len(page.text.split()) for page in document.pages]

    def size(chapter: Chapter) -> str:
        count = fmt.count(sum(each[chapter.first - 1 : chapter.last]))
        return choice_words.TOKENS.format(tokens=count) if fit else choice_words.WORDS.format(words=count)

    return [size(chapter) for chapter in document.chapters]


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
        return words(*shown) if shown else ""

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

    def key(view: TabView) -> tuple[object, ...]:
        shown = choosing(view)
        return view.document, shown is not None, shown is not None and shown[1]

    return [
        Panel("choice_text", key, draw_words),
        Panel("chapters", key, draw_chapters),
        Panel("pages_wanted", lambda view: (view.document, is_open(view)), draw_pages),
        Panel("range_text", lambda view: (key(view), view.choosing), draw_budget),
    ]


def wire(services: Services, tabs: Tabs, chosen: Choice) -> None:
    def typed(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        if services.choosing(view):  # a late word from a closed dialog does not open it again
            view.choosing = pages

    def read(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
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
