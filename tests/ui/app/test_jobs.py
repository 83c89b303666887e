"""The order of jobs, questions that wait for their document's text, and an engine that hangs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from held_engine import quick_script, wait_for_text
from little_books import make_document, phase, wait_for, write_book

from tests.scripted_engine import ScriptedEngine
from triforce_core import Document, DocumentFit, EngineConfig, SamplingParams, TriForceError, Turn
from ui.app import folders as places
from ui.app import jobs, queue
from ui.app.engine_holder import FIRST_LIMIT, HUNG_AFTER, LEAST_LIMIT, LIMIT, STEPS, UNASKED, Watchdog
from ui.app.jobs import SHORT, Job, JobKind, Request, Selection, in_order, room_for_pages
from ui.app.runs import Run
from ui.app.services import DOCUMENT_DELETED, Services
from ui.app.tab_view import TabView
from ui.page import chat, formatting


def job(kind: JobKind, name: str, short: bool = False) -> Job:
    document = make_document(1, words=20 if short else SHORT)
    return Job(kind, name, None if kind == "engine" else Selection(name, document, ((1, 1),)))


def order(jobs: list[Job], front: tuple[str, ...] = ("seen",)) -> list[Job]:
    """Ask for them one after the other. Return them in the order in which they are done."""
    for number, each in enumerate(jobs, start=1):
        each.number = number
    return in_order(jobs, front)


def test_a_prefill_that_nobody_waits_for_runs_last() -> None:
    """Behind every question and whatever is looked at, short or long; only what nobody asked for comes later."""
    unseen, question, race = job("prefill", "unseen"), job("answer", "other"), job("race", "third")
    seen = job("prefill", "seen")
    for asked in itertools.permutations([unseen, question, race, seen]):
        taken = order(list(asked))
        assert taken[3:] == [unseen], [each.kind for each in asked]
        assert taken[:3] == [each for each in asked if each in (question, race, seen)], "as they were asked for"


@pytest.mark.parametrize("front", [(), ("seen",)])
def test_also_where_it_is_short_and_what_is_waited_for_is_long(front: tuple[str, ...]) -> None:
    unseen, question = job("prefill", "unseen", short=True), job("answer", "other")
    assert order([unseen, question], front) == [question, unseen]


def test_one_that_comes_to_the_front_is_no_longer_last() -> None:
    one, two, question = job("prefill", "one"), job("prefill", "two"), job("answer", "other")
    assert order([one, two, question], ("",)) == [question, one, two]
    assert order([one, two, question], ("two",)) == [two, question, one]


class HeldReader:
    """It gives the text when the test lets it."""

    def __init__(self) -> None:
        self.let, self.broken = threading.Event(), False

    def __call__(self, path: Path, password: str | None = None, *, progress=None, part=None, cancel=None) -> Document:
        progress(2, 8)
        while not self.let.wait(0.005):
            if cancel is not None and cancel.is_set():
                raise TriForceError("cancelled")
        if self.broken:
            raise TriForceError("The file is broken")
        return make_document(8)


@pytest.fixture
def reader() -> HeldReader:
    return HeldReader()


@pytest.fixture
def services(tmp_path: Path, reader: HeldReader) -> Iterator[Services]:
    made = Services(places.make_folders(tmp_path / "home"), lambda config: ScriptedEngine(config, quick_script()),
                    EngineConfig(), reader)
    made.start([])
    yield made
    reader.let.set()
    made.close()


@pytest.fixture
def view(services: Services, tmp_path: Path) -> TabView:
    """Return a tab with a document whose text is being taken out."""
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt"), "book.txt")])
    wait_for(lambda: services.extractor.extractions[view.document].pages_done)
    return view


def test_they_are_answered_in_their_order(services: Services, view: TabView, reader: HeldReader) -> None:
    first, other = services.ask(view, "First?"), TabView(document=view.document)
    second = services.ask(other, "Second?")
    assert first.state == second.state == "queued" and services.active_run(view) is first
    reader.let.set()
    wait_for(lambda: first.ended and second.ended)
    assert first.state == second.state == "done" and first.ranges == ((1, 8),) and first.ended_at < second.ended_at
    (answer,) = services.conversations.answers(view.conversation)
    assert answer.text == first.accumulator.text and answer.result["ranges"] == [[1, 8]]


def test_it_says_what_it_waits_for_and_how_long(services: Services, view: TabView,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "LEAST_LEFT", 0.0)  # nothing takes long here
    run = services.ask(view, "First?")
    said = chat.inside(services, run, False)
    assert "page 2 of 8 extracted" in said and "left" in said


def test_a_long_question_says_how_long_its_reading_takes_before_it_is_read(services: Services, view: TabView,
                                                                           reader: HeldReader) -> None:
    reader.let.set()
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    services.queue._estimates._rate = 250.0  # tokens per second
    long, short = Run(view.document, "word " * 20_000), Run(view.document, "Who?")
    assert services.queue.question_seconds(long) == 100.0
    assert "reading this long question takes about 1 min 40 s" in chat.wait(services, long)
    assert chat.wait(services, short) == ""
    long.state = "answering"
    assert chat.state_line(long, chat.wait(services, long), 8) == "Reading the question · about 1 min 40 s left"


def test_what_is_kept_back_grows_with_the_conversation() -> None:
    document, fit = make_document(3), DocumentFit(20_000, 6656, (5000,) * 4)

    def room(turns: int, context: int = 8192, longest: int = 1024) -> int:
        request = Request(Selection("d", document, ((1, 3),)), "Why?", SamplingParams(max_new_tokens=longest), (),
                          (Turn("And why?", tuple(range(900))),) * turns)
        return room_for_pages(fit, context, request)

    assert room(0) == 6656 - 64, "what is kept from the start is enough for one question"
    assert room(1) == 8192 - 200 - 1024 - (16 + 900 + 6) - 64 > room(2) > room(3)
    assert room(20) == 6656 // 4 - 64, "pages keep a quarter"
    assert room(1, context=0) == 6656 - 64 and room(0, longest=100_000) == room(0)


def test_stop_reaches_it(services: Services, view: TabView, reader: HeldReader) -> None:
    run = services.ask(view, "First?")
    services.stop(view)
    assert run.state == "stopped" and services.active_run(view) is None
    reader.let.set()
    wait_for_text(services.extractor)
    assert run.state == "stopped"


@pytest.mark.parametrize("how", ["cancelled", "broken", "deleted"])
def test_where_no_text_comes_it_ends(services: Services, view: TabView, reader: HeldReader, how: str) -> None:
    run = services.ask(view, "First?")
    if how == "cancelled":
        services.cancel_reading(view.document)
    elif how == "deleted":
        services.delete(view, view.document)
    else:
        reader.broken = True
        reader.let.set()
    wait_for(lambda: run.ended)
    assert (run.state, run.error) == {"cancelled": ("failed", jobs.READING_CANCELLED),
                                      "deleted": ("stopped", DOCUMENT_DELETED),
                                      "broken": ("failed", "The file is broken.")}[how]


def test_asked_early_about_too_much_it_is_answered_from_what_fits(services: Services, view: TabView,
                                                                  reader: HeldReader) -> None:
    services.queue.reconfigure(EngineConfig(max_context=1024 + 400))
    run = services.ask(view, "First?")
    reader.let.set()
    wait_for(lambda: run.ended)
    assert run.state == "done" and run.did_not_fit and phase(services, view) == "too_long"
    assert run.ranges != run.asked_about == services.library.get(view.document).ranges
    services.queue.reconfigure(EngineConfig(max_context=1024 + 8))  # not one page
    run = services.ask(view, "Second?")
    wait_for(lambda: run.ended)
    assert (run.state, run.error) == ("failed", queue.CHOOSE_PAGES_FIRST)


POLL = 2.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def after(watchdog: Watchdog, clock: Clock, cores: float, most: float = 2000.0) -> float:
    """Seconds from a stop until it is taken for hung (``most``: never), while its process uses so many cores."""
    asked, used = clock.now, 50.0
    while clock.now - asked < most:
        clock.now += POLL
        used += cores * POLL
        if watchdog.hung(asked, used):
            return clock.now - asked
    return most


def shown(steps: tuple[float, ...], doing: str = "read") -> tuple[Watchdog, Clock]:
    """One that took so long for its steps, and is in the next."""
    clock = Clock()
    watchdog = Watchdog(clock)
    watchdog.began(doing)
    for seconds in steps:
        clock.now += seconds
        watchdog.heard()
    return watchdog, clock


@pytest.mark.parametrize(("steps", "cores", "least", "most"), [
    ((), 0.0, HUNG_AFTER, HUNG_AFTER + 2 * POLL),  # nothing was ever seen of it: a deadlock
    ((0.1, 0.2), 0.0, HUNG_AFTER, HUNG_AFTER + 2 * POLL),
    ((40.0,), 0.0, 40.0 * STEPS, 40.0 * STEPS + 2 * POLL),  # waits for a GPU or a disk, but its steps do take so long
    ((0.1,), 1.0, LEAST_LIMIT, LEAST_LIMIT + 2 * POLL),  # it turns in a circle
    ((40.0,), 8.0, 40.0 * LIMIT, 40.0 * LIMIT + 2 * POLL),
    ((), 8.0, FIRST_LIMIT, FIRST_LIMIT + 2 * POLL)])
def test_how_long_it_is_waited_for(steps: tuple[float, ...], cores: float, least: float, most: float) -> None:
    assert least <= after(*shown(steps), cores) <= most


def test_a_step_of_another_kind_says_nothing() -> None:
    watchdog, clock = shown((300.0,), "load")
    watchdog.began("read")
    assert after(watchdog, clock, 0.0) <= HUNG_AFTER + 2 * POLL


def test_it_is_heard_while_it_is_asked_to_stop() -> None:
    """Weights are loaded to their end: each part is a sign of life."""
    watchdog, clock = shown((1.0,), "load")
    asked = clock.now
    for _ in range(20):
        clock.now += HUNG_AFTER * 0.9
        assert not watchdog.hung(asked, 0.0)
        watchdog.heard()


def test_one_that_stops_computing_is_hung_from_then_on() -> None:
    watchdog, clock = shown((0.1,))
    asked = clock.now
    for used in range(20):
        clock.now += POLL
        assert not watchdog.hung(asked, float(used))
    assert after(watchdog, clock, 0.0) <= HUNG_AFTER + 2 * POLL


@pytest.mark.parametrize(("steps", "cores", "limit"), [
    ((0.1,), 0.0, HUNG_AFTER), ((40.0,), 0.0, 40.0 * STEPS), ((0.1,), 1.0, LEAST_LIMIT), ((40.0,), 8.0, 40.0 * LIMIT)])
def test_where_nobody_asked_for_a_stop_it_is_waited_for_far_longer(steps: tuple[float, ...], cores: float,
                                                                   limit: float) -> None:
    """A driver that never returns but lets the heart beat."""
    watchdog, clock = shown(steps)
    began = clock.now
    used, hung = 50.0, False
    while not hung and clock.now - began < 10**5:
        clock.now += POLL
        used += cores * POLL
        hung = watchdog.hung(None, used)
    assert UNASKED * limit <= clock.now - began <= UNASKED * limit + 2 * POLL
