"""Conversations: the bar above the chat, what search found, the table of keys."""

from __future__ import annotations

from collections.abc import Sequence

from ..page import number_format as fmt
from ..page.html import button, esc, menu
from ..state.context_budget import ContextUse
from ..state.conversations import Conversation
from ..state.search import Hit
from ..words import conversations as conversation_words


def context_menu(use: ContextUse) -> str:
    """How full the context is; unfolded, of what, and a way to make room."""
    used = use.document + use.conversation
    share = fmt.percent(min(used, use.most), use.most)
    told = conversation_words.CONTEXT_OF.format(used=fmt.count(used), most=fmt.count(use.most))
    facts = "".join(f"<dt>{esc(label)}</dt><dd>{esc(fmt.count(getattr(use, name)))}</dd>"
                    for name, label in conversation_words.CONTEXT_PARTS)
    onward = button(conversation_words.CONTINUE, "continue", css="tf-quiet") if use.conversation else ""
    return (f'<details class="tf-menu tf-context-menu"><summary class="tf-btn tf-quiet" title="{esc(told)}">'
            f'{esc(conversation_words.CONTEXT.format(percent=share))}</summary><div class="tf-menu-items">'
            f'<p class="tf-note">{esc(told)}</p><dl class="tf-facts">{facts}</dl>{onward}</div></details>')


def context_note(use: ContextUse | None) -> str:
    """Above the question line, once there is little room left."""
    if use is None or not use.state:
        return ""
    words = conversation_words.CONTEXT_FULL if use.state == "full" else conversation_words.CONTEXT_NEAR
    onward = button(conversation_words.CONTINUE, "continue", css="tf-quiet", because=use.state)
    return (f'<div class="tf-editing tf-context-{use.state}" role="status" '
            f'title="{esc(conversation_words.CONTINUE_HELP)}">'
            f"<span>{esc(words.format(left=fmt.count(use.left)))}</span>{onward}</div>")


def bar(talk: Conversation | None, instructed: bool, use: ContextUse | None = None) -> str:
    """The conversation's name, and what can be done with it. None: one that nothing was asked in yet. use: how full the
    context is, where that is known."""
    told = conversation_words.INSTRUCT_SET if instructed else ""
    mark = f'<i class="tf-dot-ok" role="img" aria-label="{esc(told)}" title="{esc(told)}"></i>' if told else ""
    context = context_menu(use) if use else ""
    items = button(conversation_words.INSTRUCT, "instruct", css="tf-quiet")
    title = conversation_words.NEW_TALK
    if talk is not None:
        title = talk.title
        items += button(conversation_words.RENAME, "rename", css="tf-quiet") + "".join(
            button(words, "export", css="tf-quiet", kind=kind)
            for kind, words in conversation_words.EXPORT_KINDS.items())
    return (f'<div class="tf-talk-bar"><span class="tf-talk-title" title="{esc(title)}">{esc(title)}</span>'
            f"{mark}{context}{menu(items)}</div>")


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
