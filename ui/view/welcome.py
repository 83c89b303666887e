"""The chat before the first question: what to open, and questions to begin with."""

from __future__ import annotations

from collections.abc import Sequence

from ..words import chat as chat_words
from ..words import document_head as head_words
from .charts import esc
from .transcript import button


def welcome(sample: str | None, sends_to: str = "") -> str:
    """Nothing is open yet."""
    action = button(head_words.OPEN_SAMPLE, "open", css="tf-primary", document=sample) if sample else ""
    more = head_words.WELCOME_REMOTE if sends_to else head_words.WELCOME_MORE
    return f'<div class="tf-welcome"><h1>{esc(head_words.WELCOME)}</h1><p>{esc(more)}</p>{action}</div>'


def begin(scope: str, questions: Sequence[str] = ()) -> str:
    """A document is open and nothing has been asked. scope: what is read of it. questions: to begin with."""
    listed = "".join(button(words, "ask", question=words) for words in questions)
    return (f'<div class="tf-welcome tf-small"><h2>{esc(chat_words.ASK_ABOUT.format(scope=scope))}</h2>'
            f'<p>{esc(chat_words.START_MORE.format(scope=scope))}</p><div class="tf-starters">{listed}</div></div>')
