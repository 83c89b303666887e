"""How often a page hears of what the engine does, and that it moves nothing meanwhile, nor at rest."""

from __future__ import annotations

import dataclasses

import pytest
from little_books import wait_for
from page_steps import ask, statistics, upload

from ui.app.runs import Run
from ui.app.tab_view import TabView
from ui.page import chat as chat_words
from ui.page import figures as figure_words
from ui.page.layout import Painter
from ui.page.panel import BRISK, SPARING, Panel, pace

CHANGES = """() => {
  window.changes = 0;
  new MutationObserver(() => { window.changes += 1; })
    .observe(document.getElementById('shell'), { childList: true, subtree: true, characterData: true });
}"""
MOVING = "document.getAnimations().filter(each => each.playState === 'running').length"


def test_the_engine_says_how_often(services) -> None:
    queue, runs = services.queue, services.runs
    wait_for(lambda: queue.model is not None)
    assert queue.model.mode == "cpu" and pace(queue, runs) is BRISK  # nothing is asked
    runs.add(Run("document", "question"))
    for mode, wanted in (("cpu", SPARING), ("on-chip", BRISK), ("offload", BRISK), ("remote", BRISK)):
        queue.model = dataclasses.replace(queue.model, mode=mode)
        assert pace(queue, runs) is wanted


def test_words_come_rarely_and_what_stands_beside_them_more_rarely() -> None:
    now, made = [0.0], [0]
    panels = [Panel("title", lambda view: made[0], lambda view: made[0]),
              Panel("race", lambda view: made[0] // 70, lambda view: made[0], news=lambda view: made[0],
                    follows="words"),
              Panel("strip", lambda view: made[0] // 70, lambda view: made[0], news=lambda view: made[0])]
    drawn: dict[str, int] = {}
    speed = [SPARING]
    painter = Painter(panels, TabView(), lambda: speed[0], lambda: now[0])
    for tick in range(100):  # ten seconds
        now[0], made[0] = tick / 10 + 1e-6 * tick, tick
        for name in painter.changes():
            drawn[name] = drawn.get(name, 0) + 1
    assert drawn == {"title": 100, "race": 20, "strip": 6}  # it is its own change that is shown at once
    speed[0], now[0], made[0] = BRISK, now[0] + 0.2, 100  # the answer has ended
    assert painter.changes() == {"title": 100, "race": 100, "strip": 100}
    assert painter.changes() == {}


@pytest.mark.browser
def test_a_page_at_rest_asks_for_nothing(tab) -> None:
    tab.wait_for_timeout(2500)
    tab.evaluate(CHANGES)
    tab.wait_for_timeout(1500)
    assert tab.evaluate("changes") == 0 and tab.evaluate(MOVING) == 0


@pytest.mark.browser
def test_an_answer_moves_nothing_but_its_words(served, tab, scripted) -> None:
    upload(served, tab)
    statistics(tab)
    scripted.triforce_tokens_per_second = 25
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    tab.wait_for_timeout(600)
    tab.evaluate(CHANGES)
    written = len(tab.inner_text("#live"))
    tab.wait_for_timeout(2000)
    assert served.services.runs.active() and len(tab.inner_text("#live")) > written
    most = 2 / SPARING.words + 2  # in two seconds
    assert tab.evaluate(MOVING) == 0 and 2 <= tab.evaluate("changes") <= 2 * most
    tab.keyboard.press("Escape")
    tab.wait_for_selector(f"#transcript:has-text('{chat_words.STOPPED}')")
    tab.wait_for_selector(f"#figures:has-text('{figure_words.LAST_ANSWER}')")  # at once, not when its time has come
