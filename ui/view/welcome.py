"""The chat before the first question: what to open, and questions to begin with."""

from __future__ import annotations

from collections.abc import Sequence

from triforce_core import Document

from ..page import page_names
from ..page.html import button, esc
from ..words import chat as chat_words
from ..words import document_head as head_words

MOST_CHAPTERS = 60


def welcome(sample: str | None, sends_to: str = "") -> str:
    """Nothing is open yet."""
    action = button(head_words.OPEN_SAMPLE, "open", css="tf-primary", document=sample) if sample else ""
    more = head_words.WELCOME_REMOTE if sends_to else head_words.WELCOME_MORE
    return f'<div class="tf-welcome"><h1>{esc(head_words.WELCOME)}</h1><p>{esc(more)}</p>{action}</div>'


def meanwhile(document: Document | None) -> str:
    """While a document is read: that questions can be asked, and its chapters, to be looked into. document: None while
    its text is being extracted."""
    ask = f'<div class="tf-meanwhile"><p>{esc(chat_words.MEANWHILE_ASK)}</p>'
    if document is None or not document.chapters:
        return f"{ask}</div>"
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><button type="button" data-action="page" data-page="{chapter.first}">'
        f'<span>{esc(chapter.title)}</span><span class="tf-muted">'
        f"{esc(page_names.short(document.pages[chapter.first - 1].label))}</span></button></li>"
        for chapter in [chapter for chapter in document.chapters if chapter.level <= 2][:MOST_CHAPTERS])
    return (f"{ask}<h2>{esc(chat_words.MEANWHILE)}</h2><p>{esc(chat_words.MEANWHILE_MORE)}</p>"
            f"<ul>{items}</ul></div>")


def begin(scope: str, questions: Sequence[str] = ()) -> str:
    """A document is open and nothing has been asked. scope: what is read of it. questions: to begin with."""
    listed = "".join(button(words, "ask", question=words) for words in questions)
    return (f'<div class="tf-welcome tf-small"><h2>{esc(chat_words.ASK_ABOUT.format(scope=scope))}</h2>'
            f'<p>{esc(chat_words.START_MORE.format(scope=scope))}</p><div class="tf-starters">{listed}</div></div>')
