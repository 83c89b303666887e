"""Questions are suggested only where the app tried them and is sure; a person's question never waits for a trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from little_books import asked, phase, wait_for, write_book

from tests.scripted_engine import EngineScript
from triforce_core import SamplingParams, SpeculationConfig
from ui.app.jobs import Request
from ui.app.services import Services
from ui.app.suggestions import MOST, Suggestions
from ui.app.tab_view import TabView


@pytest.fixture
def suggestions(services: Services) -> Iterator[Suggestions]:
    made = Suggestions(services.library, services.conversations, services.queue, services.views.documents, 0.05)
    yield made
    made.close()


def found(services: Services, suggestions: Suggestions, view: TabView) -> tuple[str, ...]:
    return suggestions.of(services.library.get(view.document))


def tried(services: Services, view: TabView) -> bool:
    return bool(services.library.get(view.document).suggested)


def test_what_it_is_sure_of_is_suggested_and_kept(services: Services, suggestions: Suggestions, view: TabView,
                                                  script: EngineScript) -> None:
    script.confidence = 90
    before = dict(services.queue.counters.tokens)
    suggestions.start()
    wait_for(lambda: tried(services, view))
    questions = found(services, suggestions, view)
    assert 1 <= len(questions) <= MOST and len(set(questions)) == len(questions)
    assert dict(services.queue.counters.tokens) == before  # nobody asked, nothing is counted
    assert services.conversations.of(view.document) == [] and services.runs.active() == []
    services.choose_pages(view, "1-2")
    assert found(services, suggestions, view) == ()  # of other pages


@pytest.mark.parametrize("confidence", [-1, 30, 60])
def test_what_it_is_not_sure_of_is_not(services: Services, suggestions: Suggestions, view: TabView,
                                       script: EngineScript, confidence: int) -> None:
    script.confidence = confidence  # 60: it answers, but is not sure
    suggestions.start()
    wait_for(lambda: tried(services, view))
    assert len(found(services, suggestions, view)) == 0


def test_a_question_stops_the_trial_and_is_answered(services: Services, suggestions: Suggestions, view: TabView,
                                                    script: EngineScript) -> None:
    script.confidence, script.triforce_tokens_per_second = 90, 2.0  # a trial would take a minute
    suggestions.start()
    wait_for(lambda: any(job.kind == "trial" for job in services.queue.jobs()))
    trial = next(job.run for job in services.queue.jobs() if job.kind == "trial")
    wait_for(lambda: trial.state == "answering")
    script.triforce_tokens_per_second = 4000.0
    run = services.ask(view, "How many ships?")
    wait_for(lambda: trial.ended)
    assert trial.state == "stopped"
    wait_for(lambda: run.ended)
    assert run.state == "done" and services.queue.ahead(run) is None
    assert not tried(services, view)  # and none is tried behind a conversation, which the cache holds


def test_a_trial_opens_nothing(services: Services, view: TabView, tmp_path: Path) -> None:
    document = services.library.document(view.document)
    selection = services.questions.selection(services.library.get(view.document))
    services.add(view, [(write_book(tmp_path, "other.txt", 3), "other.txt")])
    wait_for(lambda: phase(services, view) == "ready")
    assert document is not None and services.queue.open_key[0] == view.document
    run = services.queue.try_out(Request(selection, "Who?", SamplingParams(), (("", SpeculationConfig()),)),
                                 lambda: None)
    wait_for(lambda: run.ended)
    assert run.state == "stopped" and services.queue.open_key[0] == view.document


def test_a_chat_model_is_not_tried(services: Services, suggestions: Suggestions, view: TabView,
                                   monkeypatch) -> None:
    import dataclasses

    monkeypatch.setattr(services.queue, "model", dataclasses.replace(services.queue.model, instructions=True))
    assert suggestions._next() is None
    monkeypatch.undo()
    assert suggestions._next() is not None
    asked(services, view, "How many?")
    assert suggestions._next() is None
