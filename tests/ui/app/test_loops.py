"""An answer that goes in circles is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from little_books import asked, wait_for, write_book

from tests.scripted_engine import EngineScript
from ui.app.accumulator import ends_in_a_loop
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page.chat import ENDED_BECAUSE, ending

TURN = "The keeper counted every ship of the harbour twice. "


@pytest.fixture
def script() -> EngineScript:
    return EngineScript(load_seconds=0, triforce_tokens_per_second=400, instructions=True,
                        answer=f"It is so. {TURN * 40}")


def test_an_answer_is_stopped_at_the_third_repetition_and_says_so(services: Services, tmp_path: Path) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt", 6), "book.txt")])
    wait_for(lambda: services.queue.open_key is not None)
    asked(services, view, "How many ships?")
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state != "running")
    (answer,) = services.conversations.answers(view.conversation)
    assert (answer.state, answer.result["reason"]) == ("done", "loop")
    assert 3 <= answer.text.count("counted every ship") <= 6
    assert ENDED_BECAUSE["loop"] in ending(answer)


@pytest.mark.parametrize(("text", "loops"), [
    (TURN * 3, True), (TURN * 2, False), ("-" * 400, False),
    ("".join(f"The keeper counted {number} ships again. " for number in range(9)), False),
])  # fmt: skip
def test_only_the_same_words_three_times_in_a_row_are_a_circle(text: str, loops: bool) -> None:
    assert ends_in_a_loop(text) is loops
