"""What a question or a document waits for, as one line."""

from __future__ import annotations

from ..state.wait_estimates import Ahead
from ..words import waiting as waiting_words
from . import number_format as fmt


def wait_line(ahead: Ahead | None) -> str:
    """As one line; "" where nothing is waited for."""
    if ahead is None:
        return ""
    line = {"prefill": waiting_words.FOR_READING, "answer": waiting_words.FOR_ANSWER, "race": waiting_words.FOR_RACE,
            "pause": waiting_words.FOR_PAUSE, "engine": waiting_words.FOR_ENGINE}[ahead.doing].format(title=ahead.title)
    line += waiting_words.AND_MORE.format(more=ahead.more) if ahead.more else ""
    eta = waiting_words.ETA.format(eta=fmt.seconds(ahead.seconds)) if ahead.seconds is not None else ""
    return f"{line} · {eta}" if eta else line
