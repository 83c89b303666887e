"""Above the chat: which document, how far its prefill is, what is wrong with it, and the box for its password."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from ..page.engine import ENGINE_FAILED, SILENT, SILENT_TITLE
from ..page.html import DISMISS, button, card, esc
from ..page.panel import PRIVATE, Panel, block, safely
from ..state.library import Entry
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..state.watchdog import SILENT_LIMIT
from ..view.document_head import head
from ..view.wait_line import wait_line
from ..words import chat as chat_words
from ..words import document_head as head_words
from ..words import storage as storage_words
from ..words import together as together_words


@dataclass(frozen=True)
class Locked:
    """The password box; hidden until it is needed."""

    column: gr.Column
    text: gr.HTML
    password: gr.Textbox
    unlock: gr.Button


def build_head() -> tuple[gr.HTML, gr.HTML]:
    return block("head", clicks=True), block("notice", clicks=True)


def build_locked() -> Locked:
    with gr.Column(visible=False, elem_id="locked", elem_classes="tf-dialog") as column:
        text = block("locked-text")
        with gr.Row():
            password = gr.Textbox(type="password", label=head_words.PASSWORD, elem_id="password", scale=3,
                                  min_width=140)
            unlock = gr.Button(head_words.UNLOCK, variant="primary", elem_id="unlock", size="md", scale=0, min_width=96)
    return Locked(column, text, password, unlock)


def panels(services: Services) -> list[Panel]:
    queue, extractor, library = services.queue, services.extractor, services.library

    def phase(view: TabView) -> tuple[Entry | None, str]:
        entry = library.get(view.document)
        return entry, services.phase(entry) if entry else ""

    def alone(view: TabView) -> bool:
        """No dialog is open, which would have a bar of its own."""
        return view.choosing is None and view.picking is None

    def key(view: TabView) -> tuple[object, ...]:
        prefill = queue.prefills.get(view.document or "")
        return (view.document, phase(view)[1], extractor.version, library.version, alone(view),
                prefill is not None and prefill.cancelled.is_set())

    def draw(view: TabView) -> str:
        entry, now = phase(view)
        document = view.document or ""
        prefill = queue.prefills.get(document)
        wait = wait_line(queue.ahead(prefill)) if prefill and prefill.stage == "waiting" else ""
        return head(entry, now, extraction=extractor.extractions.get(document), prefill=prefill, wait=wait,
                    load=queue.load_progress, opened=queue.opened.get(document),
                    problem=queue.problems.get(document, ""),
                    weighing=services.collection.of(entry) if entry and alone(view) else None)

    def notice(view: TabView) -> tuple[str, str, str] | None:
        """That several documents are read together is not said so long as they are too much for it; that an answer is
        still being written, no longer than it is."""
        early = view.notice and view.notice[1] == together_words.NEW_TALK and phase(view)[1] == "too_long"
        over = view.notice and view.notice[1] == chat_words.ONE_AT_A_TIME and services.active_run(view) is None
        return None if early or over else view.notice

    def told(view: TabView) -> tuple[tuple[str, str, str] | None, str, str, int]:
        broken = queue.problem if queue.state == "failed" else ""
        return notice(view), services.conversations.problem, broken, queue.silent_seconds

    def draw_notice(view: TabView) -> str:
        shown, problem, broken, silent = told(view)
        lasting = card("error", storage_words.DISK_TITLE, problem) if problem else ""
        lasting += card("error", ENGINE_FAILED, broken) if broken else ""
        lasting += card("warn", SILENT_TITLE, SILENT.format(
            seconds=silent, limit=SILENT_LIMIT)) if silent else ""
        if shown is None:
            return lasting
        return lasting + card(*shown, action=button(DISMISS, "dismiss", css="tf-quiet"))

    def draw_locked(view: TabView) -> str:
        entry, now = phase(view)
        wrong = f'<p class="tf-bad">{esc(entry.error)}</p>' if entry and now == "locked" and entry.error else ""
        return f"<h2>{esc(head_words.PASSWORD_TITLE)}</h2><p>{esc(head_words.PASSWORD_HELP)}</p>{wrong}"

    return [
        Panel("head", key, draw, news=lambda view: queue.version, told="words"),
        Panel("notice", told, draw_notice),
        Panel("locked", lambda view: phase(view)[1] == "locked",
              lambda view: gr.update(visible=phase(view)[1] == "locked")),
        Panel("locked_text", lambda view: (phase(view), library.version), draw_locked),
    ]


def wire(services: Services, tabs: Tabs, locked: Locked) -> None:
    def unlock(password: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        safely(view, lambda: services.unlock(view, password))
        return ""

    for event in (locked.unlock.click, locked.password.submit):
        event(unlock, [locked.password], [locked.password], queue=False, **PRIVATE)
