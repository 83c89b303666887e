"""Conversations: the bar above the chat (name, export), the box to rename in, what search found, the table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ..app.context_budget import ContextUse
from ..app.conversations import Conversation, Hit
from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import number_format as fmt
from .export import exported
from .html import CANCEL, DISMISS, button, esc, menu
from .panel import PRIVATE, Panel, block, safely

EDITING = "You are rewording an earlier question. The old version is kept."
RENAME = "Rename"
INSTRUCT_SET = "Instructions are set"
CONTEXT = "Context {percent}"
CONTEXT_PARTS = (("document", "Document"), ("conversation", "This conversation"), ("left", "Free"))
CONTEXT_NEAR = "The context is almost full: about {left} tokens are left."
CONTEXT_FULL = "The context is full."
CONTINUE = "Continue in a new conversation"
NEW_TALK = "New conversation"
EXPORT_KINDS = {"md": "Export as Markdown", "html": "Export as one HTML file",
                "json": "Export as JSON (all versions, statistics)"}
SEARCH = "Search all conversations"
SHORTCUTS_TITLE = "Keys"
SHORTCUTS = (
    ("Enter", "Ask"), ("Shift+Enter", "New line"), ("Esc", "Close a box or cancel an edit; stop the answer"),
    ("Ctrl+Enter", "Ask the last question again"), ("↑", "In an empty question line: edit the last question"),
    ("Alt+N", "New conversation"), ("Ctrl+K", "Search all conversations"), ("/", "Go to the question line"),
    ("Ctrl+Z", "Undo a deletion"),
    ("Alt+1 Alt+2 Alt+3", "Go to library, chat, document"), ("← → ↑ ↓", "In the strip: move from page to page"),
    ("Tab Shift+Tab", "Everything else: forward, back; Enter presses"), ("?", "This table"),
)
CLOSE = "Close"


def context_menu(use: ContextUse) -> str:
    """How full the context is; unfolded, of what, and a way to make room."""
    used = use.document + use.conversation
    share = fmt.percent(min(used, use.most), use.most)
    told = f"{fmt.count(used)} of {fmt.count(use.most)} tokens of the context are taken"
    facts = "".join(f"<dt>{esc(label)}</dt><dd>{esc(fmt.count(getattr(use, name)))}</dd>"
                    for name, label in CONTEXT_PARTS)
    onward = button(CONTINUE, "continue", css="tf-quiet") if use.conversation else ""
    return (f'<details class="tf-menu tf-context-menu"><summary class="tf-btn tf-quiet" title="{esc(told)}">'
            f'{esc(CONTEXT.format(percent=share))}</summary><div class="tf-menu-items">'
            f'<p class="tf-note">{esc(told)}</p><dl class="tf-facts">{facts}</dl>{onward}</div></details>')


def context_note(use: ContextUse | None) -> str:
    """Above the question line, once there is little room left."""
    if use is None or not use.state:
        return ""
    words = CONTEXT_FULL if use.state == "full" else CONTEXT_NEAR
    onward = button(CONTINUE, "continue", css="tf-quiet", because=use.state)
    return (f'<div class="tf-editing tf-context-{use.state}" role="status" '
            f'title="The document stays as it is, and the last exchanges go along.">'
            f"<span>{esc(words.format(left=fmt.count(use.left)))}</span>{onward}</div>")


def bar(talk: Conversation | None, instructed: bool, use: ContextUse | None = None) -> str:
    """The conversation's name, and what can be done with it. None: one that nothing was asked in yet. use: how full the
    context is, where that is known."""
    told = INSTRUCT_SET if instructed else ""
    mark = f'<i class="tf-dot-ok" role="img" aria-label="{esc(told)}" title="{esc(told)}"></i>' if told else ""
    context = context_menu(use) if use else ""
    items = button("Instructions", "instruct", css="tf-quiet")
    title = NEW_TALK
    if talk is not None:
        title = talk.title
        items += button(RENAME, "rename", css="tf-quiet") + "".join(
            button(words, "export", css="tf-quiet", kind=kind)
            for kind, words in EXPORT_KINDS.items())
    return (f'<div class="tf-talk-bar"><span class="tf-talk-title" title="{esc(title)}">{esc(title)}</span>'
            f"{mark}{context}{menu(items)}</div>")


def found(hits: Sequence[Hit], documents: dict[str, str], query: str) -> str:
    """What search found, over all documents. documents: id -> title."""
    if not hits:
        return f'<p class="tf-note">{esc(f"Nothing found for “{query}”.")}</p>'
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
    count = "1 conversation" if len(hits) == 1 else f"{len(hits)} conversations"
    return f'<p class="tf-note" role="status">{esc(count)}</p><ul class="tf-hits">{"".join(items)}</ul>'


def keys_table() -> str:
    """The dialog with every shortcut; the script opens it."""
    rows = "".join(f"<tr><th scope=row>{' '.join(f'<kbd>{esc(key)}</kbd>' for key in keys.split())}</th>"
                   f"<td>{esc(what)}</td></tr>" for keys, what in SHORTCUTS)
    title = esc(SHORTCUTS_TITLE)
    return (f'<dialog id="key-table" aria-label="{title}"><h2>{title}</h2>'
            f'<table>{rows}</table><form method="dialog">'
            f'<button class="tf-btn">{esc(CLOSE)}</button>'
            "</form></dialog>")


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
            title = gr.Textbox(label="Name of this conversation", elem_id="new-title", max_lines=1, max_length=200,
                               scale=3, min_width=140)
            save = gr.Button(RENAME, variant="primary", elem_id="save-title", size="md", scale=0, min_width=96)
            leave = gr.Button(CANCEL, elem_id="leave-title", size="md", scale=0, min_width=90)
    return Talks(bar, renaming, title, save, leave, gr.JSON(visible="hidden", elem_id="parcel"))


def build_search() -> gr.Textbox:
    return gr.Textbox(placeholder=SEARCH, label=SEARCH, show_label=False,
                      container=False,
                      max_lines=1, max_length=200, elem_id="search")


def editing_note() -> gr.HTML:
    """Above the composer, while an earlier question is asked in other words."""
    return block("editing", clicks=True)


def results(services: Services, view: TabView) -> str:
    titles = {entry.id: entry.title or entry.name for entry in services.library.entries()}
    return found(services.conversations.search(view.sought), titles, view.sought)


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
        return f'<div class="tf-editing" role="status"><span>{esc(EDITING)}</span>{leave}</div>'

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
