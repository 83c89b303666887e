"""Questions from outside any conversation: about a document that does not stand in the library, counted when ended."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from little_books import asked, make_document, wait_for, write_book

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import Document, Page, SamplingParams, SpeculationConfig
from triforce_core.errors import DamagedWeightsError
from ui.app.jobs import Request, Selection
from ui.app.runs import Run
from ui.app.services import Services
from ui.app.tab_view import TabView


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


def test_a_guest_that_does_not_fit_says_need_and_have(services: Services, script: EngineScript) -> None:
    lent = make_document(40, words=2000)
    run = answer(services, lent)
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
