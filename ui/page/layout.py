"""Place the panels, hear their clicks, and run the loop that draws them for one tab.

Handlers change a tab's view (or leave a request in the engine's queue) and mostly return nothing: one loop per tab,
``_live``, sends whatever has changed, at most ten times a second; the words that are being written go by
``server.routes``. Gradio keeps nothing of a tab, for a tab's state is its ``TabView``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.state_holder import SessionState, StateHolder
from gradio.utils import get_upload_folder, is_in_or_equal
from gradio_client.utils import is_file_obj, traverse

from triforce_core import stays_here

from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs, of_view, visit
from . import (
    chat,
    conversations,
    document_head,
    figures,
    library,
    models,
    page_choice,
    race,
    reader,
    settings,
    strip,
)
from .html import APP, esc, where_text_goes
from .panel import BRISK, CLICKS, PRIVATE, Actions, Outputs, Pace, Panel, block, noticing, pace

PANES = (("library", "Library"), ("center", "Chat"), ("side", "Document"))

TICK = 0.1
DRAWERS = 8  # threads; each page draws in one at a time, so that a slow one holds up no other
PULSE = 15.0  # seconds after which an unchanged screen yields all the same: only then Gradio notices a closed tab
# They report where the browser is: each must be heard, where Gradio drops a second click before the first was handled.
ALL_HEARD = ("address-go", "page-turned")


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
    """Return the whole page."""
    tabs = Tabs(services, library.removed_readings(*services.removed_readings))
    with Page(title=APP, fill_height=True, fill_width=True, analytics_enabled=False,
              delete_cache=(3600, 86400)) as page:
        memory = gr.BrowserState(None, storage_key="triforce-chat", secret=secret)
        outputs: Outputs = {"bar": block("bar", _bar(services.sends_to)), "memory": memory}
        outputs |= {"undo": block("undo-offer", clicks=True), "address": block("address")}
        block("address-go", '<button type="button" data-action="go" tabindex="-1"></button>', clicks=True)
        with gr.Row(elem_id="shell", equal_height=False):
            with gr.Column(elem_id="library", scale=0, min_width=200):
                outputs |= library.build(services, tabs)
            with gr.Column(elem_id="center", scale=1, min_width=200):
                outputs |= document_head.build(services, tabs) | page_choice.build(services, tabs)
                with gr.Tabs(elem_id="tabs") as tab_bar:
                    with gr.Tab(chat.CHAT, id="chat", elem_id="tab-chat"):
                        outputs |= conversations.build(services, tabs)
                        talk, race_button = chat.build(services, tabs)
                        outputs |= talk
                    with gr.Tab(race.RACE, id="race", elem_id="tab-race"):
                        outputs |= race.build(services, tabs, tab_bar, race_button, outputs["question"])
                    with gr.Tab(models.TAB, id="models", elem_id="tab-models") as models_tab:
                        outputs |= models.build(services, models_tab)
                    with gr.Tab(settings.TAB, id="settings", elem_id="tab-settings"):
                        outputs |= settings.build(services, page)
            with gr.Column(elem_id="side", scale=0, min_width=200):
                outputs |= reader.build() | strip.build() | figures.build()
        _draw(services, tabs, page, outputs)
        act = actions(services, tabs)
        for html in [one for one in page.blocks.values() if isinstance(one, gr.HTML)]:
            if CLICKS in (html.js_on_load or ""):
                html.click(act, None, None, queue=False, **PRIVATE,
                           trigger_mode="multiple" if html.elem_id in ALL_HEARD else "once")
    return page


def actions(services: Services, tabs: Tabs) -> Callable[[gr.EventData, gr.Request], None]:
    """Return the handler of all clicks in the panels' HTML."""
    known: Actions = {"go": partial(go, services)}
    for part in (library, document_head, page_choice, conversations, chat, reader, models):
        known |= part.actions(services)

    def click(event: gr.EventData, request: gr.Request) -> None:
        data = event._data if isinstance(event._data, dict) else {}
        view, action = tabs.get(request.session_hash), known.get(str(data.get("action")))
        if action:
            with noticing(view):
                action(view, data)

    return click


def go(services: Services, view: TabView, data: dict[str, str]) -> None:
    """Follow the browser to where it went with Back, Forward or a link."""
    asked = int(data.get("asked", "0"))
    with view.stepping:  # a visit changes the view bit by bit: another one waits until it is over
        if asked <= view.asked:  # of two at once the later one counts, whichever is heard first
            return
        try:
            visit(services, view, data.get("address", ""))
        finally:
            view.asked = asked  # last: what is drawn before is no answer to it


def _draw(services: Services, tabs: Tabs, page: gr.Blocks, outputs: Outputs) -> None:
    """Give every tab its loop, from its load on, or from when it is looked at again."""
    parts = (library, document_head, chat, figures, strip, reader, race, models, conversations, page_choice, settings)
    panels = [*(panel for part in parts for panel in part.panels(services)), *tab_panels(services)]
    assert {panel.name for panel in panels} == set(outputs), "every panel has its place"
    asleep, awake = gr.Button(visible="hidden", elem_id="asleep"), gr.Button(visible="hidden", elem_id="awake")
    live = _live(services, tabs, panels, list(outputs), Sessions(page))
    gr.on([page.load, awake.click], live, [outputs["memory"]], list(outputs.values()), concurrency_limit=None,
          trigger_mode="multiple", js="tfRemembered", **PRIVATE)

    def sleep(request: gr.Request) -> None:
        """Give the connection of a tab in the background back: a browser has only six for one server."""
        tabs.get(request.session_hash).watcher = None

    asleep.click(sleep, None, None, queue=False, **PRIVATE)


def _bar(sends_to: str) -> str:
    """Return the top bar: name, the server that text goes to, if any, and on narrow screens what to show."""
    stays = " tf-stays" if stays_here(sends_to) else ""
    leaves = (f'<span class="tf-leaves{stays}" role="note">{esc(where_text_goes(sends_to))}</span>' if sends_to
              else '<span class="tf-tagline">Whole documents, exact words, faster</span>')
    buttons = "".join(f'<button type="button" data-pane="{name}">{label}</button>' for name, label in PANES)
    return (f'<div class="tf-bar"><span class="tf-logo" aria-hidden="true"></span><b>{APP}</b>'
            f'{leaves}<button type="button" class="tf-keys-button" data-keys '
            f'aria-label="{conversations.SHORTCUTS_TITLE}">?</button>'
            f'<nav class="tf-panes">{buttons}</nav></div>{conversations.keys_table()}')


def tab_panels(services: Services) -> list[Panel]:
    """Return the panels without a place on the screen: what the browser remembers, which holds ids and a page's number
    but no words, and the tab's address and title, for address.js."""
    def remembered(view: TabView) -> dict[str, Any]:
        return {"document": view.document, "conversation": view.conversation, "start": services.start_id,
                "page": view.page}

    def address(view: TabView) -> str:
        asked = view.asked  # read first: a step that ends now is not answered with where it began
        entry = services.library.get(view.document)
        title = f"{entry.title or entry.name} · {APP}" if entry else APP
        return (f'<span data-address="{esc(of_view(view))}" data-openings="{view.openings}" '
                f'data-asked="{asked}" data-title="{esc(title)}"></span>')

    return [
        Panel("bar", lambda view: services.sends_to, lambda view: _bar(services.sends_to)),
        Panel("memory", lambda view: (view.document, view.conversation, view.page), remembered),
        Panel("address", lambda view: (of_view(view), view.openings, view.asked, services.library.version), address,
              every=0.0),
    ]


class Painter:
    """Remembers what one tab was last sent."""

    def __init__(self, panels: Sequence[Panel], view: TabView, pace: Callable[[], Pace] = lambda: BRISK,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._panels, self._view, self._pace, self._clock = panels, view, pace, clock
        self._keys: dict[str, tuple[Hashable, Hashable]] = {}
        self._drawn: dict[str, Any] = {}
        self._at: dict[str, float] = {}

    def changes(self) -> dict[str, Any]:
        """Return panel name -> new value, for those that have changed since the last call and may be redrawn now."""
        found = {}
        now, pace = self._clock(), self._pace()
        for panel in self._panels:
            since = now - self._at.get(panel.name, -1e9)
            if since < panel.every:
                continue
            key, before = (panel.key(self._view), panel.news(self._view)), self._keys.get(panel.name)
            only_news = before is not None and before[0] == key[0]
            if before == key or (only_news and since < (pace.words if panel.follows == "words" else pace.aside)):
                continue
            value = panel.draw(self._view)
            self._keys[panel.name], self._at[panel.name] = key, now
            if panel.name not in self._drawn or self._drawn[panel.name] != value:
                self._drawn[panel.name] = found[panel.name] = value
        return found


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


class _OneEvent(SessionState):
    """The page as it was built, for as long as one event is handled: Gradio puts the component that it changes here and
    takes it out again."""

    def __init__(self, page: gr.Blocks) -> None:
        # Not Gradio's: it would describe every component of the page anew.
        self.blocks_config = copy(page.default_config)
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self.is_closed = False

    def __setitem__(self, key: int, value: Any) -> None:
        self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None: ...

    def _update_value_in_config(self, key: int, value: Any) -> None: ...


class _NoSessions(StateHolder):
    def __init__(self, page: gr.Blocks) -> None:
        super().__init__()
        self.set_blocks(page)

    def __getitem__(self, session_id: str) -> SessionState:
        return _OneEvent(self.blocks)


class Sessions:
    """The tabs of a page that listen to its queue.

    Gradio's own keeping would grow for ever. Each session has a copy of the whole page (0.4 MB), which outlives the
    tab; and each value that follows an unchanged one (``gr.skip``) stays in it beside those before it, whole
    transcripts among them. This reaches into Gradio's tables; ``test_memory`` fails where a version has others."""

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def keep_nothing(self) -> None:
        """Let Gradio keep no session of the page, which was launched and has no ``gr.State``."""
        self._page.app.state_holder = _NoSessions(self._page)

    def listens(self, session: str) -> bool:
        """Return whether the tab is still there to hear what the queue sends it."""
        return session in self._page._queue.pending_messages_per_session

    def forget(self, session: str) -> None:
        """Forget which events a closed tab waited for; and any that left unheard, as one does whose last event ended
        while its connection broke."""
        queue = self._page._queue
        for one in list(queue.pending_event_ids_session):
            if one == session or not self.listens(one):
                queue.pending_event_ids_session.pop(one, None)
