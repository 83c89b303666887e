"""What a question or a document waits for, as one line."""

from __future__ import annotations

from ..app.extraction import Extraction
from ..app.jobs import Ahead
from . import number_format as fmt

FOR_READING = "Waiting until “{title}” is read"
FOR_PAGES = "Waiting until you choose pages above"
FOR_TEXT_PAGES = "Waiting for the text: page {done} of {total} extracted"
FOR_PAUSE = "Pausing the reading of “{title}”"
FOR_ANSWER = "Waiting for an answer about “{title}”"
FOR_RACE = "Waiting for a race about “{title}”"
FOR_ENGINE = "Waiting for the engine to start"
ETA = "about {eta} left"

LEAST_LEFT = 0.05  # seconds: less is told as 0.0


def wait_line(ahead: Ahead | None) -> str:
    """As one line; "" where nothing is waited for."""
    if ahead is None:
        return ""
    line = {"prefill": FOR_READING, "answer": FOR_ANSWER, "race": FOR_RACE,
            "pause": FOR_PAUSE, "engine": FOR_ENGINE}[ahead.doing].format(title=ahead.title)
    line += f"; {ahead.more} more in line before this" if ahead.more else ""
    return _with_rest(line, ahead.seconds)


def text_line(extraction: Extraction) -> str:
    """How far the text is that a question waits for."""
    if not extraction.pages_total:
        return "Waiting for the text to be extracted"
    line = FOR_TEXT_PAGES.format(done=fmt.count(extraction.pages_done), total=fmt.count(extraction.pages_total))
    return _with_rest(line, extraction.seconds_left)


def _with_rest(line: str, seconds: float | None) -> str:
    if seconds is None or seconds < LEAST_LEFT:
        return line
    return f"{line} · {ETA.format(eta=fmt.seconds(seconds))}"
