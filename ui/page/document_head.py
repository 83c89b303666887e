"""Above the chat: which document, how far its prefill is, what is wrong with it, and the box for its password."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from triforce_core import DocumentOpened, LoadProgress

from ..app.context_budget import Weighing
from ..app.engine_holder import SILENT_LIMIT
from ..app.extraction import Extraction
from ..app.jobs import Job
from ..app.library import PHASES, Entry
from ..app.questions import ONE_AT_A_TIME
from ..app.services import NEW_TALK, Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import number_format as fmt
from .engine import ENGINE_FAILED, SILENT, SILENT_TITLE
from .html import CANCEL, DISMISS, button, card, esc, menu, meter
from .number_format import pages
from .page_choice import IN_CONTEXT, context_bar, which
from .panel import PRIVATE, Panel, block, safely
from .together import ADD_MORE
from .wait_line import LEAST_LEFT, wait_line

READ_REST_IN = "read in {seconds}, the first {tokens} tokens kept from an earlier reading"
TOKENIZING = "Turning the text into tokens: {done} of about {total}"
READING = "Reading {done} of {total} tokens"
READING_SAVED = "Reopening the saved reading"
READING_TUNE = "Measuring how fast this machine is (only once)"
READING_WARM = "Preparing the engine for this document"
CANCELLING = "Cancelling…"
READ_NOW = "Read now"
RESTING = "Saved; reopens when you ask."
UNSAVED = "Not in memory now. Read again when you ask, in about {seconds}."
PASSWORD_TITLE = "This file is protected"
PASSWORD_HELP = "Enter its password. It is used once to extract the text and is not saved."
PASSWORD = "Password"

DISK_TITLE = "The disk is full"
READING_UNSAVED_TITLE = "This reading is not saved"
READING_DAMAGED = "The saved reading was damaged: it was removed, and the document was read again."


def prefill_line(prefill: Job, load: LoadProgress | None, wait: str = "") -> tuple[str, float, str]:
    """What a prefill says, how far it is (0 to 1), and its figures. wait: what it waits for."""
    progress = prefill.progress
    if prefill.stage == "waiting":
        return wait or "Queued: the engine is busy", 0.0, ""
    if prefill.stage == "loading":
        text = f"Starting the engine: {load.stage}" if load else "Starting the engine"
        return text, (load.fraction or 0.0) if load else 0.0, ""
    if progress is None:
        return PHASES[prefill.stage], 0.0, ""
    fraction = progress.tokens_done / max(1, progress.tokens_total)
    if progress.stage == "save":
        return "Saving the reading for next time", fraction, ""
    eta = progress.eta_seconds or 0.0
    left = [f"{fmt.seconds(eta)} left"] if eta >= LEAST_LEFT and progress.tokens_done else []
    if progress.stage == "restore":
        return READING_SAVED, fraction, "".join(left)
    if progress.stage == "tune":
        return READING_TUNE, fraction, "".join(left)
    if progress.stage == "warm-up":
        return READING_WARM, fraction, "".join(left)
    words = TOKENIZING if progress.stage == "tokenize" else READING
    text = words.format(done=fmt.count(progress.tokens_done), total=fmt.count(progress.tokens_total))
    rate = progress.tokens_per_second
    read = [f"{fmt.rate(rate)} tokens/s"] if rate else []
    return text, fraction, " · ".join([*read, *left])


def progress(text: str, fraction: float, figures: str, cancelling: bool) -> str:
    cancel = button(CANCELLING if cancelling else CANCEL, "cancel-reading", css="tf-quiet")
    if cancelling:
        cancel = cancel.replace("<button ", "<button disabled ")
    return (f'<div class="tf-progress" role="status"><div class="tf-progress-row"><span>{esc(text)}</span>'
            f'<span class="tf-muted">{esc(figures)}</span>{cancel}</div>{meter(fraction, "tf-meter-big", text)}</div>')


def in_context(entry: Entry, opened: DocumentOpened | None) -> str:
    """'4,213 tokens in context ...; read in 41 s, reopened in 0.8 s'."""
    tokens = fmt.tokens(opened.tokens, opened.estimated) if opened else fmt.count(entry.tokens or 0)
    if not entry.chosen:
        text = f"All {pages(entry.pages)}, {tokens} tokens"
    else:
        text = IN_CONTEXT.format(tokens=tokens, chosen=which(entry.ranges), pages=fmt.count(entry.pages))
    if opened and opened.restored:
        words = f"read in {fmt.seconds(opened.read_seconds)}, reopened in {fmt.seconds(opened.seconds)}"
        return f"{text} · {words}"
    if opened and opened.reused:
        words = READ_REST_IN.format(seconds=fmt.seconds(opened.read_seconds), tokens=fmt.count(opened.reused))
        return f"{text} · {words}"
    return f"{text} · {f'read in {fmt.seconds(opened.read_seconds)}'}" if opened else text


def head(entry: Entry | None, phase: str, *, extraction: Extraction | None = None, prefill: Job | None = None,
         load: LoadProgress | None = None, opened: DocumentOpened | None = None, problem: str = "",
         weighing: Weighing | None = None, wait: str = "") -> str:
    """The open document: its name, and one line (or bar, or card) about where it stands. weighing: what each of several
    documents takes that are read together. wait: what its prefill waits for."""
    if entry is None:
        return ""
    more = ""
    if phase in ("ready", "closed", "resting", "unsaved") and prefill is None:
        choose = button("Choose pages", "choose-pages", css="tf-quiet") if entry.pages > 1 else ""
        more = menu(choose + button(ADD_MORE, "together", css="tf-quiet"))
    if phase == "extracting":
        body = _extracting(extraction)
    elif phase == "failed":
        body = card("error", PHASES["failed"], entry.error, action=button("Try again", "read", css="tf-quiet"))
    elif prefill is not None:
        body = progress(*prefill_line(prefill, load, wait), prefill.cancelled)
    elif phase == "problem":
        body = card("warn", PHASES["problem"], problem, action=button(READ_NOW, "read"))
    else:
        body = _at_rest(entry, phase, opened)
    if weighing and phase in ("ready", "resting", "unsaved", "closed"):
        body += context_bar(weighing.parts, weighing.most, weighing.room, css="tf-inline")
    warnings = "".join(card("warn", "About this file", text) for text in entry.warnings)
    title = entry.title or entry.name
    several = f' tf-several" title="{esc(title)}' if entry.parts else ""
    return f'<div class="tf-title-row"><h1 class="tf-title{several}">{esc(title)}</h1>{more}</div>{body}{warnings}'


def _extracting(extraction: Extraction | None) -> str:
    """How far its text is."""
    if extraction is None or not extraction.pages_total:
        return progress("Extracting text", 0.0, "", False)
    done, total = extraction.pages_done, extraction.pages_total
    return progress(f"Extracting text: page {done} of {total}", done / total, "", False)


def _at_rest(entry: Entry, phase: str, opened: DocumentOpened | None) -> str:
    """In the context, or ready to be read."""
    if phase == "ready":
        body = f'<p class="tf-muted tf-fact"><i class="tf-dot-ok"></i>{esc(in_context(entry, opened))}</p>'
        if opened and opened.damaged:
            body += f'<p class="tf-muted">{esc(READING_DAMAGED)}</p>'
        if opened and opened.unsaved:
            body += card("warn", READING_UNSAVED_TITLE,
                         f"Reading the document again will take as long as this time. {opened.unsaved}")
        return body
    words = {"resting": RESTING, "unsaved": UNSAVED.format(
        seconds=fmt.seconds(entry.read_seconds or 0.0)), "closed": "Not read yet."}.get(phase)
    if words is None:
        return ""
    read = button(READ_NOW, "read", css="tf-quiet")
    return f'<p class="tf-muted tf-fact">{esc(words)} {read}</p>'


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
            password = gr.Textbox(type="password", label=PASSWORD, elem_id="password", scale=3, min_width=140)
            unlock = gr.Button("Unlock", variant="primary", elem_id="unlock", size="md", scale=0, min_width=96)
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
                prefill is not None and prefill.cancelled)

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
        early = view.notice and view.notice[1] == NEW_TALK and phase(view)[1] == "too_long"
        over = view.notice and view.notice[1] == ONE_AT_A_TIME and services.active_run(view) is None
        return None if early or over else view.notice

    def told(view: TabView) -> tuple[tuple[str, str, str] | None, str, str, int]:
        broken = queue.problem if queue.state == "failed" else ""
        return notice(view), services.conversations.problem, broken, queue.silent_seconds

    def draw_notice(view: TabView) -> str:
        shown, problem, broken, silent = told(view)
        lasting = card("error", DISK_TITLE, problem) if problem else ""
        lasting += card("error", ENGINE_FAILED, broken) if broken else ""
        lasting += card("warn", SILENT_TITLE, SILENT.format(seconds=silent, limit=SILENT_LIMIT)) if silent else ""
        if shown is None:
            return lasting
        return lasting + card(*shown, action=button(DISMISS, "dismiss", css="tf-quiet"))

    def draw_locked(view: TabView) -> str:
        entry, now = phase(view)
        wrong = f'<p class="tf-bad">{esc(entry.error)}</p>' if entry and now == "locked" and entry.error else ""
        return f"<h2>{esc(PASSWORD_TITLE)}</h2><p>{esc(PASSWORD_HELP)}</p>{wrong}"

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
