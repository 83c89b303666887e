"""A job is done as it was asked for, whatever is chosen, read, stopped or deleted meanwhile; and in which order."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from held_engine import Held, quick_script, wait_for_text
from little_books import asked, make_document, opened, phase, read_quickly, wait_for, write_book

from triforce_core import DocumentOpened, EngineConfig, PrefillProgress, TriForceError
from ui.app import engine_holder, jobs
from ui.app import folders as places
from ui.app import queue as app_queue
from ui.app.conversations import Conversations
from ui.app.jobs import Fate, Job, Selection
from ui.app.questions import NOT_KEPT_MORE
from ui.app.queue import Queue
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import chat as live_answer
from ui.page import document_head as head
from ui.page import formatting
from ui.page import strip as strip_panel
from ui.page.document_head import READING_SAVED
from ui.page.export import exported
from ui.page.formatting import wait_line
from ui.page.page_choice import which


@pytest.fixture
def held() -> Held:
    return Held(quick_script())


@pytest.fixture
def services(tmp_path: Path, held: Held) -> Iterator[Services]:
    made = Services(places.make_folders(tmp_path / "home"), held.make, EngineConfig(), read_quickly)
    made.start([])
    yield made
    held.gate.set(True)  # closing waits for who stands before it
    made.close()


def added(services: Services, view: TabView, folder: Path, name: str, pages: int = 12) -> str:
    services.add(view, [(write_book(folder, name, pages, words=60 + len(name)), name)])
    wait_for_text(services.extractor)
    return view.document


def until(services: Services, held: Held, condition: Callable[[], object]) -> None:
    """Event by event."""
    for _ in range(500):
        if condition():
            return
        held.let(services.queue)
    raise AssertionError("it never came to that")


def reading(services: Services, held: Held, folder: Path) -> tuple[TabView, str, Queue]:
    """Return a tab with a long document that is being read, the document's id, and the queue; the engine is held."""
    held.gate.set(False)
    view = TabView()
    document = added(services, view, folder, "long.txt", 40)
    until(services, held, lambda: phase(services, view) == "read")
    return view, document, services.queue


def strip(services: Services, view: TabView) -> tuple[set[int], set[int]]:
    """(pages that are drawn as read, pages with attention) of the answer that a tab shows."""
    drawn = next(panel for panel in strip_panel.panels(services) if panel.name == "strip").draw(view)
    cells = re.findall(r'<button type="button" class="tf-page([^"]*)"[^>]*data-page="(\d+)"[^>]*'
                       r'title="[^"]*?· ([\d.]+|not in context)', drawn)
    return ({int(page) for css, page, _ in cells if "tf-out" not in css},
            {int(page) for css, page, share in cells if "tf-out" not in css and float(share)})


def picked(services: Services, view: TabView, ranges) -> str:
    return services.library.document(view.document).pick(ranges).id


def test_a_queued_question_is_answered_and_drawn_for_the_pages_it_was_asked_about(
        services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    held.gate.set(False)
    services.ask(view, "First?")
    services.choose_pages(view, "1-3, 9-12")
    asking = TabView(document=view.document)
    run = services.ask(asking, "Second?")
    services.choose_pages(view, "1-6")
    held.let_all(services.queue)
    assert run.state == "done" and held.asked["Second? 0"][0] == picked(services, view, [(1, 3), (9, 12)])
    pages = {1, 2, 3, 9, 10, 11, 12}
    assert strip(services, asking) == (pages, pages)
    (answer,) = services.conversations.answers(asking.conversation)
    assert answer.result["passages"] and {passage["page"] for passage in answer.result["passages"]} <= pages
    assert services.queue.open_key == (view.document, ((1, 6),))  # the reading that was asked for last


def test_pages_chosen_while_a_document_is_read_are_read(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    held.gate.set(False)
    services.choose_pages(view, "1-6")
    held.let(services.queue, 3)
    assert phase(services, view) == "read"
    services.choose_pages(view, "7-12")
    held.let_all(services.queue)
    assert services.queue.open_key == (view.document, ((7, 12),)) and phase(services, view) == "ready"
    assert picked(services, view, [(1, 6)]) not in held.opened  # it was given up for them
    assert view.document not in services.queue.problems


def test_cancel_and_read_at_once(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    held.gate.set(False)
    services.choose_pages(view, "1-6")
    held.let(services.queue, 3)
    services.cancel_reading(view.document)
    services.read(view.document)
    assert phase(services, view) == "waiting" and not services.queue.prefills[view.document].cancelled
    held.let_all(services.queue)
    assert phase(services, view) == "ready" and services.queue.open_key == (view.document, ((1, 6),))


def test_what_waits_is_cancelled_and_stopped_at_once(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    held.gate.set(False)
    services.ask(view, "First?")
    held.let(services.queue, 2)
    asking = TabView(document=view.document)
    run = services.ask(asking, "Second?")
    services.choose_pages(view, "1-6")
    services.cancel_reading(view.document)
    assert services.queue.problems[view.document] == jobs.READING_CANCELLED and not services.queue.prefills
    services.stop(asking)
    assert run.state == "stopped" and services.conversations.answer(run.id).state == "stopped"
    assert services.ask(asking, "Third?") is not None  # its conversation is free again


def test_a_deleted_document_is_told_of_nothing_and_may_come_back(services: Services, held: Held,
                                                                 tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    held.gate.set(False)
    services.choose_pages(view, "1-6")
    held.let(services.queue, 3)
    key = view.document
    run = services.ask(view, "Who?")
    services.delete(view, key)
    assert run.state == "stopped"
    services.trash.empty()
    added(services, view, tmp_path, "a.txt")
    assert view.document == key and key not in services.queue.problems
    held.let_all(services.queue)
    assert phase(services, view) == "ready" and services.queue.open_key == (key, ((1, 12),))


def test_what_was_counted_of_some_pages_is_not_taken_for_all(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    whole = services.library.get(view.document).tokens
    held.gate.set(False)
    services.choose_pages(view, "7-12")
    services.ask(view, "Half?")
    services.choose_pages(view, "1-12")
    services.cancel_reading(view.document)
    held.let_all(services.queue)
    assert services.queue.open_key[1] == ((7, 12),) and services.library.get(view.document).tokens == whole


def test_a_text_that_was_taken_out_anew_is_read_anew(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, pages=12)
    old = services.library.document(view.document)
    pages = (type(old.pages[0])("i", "Other words stand here now, and a keeper."), *old.pages[1:])
    services.library.store(view.document, type(old)(old.title, old.kind, pages, "another reader"))
    asked(services, view, "Which words?")
    assert held.asked["Which words? 0"][0] == services.library.document(view.document).id != old.id


@pytest.mark.parametrize("broken", ["history", "begin"])
def test_a_database_error_refuses_the_question_and_blocks_nothing(
        services: Services, held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    view = opened(services, tmp_path, pages=12)
    asked(services, view, "First?")

    def fails(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Conversations, broken, fails)
        with pytest.raises(TriForceError, match="could not be read or saved") as refused:
            services.ask(view, "Second?")
    assert refused.value.remedy == NOT_KEPT_MORE and not services.runs.active()
    run = asked(services, view, "Second?")
    assert run.state == "done" and held.asked["Second? 0"][1] == ("First?",)


def test_an_answer_that_cannot_be_kept_ends_all_the_same(services: Services, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    view = opened(services, tmp_path, pages=12)

    def fails(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Conversations, "save_trace", fails)
    run = asked(services, view, "Who?")
    assert not services.runs.active() and run.accumulator.text


def test_the_document_in_front_is_read_first_and_no_question_is_passed(services: Services, held: Held,
                                                                       tmp_path: Path) -> None:
    busy = opened(services, tmp_path, "busy.txt", 12, 68)
    held.gate.set(False)
    services.ask(busy, "Busy?")
    view, other = TabView(), TabView()
    first = added(services, view, tmp_path, "first.txt")
    run = services.ask(TabView(document=busy.document), "Waits?")
    second = added(services, view, tmp_path, "second.txt")  # the person looks at this one now
    behind = services.ask(TabView(document=second), "Behind?")
    services.open(other, first)  # and comes back to the other: behind the questions

    def order() -> list[str]:
        return [job.run.question if job.run else job.selection.key for job in services.queue.jobs()]

    assert order() == ["Busy?", "Waits?", second, "Behind?", first]
    added(services, other, tmp_path, "third.txt")  # the other tab turns away from it
    assert order()[:4] == ["Busy?", "Waits?", second, "Behind?"] and order()[-1] == first
    held.let_all(services.queue)
    assert run.state == behind.state == "done" and services.queue.open_key[0] == first


def test_a_reading_that_nobody_looks_at_makes_way_and_goes_on(services: Services, held: Held, tmp_path: Path) -> None:
    view, long, queue = reading(services, held, tmp_path)
    done = queue.prefills[long].progress.tokens_done
    note = added(services, view, tmp_path, "note.txt", 1)  # the person turns to it
    ahead = queue.ahead(queue.prefills[note])
    assert ahead.doing == "pause" and "“long”" in wait_line(ahead)
    held.let(queue, 2)
    assert [job.selection.key for job in queue.jobs()] == [note, long]
    assert queue.prefills[long].progress.tokens_done >= done and not queue.problems
    run = services.ask(view, "What does the note say?")
    held.let_all(queue)
    assert run.state == "done" and queue.open_key[0] == long and not queue.problems


def test_a_question_about_another_document_pauses_it_too(services: Services, held: Held, tmp_path: Path) -> None:
    view = opened(services, tmp_path, "note.txt", 1)
    note, queue = view.document, services.queue
    held.gate.set(False)
    long = added(services, view, tmp_path, "long.txt", 40)
    until(services, held, lambda: phase(services, view) == "read")
    services.open(view, note)  # also where it was read before
    run = services.ask(view, "What does it say?")
    held.let(queue, 2)
    assert [job.selection.key for job in queue.jobs()][-1] == long
    held.let_all(queue)
    assert run.state == "done" and queue.open_key[0] == long


def test_one_that_is_looked_at_does_not(services: Services, held: Held, tmp_path: Path) -> None:
    _, long, queue = reading(services, held, tmp_path)
    other = TabView()
    added(services, other, tmp_path, "another.txt", 41)
    assert not queue.prefills[long].fate
    held.let_all(queue)


@pytest.mark.parametrize("asked", [False, True])
def test_a_note_waits_for_no_long_reading(services: Services, held: Held, tmp_path: Path, asked: bool) -> None:
    """Also where somebody looks at the long one, or has asked about it."""
    view, long, queue = reading(services, held, tmp_path)
    other = TabView()
    about_long = services.ask(view, "What is long?") if asked else None
    note = added(services, other, tmp_path, "note.txt", 1)
    assert queue.prefills[long].fate is Fate.PAUSE
    run = services.ask(other, "What is short?")
    until(services, held, lambda: run.ended)
    assert run.state == "done" and long in queue.prefills and note not in queue.prefills
    held.let_all(queue)
    assert queue.open_key[0] == long
    assert about_long is None or (about_long.state == "done" and about_long.began_at > run.ended_at)


def test_nor_for_one_that_is_read_for_a_question(services: Services, held: Held, tmp_path: Path) -> None:
    """The question makes way with its reading, keeps its place, and is answered."""
    view, long, queue = reading(services, held, tmp_path)
    other = TabView()
    services.cancel_reading(long)
    held.let_all(queue)
    about_long = services.ask(view, "What is long?")
    until(services, held, lambda: about_long.state == "preparing" and phase(services, view) == "read")
    added(services, other, tmp_path, "note.txt", 1)
    until(services, held, lambda: len(held.opened) == 1)
    assert not about_long.ended and long in queue.prefills, "the note was first"
    held.let_all(queue)
    assert about_long.state == "done" and queue.open_key[0] == long


def test_a_paused_reading_is_cancelled_for_good(services: Services, held: Held, tmp_path: Path) -> None:
    view, long, queue = reading(services, held, tmp_path)
    added(services, view, tmp_path, "note.txt", 1)
    services.cancel_reading(long)
    held.let_all(queue)
    assert queue.problems[long] == jobs.READING_CANCELLED and queue.open_key[0] == view.document


@pytest.mark.parametrize("reads", ["the reading", "the question"])
def test_on_request_it_is_answered_from_the_pages_that_are_read(services: Services, held: Held, tmp_path: Path,
                                                                reads: str) -> None:
    view, long, queue = reading(services, held, tmp_path)
    if reads == "the question":  # whose own job opens the document
        services.cancel_reading(long)
        held.let_all(queue)
    run = services.ask(view, "What is told by now?")
    until(services, held, lambda: queue.pages_read(run))
    pages = queue.pages_read(run)
    ((first, last),) = pages
    assert first == 1 and 1 <= last < 40 and "Answer now from page" in live_answer.inside(services, run, False)
    services.answer_now(run.id)
    assert not queue.pages_read(run), "once is enough"
    until(services, held, lambda: run.state == "answering")
    assert held.asked["What is told by now? 0"][0] == picked(services, view, pages)
    held.let_all(queue)
    assert run.state == "done" and queue.open_key == (long, ((1, 40),)), "the rest was read behind it"
    assert strip(services, view)[0] == set(range(1, last + 1))
    (answer,) = services.conversations.answers(view.conversation)
    assert answer.result["ranges"] == [list(pages[0])] and answer.result["asked_about"] == [[1, 40]]
    said = f"Answered from {which(pages)} of pages 1–40: the rest was still being read."
    assert said in live_answer.answer(answer, "")
    talk = services.conversations.get(view.conversation).id
    assert said in exported(services, talk, "md")[2] and said in exported(services, talk, "html")[2]
    (told,) = json.loads(exported(services, talk, "json")[2])["answers"]
    assert told["pages_read"] == [list(pages[0])] and told["pages_asked_about"] == [[1, 40]]


def test_a_stop_reaches_it_on_its_way(services: Services, held: Held, tmp_path: Path) -> None:
    view, long, queue = reading(services, held, tmp_path)
    run = services.ask(view, "What is told by now?")
    until(services, held, lambda: queue.pages_read(run))
    services.answer_now(run.id)
    services.stop(view)
    held.let_all(queue)
    assert run.state == "stopped" and queue.open_key == (long, ((1, 40),))


def test_pages_read_by_a_number_of_tokens() -> None:
    counts = [100] * 6
    assert jobs.read_by(jobs.FRONT + 250, counts, ((1, 6),)) == ((1, 2),)
    assert jobs.read_by(jobs.FRONT + 250, counts, ((2, 2), (4, 6))) == ((2, 2), (4, 4))
    assert jobs.read_by(jobs.FRONT, counts, ((1, 6),)) == () == jobs.read_by(10_000, counts, ((1, 6),))


def test_what_waits_says_for_what_and_how_long(services: Services, held: Held, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "LEAST_LEFT", 0.0)  # nothing takes long here
    view = opened(services, tmp_path, "a long one.txt", 12, 74)
    run = asked(services, view, "How long does it take?")
    held.gate.set(False)
    held.script.prefill_tokens_per_second = 20_000.0
    services.choose_pages(view, "2-12")
    held.let(services.queue, 4)
    waits = TabView(document=view.document)
    run, reading = services.ask(waits, "And this?"), TabView()
    added(services, reading, tmp_path, "b.txt")
    ahead, behind = services.queue.ahead(run), services.queue.ahead(services.queue.prefills[reading.document])
    assert (ahead.doing, ahead.title, ahead.more) == ("prefill", "a long one", 0)
    assert (behind.doing, behind.more) == ("prefill", 1) and behind.seconds > ahead.seconds > 0
    words = wait_line(behind)
    assert "“a long one”" in words and "1 more" in words and "left" in words
    drawn = next(panel for panel in head.panels(services) if panel.name == "head").draw(reading)
    assert "Waiting until “a long one” is read; 1 more in line before this" in drawn
    held.script.prefill_tokens_per_second = 1e9


@pytest.mark.parametrize("computes", [True, False])
def test_an_engine_that_does_not_stop_is_ended_unless_it_computes(
        services: Services, held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computes: bool) -> None:
    """A chunk takes an 8B model 40 s on a CPU, and it hears Stop only at the end of it."""
    monkeypatch.setattr(engine_holder, "HUNG_AFTER", 0.01)
    monkeypatch.setattr(app_queue, "POLL_EVERY", 0.01)
    view = opened(services, tmp_path, pages=12)
    engine = services.queue._engine
    held.gate.set(False)
    held.computes = computes
    services.choose_pages(view, "1-6")
    held.let(services.queue, 3)
    services.cancel_reading(view.document)
    if not computes:
        return wait_for(lambda: services.queue._engine is not engine)
    looks = held.looks
    wait_for(lambda: held.looks > looks + 20)  # each a hundredth of a second after the one before
    assert services.queue._engine is engine and services.queue.state == "ready"
    held.let_all(services.queue)
    assert services.queue.problems[view.document] == jobs.READING_CANCELLED and services.queue._engine is engine


def test_a_text_of_which_the_tokens_are_known_is_not_read_yet() -> None:
    """Tokens are counted in a second, and reading them takes minutes."""
    chosen = Selection.of_ephemeral(make_document(3))
    job = Job("prefill", chosen.key, chosen, stage="tokenize", progress=PrefillProgress(900, 900, 1e5, 0.0, "tokenize"))
    known = jobs.Estimates({})
    assert known.ahead([job], None).seconds is None, "how fast it is read is not known"
    assert jobs.Estimates({}, lambda: 50.0).reading(chosen) == pytest.approx(
        chosen.chosen.characters / jobs.LETTERS_A_TOKEN / 50), "but for what was read on another day"
    known.opened(chosen, DocumentOpened("id", 1000, (), 10.0, 10.0, False, 4096))
    assert known.ahead([job], None).seconds == pytest.approx(chosen.chosen.characters / jobs.LETTERS_A_TOKEN / 100)
    job.progress = PrefillProgress(450, 900, 100.0, 4.5)
    assert known.ahead([job], None).seconds == 4.5


def test_an_answer_says_that_its_document_is_reopened(services: Services, held: Held, tmp_path: Path) -> None:
    first, other = opened(services, tmp_path, pages=12), TabView()
    services.add(other, [(write_book(tmp_path, "b.txt", pages=3), "b.txt")])
    wait_for(lambda: phase(services, other) == "ready")
    held.gate.set(False)
    run = services.ask(first, "First?")
    until(services, held, lambda: run.state == "preparing" and services.queue.prefills[run.document].progress)
    assert services.queue.prefills[run.document].stage == "restore"
    assert live_answer.wait(services, run).startswith(READING_SAVED)
    assert READING_SAVED in live_answer.inside(services, run, False)
    held.let_all(services.queue)
    assert run.state == "done" and live_answer.wait(services, run) == ""


def test_a_note_that_gave_way_to_a_long_reading_is_read_again_for_its_next_question(
        services: Services, held: Held, tmp_path: Path) -> None:
    """And says until then that it stands nowhere; the long reading goes on behind the answer."""
    view = TabView()
    held.gate.set(False)
    long = added(services, view, tmp_path, "long.txt", pages=40)
    until(services, held, lambda: phase(services, TabView(document=long)) == "read")
    note = added(services, view, tmp_path, "note.txt", pages=2)  # the same tab: nobody looks at the long one now

    def stand() -> tuple[str, str]:
        return phase(services, TabView(document=note)), phase(services, TabView(document=long))

    for question in ("First?", "Second?"):
        run = services.ask(view, question)
        until(services, held, lambda run=run: run.ended and stand()[1] == "read")
        assert run.state == "done" and stand() == ("unsaved", "read")
        assert held.asked[f"{question} 0"][0] == services.library.document(note).id
    held.let_all(services.queue)
    assert stand() == ("unsaved", "ready")


def test_pages_chosen_while_others_are_counted_are_those_of_the_next_question(services: Services, held: Held,
                                                                       tmp_path: Path) -> None:
    services.queue.reconfigure(EngineConfig(max_context=1024 + 400))
    view = TabView()
    added(services, view, tmp_path, "long.txt")
    wait_for(lambda: phase(services, view) == "too_long")
    held.gate.set(False)
    services.choose_pages(view, "1-11")
    run = services.ask(view, "Which pages?")
    until(services, held, lambda: run.state == "preparing")  # what it asks about is being counted
    services.choose_pages(view, "3-4")
    held.let_all(services.queue)
    assert (run.state, run.asked_about) == ("done", ((1, 11),)) and not services.queue.holds(run)
