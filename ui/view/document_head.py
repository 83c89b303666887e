"""The open document: its name, how far it is, and what is wrong with it."""

from __future__ import annotations

from triforce_core import DocumentOpened, LoadProgress

from ..page import number_format as fmt
from ..page.html import CANCEL, button, card, esc, menu, meter
from ..page.number_format import pages
from ..page.page_choice import IN_CONTEXT, context_bar, which
from ..page.together import ADD_MORE
from ..state.collection import Weighing
from ..state.extraction import Extraction
from ..state.jobs import Prefill
from ..state.library import Entry
from ..words import document_head as head_words
from ..words import library as library_words
from ..words import storage as storage_words
from .wait_line import LEAST_LEFT


def prefill_line(prefill: Prefill, load: LoadProgress | None, wait: str = "") -> tuple[str, float, str]:
    """What a prefill says, how far it is (0 to 1), and its figures. wait: what it waits for."""
    progress = prefill.progress
    if prefill.stage == "waiting":
        return wait or head_words.READING_WAIT, 0.0, ""
    if prefill.stage == "loading":
        text = head_words.READING_LOAD_STAGE.format(stage=load.stage) if load else head_words.READING_LOAD
        return text, (load.fraction or 0.0) if load else 0.0, ""
    if progress is None:
        return library_words.PHASES[prefill.stage], 0.0, ""
    fraction = progress.tokens_done / max(1, progress.tokens_total)
    if progress.stage == "save":
        return head_words.READING_SAVE, fraction, ""
    eta = progress.eta_seconds or 0.0
    left = [head_words.READING_ETA.format(eta=fmt.seconds(eta))] if eta >= LEAST_LEFT and progress.tokens_done else []
    if progress.stage == "restore":
        return head_words.READING_SAVED, fraction, "".join(left)
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
    cancel = button(head_words.CANCELLING if cancelling else CANCEL, "cancel-reading", css="tf-quiet")
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
        text = IN_CONTEXT.format(tokens=tokens, chosen=which(entry.ranges), pages=fmt.count(entry.pages))
    if opened and opened.restored:
        words = head_words.REOPENED_IN.format(seconds=fmt.seconds(opened.read_seconds),
                                              again=fmt.seconds(opened.seconds))
        return f"{text} · {words}"
    if opened and opened.reused:
        words = head_words.READ_REST_IN.format(seconds=fmt.seconds(opened.read_seconds),
                                               tokens=fmt.count(opened.reused))
        return f"{text} · {words}"
    return f"{text} · {head_words.READ_IN.format(seconds=fmt.seconds(opened.read_seconds))}" if opened else text


def head(entry: Entry | None, phase: str, *, extraction: Extraction | None = None, prefill: Prefill | None = None,
         load: LoadProgress | None = None, opened: DocumentOpened | None = None, problem: str = "",
         weighing: Weighing | None = None, wait: str = "") -> str:
    """The open document: its name, and one line (or bar, or card) about where it stands. weighing: what each of several
    documents takes that are read together. wait: what its prefill waits for."""
    if entry is None:
        return ""
    more = ""
    if phase in ("ready", "closed", "resting", "unsaved") and prefill is None:
        choose = button(head_words.CHOOSE_PAGES, "choose-pages", css="tf-quiet") if entry.pages > 1 else ""
        more = menu(choose + button(ADD_MORE, "together", css="tf-quiet"))
    if phase == "extracting":
        body = _extracting(extraction)
    elif phase == "failed":
        body = card("error", library_words.PHASES["failed"], entry.error,
                    action=button(head_words.READ_AGAIN, "read", css="tf-quiet"))
    elif prefill is not None:
        body = progress(*prefill_line(prefill, load, wait), prefill.cancelled.is_set())
    elif phase == "problem":
        body = card("warn", library_words.PHASES["problem"], problem, action=button(head_words.READ_NOW, "read"))
    else:
        body = _at_rest(entry, phase, opened)
    if weighing and phase in ("ready", "resting", "unsaved", "closed"):
        body += context_bar(weighing.parts, weighing.most, weighing.room, css="tf-inline")
    warnings = "".join(card("warn", head_words.WARNINGS, text) for text in entry.warnings)
    title = entry.title or entry.name
    several = f' tf-several" title="{esc(title)}' if entry.parts else ""
    return f'<div class="tf-title-row"><h1 class="tf-title{several}">{esc(title)}</h1>{more}</div>{body}{warnings}'


def _extracting(extraction: Extraction | None) -> str:
    """How far its text is."""
    if extraction is None or not extraction.pages_total:
        return progress(head_words.EXTRACTING_START, 0.0, "", False)
    done, total = extraction.pages_done, extraction.pages_total
    return progress(head_words.EXTRACTING.format(done=done, total=total), done / total, "", False)


def _at_rest(entry: Entry, phase: str, opened: DocumentOpened | None) -> str:
    """In the context, or ready to be read."""
    if phase == "ready":
        body = f'<p class="tf-muted tf-fact"><i class="tf-dot-ok"></i>{esc(in_context(entry, opened))}</p>'
        if opened and opened.damaged:
            body += f'<p class="tf-muted">{esc(storage_words.READING_DAMAGED)}</p>'
        if opened and opened.unsaved:
            body += card("warn", storage_words.READING_UNSAVED_TITLE,
                         storage_words.READING_UNSAVED.format(why=opened.unsaved))
        return body
    words = {"resting": head_words.RESTING, "unsaved": head_words.UNSAVED.format(
        seconds=fmt.seconds(entry.read_seconds or 0.0)), "closed": head_words.NOT_READ_YET}.get(phase)
    if words is None:
        return ""
    read = button(head_words.READ_NOW, "read", css="tf-quiet")
    return f'<p class="tf-muted tf-fact">{esc(words)} {read}</p>'
