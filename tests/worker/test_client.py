"""The client against a real child process that runs a scripted engine."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from triforce_core.config import EngineConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import (
    ContextTooLongError,
    DocumentError,
    EngineBusyError,
    EngineDiedError,
    ModelNotFoundError,
)
from triforce_core.events import (
    DocumentOpened,
    Finished,
    LoadProgress,
    MachineInfo,
    ModelInfo,
    PrefillProgress,
    RoundEvent,
    TextDelta,
    Turn,
)
from triforce_core.worker.client import EngineClient

ROOT = Path(__file__).parents[2]
FACTORY = "tests.worker.fake_engine:FakeEngine"
BOOK = Document("Book", "txt", (Page("1", "abc"),), "text")
OTHER = Document("Other", "txt", (Page("1", "xyz"),), "text")


def make_client(**settings: object) -> EngineClient:
    return EngineClient(EngineConfig(**settings), factory=FACTORY)  # type: ignore[arg-type]


@pytest.fixture
def client() -> Iterator[EngineClient]:
    with make_client() as client:
        yield client


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def text_of(events: list) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def take(job: Iterator, kind: type, count: int) -> list:
    """Events up to the count-th of a kind."""
    events: list = []
    for event in job:
        events.append(event)
        if sum(isinstance(event, kind) for event in events) == count:
            break
    return events


def in_background(events: Iterator, errors: list | None = None) -> list:
    """Take them in a thread of their own. Return the list to which each is added; None is the last."""
    taken: list = []

    def run() -> None:
        try:
            taken.extend(events)
        except EngineDiedError as error:
            if errors is not None:
                errors.append(error)
        taken.append(None)

    threading.Thread(target=run, daemon=True).start()
    return taken


def test_the_verbs(client: EngineClient) -> None:
    assert client.status().state == "starting"
    loaded = list(client.load())
    assert isinstance(loaded[0], LoadProgress) and isinstance(loaded[-1], ModelInfo)
    assert list(client.load()) == [loaded[-1]]  # already there
    heard: list[PrefillProgress] = []
    assert client.measure(BOOK, heard.append).page_tokens == (3,)
    assert heard == [PrefillProgress(1, 3, 1.0, 2.0, "tokenize")]
    opened = list(client.open_document(BOOK))
    assert isinstance(opened[0], PrefillProgress) and isinstance(opened[-1], DocumentOpened)
    answer = list(client.ask("what?", [Turn("a", (1,))]))
    assert isinstance(answer[-1], Finished) and answer[-1].reason == "length"
    assert text_of(answer).split()[1:] == ["Book", "1", "xxx"]
    status = client.status()
    assert (status.state, status.document_id, status.max_in_flight) == ("idle", BOOK.id, 1)
    assert status.model == loaded[-1] and status.rss_bytes > 10**6 and psutil.pid_exists(status.pid)


def test_a_check_loads_nothing(client: EngineClient) -> None:
    machine, model = client.check()
    assert isinstance(machine, MachineInfo) and isinstance(model, ModelInfo)
    status = client.status()
    assert status.model is None and status.facts is None and status.state == "starting"
    assert isinstance(list(client.load())[-1], ModelInfo)  # the same child goes on


def test_facts_come_with_every_verb_and_each_second(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    before = client.status().facts
    assert before is not None and (before.mode, before.host_used) == ("cpu", 1)
    job = client.ask("slow")
    next(job)
    wait_until(lambda: client.status().facts != before)
    client.cancel()
    looks = [client.status().facts.why for _ in job]
    assert 1 <= len(set(looks)) < len(looks) / 5  # rounds come every 5 ms, looks do not
    os.kill(client.status().pid, signal.SIGKILL)
    wait_until(lambda: client.status().state == "dead")
    assert client.status().facts is None


def test_an_ask_brings_everything_up_by_itself(client: EngineClient) -> None:
    events = list(client.ask("what?", document=BOOK))
    assert [type(event) for event in events[:4]] == [LoadProgress] + [PrefillProgress] * 3
    assert not any(isinstance(event, (ModelInfo, DocumentOpened)) for event in events)
    assert "Book" in text_of(events)


def test_two_tabs_ask_about_two_documents(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    list(client.open_document(OTHER))
    assert "Book" in text_of(list(client.ask("what?", document=BOOK)))
    assert "Book" in text_of(list(client.ask("what?")))
    assert "Other" in text_of(list(client.ask("what?", document=OTHER)))


def test_a_users_error_leaves_the_engine_as_it_was(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    pid = client.status().pid
    with pytest.raises(ContextTooLongError, match="question is too long") as raised:
        list(client.ask("error"))
    assert (raised.value.allowed, raised.value.remedy) == ("9 words", "Ask less.")
    with pytest.raises(ContextTooLongError):
        list(client.open_document(Document("Long", "txt", (Page("1", "x" * 1000),), "text")))
    assert "Book" in text_of(list(client.ask("what?")))  # the last document that could be opened
    assert client.status().pid == pid


def test_a_question_about_nothing(client: EngineClient) -> None:
    with pytest.raises(DocumentError, match="No document is open"):
        list(client.ask("what?"))


def test_a_model_that_is_not_there() -> None:
    with make_client(model="missing") as client:
        for job in (client.load(), client.ask("what?", document=BOOK), client.load()):
            with pytest.raises(ModelNotFoundError, match="Give a folder"):
                list(job)
        with pytest.raises(ModelNotFoundError):
            client.measure(BOOK)


def test_stop_in_the_middle_of_an_answer(client: EngineClient) -> None:
    job = client.ask("slow", document=BOOK)
    take(job, RoundEvent, 3)
    assert client.status().state == "busy"
    client.cancel()
    rest = list(job)
    assert rest[-1].reason == "cancelled" and len(rest) < 100
    client.cancel()  # too late: of no effect, now or on the next
    assert list(client.ask("what?"))[-1].reason == "length"


def test_a_cancel_counts_from_the_first_event_on(client: EngineClient) -> None:
    """Also where what is under way is only what the answer needs: a model, a document."""
    job = client.ask("slow", document=BOOK)
    assert isinstance(next(job), LoadProgress)
    client.cancel()
    assert [event.reason for event in job if isinstance(event, Finished)] == ["cancelled"]
    for _ in range(20):
        job = client.ask("slow", document=BOOK)
        next(job)
        client.cancel()
        assert list(job)[-1].reason == "cancelled"


def test_what_is_forgotten_is_cancelled_and_the_next_call_waits_for_its_end(client: EngineClient) -> None:
    for kind in (RoundEvent, LoadProgress, PrefillProgress):
        take(client.ask("slow", document=BOOK if kind is RoundEvent else OTHER), RoundEvent, 1)
        assert client.status().state == "idle"
        assert "Other" in text_of(list(client.ask("what?", document=OTHER)))
    job = client.open_document(Document("slow", "txt", (Page("1", "s"),), "text"))
    take(job, PrefillProgress, 2)
    job.close()
    assert "Other" in text_of(list(client.ask("what?")))


def test_whether_the_child_computes_can_be_seen(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    idle, taken = client.status(), in_background(client.ask("compute"))
    wait_until(lambda: client.status().cpu_seconds > idle.cpu_seconds + 0.1)
    client.cancel()
    wait_until(lambda: None in taken)
    assert isinstance(taken[-2], Finished)
    assert dataclasses.replace(idle, cpu_seconds=0.0) == idle  # it alone changes nothing that is shown


def test_cancelled_reading(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    job = client.open_document(Document("slow", "txt", (Page("1", "s"),), "text"))
    take(job, PrefillProgress, 2)
    client.cancel()
    assert not any(isinstance(event, DocumentOpened) for event in job)
    assert client.status().document_id is None
    assert "Book" in text_of(list(client.ask("what?")))  # read again: it was the last one opened


def test_a_second_call_meanwhile_is_refused_and_disturbs_nothing(client: EngineClient) -> None:
    """In the same thread it would wait for itself; in which order many go is for whoever has a queue."""
    job = client.ask("slow", document=BOOK)
    take(job, RoundEvent, 1)
    for verb in (client.load, client.prepare, lambda: client.ask("b"), lambda: client.open_document(OTHER)):
        with pytest.raises(EngineBusyError, match="is answering and takes one request at a time"):
            next(verb())
    with pytest.raises(EngineBusyError):
        client.measure(BOOK)
    take(job, RoundEvent, 5)
    client.cancel()
    assert list(job)[-1].reason == "cancelled"
    assert list(client.ask("b"))[-1].reason == "length"


def test_many_threads(client: EngineClient) -> None:
    """One at a time is served, and gets its own events; the others hear that it is busy."""
    answers: list[str] = []

    def ask() -> None:
        while True:
            try:
                answers.append(text_of(list(client.ask("q", document=BOOK))))
                return
            except EngineBusyError:
                time.sleep(0.002)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 8 and len(set(answers)) == 1 and "Book" in answers[0]


def test_killed_in_the_middle_of_an_answer(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    pid = client.status().pid
    events = []
    with pytest.raises(EngineDiedError, match=r"while answering.*signal 9 \(SIGKILL\).*memory"):
        for event in client.ask("die"):
            events.append(event)
    assert len([event for event in events if isinstance(event, RoundEvent)]) == 3
    assert text_of(events).split() == [str(pid), "Book", "0"]  # nothing that had arrived is lost
    assert client.status().state == "dead" and "SIGKILL" in client.status().cause
    events = list(client.ask("what?"))
    assert isinstance(events[0], LoadProgress) and any(isinstance(event, PrefillProgress) for event in events)
    assert "Book" in text_of(events) and str(pid) not in text_of(events)
    assert client.status().state == "idle" and client.status().cause == ""


@pytest.mark.parametrize("_", range(3))
def test_killed_from_outside_while_idle_is_not_noticed_by_the_asker(client: EngineClient, _: int) -> None:
    list(client.open_document(BOOK))
    os.kill(client.status().pid, signal.SIGKILL)
    assert "Book" in text_of(list(client.ask("what?")))


@pytest.mark.parametrize(("question", "words"), [
    ("bug", r"RuntimeError: CUDA error: device-side assert"), ("oom", "ran out of memory"),
    ("exit", "exit code 3; what it said last is in the log"), ("mute", "answered no more and was ended"),
])
def test_what_nobody_foresaw_ends_the_child_only(client: EngineClient, question: str, words: str) -> None:
    list(client.open_document(BOOK))
    pid = client.status().pid
    with pytest.raises(EngineDiedError, match=words) as caught:
        list(client.ask(question))
    assert question == "oom" or "memory" not in str(caught.value)
    wait_until(lambda: not psutil.pid_exists(pid))
    assert "Book" in text_of(list(client.ask("what?")))


def test_a_child_that_cannot_start() -> None:
    with make_client(model="unloadable") as client, pytest.raises(EngineDiedError, match="SIGSEGV"):
        list(client.load())
    with EngineClient(EngineConfig(), factory="no.such:Thing") as client, pytest.raises(EngineDiedError, match="no"):
        list(client.load())


def test_noise_on_stdout_is_no_message(client: EngineClient, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(client.ask("print", document=BOOK))[-1].reason == "length"
    assert "more noise" in capfd.readouterr().err


def test_ctrl_c_reaches_the_parent_only(client: EngineClient) -> None:
    job = client.ask("slow", document=BOOK)
    take(job, RoundEvent, 1)
    os.kill(client.status().pid, signal.SIGINT)
    take(job, RoundEvent, 5)
    client.cancel()
    assert list(job)[-1].reason == "cancelled"


def test_close_ends_the_child_and_what_is_under_way() -> None:
    client = make_client()
    running = client.ask("slow", document=BOOK)
    take(running, RoundEvent, 1)
    pid = client.status().pid
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 5 and not psutil.pid_exists(pid)
    assert list(running)[-1].reason == "cancelled"
    assert client.status().state == "dead"
    with pytest.raises(EngineDiedError, match="closed"):
        list(client.ask("what?"))
    client.close()


def test_close_does_not_wait_for_a_stubborn_child() -> None:
    client = make_client(draft_model="stubborn")
    list(client.load())
    pid = client.status().pid
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 5 and not psutil.pid_exists(pid)


@pytest.mark.parametrize("how", ["kill", "leave"])
def test_no_orphans(how: str) -> None:
    program = (
        "import sys\nfrom tests.worker.test_client import *\n"
        "client = make_client(); job = client.ask('slow', document=BOOK); take(job, RoundEvent, 1)\n"
        "print(client.status().pid, flush=True)\n" + ("time.sleep(60)" if how == "kill" else "")
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if how == "kill":
        parent.kill()
    assert parent.wait(20) == (-9 if how == "kill" else 0)
    wait_until(lambda: not psutil.pid_exists(pid))


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="Linux")
def test_the_kernel_would_rather_end_the_engine_than_the_page(client: EngineClient) -> None:
    list(client.load())
    assert Path(f"/proc/{client.status().pid}/oom_score_adj").read_text().strip() == "500"


def test_the_client_is_light_and_waits_without_spinning() -> None:
    program = (
        "import sys, time\nfrom tests.worker.test_client import *\n"
        "client = make_client(); job = client.ask('slow', document=BOOK); take(job, RoundEvent, 1)\n"
        "start = time.process_time(); time.sleep(1.0); spent = time.process_time() - start\n"
        "client.cancel(); list(job); client.close()\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert spent < 0.3, spent\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_dead_children_leave_no_files_open(client: EngineClient) -> None:
    me, errors = psutil.Process(), []  # kept: their tracebacks hold the frames in which it happened
    list(client.open_document(BOOK))
    before = me.num_fds()
    for _ in range(3):
        with pytest.raises(EngineDiedError) as caught:
            list(client.ask("die"))
        errors.append(caught.value)
        assert "Book" in text_of(list(client.ask("what?")))
    assert me.num_fds() <= before


def test_between_answers_the_next_one_is_prepared_until_it_comes(client: EngineClient) -> None:
    """Nobody is told, nobody waits, and a request that comes ends it."""
    list(client.open_document(BOOK))
    first = list(client.ask("prepare for long"))
    assert isinstance(first[-1], Finished) and client.status().state == "idle"
    for question in ("prepare for long", "what?"):
        assert isinstance(list(client.ask(question))[-1], Finished)
    told = list(client.prepare())
    assert [event.stage for event in told] == ["warm-up"] and client.status().state == "idle"


def test_an_engine_that_dies_between_answers_is_started_again(client: EngineClient) -> None:
    list(client.open_document(BOOK))
    before = client.status().pid
    list(client.ask("prepare with a bug"))
    wait_until(lambda: client.status().state == "dead")
    answer = list(client.ask("what?"))
    assert isinstance(answer[-1], Finished) and client.status().pid != before
    assert text_of(answer).split()[1] == "Book"
