"""What is said about a conversation's instructions."""

from __future__ import annotations

from ..page.html import esc
from ..words import conversations as conversation_words


def about(followed: bool) -> str:
    words = conversation_words.INSTRUCT_HELP if followed else conversation_words.INSTRUCT_NONE
    return f'<h2>{esc(conversation_words.INSTRUCT_LABEL)}</h2><p class="tf-muted">{esc(words)}</p>'
