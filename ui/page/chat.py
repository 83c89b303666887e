"""The middle: finished exchanges, the one being written, and the line to ask in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import Document

from ..app.accumulator import Trace
from ..app.conversations import Answer
from ..app.race import plain_rate
from ..app.runs import Run
from ..app.services import SAMPLE_NAME, Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import citations, page_names, provenance, transcript
from .citations import Citations
from .conversations import editing_note
from .document_head import prefill_line
from .html import button, esc
from .page_choice import scope, which
from .panel import PRIVATE, Panel, block, pace, safely
from .race import RACE, Race
from .wait_line import FOR_PAGES, text_line, wait_line

CHAT = "Chat"
ASK_PLACEHOLDER = "Ask about a document"
ASK_ABOUT = "Ask about {scope}"
ASK_LATER = "Choose the pages to read first"
QUOTES_ONLY_HELP = "The loaded model only quotes. For summaries and free answers load a chat model under Models."
KEYS = "Enter asks · Shift+Enter new line · ? all keys"
COPIED = "Copied"
READ_SILENT = "Stop reading"
MEANWHILE_ASK = ("You can ask now. The answer starts when everything is read, or at once from the pages read so far, "
                 "if you choose that.")
START_MORE = ("The answer is written from {scope}, and the strip shows which pages the model looked at. "
              "Press Race to see the same answer with and without speculation.")

WELCOME_MORE = ("Drop a document anywhere on this window. The model reads all of it, or the pages that you choose. "
                "Nothing leaves this machine.")
WELCOME_REMOTE = ("Drop a document anywhere on this window. All of it, or the pages you choose, is sent to the server "
                  "with every question.")

MOST_CHAPTERS = 60


def welcome(sample: str | None, sends_to: str = "") -> str:
    """Nothing is open yet."""
    action = button("Try it with the handbook", "open", css="tf-primary", document=sample) if sample else ""
    more = WELCOME_REMOTE if sends_to else WELCOME_MORE
    return f'<div class="tf-welcome"><h1>Ask your documents</h1><p>{esc(more)}</p>{action}</div>'


def meanwhile(document: Document | None) -> str:
    """While a document is read: that questions can be asked, and its chapters, to be looked into. document: None while
    its text is being extracted."""
    ask = f'<div class="tf-meanwhile"><p>{esc(MEANWHILE_ASK)}</p>'
    if document is None or not document.chapters:
        return f"{ask}</div>"
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><button type="button" data-action="page" data-page="{chapter.first}">'
        f'<span>{esc(chapter.title)}</span><span class="tf-muted">'
        f"{esc(page_names.short(document.pages[chapter.first - 1].label))}</span></button></li>"
        for chapter in [chapter for chapter in document.chapters if chapter.level <= 2][:MOST_CHAPTERS])
    return (f"{ask}<h2>What it contains</h2><p>Look into it while the model reads: a chapter opens its page.</p>"
            f"<ul>{items}</ul></div>")


def begin(scope: str, questions: Sequence[str] = ()) -> str:
    """A document is open and nothing has been asked. scope: what is read of it. questions: to begin with."""
    listed = "".join(button(words, "ask", question=words) for words in questions)
    return (f'<div class="tf-welcome tf-small"><h2>{esc(ASK_ABOUT.format(scope=scope))}</h2>'
            f'<p>{esc(START_MORE.format(scope=scope))}</p><div class="tf-starters">{listed}</div></div>')


def inside(services: Services, run: Run, by_token: bool) -> str:
    """What the answer shows by now, as safe HTML. by_token: who wrote each token."""
    text, document = run.accumulator.text, services.library.document(run.document)
    return transcript.writing(run, wait(services, run), by_token, pace(services.queue, services.runs).moves, lambda: (
        citations.live(text, document, run.quotes)), sooner(services, run))


def sooner(services: Services, run: Run) -> str:
    """The offer to answer from the pages that are read by now, as safe HTML; "" where there is nothing to offer."""
    pages = services.queue.pages_read(run)
    return button(f"Answer now from {which(pages)}", "answer-now", css="tf-quiet", run=run.id) if pages else ""


def wait(services: Services, run: Run) -> str:
    """What it waits for; "" where it waits no more."""
    if run.state == "preparing":
        prefill = services.queue.prefills.get(run.document)
        line, _, figures = prefill_line(prefill, services.queue.load_progress) if prefill else ("", 0.0, "")
        return f"{line} · {figures}" if figures else line
    if run.state != "queued":
        return ""
    if services.queue.holds(run):
        extraction = services.extractor.extractions.get(run.document)
        return text_line(extraction) if extraction else FOR_PAGES
    return wait_line(services.queue.ahead(run))


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
        question = gr.Textbox(placeholder=ASK_PLACEHOLDER, label=ASK_PLACEHOLDER,
                              show_label=False,
                              container=False, lines=1, max_lines=7, elem_id="question")
        with gr.Row(elem_id="composer-row"):
            keys = block("keys")
            race = gr.Button(RACE, elem_id="race-now", size="sm", min_width=74)
            stop = gr.Button(transcript.STOP, variant="stop", elem_id="stop", size="sm", min_width=74, visible=False)
            send = gr.Button("Ask", variant="primary", elem_id="send", size="sm", min_width=74)
    return Chat(finished, live, question, send, stop, editing, context, keys, race)


def panels(services: Services) -> list[Panel]:
    conversations, citations = services.conversations, Citations(services.finders)

    def askable(view: TabView) -> bool:
        entry = services.library.get(view.document)
        return entry is not None and services.phase(entry) in ("ready", "resting", "unsaved")

    def draw_transcript(view: TabView) -> str:
        if view.document is None:
            entries = services.library.entries()
            sample = next((entry.id for entry in entries if entry.name == SAMPLE_NAME), None)
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
        words, more = (("Only quotes sentences · ? all keys", QUOTES_ONLY_HELP) if quotes_only(view) else (KEYS, ""))
        return f'<span class="tf-keys" title="{esc(more)}">{esc(words)}</span>'

    def stop_state(view: TabView) -> tuple[bool, bool]:
        run = services.active_run(view)
        return run is not None, bool(run and run.stopping)

    def draw_stop(view: TabView) -> dict[str, Any]:
        shown, stopping = stop_state(view)
        return gr.update(visible=shown, interactive=not stopping,
                         value=transcript.STOPPING if stopping else transcript.STOP)

    return [Panel("live", live_key, draw_live), Panel("stop", stop_state, draw_stop),
            Panel("keys", quotes_only, draw_keys)]


def asked_about(services: Services, view: TabView) -> str:
    """What the question line asks for."""
    entry = services.library.get(view.document)
    if entry is None:
        return ASK_PLACEHOLDER
    later = services.phase(entry) == "too_long"
    return ASK_LATER if later else ASK_ABOUT.format(scope=scope(entry))


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
