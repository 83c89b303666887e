"""Above the chat: which document, how far its prefill is, what is wrong with it, and the box for its password."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from triforce_core import DocumentOpened, LoadProgress

from ..state.collection import Weighing
from ..state.extraction import Extraction
from ..state.jobs import Prefill
from ..state.library import Entry
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view import context_bar
from ..view import number_format as fmt
from ..view.charts import esc, meter
from ..view.painter import Panel
from ..view.transcript import button, card
from ..view.wait_line import wait_line
from ..words import document_head as head_words
from ..words import library as library_words
from ..words import page as page_words
from ..words import page_choice as choice_words
from ..words import storage as storage_words
from ..words import together as together_words
from . import html
from .events import PRIVATE, safely
from .library import pages
from .page_choice import which


@dataclass(frozen=True)
class Locked:
    """The password box; hidden until it is needed."""

    column: gr.Column
    text: gr.HTML
    password: gr.Textbox
    unlock: gr.Button


def build_head() -> tuple[gr.HTML, gr.HTML]:
    return html("head", clicks=True), html("notice", clicks=True)


def build_locked() -> Locked:
    with gr.Column(visible=False, elem_id="locked", elem_classes="tf-dialog") as column:
        text = html("locked-text")
        with gr.Row():
            password = gr.Textbox(type="password", label=head_words.PASSWORD, elem_id="password", scale=3, min_width=140)
            unlock = gr.Button(head_words.UNLOCK, variant="primary", elem_id="unlock", size="md", scale=0, min_width=96)
    return Locked(column, text, password, unlock)


def prefill_line(prefill: Prefill, load: LoadProgress | None, wait: str = "") -> tuple[str, float, str]:
    """What a prefill says, how far it is (0 to 1), and its figures. wait: what it waits for."""
    progress = prefill.progress
    if prefill.stage == "waiting":
        return wait or head_words.READING_WAIT, 0.0, ""
    if prefill.stage == "loading" or progress is None:
        text = head_words.READING_LOAD_STAGE.format(stage=load.stage) if load else head_words.READING_LOAD
        return text, (load.fraction or 0.0) if load else 0.0, ""
    fraction = progress.tokens_done / max(1, progress.tokens_total)
    if progress.stage == "restore":
        return head_words.READING_SAVED, fraction, ""
    if progress.stage == "save":
        return head_words.READING_SAVE, fraction, ""
    left = [] if progress.eta_seconds is None or not progress.tokens_done else [
        head_words.READING_ETA.format(eta=fmt.seconds(progress.eta_seconds))]
    if progress.stage == "tune":
        return head_words.READING_TUNE, fraction, "".join(left)
    if progress.stage == "warm-up":
        return head_words.READING_WARM, fraction, "".join(left)
    words = head_words.TOKENIZING if progress.stage == "tokenize" else head_words.READING
    text = words.format(done=fmt.count(progress.tokens_done), total=fmt.count(progress.tokens_total))
    rate = progress.tokens_per_second
    read = [head_words.READING_RATE.format(rate=fmt.rate(rate))] if rate else []
    return text, fraction, " · ".join([*read, *left])


def progress(text: str, fraction: float, figures: str, cancelling: bool) -> str:
    cancel = button(head_words.CANCELLING if cancelling else head_words.CANCEL, "cancel-reading", css="tf-quiet")
    if cancelling:
        cancel = cancel.replace("<button ", "<button disabled ")
    return (f'<div class="tf-progress" role="status"><div class="tf-progress-row"><span>{esc(text)}</span>'
            f'<span class="tf-muted">{esc(figures)}</span>{cancel}</div>{meter(fraction, "tf-meter-big", text)}</div>')


def in_context(entry: Entry, opened: DocumentOpened | None) -> str:
    """'4,213 tokens in context ...; read in 41 s, reopened in 0.8 s'."""
    tokens = fmt.tokens(opened.tokens, opened.estimated) if opened else fmt.count(entry.tokens or 0)
    if not entry.chosen:
        text = head_words.IN_CONTEXT.format(tokens=tokens, pages=pages(entry.pages))
    else:
        text = choice_words.IN_CONTEXT.format(tokens=tokens, chosen=which(entry.ranges), pages=fmt.count(entry.pages))
    if opened and opened.restored:
        words = head_words.REOPENED_IN.format(seconds=fmt.seconds(opened.read_seconds), again=fmt.seconds(opened.seconds))
        return f"{text} · {words}"
    return f"{text} · {head_words.READ_IN.format(seconds=fmt.seconds(opened.read_seconds))}" if opened else text


def head(entry: Entry | None, phase: str, *, extraction: Extraction | None = None, prefill: Prefill | None = None,
         load: LoadProgress | None = None, opened: DocumentOpened | None = None, problem: str = "",
         weighing: Weighing | None = None, wait: str = "") -> str:
    """The open document: its name, and one line (or bar, or card) about where it stands. weighing: what each of several
    documents takes that are read together. wait: what its prefill waits for."""
    if entry is None:
        return ""
    body = ""
    choose = button(head_words.CHOOSE_PAGES, "choose-pages", css="tf-quiet") if entry.pages > 1 else ""
    choose += button(together_words.ADD_MORE, "together", css="tf-quiet")
    if phase == "extracting":
        total = extraction.pages_total if extraction else 0
        text = (head_words.EXTRACTING.format(done=extraction.pages_done, total=total) if extraction and total
                else head_words.EXTRACTING_START)
        done = extraction.pages_done / total if extraction and total else 0.0
        body = progress(text, done, "", False)
    elif phase == "failed":
        body = card("error", library_words.PHASES["failed"], entry.error,
                    action=button(head_words.READ_AGAIN, "read", css="tf-quiet"))
    elif prefill is not None:
        body = progress(*prefill_line(prefill, load, wait), prefill.cancelled.is_set())
    elif phase == "problem":
        body = card("warn", library_words.PHASES["problem"], problem, action=button(head_words.READ_NOW, "read"))
    elif phase == "ready":
        body = f'<p class="tf-muted tf-fact"><i class="tf-dot-ok"></i>{esc(in_context(entry, opened))} {choose}</p>'
        if opened and opened.unsaved:
            body += card("warn", storage_words.READING_UNSAVED_TITLE,
                         storage_words.READING_UNSAVED.format(why=opened.unsaved))
    elif phase in ("closed", "resting"):
        words = head_words.RESTING if phase == "resting" else head_words.NOT_READ_YET
        read = button(head_words.READ_NOW, "read", css="tf-quiet")
        body = f'<p class="tf-muted tf-fact">{esc(words)} {read} {choose}</p>'
    if weighing and phase in ("ready", "resting", "closed"):
        body += context_bar.bar(weighing.parts, weighing.most, weighing.room, css="tf-inline")
    warnings = "".join(card("warn", head_words.WARNINGS, text) for text in entry.warnings)
    title = entry.title or entry.name
    several = f' tf-several" title="{esc(title)}' if entry.parts else ""
    return f'<h1 class="tf-title{several}">{esc(title)}</h1>{body}{warnings}'


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
                    load=queue.load_progress, opened=queue.opened.get(document), problem=queue.problems.get(document, ""),
                    weighing=services.collection.of(entry) if entry and alone(view) else None)

    def notice(view: TabView) -> tuple[str, str, str] | None:
        """That several documents are read together is not said so long as they are too much for it."""
        early = view.notice and view.notice[1] == together_words.NEW_TALK and phase(view)[1] == "too_long"
        return None if early else view.notice

    def told(view: TabView) -> tuple[tuple[str, str, str] | None, str]:
        return notice(view), services.conversations.problem

    def draw_notice(view: TabView) -> str:
        shown, problem = told(view)
        lasting = card("error", storage_words.DISK_TITLE, problem) if problem else ""
        if shown is None:
            return lasting
        return lasting + card(*shown, action=button(page_words.DISMISS, "dismiss", css="tf-quiet"))

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
