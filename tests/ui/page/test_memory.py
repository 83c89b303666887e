"""What tabs and answers leave behind in memory: nothing. Counted in objects, which no allocator hides.

At full size: ``python -m docs.memory`` (a thousand reloads, a thousand questions; real pages with ``--minutes``)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest
from little_books import wait_for, write_book

from docs.memory import Tab, document, opened
from ui.app.tab_view import TabView
from ui.page.layout import Painter

ROUNDS = 12
MOST_OBJECTS = 400  # that may come, of a kind that is counted; a page that stayed would leave thousands


@pytest.fixture(scope="module", autouse=True)
def what_is_new_alone() -> Iterator[None]:
    """What was there before is neither counted nor walked through: after other tests, half a second at every look."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def alive() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__qualname__ for one in gc.get_objects())


def live_loops() -> int:
    return sum(isinstance(one, TabView) and one.watcher is not None for one in gc.get_objects())


def grown(before: Counter[str]) -> Counter[str]:
    return alive() - before


def test_a_tab_that_is_gone_leaves_nothing(served, fresh_script) -> None:
    def reload(times: int) -> None:
        for _ in range(times):
            Tab(served.url).close()
        wait_for(lambda: not live_loops(), 10.0)  # at once: it is not waited for until something else is drawn

    reload(3)
    before = alive()
    reload(ROUNDS)
    kinds = (TabView.__qualname__, Painter.__qualname__, "HTML", "Button", "SessionState", "BlocksConfig")
    wait_for(lambda: not any(grown(before)[kind] for kind in kinds))  # an event may be under way
    assert not [(kind, count) for kind, count in grown(before).items() if count > MOST_OBJECTS]


def test_more_tabs_than_threads_come_and_go(served, fresh_script) -> None:
    """Each tab that is open has one of Gradio's 40 threads; one that was closed has none."""
    waiting = served.events.pending_event_ids_session
    waiting["left unheard"], sessions = {"an event"}, ["left unheard"]
    for _ in range(50):
        with Tab(served.url) as tab:
            sessions.append(tab.session)
            tab.close()
    wait_for(lambda: not live_loops(), 60.0)
    wait_for(lambda: not any(served.events.active_jobs), 60.0)
    wait_for(lambda: waiting.keys().isdisjoint(sessions), 60.0)


def test_answers_leave_nothing_in_the_tab(served, fresh_script, tmp_path) -> None:
    fresh_script.load_seconds, fresh_script.triforce_tokens_per_second = 0.0, 400.0
    served.services.library.add(write_book(tmp_path, "memory.txt"))
    key = document(served.url)
    served.services.extractor.extract(key)
    wait_for(lambda: served.services.library.get(key).state == "ready")
    with Tab(served.url) as tab:
        opened(tab, served.url)
        for _ in range(3):
            tab.ask("How many ships?")
        before = alive()
        for _ in range(ROUNDS):
            tab.ask("How many ships?")
        wait_for(lambda: not served.services.runs.active())
        # Values that were shown before must not stay beside the last. An event under way has one of its own.
        wait_for(lambda: all(grown(before)[kind] <= 1 for kind in ("HTML", "Button", "SessionState")))


def test_gradio_sums_nothing_up(served) -> None:
    assert len(served.events.event_analytics) <= 1
    assert served.events.compute_analytics_summary([{"function": "live"}]) == {"functions": {}}


@pytest.mark.browser
def test_a_browser_that_reloads_leaves_nothing(served, tab) -> None:
    def reload() -> None:
        tab.reload()
        tab.wait_for_selector("#documents .tf-doc")

    reload()
    before = alive()
    for _ in range(3):
        reload()
    wait_for(lambda: live_loops() == 1, 10.0)
    wait_for(lambda: all(grown(before)[kind] <= 1 for kind in ("TabView", "HTML", "SessionState")))

