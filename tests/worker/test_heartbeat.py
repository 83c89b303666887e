"""An engine that can do nothing any more is noticed, whatever its process is in; one that works hard is not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.worker.test_client import in_background
from triforce_core.config import EngineConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import EngineDiedError
from triforce_core.events import RoundEvent
from triforce_core.worker.child import Pulse
from triforce_core.worker.client import EngineClient

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
BOOK = Document("Book", "txt", (Page("1", "abc"),), "text")
NOTICED = 10.0  # seconds


@pytest.fixture
def client() -> Iterator[EngineClient]:
    with EngineClient(EngineConfig(), factory="tests.worker.fake_engine:FakeEngine") as client:
        list(client.open_document(BOOK))
        yield client


def seconds_until(condition: Callable[[], bool], most: float) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < most, "waited too long"
        time.sleep(0.2)
    return time.monotonic() - began


def silent(client: EngineClient) -> bool:
    return client.status().silent_seconds > 0


def test_a_stopped_process_is_noticed_also_while_it_has_nothing_to_do(client: EngineClient) -> None:
    assert not silent(client)
    os.kill(client.status().pid, signal.SIGSTOP)
    seconds_until(lambda: silent(client), NOTICED)
    assert client.status().state == "idle" and client.status().silent_seconds >= 5
    os.kill(client.status().pid, signal.SIGCONT)
    seconds_until(lambda: not silent(client), 3.0)


def test_one_that_holds_the_interpreter_is_noticed_and_can_be_ended(client: EngineClient) -> None:
    errors: list[EngineDiedError] = []
    taken = in_background(client.ask("hold"), errors)
    seconds_until(lambda: silent(client), NOTICED)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 5.0
    seconds_until(lambda: None in taken, 1.0)
    assert errors


@pytest.mark.parametrize("question", ["compute", "sleep"])
def test_a_long_pass_is_none_of_it(client: EngineClient, question: str) -> None:
    """Python that never pauses, and a call into a library that let go of the interpreter's lock."""
    in_background(client.ask(question))
    for _ in range(35):
        time.sleep(0.2)
        assert not silent(client)
    client.cancel()


def test_a_stopped_one_that_reads_no_more_can_be_ended(client: EngineClient) -> None:
    """A document fills the pipe; whoever writes it holds the pipe's lock."""
    os.kill(client.status().pid, signal.SIGSTOP)
    errors: list[EngineDiedError] = []
    taken = in_background(client.open_document(Document("Long", "txt", (Page("1", "x" * 2**21),), "text")), errors)
    time.sleep(0.5)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 6.0
    seconds_until(lambda: None in taken, 1.0)
    assert errors


def test_a_new_process_has_a_new_pulse(client: EngineClient) -> None:
    job = client.ask("slow")
    assert any(isinstance(event, RoundEvent) for event in job)
    os.kill(client.status().pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError):
        list(job)
    list(client.open_document(BOOK))
    time.sleep(1.5)
    assert client.status().silent_seconds == 0 and client.status().state == "idle"


def test_what_this_process_slept_itself_does_not_count() -> None:
    """A laptop that was closed, an app that was stopped for an hour."""
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    now[0] += 3600.0
    assert pulse.silent_seconds() <= 5.0
    for _ in range(3):
        now[0] += 2.0
        pulse.silent_seconds()
    assert 6.0 <= pulse.silent_seconds() <= 11.0
    os.write(pulse.to_child, b"..")
    assert pulse.silent_seconds() == 0.0
    now[0] += 2.0
    assert pulse.silent_seconds() == 2.0
    pulse.started()
    pulse.close()
