"""Conversations: the bar above the chat (name, export), the box to rename in, what search found, the table of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..page.html import CANCEL, DISMISS, button, esc
from ..page.panel import PRIVATE, Panel, block, safely
from ..state.search import search
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view.conversations import bar, context_note, found
from ..view.export import exported
from ..words import conversations as conversation_words


@dataclass(frozen=True)
class Talks:
    """parcel: a file on its way to the browser's download, [name, kind, content]."""

    bar: gr.HTML
    renaming: gr.Column
    title: gr.Textbox
    save: gr.Button
    leave: gr.Button
    parcel: gr.JSON


def build() -> Talks:
    bar = block("talk-bar", clicks=True)
    with gr.Column(visible=False, elem_id="renaming", elem_classes="tf-dialog") as renaming:
        with gr.Row():
            title = gr.Textbox(label=conversation_words.RENAME_LABEL, elem_id="new-title", max_lines=1, max_length=200,
                               scale=3, min_width=140)
            save = gr.Button(conversation_words.RENAME, variant="primary", elem_id="save-title", size="md", scale=0,
                             min_width=96)
            leave = gr.Button(CANCEL, elem_id="leave-title", size="md", scale=0, min_width=90)
    return Talks(bar, renaming, title, save, leave, gr.JSON(visible="hidden", elem_id="parcel"))


def build_search() -> gr.Textbox:
    return gr.Textbox(placeholder=conversation_words.SEARCH, label=conversation_words.SEARCH, show_label=False,
                      container=False,
                      max_lines=1, max_length=200, elem_id="search")


def editing_note() -> gr.HTML:
    """Above the composer, while an earlier question is asked in other words."""
    return block("editing", clicks=True)


def results(services: Services, view: TabView) -> str:
    titles = {entry.id: entry.title or entry.name for entry in services.library.entries()}
    return found(search(services.database, services.conversations, view.sought), titles, view.sought)


def panels(services: Services) -> list[Panel]:
    conversations = services.conversations

    def draw_bar(view: TabView) -> str:
        if not view.document:
            return ""
        return bar(conversations.get(view.conversation), bool(services.instructions.of(view)),
                   services.context_use(view))

    def used(view: TabView) -> object:
        """What ``context_use`` follows from."""
        return (view.document, view.conversation, conversations.version, services.library.version,
                services.queue.open_key, services.queue.model, services.settings.max_new_tokens)

    def draw_title(view: TabView) -> dict[str, Any]:
        talk = conversations.get(view.conversation) if view.renaming else None
        return gr.update(value=talk.title) if talk else gr.update()

    def draw_editing(view: TabView) -> str:
        if view.editing is None:
            return ""
        leave = button(DISMISS, "leave-edit", css="tf-quiet")
        return f'<div class="tf-editing" role="status"><span>{esc(conversation_words.EDITING)}</span>{leave}</div>'

    return [
        Panel("talk_bar", lambda view: (used(view), view.system), draw_bar),
        Panel("context_note", used, lambda view: context_note(services.context_use(view))),
        Panel("renaming", lambda view: view.renaming, lambda view: gr.update(visible=view.renaming)),
        Panel("new_title", lambda view: (view.renaming, view.conversation), draw_title),
        Panel("editing", lambda view: view.editing, draw_editing),
    ]


def wire(services: Services, tabs: Tabs, named: Talks) -> None:
    def rename(title: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        safely(view, lambda: services.conversations.rename(view.conversation or "", title))
        view.renaming = False

    def leave(request: gr.Request) -> None:
        tabs.get(request.session_hash).renaming = False

    def parcel(event: gr.EventData, request: gr.Request) -> list[str] | None:
        data = event._data if isinstance(event._data, dict) else {}
        if data.get("action") != "export":
            return None
        made = exported(services, tabs.get(request.session_hash).conversation, str(data.get("kind")))
        return list(made) if made else None

    for event in (named.save.click, named.title.submit):
        event(rename, [named.title], None, queue=False, **PRIVATE)
    named.leave.click(leave, None, None, queue=False, **PRIVATE)
    sent = named.bar.click(parcel, None, [named.parcel], queue=False, **PRIVATE)
    sent.then(None, [named.parcel], [named.parcel], js="tfSave", **PRIVATE)
