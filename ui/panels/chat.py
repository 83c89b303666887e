"""The middle: finished exchanges, the one being written, and the line to ask in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from ..page import provenance
from ..page.html import esc
from ..page.page_choice import scope
from ..page.panel import PRIVATE, Panel, block, safely
from ..page.race import RACE, Race
from ..state.conversations import Answer
from ..state.race import plain_rate
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..state.trace import Trace
from ..view import transcript
from ..view.citations import Citations
from ..view.live_answer import inside
from ..view.welcome import begin, meanwhile, welcome
from ..words import chat as chat_words
from ..words import library as library_words
from .conversations import editing_note


@dataclass(frozen=True)
class Chat:
    transcript: gr.HTML
    live: gr.HTML
    question: gr.Textbox
    send: gr.Button
    stop: gr.Button
    editing: gr.HTML
    context: gr.HTML
    keys: gr.HTML
    race: gr.Button


def build() -> Chat:
    with gr.Column(elem_id="chat-scroll"):
        finished = block("transcript", clicks=True)
        live = block("live", clicks=True)
    editing, context = editing_note(), block("context-note", clicks=True)
    with gr.Column(elem_id="composer"):
        question = gr.Textbox(placeholder=chat_words.ASK_PLACEHOLDER, label=chat_words.ASK_PLACEHOLDER,
                              show_label=False,
                              container=False, lines=1, max_lines=7, elem_id="question")
        with gr.Row(elem_id="composer-row"):
            keys = block("keys")
            race = gr.Button(RACE, elem_id="race-now", size="sm", min_width=74)
            stop = gr.Button(chat_words.STOP, variant="stop", elem_id="stop", size="sm", min_width=74, visible=False)
            send = gr.Button(chat_words.SEND, variant="primary", elem_id="send", size="sm", min_width=74)
    return Chat(finished, live, question, send, stop, editing, context, keys, race)


def panels(services: Services) -> list[Panel]:
    conversations, citations = services.conversations, Citations(services.finders)

    def askable(view: TabView) -> bool:
        entry = services.library.get(view.document)
        return entry is not None and services.phase(entry) in ("ready", "resting", "unsaved")

    def draw_transcript(view: TabView) -> str:
        if view.document is None:
            entries = services.library.entries()
            sample = next((entry.id for entry in entries if entry.name == library_words.SAMPLE_NAME), None)
            return welcome(sample, services.sends_to)
        answers = conversations.answers(view.conversation) if view.conversation else []
        document = services.library.document(view.document)
        if not answers:
            entry = services.library.get(view.document)
            if entry is None or not askable(view):
                if entry is None or services.phase(entry) == "too_long":
                    return ""
                return meanwhile(document) if document or entry.state == "extracting" else ""
            return begin(scope(entry), services.suggestions.of(entry))

        def body(answer: Answer) -> str:
            if answer.id != view.traced:
                return citations.render(answer.text, document, view.document or "",
                                        answer.result.get("quotes", ()), answer.result.get("support", ()))
            kept = conversations.trace(answer.id) or Trace()
            return provenance.drawn(kept, answer.text, answer.result.get("first_page", 1), document)

        versions, raced = conversations.versions(view.conversation or ""), conversations.race(view.document)
        return transcript.transcript(answers, body, view.traced, versions,
                                     lambda answer: plain_rate(raced, answer.question, answer.result))

    def text_state(view: TabView) -> object:
        entry = services.library.get(view.document)
        return entry and (entry.state, services.phase(entry) == "too_long")

    def suggested(view: TabView) -> tuple[str, ...]:
        entry = services.library.get(view.document)
        return services.suggestions.of(entry) if entry else ()

    def raced(view: TabView) -> str | None:
        """The race that has ended last: what it measured stands under an answer."""
        run = services.runs.race_of(view.document)
        return run.id if run and run.ended else None

    def shown_trace(view: TabView) -> str | None:
        """Not that of the answer being written: the others need not be drawn again for it."""
        run = services.running(view)
        return None if run and run.id == view.traced else view.traced

    return [
        Panel("transcript", lambda view: (
            view.document, view.conversation, shown_trace(view), conversations.version, askable(view),
            asked_about(services, view), raced(view), suggested(view), text_state(view),
            view.document is None and services.library.version), draw_transcript),
        Panel("question", partial(asked_about, services), lambda view: gr.update(
            placeholder=asked_about(services, view), label=asked_about(services, view))),
        *_live_panels(services),
    ]


def _live_panels(services: Services) -> list[Panel]:
    def live_key(view: TabView) -> object:
        run = services.running(view)
        return run and (run.id, run.id == view.traced)

    def draw_live(view: TabView) -> str:
        run = services.running(view)
        by_token = run is not None and run.id == view.traced
        return transcript.live(run, by_token, inside(services, run, by_token)) if run else ""

    def quotes_only(view: TabView) -> bool:
        model = services.queue.model
        return model is not None and not model.instructions and not services.sends_to

    def draw_keys(view: TabView) -> str:
        """What the model cannot do stands where a question is written."""
        words, more = ((chat_words.QUOTES_ONLY, chat_words.QUOTES_ONLY_HELP) if quotes_only(view)
                       else (chat_words.KEYS, ""))
        return f'<span class="tf-keys" title="{esc(more)}">{esc(words)}</span>'

    def stop_state(view: TabView) -> tuple[bool, bool]:
        run = services.active_run(view)
        return run is not None, bool(run and run.stopping)

    def draw_stop(view: TabView) -> dict[str, Any]:
        shown, stopping = stop_state(view)
        return gr.update(visible=shown, interactive=not stopping,
                         value=chat_words.STOPPING if stopping else chat_words.STOP)

    return [Panel("live", live_key, draw_live), Panel("stop", stop_state, draw_stop),
            Panel("keys", quotes_only, draw_keys)]


def asked_about(services: Services, view: TabView) -> str:
    """What the question line asks for."""
    entry = services.library.get(view.document)
    if entry is None:
        return chat_words.ASK_PLACEHOLDER
    later = services.phase(entry) == "too_long"
    return chat_words.ASK_LATER if later else chat_words.ASK_ABOUT.format(scope=scope(entry))


def wire(services: Services, tabs: Tabs, chat: Chat, race: Race, tab_bar: gr.Tabs) -> None:
    """race, tab_bar: its button here shows the race's tab, with the question in it."""
    def ask(question: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        return "" if safely(view, lambda: services.ask(view, question)) else question

    def stop(request: gr.Request) -> None:
        services.stop(tabs.get(request.session_hash))

    def start_race(question: str, request: gr.Request) -> tuple[Any, Any, str]:
        """Race the typed question, or the conversation's last one; show the race only if there is one."""
        view = tabs.get(request.session_hash)
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        words = question.strip() or (answers[-1].question if answers else "")
        started = safely(view, lambda: services.race(view, words))
        return (gr.Tabs(selected="race") if started else gr.skip(), words or gr.skip(), "" if started else question)

    for event in (chat.send.click, chat.question.submit):
        event(ask, [chat.question], [chat.question], queue=False, **PRIVATE)
    chat.stop.click(stop, None, None, queue=False, **PRIVATE)
    chat.race.click(start_race, [chat.question], [tab_bar, race.question, chat.question], queue=False, **PRIVATE)
