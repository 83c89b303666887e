"""The context's use, the notes about it, and the exchanges that go along into a new conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from little_books import asked, read_quickly

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import EngineConfig, TriForceError
from ui.app import folders as places
from ui.app.context_budget import LEAST_ANSWER, ContextUse
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import conversations as conversation_words
from ui.page.conversations import context_menu, context_note


@pytest.fixture
def services(tmp_path: Path, script: EngineScript):
    """Room for 1,024 tokens beside a document."""
    made = Services(places.make_folders(tmp_path / "home"), lambda config: ScriptedEngine(config, script),
                    EngineConfig(max_context=2000), read_quickly)
    made.start([])
    yield made
    made.close()


def ask(services: Services, view: TabView, words: str) -> None:
    asked(services, view, words)


def test_it_is_counted_by_the_engine_and_told_in_time(services: Services, view: TabView, script: EngineScript) -> None:
    script.answer = "word " * 200
    services.keep(services.settings.__class__(max_new_tokens=200))
    empty = services.context_use(view)
    assert (empty.conversation, empty.most, empty.state) == (0, 2000, "") and empty.document > 200
    seen = []
    while services.context_use(view).state != "full":
        run = asked(services, view, "And then?")
        use = services.context_use(view)
        if not run.did_not_fit:  # then it is estimated
            assert use.conversation == 200 * (len(seen) + 1) + 2  # the scripted engine counts no earlier questions
        seen.append(use.state)
    assert seen == sorted(seen, key=["", "near", "full"].index) and {"", "near"} <= set(seen)
    assert len(seen) > 5 and run.did_not_fit and run.state == "done"


def test_a_new_conversation_takes_the_last_exchanges_along(services: Services, view: TabView,
                                                           script: EngineScript) -> None:
    script.answer = "word " * 150
    for number in range(4):
        ask(services, view, f"Question {number}?")
    old = view.conversation
    services.conversations.instruct(old, "In French.")
    services.continue_anew(view)
    assert services.conversations.get(view.conversation).system == "In French."
    services.conversations.instruct(view.conversation, "")  # this engine follows none
    assert view.conversation != old and len(services.conversations.answers(old)) == 4
    carried = services.conversations.answers(view.conversation)
    assert [answer.question for answer in carried] == ["Question 1?", "Question 2?", "Question 3?"][-len(carried):]
    assert 1 <= len(carried) <= 3
    history = services.conversations.history(view.conversation)
    assert history == services.conversations.history(old)[-len(carried):]
    assert services.context_use(view).conversation < services.context_use(TabView(view.document, old)).conversation
    assert len(services.conversations.recent(view.document, 50)) == 4  # nothing counts twice
    title = services.conversations.get(view.conversation).title
    services.continue_anew(view)
    assert services.conversations.get(view.conversation).title == title
    ask(services, view, "And on?")
    assert services.conversations.answers(view.conversation)[-1].state == "done"


def test_not_while_an_answer_is_written(services: Services, view: TabView, script: EngineScript) -> None:
    script.triforce_tokens_per_second = 5.0
    run = services.ask(view, "Slowly?")
    with pytest.raises(TriForceError):
        services.continue_anew(view)
    services.queue.stop(run)


@pytest.mark.parametrize(("conversation", "state"), [(0, ""), (500, ""), (800, "near"), (1000 - LEAST_ANSWER, "near"),
                                                     (1000 - LEAST_ANSWER + 1, "full"), (1200, "full")])
def test_when_it_is_told(conversation: int, state: str) -> None:
    use = ContextUse(9000, conversation, 10_000, 256)
    assert use.state == state and use.left == max(0, 1000 - conversation)
    note = context_note(use)
    assert bool(note) == bool(state) == ('data-action="continue"' in note)
    menu = context_menu(use)
    assert ('data-action="continue"' in menu) == bool(conversation)
    assert f"{min(10_000, 9000 + conversation) / 100:.0f} %" in menu


def test_a_long_answer_setting_does_not_warn_from_the_start() -> None:
    assert ContextUse(9000, 10, 10_000, 4096).state == "" and ContextUse(9000, 600, 10_000, 4096).state == "near"
    assert context_note(None) == "" and conversation_words.CONTEXT_FULL in context_note(ContextUse(9, 9, 10, 5))
