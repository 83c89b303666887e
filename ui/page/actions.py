"""Clicks inside the panels' HTML: the name of an action and its data -> what a person can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from triforce_core import ranges_text

from ..app.quotes import places
from ..app.services import Services
from ..app.tab_view import LISTED, TabView
from ..app.tabs import Tabs
from . import address, models, together
from .panel import safely

Actions = dict[str, Callable[[TabView, dict[str, str]], Any]]


def act(services: Services, tabs: Tabs) -> Callable[[gr.EventData, gr.Request], None]:
    """What every panel's clicks are handed to."""
    actions: Actions = {**document_actions(services), **conversation_actions(services), **answer_actions(services),
                        **models.actions(services), **together.actions(services), **address.actions(services)}

    def click(event: gr.EventData, request: gr.Request) -> None:
        data = event._data if isinstance(event._data, dict) else {}
        view = tabs.get(request.session_hash)
        action = actions.get(str(data.get("action")))
        if action:
            safely(view, lambda: action(view, data))

    return click


def document_actions(services: Services) -> Actions:
    def choose_pages(view: TabView, data: dict[str, str]) -> None:
        entry, view.picking = services.library.get(view.document), None
        view.choosing = ranges_text(services.collection.suggestion(entry)) if entry else None

    def page_number(data: dict[str, str]) -> int | None:
        return int(data["page"]) if data.get("page", "").isdigit() else None

    def open_page(view: TabView, data: dict[str, str]) -> None:
        view.page, view.spot = page_number(data), places(data.get("spot", ""))
        view.openings += 1

    def turned(view: TabView, data: dict[str, str]) -> None:
        """The page view shows it already, unless another page was opened or all closed before this was heard."""
        if view.page and (data.get("document"), data.get("serial")) == (view.document, str(view.openings)):
            view.page, view.spot = page_number(data), ()

    def dismiss(view: TabView, data: dict[str, str]) -> None:
        view.notice = None

    return {
        "open": lambda view, data: services.open(view, data.get("document", "")),
        "read": lambda view, data: services.read(view.document or ""),
        "cancel-reading": lambda view, data: services.cancel_reading(view.document or ""),
        "delete-document": lambda view, data: services.delete(view, data.get("document", "")),
        "forget-reading": lambda view, data: services.delete_snapshots(data.get("document", "")),
        "choose-pages": choose_pages, "page": open_page, "turned": turned, "dismiss": dismiss,
    }


def conversation_actions(services: Services) -> Actions:
    def new(view: TabView, data: dict[str, str]) -> None:
        view.conversation, view.page, view.editing, view.renaming = None, None, None, False
        view.instructing, view.system = False, ""

    def show(view: TabView, data: dict[str, str]) -> None:
        view.conversation, view.editing, view.renaming = data.get("conversation"), None, False
        view.instructing = False

    def rename(view: TabView, data: dict[str, str]) -> None:
        view.renaming = True

    def more(view: TabView, data: dict[str, str]) -> None:
        view.listed += LISTED

    def instruct(view: TabView, data: dict[str, str]) -> None:
        view.instructing = not view.instructing

    return {
        "new-conversation": new, "conversation": show, "rename": rename,
        "more-conversations": more,
        "delete-conversation": lambda view, data: services.delete_conversation(view, data.get("conversation", "")),
        "undo": lambda view, data: services.undo(view), "instruct": instruct,
        "continue": lambda view, data: services.continue_anew(view),
        "found": lambda view, data: services.find(view, data.get("conversation", ""), data.get("answer", "")),
    }


def answer_actions(services: Services) -> Actions:
    def edit(view: TabView, data: dict[str, str]) -> None:
        view.editing = data.get("answer")

    def trace(view: TabView, data: dict[str, str]) -> None:
        view.traced = None if view.traced == data.get("answer") else data.get("answer")

    return {
        "ask": lambda view, data: services.ask(view, data.get("question", "")),
        "answer-now": lambda view, data: services.answer_now(data.get("run", "")),
        "again": lambda view, data: services.ask_again(view, data.get("answer", "")),
        "version": lambda view, data: services.conversations.show(data.get("answer", "")),
        "edit": edit, "leave-edit": edit, "trace": trace,
    }
