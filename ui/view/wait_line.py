"""What a question or a document waits for, as one line."""

from __future__ import annotations

from ..page import number_format as fmt
from ..state.extraction import Extraction
from ..state.wait_estimates import Ahead
from ..words import waiting as waiting_words

LEAST_LEFT = 0.05  # seconds: less is told as 0.0


def wait_line(ahead: Ahead | None) -> str:
    """As one line; "" where nothing is waited for."""
    if ahead is None:
        return ""
    line = {"prefill": waiting_words.FOR_READING, "answer": waiting_words.FOR_ANSWER, "race": waiting_words.FOR_RACE,
            "pause": waiting_words.FOR_PAUSE, "engine": waiting_words.FOR_ENGINE}[ahead.doing].format(title=ahead.title)
    line += waiting_words.AND_MORE.format(more=ahead.more) if ahead.more else ""
    return _with_rest(line, ahead.seconds)


def text_line(extraction: Extraction) -> str:
    """How far the text is that a question waits for."""
    if not extraction.pages_total:
        return waiting_words.FOR_TEXT
    line = waiting_words.FOR_TEXT_PAGES.format(done=fmt.count(extraction.pages_done),
                                               total=fmt.count(extraction.pages_total))
    return _with_rest(line, extraction.seconds_left)


def _with_rest(line: str, seconds: float | None) -> str:
    if seconds is None or seconds < LEAST_LEFT:
        return line
    return f"{line} · {waiting_words.ETA.format(eta=fmt.seconds(seconds))}"
