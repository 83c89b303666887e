"""The box that a conversation's instructions are written in, and why it is closed for a model that follows none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..app.questions import LONGEST
from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from .html import CANCEL, esc
from .panel import PRIVATE, Panel, block, safely

INSTRUCT_LABEL = "Instructions for this conversation"
INSTRUCT_HELP = ("What every answer in this conversation should follow: language, length, tone, readers. The model "
                 "sees this after the document and before the first question, so the document is not read again. It is "
                 "saved with the conversation and exported with it. It applies from the next question on; the model "
                 "then reads the conversation so far again, which takes a moment.")
INSTRUCT_NONE = ("The loaded model follows no instructions: it was trained to find sentences of the document "
                 "that answer a question, and to quote them. Load a chat model (Models) to use this.")
INSTRUCT_KEEP = "Save"


def about(followed: bool) -> str:
    words = INSTRUCT_HELP if followed else INSTRUCT_NONE
    return f'<h2>{esc(INSTRUCT_LABEL)}</h2><p class="tf-muted">{esc(words)}</p>'


@dataclass(frozen=True)
class Instructions:
    box: gr.Column
    about: gr.HTML
    words: gr.Textbox
    keep: gr.Button
    leave: gr.Button


def build() -> Instructions:
    with gr.Column(visible=False, elem_id="instructing", elem_classes="tf-dialog") as box:
        about = block("instructions-about")
        words = gr.Textbox(label=INSTRUCT_LABEL, show_label=False, container=False, lines=3,
                           max_lines=10,
                           max_length=LONGEST, elem_id="instructions")
        with gr.Row():
            keep = gr.Button(INSTRUCT_KEEP, variant="primary", elem_id="keep-instructions",
                             size="md",
                             scale=0, min_width=96)
            leave = gr.Button(CANCEL, elem_id="leave-instructions", size="md", scale=0, min_width=90)
    return Instructions(box, about, words, keep, leave)


def wanted(services: Services, words: str) -> str:
    """What pressing the button keeps: where the model follows none, it takes them away."""
    return words if services.instructions.followed else ""


def panels(services: Services) -> list[Panel]:
    def key(view: TabView) -> tuple[object, ...]:
        return view.instructing, view.conversation, services.instructions.followed, services.conversations.version

    def draw_words(view: TabView) -> dict[str, Any]:
        if not view.instructing:
            return gr.update()
        return gr.update(value=services.instructions.of(view), interactive=services.instructions.followed)

    def draw_keep(view: TabView) -> dict[str, Any]:
        followed = services.instructions.followed
        return gr.update(value=INSTRUCT_KEEP if followed else "Remove",
                         visible=followed or bool(services.instructions.of(view)))

    return [
        Panel("instructing", lambda view: view.instructing, lambda view: gr.update(visible=view.instructing)),
        Panel("instructions_about", key, lambda view: about(services.instructions.followed)),
        Panel("instructions", lambda view: (view.instructing, view.conversation, services.instructions.followed),
              draw_words),
        Panel("keep_instructions", key, draw_keep),
    ]


def wire(services: Services, tabs: Tabs, told: Instructions) -> None:
    def keep(words: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        safely(view, lambda: services.instructions.keep(view, wanted(services, words)))

    def leave(request: gr.Request) -> None:
        tabs.get(request.session_hash).instructing = False

    told.keep.click(keep, [told.words], None, queue=False, **PRIVATE)
    told.leave.click(leave, None, None, queue=False, **PRIVATE)
