"""Which documents are to be read together: all of them to tick, and what the ticked ones take of the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gradio as gr

from ..app.context_budget import Weighing
from ..app.library import Entry
from ..app.services import Services
from ..app.tab_view import TabView
from . import number_format as fmt
from .html import CANCEL, button, esc
from .page_choice import DROP_ONE, TOKENS, context_bar
from .panel import Panel, block

ADD_MORE = "Add documents"
PICK_HELP = ("Every document that you tick is read in full, in the order in which you tick them. A new conversation "
             "begins; earlier ones stay with their documents.")
DROP_MORE = "Leave out two or more, or choose chapters afterwards."
ROOM_UNKNOWN = "What fits is known once a model is loaded."
ESTIMATED = "Documents that were not read yet are estimated; they are counted before anything is read."


def listed(entries: Sequence[Entry], picked: Sequence[str], weighing: Weighing) -> str:
    """weighing: of the entries, in their order."""
    rows = []
    for entry, part in sorted(zip(entries, weighing.parts, strict=True),
                              key=lambda item: picked.index(item[0].id) if item[0].id in picked else len(picked)):
        off = "" if entry.state == "ready" else " disabled"
        on = " checked" if entry.id in picked else ""
        size = "not read" if off else TOKENS.format(tokens=fmt.tokens(part.tokens, part.estimated))
        rows.append(f'<li><label><input type="checkbox" data-action="pick" data-document="{esc(entry.id)}"{on}{off}>'
                    f'<span class="tf-chapter-title">{esc(part.title)}</span>'
                    f'<span class="tf-chapter-size">{esc(size)}</span></label></li>')
    return (f"<h2>Which documents should be read together?</h2><p>{esc(PICK_HELP)}</p>"
            f'<fieldset class="tf-chapters tf-pick"><legend class="tf-hidden">Documents</legend>'
            f'<ul>{"".join(rows)}</ul></fieldset>')


def verdict(weighing: Weighing) -> str:
    """Whether they fit, and if not, which of them to leave out."""
    used = fmt.tokens(sum(part.tokens for part in weighing.parts), any(part.estimated for part in weighing.parts))
    if weighing.over <= 0:
        return (f'<p class="tf-good">'
                f"{esc(f'{used} of {fmt.count(weighing.most)} tokens. Fits.')}</p>")
    words = [f"{fmt.count(weighing.over)} tokens too many."]
    words += [DROP_ONE.format(title=part.title) for part in weighing.enough[:1]]
    if not weighing.enough:
        words.append(DROP_MORE)
    return f'<p class="tf-bad">{esc(" ".join(words))}</p>'


def chosen(weighing: Weighing) -> str:
    """The bar, what it means, and what to do next."""
    drawn = fits = ""
    if weighing.parts and not weighing.most:
        drawn = f'<p class="tf-note">{esc(ROOM_UNKNOWN)}</p>'
    elif weighing.parts:
        drawn, fits = context_bar(weighing.parts, weighing.most, weighing.room), verdict(weighing)
        if any(part.estimated for part in weighing.parts):
            drawn += f'<p class="tf-note">{esc(ESTIMATED)}</p>'
    read = button("Read these together", "read-together", css="tf-primary")
    if len(weighing.parts) < 2:
        read = read.replace("<button ", "<button disabled ")
    return f'{drawn}<div class="tf-dialog-row">{fits}{read}{button(CANCEL, "leave-together")}</div>'


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
