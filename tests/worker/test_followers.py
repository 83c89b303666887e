"""Rank 0's judgement of its followers, with scripted ones: every way of ending a request alike, or not."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import pytest

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.errors import ConfigError, NotEnoughMemoryError
from triforce_core.worker import followers
from triforce_core.worker.followers import Followers
from triforce_core.worker.protocol import Ask, Crashed, Failed, Load, Request, Returned

ASK = Request(7, Ask("?", (), SamplingParams(), SpeculationConfig()))
FULL = NotEnoughMemoryError("No 300 MiB of memory")


class ScriptedChild:
    """A follower that says what it is told to; None: its pipe closes."""

    def __init__(self, *_: object) -> None:
        self.heard: list[object] = []
        self.says: queue.Queue[object] = queue.Queue()

    def send(self, message: object) -> None:
        self.heard.append(message)

    def receive(self) -> object:
        message = self.says.get()
        if message is None:
            raise EOFError
        return message

    def how_it_ended(self) -> str:
        return "it was killed"

    def end(self, grace: float) -> None:
        self.says.put(None)


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Followers, ScriptedChild, list[str]]]:
    monkeypatch.setattr(followers, "EngineChild", ScriptedChild)
    monkeypatch.setattr(followers, "GRACE", 0.1)
    monkeypatch.setattr(followers, "PATIENCE", 0.3)

    def make() -> tuple[Followers, ScriptedChild, list[str]]:
        causes: list[str] = []
        found = Followers(EngineConfig(gpus=2), "factory", 1, causes.append)
        return found, found._children[0], causes  # type: ignore[return-value]

    return make


def wait_for(causes: list[str]) -> str:
    end = time.monotonic() + 10
    while not causes:
        assert time.monotonic() < end, "nothing was found wrong"
        time.sleep(0.01)
    return causes[0]


def test_alike_is_well(lead) -> None:
    for says, error in ((Returned(7), None), (Failed(7, FULL), NotEnoughMemoryError("here too"))):
        leader, child, causes = lead()
        leader.begin(ASK)
        child.says.put(says)
        leader.settle(error)
        time.sleep(0.2)
        assert child.heard == [ASK] and causes == []


def test_one_that_fails_alone_while_rank_0_waits_for_it(lead) -> None:
    leader, child, causes = lead()
    leader.begin(ASK)
    child.says.put(Failed(7, FULL))
    assert wait_for(causes) == "rank 1: No 300 MiB of memory."


def test_rank_0_that_fails_alone_or_otherwise(lead) -> None:
    leader, child, causes = lead()
    leader.begin(ASK)
    leader.settle(FULL)
    assert wait_for(causes) == "rank 0: No 300 MiB of memory."
    for says, error in ((Returned(7), FULL), (Failed(7, FULL), None), (Failed(7, FULL), ConfigError("bad"))):
        leader, child, causes = lead()
        leader.begin(ASK)
        child.says.put(says)
        leader.settle(error)
        assert "rank 1" in wait_for(causes) and "rank 0" in causes[0]


def test_one_that_ends_or_crashes(lead) -> None:
    leader, child, causes = lead()
    child.says.put(None)
    assert wait_for(causes) == "the process of rank 1 is gone: it was killed"
    leader, child, causes = lead()
    child.says.put(Crashed(7, "an unexpected error"))
    assert wait_for(causes) == "rank 1: an unexpected error"
    leader, child, causes = lead()
    leader.end()
    time.sleep(0.1)
    assert causes == []


def test_silence_is_no_answer_but_loading_may_take_its_time(lead) -> None:
    leader, _, causes = lead()
    leader.begin(ASK)
    assert "nothing happened" in wait_for(causes)
    leader, child, causes = lead()
    leader.begin(Request(8, Load()))
    child.says.put(Failed(8, FULL))
    time.sleep(0.5)
    assert causes == []
    leader.settle(FULL)
    assert causes == []
