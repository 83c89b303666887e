"""Conversations: the bar above the chat, what search found, the table of keys."""

from __future__ import annotations

from collections.abc import Sequence

from ..state.conversations import Conversation
from ..state.search import Hit
from ..words import conversations as conversation_words
from .charts import esc
from .transcript import button


def bar(talk: Conversation | None, instructed: bool) -> str:
    """The conversation's name, and what can be done with it. None: one that nothing was asked in yet."""
    told = conversation_words.INSTRUCT_SET if instructed else ""
    mark = f'<i class="tf-dot-ok" role="img" aria-label="{esc(told)}" title="{esc(told)}"></i>' if told else ""
    instruct = button(conversation_words.INSTRUCT, "instruct", css="tf-quiet") + mark
    if talk is None:
        return (f'<div class="tf-talk-bar"><span class="tf-talk-title">{esc(conversation_words.NEW_TALK)}</span>'
                f"{instruct}</div>")
    kinds = "".join(button(words, "export", css="tf-quiet", kind=kind)
                    for kind, words in conversation_words.EXPORT_KINDS.items())
    return (f'<div class="tf-talk-bar"><span class="tf-talk-title" title="{esc(talk.title)}">{esc(talk.title)}</span>'
            f'{instruct}{button(conversation_words.RENAME, "rename", css="tf-quiet")}'
            f'<details class="tf-menu"><summary class="tf-btn tf-quiet">{esc(conversation_words.EXPORT)}</summary>'
            f'<div class="tf-menu-items">{kinds}</div></details></div>')


def found(hits: Sequence[Hit], documents: dict[str, str], query: str) -> str:
    """What search found, over all documents. documents: id -> title."""
    if not hits:
        return f'<p class="tf-note">{esc(conversation_words.SEARCH_NOTHING.format(query=query))}</p>'
    items = []
    for hit in hits:
        start, end = hit.found
        excerpt = f"{esc(hit.excerpt[:start])}<mark>{esc(hit.excerpt[start:end])}</mark>{esc(hit.excerpt[end:])}"
        talk = hit.conversation
        items.append(
            f'<li><button type="button" class="tf-hit" data-action="found" data-conversation="{esc(talk.id)}" '
            f'data-document="{esc(talk.document)}" data-answer="{esc(hit.answer)}"><b>{esc(talk.title)}</b>'
            f'<span class="tf-muted">{esc(documents.get(talk.document, ""))}</span><span>{excerpt}</span>'
            "</button></li>")
    count = conversation_words.SEARCH_ONE if len(hits) == 1 else conversation_words.SEARCH_FOUND.format(count=len(hits))
    return f'<p class="tf-note" role="status">{esc(count)}</p><ul class="tf-hits">{"".join(items)}</ul>'


def keys_table() -> str:
    """The dialog with every shortcut; the script opens it."""
    rows = "".join(f"<tr><th scope=row>{' '.join(f'<kbd>{esc(key)}</kbd>' for key in keys.split())}</th>"
                   f"<td>{esc(what)}</td></tr>" for keys, what in conversation_words.SHORTCUTS)
    title = esc(conversation_words.SHORTCUTS_TITLE)
    return (f'<dialog id="key-table" aria-label="{title}"><h2>{title}</h2>'
            f'<table>{rows}</table><form method="dialog">'
            f'<button class="tf-btn">{esc(conversation_words.CLOSE)}</button>'
            "</form></dialog>")
