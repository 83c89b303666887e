"""Places the panels, and the loop that draws them for one tab; each panel wires its own events.

Handlers change a tab's view (or leave a request in the engine's queue) and mostly return nothing: one loop per tab,
``_live``, sends whatever has changed, at most ten times a second; the words that are being written go by
``server.answer_stream``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.utils import get_upload_folder, is_in_or_equal
from gradio_client.utils import is_file_obj, traverse

from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import (
    actions,
    address,
    chat,
    conversations,
    document_head,
    figures,
    instructions,
    library,
    models,
    page_choice,
    race,
    reader,
    settings,
    strip,
    together,
)
from .conversations import keys_table
from .gradio_sessions import Sessions
from .html import APP, SENDS_TO, esc
from .library import removed_readings
from .panel import PRIVATE, Painter, Panel, block, pace
from .race import RACE

PANES = (("library", "Library"), ("center", "Chat"), ("side", "Document"))

TICK = 0.1
DRAWERS = 8  # threads; each page draws in one at a time, so that a slow one holds up no other
PULSE = 15.0  # seconds after which an unchanged screen yields all the same: only then Gradio notices a closed tab


class Page(gr.Blocks):
    """Gradio's page, which looks where a file lies before anything is done with it: Gradio would also take its own
    files, and download what an address names."""

    async def preprocess_data(self, block_fn: BlockFunction, inputs: list[Any], *more: Any, **named: Any) -> list[Any]:
        traverse(inputs, _refuse_unless_uploaded, is_file_obj)
        return await super().preprocess_data(block_fn, inputs, *more, **named)


def _refuse_unless_uploaded(file: dict[str, Any]) -> None:
    if not is_in_or_equal(file["path"], get_upload_folder()):
        raise gr.Error(library.UPLOAD_REFUSED, print_exception=False)


def build(services: Services, *, secret: str) -> gr.Blocks:
    """The whole page."""
    tabs = Tabs(services, removed_readings(*services.removed_readings))
    with Page(title=APP, fill_height=True, fill_width=True, analytics_enabled=False,
              delete_cache=(3600, 86400)) as page:
        memory = gr.BrowserState(None, storage_key="triforce-chat", secret=secret)
        block("bar", _bar(services.sends_to))
        undo = block("undo-offer", clicks=True)
        shown_address, gone = address.build()
        with gr.Row(elem_id="shell", equal_height=False):
            with gr.Column(elem_id="library", scale=0, min_width=200):
                upload, documents, sought = library.build()
            with gr.Column(elem_id="center", scale=1, min_width=200):
                head_html, notice = document_head.build_head()
                locked, chosen = document_head.build_locked(), page_choice.build()
                picked, picked_budget = together.build()
                with gr.Tabs(elem_id="tabs") as tab_bar:
                    with gr.Tab(chat.CHAT, id="chat", elem_id="tab-chat"):
                        named = conversations.build()
                        told = instructions.build()
                        talk = chat.build()
                    with gr.Tab(RACE, id="race", elem_id="tab-race"):
                        lanes = race.build()
                    with gr.Tab(models.TAB, id="models", elem_id="tab-models") as models_tab:
                        models_form = models.build(services.models_unused)
                    with gr.Tab(settings.TAB, id="settings", elem_id="tab-settings"):
                        form = settings.build(services.settings)
            with gr.Column(elem_id="side", scale=0, min_width=200):
                page_open, page_turned = reader.build()
                strip_html, (figures_html, history) = strip.build(), figures.build()

        outputs = {
            "documents": documents, "undo": undo, "address": shown_address, "head": head_html, "notice": notice,
            "locked": locked.column, "locked_text": locked.text, "choice_text": chosen.text, "pick": picked,
            "pick_budget": picked_budget, "chapters": chosen.chapters, "pages_wanted": chosen.pages,
            "range_text": chosen.budget, "read_pages": chosen.read, "transcript": talk.transcript, "live": talk.live,
            "stop": talk.stop, "question": talk.question, "figures": figures_html, "strip": strip_html,
            "page_open": page_open, "engine": form.engine, "race_board": lanes.board, "race_stop": lanes.stop,
            "history": history, "models_board": models_form.board, "memory": memory, "talk_bar": named.bar,
            "renaming": named.renaming, "new_title": named.title, "editing": talk.editing, "context_note": talk.context,
            "keys": talk.keys, "instructing": told.box, "instructions_about": told.about, "instructions": told.words,
            "keep_instructions": told.keep, "longest": form.fields["max_new_tokens"],
            **{f"preset_{name}": button for name, button in form.presets.items()},
        }
        _draw(services, tabs, page, memory, outputs)
        page.load(lambda: settings.values(services.settings), None, list(form.fields.values()), queue=False, **PRIVATE)
        _hear(services, tabs, (documents, head_html, notice, talk.transcript, talk.live, strip_html, lanes.board,
                               models_form.board, named.bar, talk.editing, talk.context, picked, picked_budget, undo),
              (page_turned, gone))
        library.wire(services, tabs, upload, sought)
        document_head.wire(services, tabs, locked)
        page_choice.wire(services, tabs, chosen)
        conversations.wire(services, tabs, named)
        instructions.wire(services, tabs, told)
        chat.wire(services, tabs, talk, lanes, tab_bar)
        race.wire(services, tabs, lanes)
        models.wire(services, models_form, models_tab)
        settings.wire(services, form)
    return page


def _hear(services: Services, tabs: Tabs, pressed: Sequence[gr.HTML], gone: Sequence[gr.HTML]) -> None:
    """The clicks inside the panels. gone: what tells where the browser is; each must be heard, where Gradio drops a
    second click that comes before the first was handled."""
    act = actions.act(services, tabs)
    for source in pressed:
        source.click(act, None, None, queue=False, **PRIVATE)
    for source in gone:
        source.click(act, None, None, queue=False, trigger_mode="multiple", **PRIVATE)


def _draw(services: Services, tabs: Tabs, page: gr.Blocks, memory: gr.BrowserState,
          outputs: dict[str, gr.blocks.Block]) -> None:
    """Every tab has its loop from its load on, or from when it is looked at again. outputs: of each panel."""
    parts = (library, document_head, chat, figures, strip, reader, race, models, conversations, page_choice, together,
             instructions, settings, address)
    panels = [*(panel for part in parts for panel in part.panels(services)), _memory(services)]
    assert {panel.name for panel in panels} == set(outputs), "every panel has its place"
    asleep, awake = gr.Button(visible="hidden", elem_id="asleep"), gr.Button(visible="hidden", elem_id="awake")
    live = _live(services, tabs, panels, list(outputs), Sessions(page))
    gr.on([page.load, awake.click], live, [memory], list(outputs.values()), concurrency_limit=None,
          trigger_mode="multiple", js="tfRemembered", **PRIVATE)
    asleep.click(_sleep(tabs), None, None, queue=False, **PRIVATE)


def _bar(sends_to: str) -> str:
    """The top bar: name, where text goes if it leaves this machine, and on narrow screens the choice of what to show.
    """
    leaves = (f'<span class="tf-leaves" role="note">{esc(SENDS_TO.format(url=sends_to))}</span>' if sends_to
              else '<span class="tf-tagline">Whole documents, exact words, faster</span>')
    buttons = "".join(f'<button type="button" data-pane="{name}">{esc(label)}</button>' for name, label in PANES)
    return (f'<div class="tf-bar"><span class="tf-logo" aria-hidden="true"></span><b>{esc(APP)}</b>'
            f'{leaves}<button type="button" class="tf-keys-button" data-keys '
            f'aria-label="{esc(conversations.SHORTCUTS_TITLE)}">?</button>'
            f'<nav class="tf-panes">{buttons}</nav></div>{keys_table()}')


def _memory(services: Services) -> Panel:
    """What the browser remembers: ids and a page's number, no words."""
    def what(view: TabView) -> dict[str, Any]:
        return {"document": view.document, "conversation": view.conversation, "start": services.start_id,
                "page": view.page}

    return Panel("memory", lambda view: (view.document, view.conversation, view.page), what)


def _live(services: Services, tabs: Tabs, panels: list[Panel], names: list[str],
          sessions: Sessions) -> Callable[..., AsyncIterator[list[Any]]]:
    drawers = ThreadPoolExecutor(DRAWERS, thread_name_prefix="draw")

    async def live(remembered: Any, request: gr.Request) -> AsyncIterator[list[Any]]:
        session = request.session_hash or ""
        view = tabs.get(session) if tabs.known(session) else tabs.open(session, remembered)
        me = view.watcher = object()
        painter, quiet = Painter(panels, view, partial(pace, services.queue, services.runs)), 0
        try:
            while view.watcher is me and sessions.listens(session):
                changed = await asyncio.get_running_loop().run_in_executor(drawers, painter.changes)
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
