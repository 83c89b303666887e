"""Conversations: the bar above the chat (name, export), the boxes for a name and for instructions, what search found,
the table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from ..app.context_budget import ContextUse
from ..app.conversations import Conversation, Hit
from ..app.questions import LONGEST
from ..app.services import Services
from ..app.tab_view import LISTED, TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from .export import exported
from .html import CANCEL, button, esc, menu
from .panel import PRIVATE, Actions, Outputs, Panel, block, noticing

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
SHORTCUTS_TITLE = "Keys"
SHORTCUTS = (
    ("Enter", "Ask"), ("Shift+Enter", "New line"), ("Esc", "Close a box or cancel an edit; stop the answer"),
    ("Ctrl+Enter", "Ask the last question again"), ("↑", "In an empty question line: edit the last question"),
    ("Alt+N", "New conversation"), ("Ctrl+K", "Search all conversations"), ("/", "Go to the question line"),
    ("Ctrl+Z", "Undo a deletion"),
    ("Alt+1 Alt+2 Alt+3", "Go to library, chat, document"), ("← → ↑ ↓", "In the strip: move from page to page"),
    ("Tab Shift+Tab", "Everything else: forward, back; Enter presses"), ("?", "This table"),
)
INSTRUCT_LABEL = "Instructions for this conversation"
INSTRUCT_HELP = ("What every answer in this conversation should follow: language, length, tone, readers. The model "
                 "sees this after the document and before the first question, so the document is not read again. It is "
                 "saved with the conversation and exported with it. It applies from the next question on; the model "
                 "then reads the conversation so far again, which takes a moment.")
INSTRUCT_NONE = ("The loaded model follows no instructions: it was trained to find sentences of the document "
                 "that answer a question, and to quote them. Load a chat model (Models) to use this.")
INSTRUCT_KEEP = "Save"


def context_menu(use: ContextUse) -> str:
    """Return how full the context is; unfolded, of what, and a way to make room."""
    used = use.document + use.conversation
    taken = f"{fmt.count(used)} of {fmt.count(use.most)} tokens of the context are taken"
    facts = "".join(f"<dt>{label}</dt><dd>{fmt.count(getattr(use, name))}</dd>" for name, label in CONTEXT_PARTS)
    onward = button(CONTINUE, "continue", css="tf-quiet") if use.conversation else ""
    return (f'<details class="tf-menu tf-context-menu"><summary class="tf-btn tf-quiet" title="{taken}">'
            f'{esc(CONTEXT.format(percent=fmt.percent(min(used, use.most), use.most)))}</summary>'
            f'<div class="tf-menu-items"><p class="tf-note">{taken}</p><dl class="tf-facts">{facts}</dl>{onward}</div>'
            "</details>")


def context_note(use: ContextUse | None) -> str:
    """Return what stands above the question line, once there is little room left."""
    if use is None or not use.state:
        return ""
    words = CONTEXT_FULL if use.state == "full" else CONTEXT_NEAR
    onward = button(CONTINUE, "continue", css="tf-quiet", because=use.state)
    return (f'<div class="tf-editing tf-context-{use.state}" role="status" '
            f'title="The document stays as it is, and the last exchanges go along.">'
            f"<span>{esc(words.format(left=fmt.count(use.left)))}</span>{onward}</div>")


def bar(talk: Conversation | None, instructed: bool, use: ContextUse | None = None) -> str:
    """Return the conversation's name, and what can be done with it. None: nothing was asked in it yet. use: how full
    the context is, where that is known."""
    mark = (f'<i class="tf-dot-ok" role="img" aria-label="{INSTRUCT_SET}" title="{INSTRUCT_SET}"></i>' if instructed
            else "")
    items = button("Instructions", "instruct", css="tf-quiet")
    if talk is not None:
        items += button(RENAME, "rename", css="tf-quiet") + "".join(
            button(words, "export", css="tf-quiet", kind=kind) for kind, words in EXPORT_KINDS.items())
    title = esc(talk.title if talk else NEW_TALK)
    return (f'<div class="tf-talk-bar"><span class="tf-talk-title" title="{title}">{title}</span>'
            f"{mark}{context_menu(use) if use else ''}{menu(items)}</div>")


def found(hits: Sequence[Hit], documents: dict[str, str], query: str) -> str:
    """Return what search found, over all documents. documents: id -> title."""
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
    """Return the dialog with every shortcut; the script opens it."""
    rows = "".join(f"<tr><th scope=row>{' '.join(f'<kbd>{esc(key)}</kbd>' for key in keys.split())}</th>"
                   f"<td>{esc(what)}</td></tr>" for keys, what in SHORTCUTS)
    return (f'<dialog id="key-table" aria-label="{SHORTCUTS_TITLE}"><h2>{SHORTCUTS_TITLE}</h2><table>{rows}</table>'
            '<form method="dialog"><button class="tf-btn">Close</button></form></dialog>')


def results(services: Services, view: TabView) -> str:
    titles = {entry.id: entry.title or entry.name for entry in services.library.entries()}
    return found(services.conversations.search(view.sought), titles, view.sought)


def wanted(services: Services, words: str) -> str:
    """Return what pressing the button keeps: nothing, where the model follows no instructions."""
    return words if services.questions.instructions_followed else ""


def build(services: Services, tabs: Tabs) -> Outputs:
    bar = block("talk-bar", clicks=True)
    with gr.Column(visible=False, elem_id="renaming", elem_classes="tf-dialog") as renaming, gr.Row():
        title = gr.Textbox(label="Name of this conversation", elem_id="new-title", max_lines=1, max_length=200,
                           scale=3, min_width=140)
        save = gr.Button(RENAME, variant="primary", elem_id="save-title", size="md", scale=0, min_width=96)
        leave = gr.Button(CANCEL, elem_id="leave-title", size="md", scale=0, min_width=90)
    parcel = gr.JSON(visible="hidden", elem_id="parcel")  # a file on its way to a download: [name, kind, content]
    with gr.Column(visible=False, elem_id="instructing", elem_classes="tf-dialog") as instructing:
        about = block("instructions-about")
        words = gr.Textbox(label=INSTRUCT_LABEL, show_label=False, container=False, lines=3, max_lines=10,
                           max_length=LONGEST, elem_id="instructions")
        with gr.Row():
            keep = gr.Button(INSTRUCT_KEEP, variant="primary", elem_id="keep-instructions", size="md", scale=0,
                             min_width=96)
            close = gr.Button(CANCEL, elem_id="leave-instructions", size="md", scale=0, min_width=90)

    def rename(title: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        with noticing(view):
            services.conversations.rename(view.conversation or "", title)
        view.renaming = False

    def leave_renaming(request: gr.Request) -> None:
        tabs.get(request.session_hash).renaming = False

    def instruct(words: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        with noticing(view):
            services.questions.instruct(view, wanted(services, words))

    def leave_instructing(request: gr.Request) -> None:
        tabs.get(request.session_hash).instructing = False

    def export(event: gr.EventData, request: gr.Request) -> list[str] | None:
        data = event._data if isinstance(event._data, dict) else {}
        if data.get("action") != "export":
            return None
        made = exported(services, tabs.get(request.session_hash).conversation, str(data.get("kind")))
        return list(made) if made else None

    for event in (save.click, title.submit):
        event(rename, [title], None, queue=False, **PRIVATE)
    leave.click(leave_renaming, None, None, queue=False, **PRIVATE)
    keep.click(instruct, [words], None, queue=False, **PRIVATE)
    close.click(leave_instructing, None, None, queue=False, **PRIVATE)
    sent = bar.click(export, None, [parcel], queue=False, **PRIVATE)
    sent.then(None, [parcel], [parcel], js="tfSave", **PRIVATE)
    return {"talk_bar": bar, "renaming": renaming, "new_title": title, "instructing": instructing,
            "instructions_about": about, "instructions": words, "keep_instructions": keep}


def actions(services: Services) -> Actions:
    def show(view: TabView, data: dict[str, str]) -> None:
        view.conversation, view.editing = data.get("conversation"), None
        view.renaming = view.instructing = False

    def new(view: TabView, data: dict[str, str]) -> None:
        show(view, {})
        view.page, view.system = None, ""

    def rename(view: TabView, data: dict[str, str]) -> None:
        view.renaming = True

    def more(view: TabView, data: dict[str, str]) -> None:
        view.listed += LISTED

    def instruct(view: TabView, data: dict[str, str]) -> None:
        view.instructing = not view.instructing

    return {
        "new-conversation": new, "conversation": show, "rename": rename, "more-conversations": more,
        "delete-conversation": lambda view, data: services.delete_conversation(view, data.get("conversation", "")),
        "instruct": instruct, "continue": lambda view, data: services.continue_anew(view),
        "found": lambda view, data: services.find(view, data.get("conversation", ""), data.get("answer", "")),
    }


def panels(services: Services) -> list[Panel]:
    conversations, questions = services.conversations, services.questions

    def used(view: TabView) -> object:
        """Return what ``context_use`` follows from."""
        return (view.document, view.conversation, conversations.version, services.library.version,
                services.queue.open_key, services.queue.model, services.settings.max_new_tokens)

    def draw_bar(view: TabView) -> str:
        if not view.document:
            return ""
        return bar(conversations.get(view.conversation), bool(questions.instructions(view)), services.context_use(view))

    def draw_title(view: TabView) -> dict[str, Any]:
        talk = conversations.get(view.conversation) if view.renaming else None
        return gr.update(value=talk.title) if talk else gr.update()

    def instructing(view: TabView) -> tuple[object, ...]:
        return view.instructing, view.conversation, questions.instructions_followed, conversations.version

    def draw_about(view: TabView) -> str:
        words = INSTRUCT_HELP if questions.instructions_followed else INSTRUCT_NONE
        return f'<h2>{INSTRUCT_LABEL}</h2><p class="tf-muted">{esc(words)}</p>'

    def draw_words(view: TabView) -> dict[str, Any]:
        if not view.instructing:
            return gr.update()
        return gr.update(value=questions.instructions(view), interactive=questions.instructions_followed)

    def draw_keep(view: TabView) -> dict[str, Any]:
        return gr.update(value=INSTRUCT_KEEP if questions.instructions_followed else "Remove",
                         visible=questions.instructions_followed or bool(questions.instructions(view)))

    return [
        Panel("talk_bar", lambda view: (used(view), view.system), draw_bar),
        Panel("context_note", used, lambda view: context_note(services.context_use(view))),
        Panel("renaming", lambda view: view.renaming, lambda view: gr.update(visible=view.renaming)),
        Panel("new_title", lambda view: (view.renaming, view.conversation), draw_title),
        Panel("instructing", lambda view: view.instructing, lambda view: gr.update(visible=view.instructing)),
        Panel("instructions_about", instructing, draw_about),
        Panel("instructions", lambda view: (view.instructing, view.conversation, questions.instructions_followed),
              draw_words),
        Panel("keep_instructions", instructing, draw_keep),
    ]
