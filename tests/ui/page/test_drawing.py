"""The loop that draws a page: whatever one page does, the others are drawn."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.app.tabs import Tabs
from ui.page import layout
from ui.page.panel import Panel


@pytest.mark.parametrize("what", ["key", "draw"])
def test_a_slow_page_holds_up_no_other(services: Services, what: str) -> None:
    """Be it that it draws slowly or that it looks slowly whether there is anything to draw."""
    let, tabs = Event(), Tabs(services)
    slow = tabs.get("slow")

    def looked_at(view: TabView) -> str:
        if view is slow:
            assert let.wait(8)
        return "slow" if view is slow else "quick"

    def at_once(view: TabView) -> str:
        return "at once"

    panel = Panel("one", looked_at, at_once) if what == "key" else Panel("one", at_once, looked_at)
    sessions = SimpleNamespace(listens=lambda session: True, forget=lambda session: None)
    live = layout._live(services, tabs, [panel], ["one"], sessions)

    async def both() -> float:
        pages = {name: live(None, SimpleNamespace(session_hash=name)) for name in ("slow", "quick")}
        tabs.get("quick")
        waiting = asyncio.create_task(anext(pages["slow"]))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        await anext(pages["quick"])
        took = time.monotonic() - started
        let.set()
        await waiting
        for page in pages.values():
            await page.aclose()
        return took

    with ThreadPoolExecutor() as elsewhere:  # a browser's test leaves a loop running in this thread
        assert elsewhere.submit(asyncio.run, both()).result() < 4
