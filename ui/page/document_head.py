"""Above the chat: which document, how far its prefill is, what is wrong with it, and the box for its password."""

from __future__ import annotations

import re
from collections.abc import Sequence

import gradio as gr

from triforce_core import DocumentOpened, LoadProgress, ModelInfo

from ..app.context_budget import Weighing
from ..app.engine_holder import SILENT_LIMIT
from ..app.extraction import Extraction
from ..app.jobs import Job
from ..app.library import PHASES, Entry
from ..app.questions import ONE_AT_A_TIME
from ..app.services import NEW_TALK, Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from .html import CANCEL, DISMISS, button, card, esc, menu, meter, progress
from .page_choice import ADD_MORE, IN_CONTEXT, context_bar, which
from .panel import PRIVATE, Actions, Outputs, Panel, block, noticing

ONLY_ENGLISH = ("This document is in {language}, and {model} reads English: it will find little there. Load a "
                "chat model that reads {language} under Models.")
OTHER_LANGUAGE = "This document is in {language}. Whether {model} reads it well, its model card says."
READING_SAVED = "Reopening the saved reading"
READING_TUNE = "Measuring how fast this machine is (only once)"
READING_WARM = "Preparing the engine for this document"
READING_SERVED = "The server is reading {tokens} tokens, and does not say how far it is"
CANCELLING = "Cancelling…"
READ_NOW = "Read now"
SO_FAR = "Pages 1–{done} of {total} are read so far: ask about them now, or about all of them later."
RESTING = "Saved; reopens when you ask."
PASSWORD_TITLE = "This file is protected"
PASSWORD_HELP = "Enter its password. It is used once to extract the text and is not saved."
PASSWORD = "Password"
WHICH_TITLE = "How is this text to be read?"
WHICH = "The file does not say in which encoding it is. Press the one whose line reads right."
DISK_TITLE = "The disk is full"
SILENT_TITLE = "The engine does not answer"
SILENT = "The engine has not answered for {seconds} s. If it stays so for {limit} s it is ended, and a new one starts."
READING_UNSAVED_TITLE = "This reading is not saved"
READING_DAMAGED = "The saved reading was damaged: it was removed, and the document was read again."

TOO_LONG = ("Longer than this model reads at once: each answer reads the pages on which its passages stand, as many as "
            "fit, and names them.")
CHOOSE = "Choose pages yourself"
TAKES = "reading it takes about {time} here"
WORTH_SAYING = 2.0  # seconds of reading


def prefill_line(prefill: Job, load: LoadProgress | None, wait: str = "",
                 takes: float | None = None) -> tuple[str, float | None, str]:
    """Return what a prefill does, how far it is (0 to 1; None where nobody knows), and its figures. wait: what it waits
    for. takes: seconds of reading, by earlier ones."""
    progress = prefill.progress
    ahead = TAKES.format(time=fmt.seconds(takes)) if takes is not None and takes >= WORTH_SAYING else ""
    if prefill.stage == "waiting":
        return wait or "Queued: the engine is busy", 0.0, ahead
    if prefill.stage == "loading":
        text = f"Starting the engine: {load.stage}" if load else "Starting the engine"
        return text, (load.fraction or 0.0) if load else 0.0, ahead
    if progress is None:
        return PHASES[prefill.stage], 0.0, ahead
    if progress.stage == "served":
        return (READING_SERVED.format(tokens=fmt.count(progress.tokens_total)), None,
                " · ".join(filter(None, (fmt.so_far(progress.seconds), ahead))))
    fraction = progress.tokens_done / max(1, progress.tokens_total)
    if progress.stage == "save":
        return "Saving the reading for next time", fraction, ""
    eta = progress.eta_seconds or 0.0
    left = [f"{fmt.seconds(eta)} left"] if eta >= fmt.LEAST_LEFT and progress.tokens_done else []
    words = {"restore": READING_SAVED, "tune": READING_TUNE, "warm-up": READING_WARM}.get(progress.stage)
    if words:
        return words, fraction, "".join(left)
    done, total = fmt.count(progress.tokens_done), fmt.count(progress.tokens_total)
    text = (f"Turning the text into tokens: {done} of about {total}" if progress.stage == "tokenize"
            else f"Reading {done} of {total} tokens")
    rate = progress.tokens_per_second
    return text, fraction, " · ".join([*([f"{fmt.rate(rate)} tokens/s"] if rate else []), *left])


def progress_bar(text: str, fraction: float | None, figures: str, cancelling: bool) -> str:
    cancel = button(CANCELLING if cancelling else CANCEL, "cancel-reading", css="tf-quiet")
    if cancelling:
        cancel = cancel.replace("<button ", "<button disabled ")
    return progress(text, "" if fraction is None else meter(fraction, "tf-meter-big", text), cancel, figures)


def in_context(entry: Entry, opened: DocumentOpened | None) -> str:
    """'4,213 tokens in context ...; read in 41 s, reopened in 0.8 s'."""
    tokens = fmt.tokens(opened.tokens, opened.estimated) if opened else fmt.count(entry.tokens or 0)
    if entry.chosen:
        text = IN_CONTEXT.format(tokens=tokens, chosen=which(entry.ranges), pages=fmt.count(entry.pages))
    else:
        text = f"All {fmt.pages(entry.pages)}, {tokens} tokens"
    if opened is None:
        return text
    text += f" · read in {fmt.seconds(opened.read_seconds)}"
    if opened.restored:
        return f"{text}, reopened in {fmt.seconds(opened.seconds)}"
    return (f"{text}, the first {fmt.count(opened.reused)} tokens kept from an earlier reading" if opened.reused
            else text)


def means(stored: str, model: ModelInfo | None) -> str:
    """Return what a document's language means for the model that is loaded; "" for English, and where either is not
    known. stored: what ``library.language`` keeps."""
    tag = re.split("[-_]", stored.split("~")[-1] or stored.strip("~"))[0].lower()
    if model is None or not tag or tag == "en":
        return ""
    words = OTHER_LANGUAGE if model.instructions else ONLY_ENGLISH
    return words.format(language=fmt.LANGUAGES.get(tag, tag), model=model.name)


def head(entry: Entry | None, phase: str, *, extraction: Extraction | None = None, prefill: Job | None = None,
         load: LoadProgress | None = None, opened: DocumentOpened | None = None, problem: str = "",
         weighing: Weighing | None = None, wait: str = "", language: str = "",
         readings: Sequence[Sequence[str]] = (), takes: float | None = None) -> str:
    """Return the open document's name, and one line (or bar, or card) about where it stands. weighing: what each of
    several documents takes that are read together. wait: what its prefill waits for. language: what that of the
    document means for the model. readings: of a text whose encoding is to be chosen. takes: seconds of
    reading it, before that has begun."""
    if entry is None:
        return ""
    more = ""
    if phase in ("ready", "closed", "resting", "unsaved") and prefill is None:
        choose = button("Choose pages", "choose-pages", css="tf-quiet") if entry.pages > 1 else ""
        more = menu(choose + button(ADD_MORE, "together", css="tf-quiet"))
    if phase == "extracting":
        text, done = "Extracting text", 0.0
        if extraction is not None and extraction.pages_total:
            text += f": page {extraction.pages_done} of {extraction.pages_total}"
            done = extraction.pages_done / extraction.pages_total
        left = extraction.seconds_left if extraction is not None else None
        body = progress_bar(text, done, fmt.left(left) if left and left >= fmt.LEAST_LEFT else "", False)
        if entry.state == "part" and extraction is not None:
            body += f'<p class="tf-muted">{esc(SO_FAR.format(done=entry.pages, total=extraction.pages_total))}</p>'
    elif phase == "failed" and readings:
        choices = "".join(f"<p>{button(name, 'encoding', encoding=codec)} {esc(line)}</p>"
                          for codec, name, line in readings)
        body = card("warn", WHICH_TITLE, WHICH, action=choices)
    elif phase == "failed":
        body = card("error", PHASES["failed"], entry.error, action=button("Try again", "read", css="tf-quiet"))
    elif prefill is not None:
        body = progress_bar(*prefill_line(prefill, load, wait, takes), prefill.cancelled)
    elif phase == "problem":
        body = card("warn", PHASES["problem"], problem, action=button(READ_NOW, "read"))
    else:
        body = _at_rest(entry, phase, opened)
    if weighing and phase in ("ready", "resting", "unsaved", "closed"):
        body += context_bar(weighing.parts, weighing.most, weighing.room, css="tf-inline")
    warnings = "".join(card("warn", "About this file", text) for text in (*filter(None, [language]), *entry.warnings))
    title = entry.title or entry.name
    several = f' tf-several" title="{esc(title)}' if entry.parts else ""
    return f'<div class="tf-title-row"><h1 class="tf-title{several}">{esc(title)}</h1>{more}</div>{body}{warnings}'


def _at_rest(entry: Entry, phase: str, opened: DocumentOpened | None) -> str:
    """Return the line of a document that is in the context, or ready to be read."""
    if phase == "ready":
        body = f'<p class="tf-muted tf-fact"><i class="tf-dot-ok"></i>{esc(in_context(entry, opened))}</p>'
        if opened and opened.damaged:
            body += f'<p class="tf-muted">{esc(READING_DAMAGED)}</p>'
        if opened and opened.unsaved:
            body += card("warn", READING_UNSAVED_TITLE,
                         f"Reading the document again will take as long as this time. {opened.unsaved}")
        return body
    again = f"Not in memory now. Read again when you ask, in about {fmt.seconds(entry.read_seconds or 0.0)}."
    if phase == "too_long":
        return f'<p class="tf-muted tf-fact">{esc(TOO_LONG)} {button(CHOOSE, "choose-pages", css="tf-quiet")}</p>'
    words = {"resting": RESTING, "unsaved": again, "closed": "Not read yet."}.get(phase)
    read = button(READ_NOW, "read", css="tf-quiet")
    return f'<p class="tf-muted tf-fact">{esc(words)} {read}</p>' if words else ""


def build(services: Services, tabs: Tabs) -> Outputs:
    head, notice = block("head", clicks=True), block("notice", clicks=True)
    with gr.Column(visible=False, elem_id="locked", elem_classes="tf-dialog") as locked:
        text = block("locked-text")
        with gr.Row():
            password = gr.Textbox(type="password", label=PASSWORD, elem_id="password", scale=3, min_width=140)
            button = gr.Button("Unlock", variant="primary", elem_id="unlock", size="md", scale=0, min_width=96)

    def unlock(password: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        with noticing(view):
            services.unlock(view, password)
        return ""

    for event in (button.click, password.submit):
        event(unlock, [password], [password], queue=False, **PRIVATE)
    return {"head": head, "notice": notice, "locked": locked, "locked_text": text}


def actions(services: Services) -> Actions:
    def dismiss(view: TabView, data: dict[str, str]) -> None:
        view.notice = None

    return {"encoding": lambda view, data: services.choose_encoding(view, data["encoding"]),
            "read": lambda view, data: services.read(view.document or ""),
            "cancel-reading": lambda view, data: services.cancel_reading(view.document or ""), "dismiss": dismiss}


def panels(services: Services) -> list[Panel]:
    queue, extractor, library = services.queue, services.extractor, services.library

    def phase(view: TabView) -> tuple[Entry | None, str]:
        entry = library.get(view.document)
        return entry, services.phase(entry) if entry else ""

    def alone(view: TabView) -> bool:
        """Return whether no dialog is open, which would have a bar of its own."""
        return view.choosing is None and view.picking is None

    def key(view: TabView) -> tuple[object, ...]:
        prefill = queue.prefills.get(view.document or "")
        return (view.document, phase(view)[1], extractor.version, library.version, alone(view), queue.model,
                prefill is not None and prefill.cancelled)

    def draw(view: TabView) -> str:
        entry, now = phase(view)
        document = view.document or ""
        prefill = queue.prefills.get(document)
        wait = fmt.wait_line(queue.ahead(prefill)) if prefill and prefill.stage == "waiting" else ""
        return head(entry, now, extraction=extractor.extractions.get(document), prefill=prefill, wait=wait,
                    takes=queue.reading_seconds(prefill) if prefill else None,
                    load=queue.load_progress, opened=queue.opened.get(document),
                    language=means(entry.language, queue.model) if entry else "",
                    problem=queue.problems.get(document, ""), readings=extractor.readings.get(document, ()),
                    weighing=services.collection.of(entry) if entry and alone(view) else None)

    def notice(view: TabView) -> tuple[str, str, str] | None:
        """Return the tab's notice. That several documents are read together is kept back while they are too much for
        it; that an answer is still being written, shown no longer than it is."""
        early = view.notice and view.notice[1] == NEW_TALK and phase(view)[1] == "too_long"
        over = view.notice and view.notice[1] == ONE_AT_A_TIME and services.active_run(view) is None
        return None if early or over else view.notice

    def state(view: TabView) -> tuple[tuple[str, str, str] | None, str, str, int]:
        broken = queue.problem if queue.state == "failed" else ""
        return notice(view), services.conversations.problem, broken, queue.silent_seconds

    def draw_notice(view: TabView) -> str:
        shown, problem, broken, silent = state(view)
        lasting = card("error", DISK_TITLE, problem) if problem else ""
        lasting += card("error", "The engine did not start", broken) if broken else ""
        lasting += card("warn", SILENT_TITLE, SILENT.format(seconds=silent, limit=SILENT_LIMIT)) if silent else ""
        if shown is None:
            return lasting
        return lasting + card(*shown, action=button(DISMISS, "dismiss", css="tf-quiet"))

    def draw_locked(view: TabView) -> str:
        entry, now = phase(view)
        wrong = f'<p class="tf-bad">{esc(entry.error)}</p>' if entry and now == "locked" and entry.error else ""
        return f"<h2>{esc(PASSWORD_TITLE)}</h2><p>{esc(PASSWORD_HELP)}</p>{wrong}"

    return [
        Panel("head", key, draw, news=lambda view: queue.version, follows="words"),
        Panel("notice", state, draw_notice),
        Panel("locked", lambda view: phase(view)[1] == "locked",
              lambda view: gr.update(visible=phase(view)[1] == "locked")),
        Panel("locked_text", lambda view: (phase(view), library.version), draw_locked),
    ]
