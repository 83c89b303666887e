"""Left: upload, the documents, and the open document's conversations."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from .. import figures as fmt
from .. import strings
from ..charts import esc
from ..conversations import Conversation
from ..library import EXTENSIONS, Entry
from ..painter import Panel
from ..services import Services, View
from . import html, talks


def build() -> tuple[gr.File, gr.HTML, gr.Textbox]:
    """The upload, the list, and the line to search conversations with."""
    upload = gr.File(label=strings.DROP_HERE, file_count="multiple", file_types=list(EXTENSIONS), height=112,
                     elem_id="upload", show_label=False)
    sought = talks.build_search()
    listing = html("documents", clicks=True)
    return upload, listing, sought


def pages(number: int) -> str:
    return strings.PAGE_ONE if number == 1 else strings.PAGES_OF.format(pages=fmt.count(number))


def delete_button(what: str, key: str, description: str) -> str:
    return (f'<button type="button" class="tf-delete" data-action="delete-{what}" data-{what}="{esc(key)}" '
            f'data-sure="{esc(strings.DELETE_SURE)}" data-label="{esc(strings.DELETE)}" '
            f'aria-label="{esc(description)}">'
            f"{esc(strings.DELETE)}</button>")


def document_item(entry: Entry, phase: str, current: bool) -> str:
    """One document: title, size, where it stands."""
    facts = [pages(entry.pages)] if entry.pages else []
    facts.append(fmt.count(entry.tokens) + " " + strings.TOKENS if entry.tokens else fmt.size(entry.bytes))
    title = entry.title or entry.name
    return (f'<li class="tf-doc{" tf-current" if current else ""}">'
            f'<button type="button" class="tf-doc-open" data-action="open" data-document="{entry.id}" '
            f'title="{esc(entry.name)}"{" aria-current=true" if current else ""}>'
            f'<span class="tf-doc-title">{esc(title)}</span><span class="tf-doc-facts">{esc(" · ".join(facts))}</span>'
            f'<span class="tf-phase tf-phase-{phase}">{esc(strings.PHASES[phase])}</span></button>'
            f"{delete_button('document', entry.id, strings.DELETE_DOCUMENT.format(title=title))}</li>")


def conversation_list(conversations: Sequence[Conversation], current: str | None) -> str:
    """The conversations of the open document, with a way to a new one."""
    items = "".join(
        f'<li class="tf-talk{" tf-current" if talk.id == current else ""}"><button type="button" class="tf-talk-open" '
        f'data-action="conversation" data-conversation="{esc(talk.id)}">{esc(talk.title)}</button>'
        f"{delete_button('conversation', talk.id, strings.DELETE_CONVERSATION)}</li>" for talk in conversations)
    return (f'<div class="tf-talks"><button type="button" class="tf-btn tf-wide" id="new-conversation" '
            f'data-action="new-conversation">{esc(strings.NEW_CONVERSATION)}</button><ul>{items}</ul></div>')


def listing(rows: Sequence[tuple[Entry, str]], current: str | None, own: Sequence[Conversation],
            conversation: str | None) -> str:
    """The whole panel. rows: documents with their phase."""
    if not rows:
        return f'<p class="tf-note">{esc(strings.LIBRARY_EMPTY)}</p>'
    items = []
    for entry, phase in rows:
        items.append(document_item(entry, phase, entry.id == current))
        if entry.id == current and entry.state == "ready":
            items.append(f'<li class="tf-nested">{conversation_list(own, conversation)}</li>')
    return f'<ul class="tf-docs">{"".join(items)}</ul>'


def panels(services: Services) -> list[Panel]:
    def rows() -> list[tuple[Entry, str]]:
        return [(entry, services.phase(entry)) for entry in services.library.entries()]

    def key(view: View) -> tuple[object, ...]:
        return (view.sought, services.library.version, services.conversations.version, view.document, view.conversation,
                tuple(phase for _, phase in rows()))

    def draw(view: View) -> str:
        if view.sought:
            return talks.results(services, view)
        own = services.conversations.of(view.document) if view.document else []
        return listing(rows(), view.document, own, view.conversation)

    return [Panel("documents", key, draw, 0.2)]
