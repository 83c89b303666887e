"""Places the panels and wires their events; nothing else.

Handlers change a tab's view (or leave a note at the engine's desk) and mostly return nothing: one loop per tab,
``_live``, sends whatever has changed, at most ten times a second; the words that are being written go by ``writing``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from triforce_core import TriForceError, ranges_text

from ..state.services import Services
from ..state.settings import Dials
from ..state.tab_view import View
from ..state.tabs import Tabs
from ..view import citations
from ..view.charts import esc
from ..view.export import exported
from ..view.pace import pace
from ..view.painter import Painter, Panel
from ..words import chat as chat_words
from ..words import conversations as conversation_words
from ..words import library as library_words
from ..words import models as model_words
from ..words import page as page_words
from ..words import race as race_words
from ..words import settings as settings_words
from . import (
    chat,
    html,
    instructions,
    library,
    models,
    race,
    reader,
    settings,
    side,
    together,
)
from . import (
    conversations as talks,
)
from . import (
    document_head as head,
)
from . import (
    page_choice as choice,
)
from .gradio_sessions import Sessions

TICK = 0.1
PULSE = 15.0  # seconds after which an unchanged screen yields all the same: only then Gradio notices a closed tab
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def build(services: Services, *, secret: str, uploads: Path) -> gr.Blocks:
    """The whole page. uploads: the only folder from which a dropped file is taken."""
    tabs = Tabs(services)
    with gr.Blocks(title=page_words.APP, fill_height=True, fill_width=True, analytics_enabled=False,
                   delete_cache=(3600, 86400)) as page:
        memory = gr.BrowserState(None, storage_key="triforce-chat", secret=secret)
        html("bar", _bar(services.sends_to))
        with gr.Row(elem_id="shell", equal_height=False):
            with gr.Column(elem_id="library", scale=0, min_width=200):
                upload, documents, sought = library.build()
            with gr.Column(elem_id="center", scale=1, min_width=200):
                head_html, notice = head.build_head()
                locked, chosen = head.build_locked(), choice.build()
                picked, picked_budget = together.build()
                with gr.Tabs(elem_id="tabs") as tab_bar:
                    with gr.Tab(chat_words.CHAT, id="chat", elem_id="tab-chat"):
                        named = talks.build()
                        told = instructions.build()
                        talk = chat.build()
                    with gr.Tab(race_words.RACE, id="race", elem_id="tab-race"):
                        lanes = race.build()
                    with gr.Tab(model_words.TAB, id="models", elem_id="tab-models"):
                        shelf = models.build(services.models_unused)
                    with gr.Tab(settings_words.SETTINGS_TAB, id="settings", elem_id="tab-settings"):
                        form = settings.build(services.dials)
            with gr.Column(elem_id="side", scale=0, min_width=200):
                page_open, page_turned = reader.build()
                figures, strip, engine, history = side.build()

        outputs = {
            "documents": documents, "head": head_html, "notice": notice, "locked": locked.column,
            "locked_text": locked.text, "choice_text": chosen.text,
            "pick": picked, "pick_budget": picked_budget, "chapters": chosen.chapters, "pages_wanted": chosen.pages,
            "range_text": chosen.budget,
            "transcript": talk.transcript, "live": talk.live, "stop": talk.stop, "figures": figures, "strip": strip,
            "page_open": page_open, "engine": engine, "race_board": lanes.board, "race_stop": lanes.stop,
            "history": history, "models_board": shelf.board, "memory": memory, "talk_bar": named.bar,
            "renaming": named.renaming, "new_title": named.title, "editing": talk.editing,
            "instructing": told.box, "instructions_about": told.about, "instructions": told.words,
            "keep_instructions": told.keep,
        }
        panels = [*library.panels(services), *head.panels(services), *chat.panels(services), *side.panels(services),
                  *reader.panels(services), *race.panels(services), *models.panels(services), *talks.panels(services),
                  *choice.panels(services), *together.panels(services), *instructions.panels(services),
                  _memory(services)]
        assert {panel.name for panel in panels} == set(outputs), "every panel has its place"
        asleep, awake = gr.Button(visible="hidden", elem_id="asleep"), gr.Button(visible="hidden", elem_id="awake")
        live = _live(services, tabs, panels, list(outputs), Sessions(page))
        gr.on([page.load, awake.click], live, [memory], list(outputs.values()), concurrency_limit=None,
              trigger_mode="multiple", **PRIVATE)
        asleep.click(_sleep(tabs), None, None, queue=False, **PRIVATE)
        page.load(lambda: settings.values(services.dials), None, list(form.fields.values()), queue=False, **PRIVATE)

        act = _act(services, tabs)
        for source in (documents, head_html, notice, talk.transcript, talk.live, strip, page_turned, lanes.board,
                       shelf.board, named.bar, talk.editing, picked, picked_budget):
            source.click(act, None, None, queue=False, **PRIVATE)
        _wire_documents(services, tabs, upload, locked, chosen, uploads)
        _wire_questions(services, tabs, talk, lanes, tab_bar)
        _wire_talks(services, tabs, named, sought)
        _wire_instructions(services, tabs, told)
        _wire_settings(services, form)
        models.wire(services, shelf, PRIVATE)
    return page


def _bar(sends_to: str) -> str:
    """The top bar: name, where text goes if it leaves this machine, and on narrow screens the choice of what to show.
    """
    leaves = (f'<span class="tf-leaves" role="note">{esc(page_words.SENDS_TO.format(url=sends_to))}</span>' if sends_to
              else f'<span class="tf-tagline">{esc(page_words.TAGLINE)}</span>')
    buttons = "".join(f'<button type="button" data-pane="{name}">{esc(label)}</button>'
                      for name, label in page_words.PANES)
    return (f'<div class="tf-bar"><span class="tf-logo" aria-hidden="true"></span><b>{esc(page_words.APP)}</b>'
            f'{leaves}<button type="button" class="tf-keys-button" data-keys '
            f'aria-label="{esc(conversation_words.SHORTCUTS_TITLE)}">?</button>'
            f'<nav class="tf-panes">{buttons}</nav></div>{talks.keys_table()}')


def _memory(services: Services) -> Panel:
    """What the browser remembers: ids and a page's number, no words."""
    def what(view: View) -> dict[str, Any]:
        return {"document": view.document, "conversation": view.conversation, "start": services.start_id,
                "page": view.page}

    return Panel("memory", lambda view: (view.document, view.conversation, view.page), what)


def _live(services: Services, tabs: Tabs, panels: list[Panel], names: list[str],
          sessions: Sessions) -> Callable[..., AsyncIterator[list[Any]]]:
    async def live(remembered: Any, request: gr.Request) -> AsyncIterator[list[Any]]:
        session = request.session_hash or ""
        view = tabs.get(session) if tabs.known(session) else tabs.open(session, remembered)
        me = view.watcher = object()
        painter, quiet = Painter(panels, view, partial(pace, services.desk, services.runs)), 0
        try:
            while view.watcher is me and sessions.listens(session):
                changed = await asyncio.to_thread(painter.changes) if painter.due() else {}
                quiet = 0 if changed else quiet + 1
                if changed or quiet >= PULSE / TICK:
                    quiet = 0
                    yield [changed.get(name, gr.skip()) for name in names]
                await asyncio.sleep(TICK)
        finally:
            if view.watcher is me:  # the tab was closed
                tabs.close(session)
                sessions.forget(session)

    return live


def _sleep(tabs: Tabs) -> Callable[[gr.Request], None]:
    """A tab in the background gives its connection back: a browser has only six for one server."""
    def sleep(request: gr.Request) -> None:
        tabs.get(request.session_hash).watcher = None

    return sleep


def _safely(view: View, work: Callable[[], Any]) -> Any:
    """Do it, or put a card on the page that says why not."""
    try:
        return work()
    except TriForceError as error:
        view.notice = ("error", error.message.rstrip("."), " ".join(
            part for part in (error.allowed, error.remedy) if part))
        return None


def _act(services: Services, tabs: Tabs) -> Callable[..., None]:
    """Clicks inside HTML panels: the action's name and its data -> a verb."""
    def new_conversation(view: View, data: dict[str, str]) -> None:
        view.conversation, view.page, view.editing, view.renaming = None, None, None, False
        view.instructing, view.system = False, ""

    def conversation(view: View, data: dict[str, str]) -> None:
        view.conversation, view.editing, view.renaming = data.get("conversation"), None, False
        view.instructing = False

    def delete_conversation(view: View, data: dict[str, str]) -> None:
        run = services.runs.of_conversation(data.get("conversation"))
        if run:
            services.desk.stop(run)
        services.conversations.delete(data.get("conversation", ""))
        if view.conversation == data.get("conversation"):
            view.conversation = None

    def open_page(view: View, data: dict[str, str]) -> None:
        turned(view, data)
        view.spot = citations.places(data.get("spot", ""))
        view.openings += 1

    def turned(view: View, data: dict[str, str]) -> None:
        """The page view shows it already."""
        view.page = int(data["page"]) if data.get("page", "").isdigit() else None
        view.spot = ()

    def trace(view: View, data: dict[str, str]) -> None:
        view.traced = None if view.traced == data.get("answer") else data.get("answer")

    def choose_pages(view: View, data: dict[str, str]) -> None:
        entry, view.picking = services.library.get(view.document), None
        view.choosing = ranges_text(services.shelf.suggestion(entry)) if entry else None

    def edit(view: View, data: dict[str, str]) -> None:
        view.editing = data.get("answer")

    def rename(view: View, data: dict[str, str]) -> None:
        view.renaming = True

    def instruct(view: View, data: dict[str, str]) -> None:
        view.instructing = not view.instructing

    def dismiss(view: View, data: dict[str, str]) -> None:
        view.notice = None

    actions: dict[str, Callable[[View, dict[str, str]], Any]] = {
        "open": lambda view, data: services.open(view, data.get("document", "")),
        "read": lambda view, data: services.read(view.document or ""),
        "cancel-reading": lambda view, data: services.cancel_reading(view.document or ""),
        "delete-document": lambda view, data: services.delete(view, data.get("document", "")),
        "forget-reading": lambda view, data: services.forget_reading(data.get("document", "")),
        "new-conversation": new_conversation, "conversation": conversation,
        "delete-conversation": delete_conversation, "page": open_page, "turned": turned, "trace": trace,
        "choose-pages": choose_pages, "dismiss": dismiss, "edit": edit, "leave-edit": edit, "rename": rename,
        "instruct": instruct,
        "ask": lambda view, data: services.ask(view, data.get("question", "")),
        "again": lambda view, data: services.ask_again(view, data.get("answer", "")),
        "version": lambda view, data: services.conversations.show(data.get("answer", "")),
        "found": lambda view, data: services.find(view, data.get("conversation", ""), data.get("answer", "")),
        **models.actions(services), **together.actions(services),
    }

    def act(event: gr.EventData, request: gr.Request) -> None:
        data = event._data if isinstance(event._data, dict) else {}
        view = tabs.get(request.session_hash)
        action = actions.get(str(data.get("action")))
        if action:
            _safely(view, lambda: action(view, data))

    return act


def _wire_documents(services: Services, tabs: Tabs, upload: gr.File, locked: head.Locked, chosen: choice.Choice,
                    uploads: Path) -> None:
    def add(files: list[str] | None, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        paths = [Path(file).resolve() for file in files or ()]
        if not all(path.is_relative_to(uploads.resolve()) for path in paths):
            view.notice = ("error", library_words.NOT_ADDED, library_words.UPLOAD_REFUSED)
            return
        _safely(view, lambda: services.add(view, [(path, path.name) for path in paths]))
        for path in paths:  # the library has its own copy
            path.unlink(missing_ok=True)

    def unlock(password: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        _safely(view, lambda: services.unlock(view, password))
        return ""

    def typed(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        if services.choosing(view):  # a late word from a closed dialog does not open it again
            view.choosing = pages

    def read(pages: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        _safely(view, lambda: services.choose_pages(view, pages))

    def leave(request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        entry = services.library.get(view.document)
        view.choosing = None
        if entry and services.phase(entry) == "too_long":
            view.document = view.conversation = None

    added = upload.upload(add, [upload], None, queue=False, **PRIVATE)
    added.then(lambda: None, None, [upload], queue=False, **PRIVATE)
    for event in (locked.unlock.click, locked.password.submit):
        event(unlock, [locked.password], [locked.password], queue=False, **PRIVATE)
    # Not ``input``: Gradio keeps the first one that follows a value of ours to itself.
    chosen.pages.change(typed, [chosen.pages], None, queue=False, trigger_mode="always_last", **PRIVATE)
    for event in (chosen.read.click, chosen.pages.submit):
        event(read, [chosen.pages], None, queue=False, **PRIVATE)
    chosen.leave.click(leave, None, None, queue=False, **PRIVATE)


def _wire_questions(services: Services, tabs: Tabs, talk: chat.Chat, lanes: race.Race, tab_bar: gr.Tabs) -> None:
    def ask(question: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        return "" if _safely(view, lambda: services.ask(view, question)) else question

    def stop(request: gr.Request) -> None:
        services.stop(tabs.get(request.session_hash))

    def start_race(question: str, third: str | None, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        _safely(view, lambda: services.race(view, question, third or ""))

    def race_from_chat(question: str, request: gr.Request) -> tuple[Any, Any, str]:
        """Race the typed question, or the conversation's last one; show the race only if there is one."""
        view = tabs.get(request.session_hash)
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        words = question.strip() or (answers[-1].question if answers else "")
        started = _safely(view, lambda: services.race(view, words))
        return (gr.Tabs(selected="race") if started else gr.skip(), words or gr.skip(), "" if started else question)

    for event in (talk.send.click, talk.question.submit):
        event(ask, [talk.question], [talk.question], queue=False, **PRIVATE)
    talk.stop.click(stop, None, None, queue=False, **PRIVATE)
    talk.race.click(race_from_chat, [talk.question], [tab_bar, lanes.question, talk.question], queue=False, **PRIVATE)
    for event in (lanes.start.click, lanes.question.submit):
        event(start_race, [lanes.question, lanes.third], None, queue=False, **PRIVATE)
    lanes.stop.click(stop, None, None, queue=False, **PRIVATE)


def _wire_talks(services: Services, tabs: Tabs, named: talks.Talks, sought: gr.Textbox) -> None:
    def search(words: str, request: gr.Request) -> None:
        tabs.get(request.session_hash).sought = words.strip()

    def rename(title: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        _safely(view, lambda: services.conversations.rename(view.conversation or "", title))
        view.renaming = False

    def leave(request: gr.Request) -> None:
        tabs.get(request.session_hash).renaming = False

    def parcel(event: gr.EventData, request: gr.Request) -> list[str] | None:
        data = event._data if isinstance(event._data, dict) else {}
        if data.get("action") != "export":
            return None
        made = exported(services, tabs.get(request.session_hash).conversation, str(data.get("kind")))
        return list(made) if made else None

    sought.input(search, [sought], None, queue=False, trigger_mode="always_last", **PRIVATE)  # in the order of typing
    for event in (named.save.click, named.title.submit):
        event(rename, [named.title], None, queue=False, **PRIVATE)
    named.leave.click(leave, None, None, queue=False, **PRIVATE)
    sent = named.bar.click(parcel, None, [named.parcel], queue=False, **PRIVATE)
    sent.then(None, [named.parcel], [named.parcel], js="tfSave", **PRIVATE)


def _wire_instructions(services: Services, tabs: Tabs, told: instructions.Instructions) -> None:
    def keep(words: str, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        _safely(view, lambda: services.instructions.keep(view, instructions.wanted(services, words)))

    def leave(request: gr.Request) -> None:
        tabs.get(request.session_hash).instructing = False

    told.keep.click(keep, [told.words], None, queue=False, **PRIVATE)
    told.leave.click(leave, None, None, queue=False, **PRIVATE)


def _wire_settings(services: Services, form: settings.SettingsForm) -> None:
    fields = list(form.fields.values())
    form.save.click(lambda *values: settings.keep(services, values), fields, [form.result], queue=False, **PRIVATE)
    for name, preset in form.presets.items():
        preset.click(partial(settings.choose, services, name), None, [*fields, form.result], queue=False, **PRIVATE)
    reset = form.reset.click(lambda: settings.values(Dials()), None, fields, queue=False, **PRIVATE)
    reset.then(lambda *values: settings.keep(services, values), fields, [form.result], queue=False, **PRIVATE)


