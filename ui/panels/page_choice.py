"""Which pages are to be read: chapters with their tokens to tick, the pages as text, and whether they fit.

What counts is the line of pages; chapters.js keeps the ticks in step with it, so that nothing is redrawn under a hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import DocumentFit, ranges_text

from ..page.html import CANCEL
from ..page.panel import PRIVATE, Panel, block, safely
from ..state.library import Entry
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view.page_choice import listed, range_words, readable, words
from ..words import page_choice as choice_words


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
        wanted = gr.Textbox(label=choice_words.PAGES, placeholder=choice_words.PAGES_HELP, elem_id="pages-wanted",
                            lines=1, max_lines=1)
        room = block("range-text")
        with gr.Row():
            read = gr.Button(choice_words.READ, variant="primary", elem_id="read-pages", size="md", scale=0,
                             min_width=150)
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
        return words(*shown, bool(document and document.chapters)) if shown else ""

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
