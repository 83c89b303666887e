"""The tab's address: what it should be, for address.js, and where the browser went with Back, Forward or a link."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import of_view, visit
from .html import APP, esc
from .panel import Panel, block


def build() -> tuple[gr.HTML, gr.HTML]:
    """What it should be, and the button that address.js presses."""
    return block("address"), block("address-go", '<button type="button" data-action="go" tabindex="-1"></button>',
                                   clicks=True)


def actions(services: Services) -> dict[str, Callable[[TabView, dict[str, str]], None]]:
    def go(view: TabView, data: dict[str, str]) -> None:
        asked = int(data.get("asked", "0"))
        with view.stepping:  # a visit changes the view bit by bit: another one waits until it is over
            if asked <= view.asked:  # of two at once the later one counts, whichever is heard first
                return
            try:
                visit(services, view, data.get("address", ""))
            finally:
                view.asked = asked  # last: what is drawn before is no answer to it

    return {"go": go}


def panels(services: Services) -> list[Panel]:
    def draw(view: TabView) -> str:
        asked = view.asked  # read first: a step that ends now is not answered with where it began
        entry = services.library.get(view.document)
        title = f"{entry.title or entry.name} · TriForce Chat" if entry else APP
        return (f'<span data-address="{esc(of_view(view))}" data-openings="{view.openings}" '
                f'data-asked="{asked}" data-title="{esc(title)}"></span>')

    return [Panel("address", lambda view: (of_view(view), view.openings, view.asked, services.library.version), draw,
                  0.0)]
