"""Which documents are to be read together: all of them to tick, and what the ticked ones take of the context."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from ..page.panel import Panel, block
from ..state.library import Entry
from ..state.services import Services
from ..state.tab_view import TabView
from ..view.together import chosen, listed


def build() -> tuple[gr.HTML, gr.HTML]:
    """The list, and the bar with its buttons; shelf.css hides both while there is no heading."""
    with gr.Column(elem_id="together", elem_classes="tf-dialog tf-by-heading"):
        return block("pick", clicks=True), block("pick-budget", clicks=True)


def pickable(services: Services) -> list[Entry]:
    """Documents with files of their own."""
    return [entry for entry in services.library.entries() if not entry.parts]


def begin(services: Services, view: TabView) -> None:
    """Ask which documents; the open one, or what it is made of, is ticked."""
    entry = services.library.get(view.document)
    view.choosing = None
    view.picking = tuple(part.id for part in services.library.parts(entry)) if entry else ()


def pick(view: TabView, document: str) -> None:
    """Tick a document or take the tick off; the last one ticked is the last to be read."""
    picked = view.picking or ()
    view.picking = tuple(key for key in picked if key != document) if document in picked else (*picked, document)


def actions(services: Services) -> dict[str, Callable[[TabView, dict[str, str]], None]]:
    def leave(view: TabView, data: dict[str, str]) -> None:
        view.picking = None

    return {"together": lambda view, data: begin(services, view), "leave-together": leave,
            "pick": lambda view, data: pick(view, data.get("document", "")),
            "read-together": lambda view, data: services.read_together(view)}


def panels(services: Services) -> list[Panel]:
    def draw_list(view: TabView) -> str:
        if view.picking is None:
            return ""
        entries = pickable(services)
        return listed(entries, view.picking, services.collection.weigh([entry.id for entry in entries]))

    def draw_chosen(view: TabView) -> str:
        return chosen(services.collection.weigh(view.picking)) if view.picking is not None else ""

    def states(view: TabView) -> object:
        return view.picking is not None and tuple((entry.id, entry.state) for entry in pickable(services))

    def weighed(view: TabView) -> object:
        return view.picking, states(view), len(services.queue.fits), services.queue.model

    return [Panel("pick", states, draw_list), Panel("pick_budget", weighed, draw_chosen)]
