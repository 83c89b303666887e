"""Models: what is on this machine, whether it fits, what drafts for it; loading one, and fetching another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..page.html import esc
from ..page.panel import PRIVATE, Panel, block
from ..state.models import FETCH, LOOK, OFFER
from ..state.services import Services
from ..state.tab_view import TabView
from ..view.models import board
from ..words import models as model_words


@dataclass(frozen=True)
class ModelsForm:
    board: gr.HTML
    folder: gr.Textbox
    look: gr.Button
    repo: gr.Textbox
    ask: gr.Button


def build(unused: str = "") -> ModelsForm:
    """unused: why models of this machine do not apply; the form is hidden then."""
    block("models-help", f'<div class="tf-pad"><h2 class="tf-h">{esc(model_words.TITLE)}</h2>'
                         f'<p class="tf-note">{esc(unused or model_words.HELP)}</p></div>')
    with gr.Row(elem_classes="tf-models-form", visible=not unused):
        folder = gr.Textbox(label=model_words.FOLDER, info=model_words.FOLDER_HELP, elem_id="models-folder",
                            max_lines=1, scale=5)
        look = gr.Button(model_words.LOOK, variant="primary", elem_id="models-look", size="md", scale=0,
                         min_width=150)
    with gr.Row(elem_classes="tf-models-form", visible=not unused):
        repo = gr.Textbox(label=model_words.REPO, info=model_words.REPO_HELP, elem_id="models-repo",
                          max_lines=1, scale=5)
        ask = gr.Button(model_words.ASK, elem_id="models-ask", size="md", scale=0, min_width=150)
    board = block("models-board", clicks=True)  # below both, so that what they answer stands where they are
    return ModelsForm(board, folder, look, repo, ask)


def panels(services: Services) -> list[Panel]:
    models, queue = services.models, services.queue

    def draw(view: TabView) -> str:
        return board(models, queue.config.model, queue.model, services.models_unused, queue.state, queue.load_progress)

    return [Panel("models_board", lambda view: (models.version, queue.config.model, queue.model, queue.state,
                                                queue.load_progress), draw, 0.3)]


def actions(services: Services) -> dict[str, Callable[[TabView, dict[str, str]], Any]]:
    """What its buttons do."""
    return {
        "use-model": lambda view, data: services.use_model(data.get("model", ""), data.get("draft", "auto"),
                                                            data.get("weights", ""), data.get("kv", "")),
        "want-model": lambda view, data: services.models.want(data.get("repo")),
        "leave-model": lambda view, data: services.models.want(None),
        "fetch-model": lambda view, data: services.models.fetch(),
        "cancel-models": lambda view, data: services.models.cancel(),
    }


def wire(services: Services, form: ModelsForm, tab: gr.Tab) -> None:
    """tab: when it is opened, the app looks by itself: that reads this machine and asks nobody."""
    def open_tab() -> None:
        if not services.models_unused and services.models.stale:
            services.models.look()

    def look(folder: str) -> None:
        services.models.look(folder)

    def ask(repo: str) -> None:
        if repo.strip():
            services.models.ask_hub(repo)

    tab.select(open_tab, None, None, queue=False, **PRIVATE)
    for event in (form.look.click, form.folder.submit):
        event(look, [form.folder], None, queue=False, **PRIVATE)
    for event in (form.ask.click, form.repo.submit):
        event(ask, [form.repo], None, queue=False, **PRIVATE)


assert {LOOK, OFFER, FETCH} == set(model_words.DOING), "every errand has its words"
