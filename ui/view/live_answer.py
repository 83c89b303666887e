"""The answer that is being written, as the page shows it by now."""

from __future__ import annotations

from ..page.html import button
from ..page.page_choice import which
from ..page.panel import pace
from ..state.runs import Run
from ..state.services import Services
from ..words import chat as chat_words
from ..words import waiting as waiting_words
from . import citations, transcript
from .document_head import prefill_line
from .wait_line import text_line, wait_line


def inside(services: Services, run: Run, by_token: bool) -> str:
    """What the answer shows by now, as safe HTML. by_token: who wrote each token."""
    text, document = run.accumulator.text, services.library.document(run.document)
    return transcript.writing(run, wait(services, run), by_token, pace(services.queue, services.runs).moves, lambda: (
        citations.live(text, document, run.quotes)), sooner(services, run))


def sooner(services: Services, run: Run) -> str:
    """The offer to answer from the pages that are read by now, as safe HTML; "" where there is nothing to offer."""
    pages = services.queue.pages_read(run)
    return button(chat_words.ANSWER_NOW.format(pages=which(pages)), "answer-now", css="tf-quiet",
                  run=run.id) if pages else ""


def wait(services: Services, run: Run) -> str:
    """What it waits for; "" where it waits no more."""
    if run.state == "preparing":
        prefill = services.queue.prefills.get(run.document)
        line, _, figures = prefill_line(prefill, services.queue.load_progress) if prefill else ("", 0.0, "")
        return f"{line} · {figures}" if figures else line
    if run.state != "queued":
        return ""
    if services.questions.early.waits(run):
        extraction = services.extractor.extractions.get(run.document)
        return text_line(extraction) if extraction else waiting_words.FOR_PAGES
    return wait_line(services.queue.ahead(run))
