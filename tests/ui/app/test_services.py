"""The verbs of a person without a screen, questions of programs, and suggested questions."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from little_books import PASSWORD, asked, make_document, opened, phase, read_quickly, wait_for, write_book

from tests.scripted_engine import EngineScript, ScriptedEngine
from tests.scripted_evidence import ScriptedEvidence
from triforce_core import Document, EngineClient, EngineConfig, Page, SamplingParams, SpeculationConfig, TriForceError
from triforce_core.errors import DamagedWeightsError
from ui.app import engine_holder, queue
from ui.app import folders as places
from ui.app.jobs import FRONT, SHORT_ANSWER, Request, Selection
from ui.app.library import Library
from ui.app.questions import MOST, ONE_AT_A_TIME, Suggestions
from ui.app.queue import APP_ENDED
from ui.app.runs import Run
from ui.app.services import Services
from ui.app.settings import Settings
from ui.app.tab_view import TabView
from ui.page import chat, document_head
from ui.page.page_choice import TO


def test_ask_and_keep(services: Services, tmp_path: Path) -> None:
    view = opened(services, tmp_path)
    run = asked(services, view, "  How many ships?  ")
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state == "done")
    (answer,) = services.conversations.answers(view.conversation)
    assert answer.text == run.accumulator.text and answer.token_ids and answer.question == "How many ships?"
    assert answer.result["figures"]["engine"] == "triforce"
    assert len(answer.result["page_shares"]) == 6
    second = asked(services, view, "And then?")
    # the first turn is in the history
    assert second.accumulator.figures().reused_tokens > run.accumulator.figures().reused_tokens


def test_stop_keeps_the_partial_answer(services: Services, tmp_path: Path, script: EngineScript) -> None:
    view = opened(services, tmp_path)
    script.triforce_tokens_per_second = 30
    run = services.ask(view, "How many ships?")
    wait_for(lambda: len(run.accumulator.text) > 20)
    services.stop(view)
    assert run.stopping or run.ended
    wait_for(lambda: run.ended)
    assert run.state == "stopped"
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state == "stopped")
    assert services.conversations.answers(view.conversation)[0].text == run.accumulator.text != ""


def test_one_answer_at_a_time_in_a_conversation(services: Services, tmp_path: Path, script: EngineScript) -> None:
    view = opened(services, tmp_path)
    script.triforce_tokens_per_second = 30
    services.ask(view, "One?")
    with pytest.raises(TriForceError, match=ONE_AT_A_TIME):
        services.ask(view, "Two?")
    services.stop(view)


@pytest.mark.parametrize(("fault", "words"), [("crash", "starts a new engine"), ("memory", "needed")])
def test_a_fault_costs_one_answer_only(services: Services, tmp_path: Path, script: EngineScript, fault: str,
                                       words: str) -> None:
    view = opened(services, tmp_path)
    script.fault = fault
    run = asked(services, view, "How many ships?")
    assert run.state == "failed" and words in run.error and len(run.accumulator.token_ids) >= 12
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state == "failed")
    assert services.conversations.answers(view.conversation)[0].text == run.accumulator.text
    again = asked(services, view, "And now?")
    assert again.state == "done"


def test_an_engine_that_hears_no_stop_is_ended(services: Services, tmp_path: Path, script: EngineScript,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_holder, "HUNG_AFTER", 0.1)
    monkeypatch.setattr(queue, "POLL_EVERY", 0.05)
    view = opened(services, tmp_path)
    script.fault = "hang"
    run = services.ask(view, "How many ships?")
    wait_for(lambda: not script.fault)  # it hangs
    services.stop(view)
    wait_for(lambda: run.ended)
    assert run.state == "failed" and run.error == engine_holder.ENGINE_HUNG and run.accumulator.text
    again = asked(services, view, "And now?")
    assert again.state == "done"


@pytest.mark.parametrize("busy", [True, False], ids=["while it answers", "while it has nothing to do"])
def test_an_engine_whose_process_is_stopped_is_said_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                busy: bool) -> None:
    monkeypatch.setattr(engine_holder, "SILENT_LIMIT", 9)
    services = Services(places.make_folders(tmp_path / "home"), lambda config: EngineClient(
        config, factory="tests.worker.fake_engine:FakeEngine"), EngineConfig(), read_quickly)
    services.start([])
    try:
        view = TabView()
        services.add(view, [(write_book(tmp_path, "book.txt", 1, words=60), "book.txt")])
        wait_for(lambda: phase(services, view) in ("ready", "unsaved"))
        run = services.ask(view, "slow" if busy else "How many?")
        wait_for(lambda: run.accumulator.text if busy else run.ended)
        wait_for(lambda: services.queue.status)
        stopped = services.queue.status.pid
        os.kill(stopped, signal.SIGSTOP)
        notice = next(panel for panel in document_head.panels(services) if panel.name == "notice")
        assert not notice.draw(view)
        wait_for(lambda: document_head.SILENT_TITLE in notice.draw(view), 10.0)
        assert "has not answered for" in notice.draw(view)
        if busy:
            wait_for(lambda: run.ended, 20.0)
            assert run.state == "failed" and "had not answered" in run.error and run.accumulator.text
        wait_for(lambda: not psutil.pid_exists(stopped), 20.0)
        again = asked(services, view, "And now?")
        assert again.state == "done" and not notice.draw(view)
    finally:
        services.close()


def test_a_conversation_that_grows_leaves_room_for_fewer_pages(services: Services, tmp_path: Path) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "long.txt", pages=10), "long.txt")])
    wait_for(lambda: phase(services, view) == "ready")
    tokens = services.queue.fits[view.document].tokens
    services.queue.reconfigure(EngineConfig(max_context=max(1024 + tokens, tokens + FRONT + SHORT_ANSWER) + 80))
    words = " ".join(services.library.document(view.document).pages[7].text.split()[3:9])
    first = asked(services, view, words)
    assert first.state == "done" and not first.did_not_fit, "all pages, as long as there is room"
    runs = [asked(services, view, f"{words} {'and then ' * 400}") for _ in range(2)]
    assert [run.state for run in runs] == ["done", "done"] and runs[-1].did_not_fit
    best = runs[-1].passages.passages[0].places[0].page
    assert any(low <= best <= high for low, high in runs[-1].ranges)


def test_what_is_too_long_is_answered_from_the_pages_of_its_passages(services: Services, tmp_path: Path) -> None:
    services.queue.reconfigure(EngineConfig(max_context=1024 + 200))
    view = TabView()
    services.add(view, [(write_book(tmp_path, "long.txt", pages=10), "long.txt")])
    wait_for(lambda: phase(services, view) == "too_long")
    entry = services.library.get(view.document)
    fit = services.queue.fits[entry.id]
    ((first, last),) = services.collection.suggestion(entry)
    assert sum(fit.page_tokens[first - 1 : last]) <= fit.max_tokens < fit.tokens
    assert services.choosing(view) is None, "no box stands in the way of a question"
    words = services.library.document(entry.id).pages[7].text.split()[3:9]
    run = asked(services, view, " ".join(words))
    best = run.passages.passages[0].places[0].page
    pages = {page for first, last in run.ranges for page in range(first, last + 1)}
    assert best in pages and run.did_not_fit and run.asked_about == ((1, 10),) and run.state == "done"
    assert sum(fit.page_tokens[page - 1] for page in pages) <= fit.max_tokens
    kept = services.conversations.answer(run.id).result
    assert chat.from_pages(kept).endswith(chat.NOT_ALL_FIT) and f"of pages 1{TO}10" in chat.from_pages(kept)
    with pytest.raises(TriForceError):
        services.choose_pages(view, "3-99")
    services.choose_pages(view, "3-4")
    wait_for(lambda: phase(services, view) == "ready")
    run = asked(services, view, "Anything?")
    assert run.first_page == 3 and len(run.accumulator.page_shares()) == 2


def test_password(services: Services, tmp_path: Path) -> None:
    (tmp_path / "locked.txt").write_text("LOCKED\n" + "The treasure is here. " * 20)
    view = TabView()
    services.add(view, [(tmp_path / "locked.txt", "locked.txt")])
    wait_for(lambda: phase(services, view) == "locked")
    services.unlock(view, "wrong")
    wait_for(lambda: services.library.get(view.document).error != "")
    services.unlock(view, PASSWORD)
    wait_for(lambda: phase(services, view) == "ready")


def test_race_is_the_same_words_from_the_same_seed(services: Services, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    view = opened(services, tmp_path)
    wait_for(lambda: phase(services, view) == "ready")
    engine, asked = services.queue._engine, []
    ask = engine.ask
    monkeypatch.setattr(engine, "ask", lambda *given: asked.append((given[0], given[2].max_new_tokens)) or ask(*given))
    run = services.race(view, "How many ships?")
    wait_for(lambda: run.ended)
    longest = services.settings.max_new_tokens  # the question is read before the lanes: the first would pay for it
    assert asked == [("How many ships?", 1), ("How many ships?", longest), ("How many ships?", longest)]
    assert run.state == "done" and run.outcome["same"] and run.outcome["speedup"] > 1
    plain, fast = (lane.finished.stats for lane in run.accumulators)
    assert (plain.engine, fast.engine) == ("autoregressive", "triforce")
    assert (plain.verifier, fast.verifier) == ("coupled", "coupled")
    wait_for(lambda: services.conversations.race(view.document) is not None)
    assert services.conversations.race(view.document)["question"] == "How many ships?"


def test_settings_are_kept_and_restart_the_engine_only_for_numbers(services: Services, tmp_path: Path) -> None:
    assert services.keep(Settings(temperature=0.7, max_new_tokens=8)) is False
    view = opened(services, tmp_path)
    run = asked(services, view, "How many?")
    assert len(run.accumulator.token_ids) == 8 and run.accumulator.finished.reason == "length"
    assert services.keep(Settings(dtype="float32")) is True
    wait_for(lambda: services.queue.config.dtype == "float32" and services.queue.state == "ready")
    assert services.keep(Settings(dtype="float32", mode="cpu")) is True
    wait_for(lambda: services.queue.config.mode == "cpu" and services.queue.state == "ready")
    run = asked(services, view, "And now?")
    assert run.state == "done"


def test_what_the_command_line_chose_the_settings_tab_cannot(tmp_path: Path, script: EngineScript) -> None:
    services = Services(places.make_folders(tmp_path / "fixed"), lambda config: ScriptedEngine(config, script),
                        EngineConfig(mode="cpu"), read_quickly, fixed=["mode"])
    services.start([])
    services.keep(Settings(mode="offload", dtype="float32"))
    assert services._with_settings(services.queue.config) == EngineConfig(mode="cpu", dtype="float32")
    assert services.settings.mode == "offload"  # kept for when it counts
    services.close()


def test_unexpected_errors_become_a_sentence(services: Services, tmp_path: Path, monkeypatch) -> None:
    view = opened(services, tmp_path)
    monkeypatch.setattr(ScriptedEngine, "ask", lambda *_: (_ for _ in ()).throw(RuntimeError("secret document text")))
    run = asked(services, view, "How many?")
    assert run.state == "failed" and "RuntimeError" in run.error and "secret" not in run.error


def test_closing_ends_everything_soon(tmp_path: Path) -> None:
    script = EngineScript(load_seconds=0, triforce_tokens_per_second=10)
    services = Services(places.make_folders(tmp_path / "home"), lambda config: ScriptedEngine(config, script),
                        EngineConfig(), read_quickly)
    services.start([write_book(tmp_path, "a.txt"), tmp_path / "missing.txt"])
    view = TabView(document=services.opening)
    wait_for(lambda: phase(services, view) == "ready")
    run = services.ask(view, "How many?")
    wait_for(lambda: run.accumulator.text)
    services.close()
    assert (run.state, run.error) == ("failed", APP_ENDED) and run.accumulator.text
    assert not [thread for thread in threading.enumerate() if thread.name == "engine-queue" and thread.is_alive()
                and thread is services.queue._thread]


def test_the_page_and_the_command_line_share_what_they_saved(tmp_path: Path) -> None:
    from triforce_core import MEASUREMENTS, READINGS
    from triforce_core.__main__ import _cache

    folders = places.make_folders(tmp_path)
    assert folders.saved_readings == _cache(tmp_path) / READINGS
    assert folders.measurements == _cache(tmp_path) / MEASUREMENTS


def answer(services: Services, lent: Document, question: str = "How many ships?", heard=lambda: None) -> Run:
    run = services.queue.answer(Request(Selection.of_ephemeral(lent), question, SamplingParams(),
                                       (("", SpeculationConfig()),)), heard)
    wait_for(lambda: run.ended)
    return run


def test_a_guest_is_read_answered_and_forgotten(services: Services) -> None:
    lent, heard = make_document(4), threading.Event()
    run = answer(services, lent, heard=heard.set)
    assert run.state == "done" and len(run.accumulator.page_shares()) == 4 and heard.is_set()
    assert not services.library.entries() and lent.id not in services.queue.fits
    assert services.queue.open_key == (lent.id, ((1, 4),))


def test_a_guest_of_which_no_page_fits_says_need_and_have(services: Services) -> None:
    run = answer(services, make_document(40, words=2000))
    assert (run.state, run.fit, run.did_not_fit) == ("done", None, True)
    run = answer(services, make_document(1, words=80_000))
    assert run.state == "failed" and run.fit is not None and run.fit.tokens > run.fit.max_tokens


def test_the_page_s_document_comes_back_after_a_guest(services: Services, tmp_path: Path) -> None:
    view, lent = TabView(), make_document(2)
    services.add(view, [(write_book(tmp_path, "a.txt"), "a.txt")])
    answer(services, lent)
    run = asked(services, view, "How many ships?")
    assert run.state == "done" and len(run.accumulator.page_shares()) == 6


def test_the_tally_counts_answers_and_holds_no_words(services: Services) -> None:
    lent = make_document(2)
    document = type(lent)(lent.title, lent.kind, (Page("1", "A secret of the harbour was kept."),), lent.reader)
    run = answer(services, document, "What secret?")
    counters = services.queue.counters
    assert counters.answers == {"done": 1} and counters.tokens["generated"] == len(run.accumulator.token_ids)
    assert counters.tested["retrieval"] >= counters.accepted["retrieval"] > 0 and "secret" not in repr(vars(counters))


def test_a_failure_to_load_is_told_once_however_often_it_is_tried(services: Services,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    def load(engine: ScriptedEngine) -> Iterator[object]:
        raise DamagedWeightsError("model.gguf is damaged")
        yield

    told: list[str] = []
    services.queue.not_loaded = told.append
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedEngine, "load", load)
        services.queue.reconfigure(dataclasses.replace(services.queue.config, threads=1))
        runs = [answer(services, make_document(2)) for _ in range(2)]
    assert [run.error for run in runs] == ["model.gguf is damaged."] * 2 and told == ["model.gguf is damaged."]
    assert answer(services, make_document(2)).state == "done" and len(told) == 1


@pytest.fixture
def suggestions(services: Services) -> Iterator[Suggestions]:
    made = Suggestions(services.library, services.conversations, services.queue, services.views.documents, 0.05)
    yield made
    made.close()


def found(services: Services, suggestions: Suggestions, view: TabView) -> tuple[str, ...]:
    return suggestions.of(services.library.get(view.document))


def tried(services: Services, view: TabView) -> bool:
    return bool(services.library.get(view.document).suggested)


def test_what_it_surely_answers_is_suggested_and_kept(services: Services, suggestions: Suggestions,
                                                      view: TabView) -> None:
    before = dict(services.queue.counters.tokens)
    suggestions.start()
    wait_for(lambda: tried(services, view))
    questions = found(services, suggestions, view)
    assert 1 <= len(questions) <= MOST and len(set(questions)) == len(questions)
    assert dict(services.queue.counters.tokens) == before  # nobody asked, nothing is counted
    assert services.conversations.of(view.document) == [] and services.runs.active() == []
    services.choose_pages(view, "1-2")
    assert found(services, suggestions, view) == ()  # of other pages


@pytest.mark.parametrize("level", ["perhaps", "not found"])
def test_what_it_may_not_answer_is_not_suggested(services: Services, suggestions: Suggestions, view: TabView,
                                                 evidence: ScriptedEvidence, level: str) -> None:
    evidence.level = level
    suggestions.start()
    wait_for(lambda: tried(services, view))
    assert len(found(services, suggestions, view)) == 0


def test_nothing_is_tried_behind_a_conversation(services: Services, suggestions: Suggestions, view: TabView) -> None:
    assert suggestions._next() is not None
    asked(services, view, "How many?")
    assert suggestions._next() is None


def test_the_first_pages_can_be_asked_about_while_others_are_read(services: Services, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    whole, go_on = make_document(12), threading.Event()

    def read(path: Path, password: str | None = None, *, progress, part, cancel) -> Document:
        progress(5, 12)
        part(dataclasses.replace(whole, pages=whole.pages[:4]))
        assert go_on.wait(10)
        return whole

    monkeypatch.setattr(services.extractor, "_read", read)
    (tmp_path / "scan.pdf").write_text("a scan")
    view = TabView()
    services.add(view, [(tmp_path / "scan.pdf", "scan.pdf")])
    (entry,) = services.library.entries()
    wait_for(lambda: services.library.get(entry.id).state == "part")
    head = document_head.head(services.library.get(entry.id), phase(services, view),
                              extraction=services.extractor.extractions[entry.id])
    assert "page 5 of 12" in head and document_head.SO_FAR.format(done=4, total=12) in head
    assert chat.asked_about(services, view) == chat.ASK_SO_FAR.format(pages="4 pages")
    asked(services, view, "How many ships?")
    (first,) = services.conversations.answers(view.conversation)
    assert chat.from_pages(first.result).startswith("Answered from pages 1–4 of pages 1–12")
    go_on.set()
    wait_for(lambda: phase(services, view) == "ready")
    assert services.library.get(entry.id).pages == 12
    run = asked(services, view, "And then?")
    assert run.ranges == ((1, 12),) and not run.asked_about
    assert [answer.id for answer in services.conversations.answers(view.conversation)] == [first.id, run.id]
    services.library.store(entry.id, whole, "part")  # the app ends before the rest of it is read
    assert Library(services.database, services.folders.library).get(entry.id).state == "new"
