"""Race: the question, the two lanes, the verdict. The replay runs in the browser from recorded times (page.js)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..state.runs import Run
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view.charts import esc
from ..view.painter import Panel
from ..view.race import board
from ..view.wait_line import wait_line
from ..words import chat as chat_words
from ..words import race as race_words
from . import html
from .events import PRIVATE, safely


@dataclass(frozen=True)
class Race:
    question: gr.Textbox
    start: gr.Button
    stop: gr.Button
    third: gr.Dropdown
    board: gr.HTML


def build() -> Race:
    html("race-help", f'<div class="tf-pad"><h2 class="tf-h">{esc(race_words.TITLE)}</h2>'
         f'<p class="tf-note">{esc(race_words.HELP)}</p></div>')
    with gr.Row(equal_height=True, elem_id="race-form"):
        question = gr.Textbox(label=race_words.QUESTION, lines=1, max_lines=4, elem_id="race-question", scale=5)
        start = gr.Button(race_words.START, variant="primary", elem_id="race-start", size="md", scale=0,
                          min_width=130)
        stop = gr.Button(chat_words.STOP, variant="stop", elem_id="race-stop", size="md", scale=0, min_width=90,
                         visible=False)
    third = gr.Dropdown(list(race_words.THIRD), value="", label=race_words.THIRD_LABEL,
                        info=race_words.THIRD_HELP, allow_custom_value=True, elem_id="race-third")
    board = html("race-board", clicks=True, begin="tfWatchRace(element);")
    return Race(question, start, stop, third, board)


def panels(services: Services) -> list[Panel]:
    runs = services.runs

    def wait(run: Run | None) -> str:
        return wait_line(services.queue.ahead(run)) if run and run.state == "queued" else ""

    def draw(view: TabView) -> str:
        run = runs.race_of(view.document)
        running = run is not None and not run.ended
        kept = None if running or not view.document else services.conversations.race(view.document)
        return board(run, kept, time.time(), wait(run))

    def key(view: TabView) -> object:
        run = runs.race_of(view.document)
        return view.document, run and run.version[:-1]

    def told(view: TabView) -> object:
        run = runs.race_of(view.document)
        return run and (run.version, wait(run))

    def stop_state(view: TabView) -> tuple[bool, bool]:
        run = runs.race_of(view.document)
        return run is not None and not run.ended, bool(run and run.stopping)

    def draw_stop(view: TabView) -> dict[str, Any]:
        shown, stopping = stop_state(view)
        return gr.update(visible=shown, interactive=not stopping, value=chat_words.STOPPING if stopping
                         else chat_words.STOP)

    return [Panel("race_board", key, draw, 0.15, told, "words"), Panel("race_stop", stop_state, draw_stop)]


def wire(services: Services, tabs: Tabs, lanes: Race) -> None:
    def start(question: str, third: str | None, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        safely(view, lambda: services.race(view, question, third or ""))

    def stop(request: gr.Request) -> None:
        services.stop(tabs.get(request.session_hash))

    for event in (lanes.start.click, lanes.question.submit):
        event(start, [lanes.question, lanes.third], None, queue=False, **PRIVATE)
    lanes.stop.click(stop, None, None, queue=False, **PRIVATE)
