"""The answer that is being written, as the page shows it by now."""

from __future__ import annotations

from ..state.runs import Run
from ..state.services import Services
from . import citations, transcript
from .pace import pace
from .wait_line import wait_line


def inside(services: Services, run: Run, by_token: bool) -> str:
    """What the answer shows by now, as safe HTML. by_token: who wrote each token."""
    text, document = run.accumulator.text, services.library.document(run.document)
    return transcript.writing(run, wait(services, run), by_token, pace(services.queue, services.runs).moves, lambda: (
        citations.live(text, document, run.quotes)))


def wait(services: Services, run: Run) -> str:
    """What it waits for; "" where it waits no more."""
    return wait_line(services.queue.ahead(run)) if run.state == "queued" else ""
