"""Free answers are compared with what they were written from; answers that only quote are not."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from little_books import asked, wait_for, write_book

from tests.scripted_engine import EngineScript
from triforce_core import EvidenceClient
from ui.app import engine_holder
from ui.app.services import Services
from ui.app.tab_view import TabView

FREE = "The keeper of Ness 3 counted 301 ships. Quantum computers factor large integers with many gates."


@pytest.fixture(autouse=True)
def real_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_holder, "EvidenceClient", EvidenceClient)


@pytest.fixture
def script(real_evidence: None) -> EngineScript:
    return EngineScript(load_seconds=0, triforce_tokens_per_second=4000, plain_tokens_per_second=2000,
                        instructions=True, answer=FREE)


def answered(services: Services, tmp_path: Path, pages: str = "") -> list[dict]:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt", 6), "book.txt")])
    wait_for(lambda: services.queue.open_key is not None)
    if pages:
        services.choose_pages(view, pages)
    asked(services, view, "How many ships?")
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state == "done")
    run = list(services.runs._runs.values())[-1]
    wait_for(lambda: not run.judges, 60)
    return services.conversations.answers(view.conversation)[0].result["support"]


def test_kept_with_the_answer_pages_counted_in_the_file(services: Services, tmp_path: Path) -> None:
    here, foreign = answered(services, tmp_path, "2-4")
    assert (here["verdict"], here["places"][0]["page"]) == ("supported", 3)
    assert foreign["verdict"] == "not found" and FREE[foreign["start"] : foreign["end"]].startswith("Quantum computers")


def test_one_that_only_quotes_is_not_compared(services: Services, script: EngineScript, tmp_path: Path) -> None:
    wait_for(lambda: services.queue.model is not None)
    script.instructions = False
    services.queue.reconfigure(services.queue.config.__class__(max_context=16_384))
    wait_for(lambda: services.queue.model is not None and not services.queue.model.instructions)
    assert answered(services, tmp_path) == []


def test_an_answer_is_never_lost_for_it(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvidenceClient, "index", lambda client, document: 1 / 0)
    monkeypatch.setattr(EvidenceClient, "check", lambda client, *args, **kwargs: 1 / 0)
    assert answered(services, tmp_path) == []


def test_the_process_is_there_before_an_answer_needs_it_and_goes_with_the_app(services: Services,
                                                                              tmp_path: Path) -> None:
    evidence = services.queue._evidence
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt", 6), "book.txt")])
    wait_for(lambda: services.queue.open_key is not None)
    pid = evidence.pid
    assert pid is not None and psutil.pid_exists(pid)
    services.close()
    assert not psutil.pid_exists(pid)
