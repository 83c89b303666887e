"""Sentences are judged while an answer is written, each once, and the last when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from little_books import wait_for

from tests.scripted_evidence import ScriptedEvidence
from triforce_core import Document, Page, SentenceSupport, TextDelta
from triforce_core.errors import EvidenceDiedError
from ui.app.checks import SentenceChecks
from ui.app.jobs import Selection
from ui.app.runs import Run

KEPT, DENIED, INVENTED = "The keeper counted the ships.", "The keeper did not sleep.", "Nobody has ever seen it."
BOOK = Document("t", "txt", (Page("i", "A heading"), Page("ii", f"{KEPT} The keeper did sleep.")), "test")


def selection() -> Selection:
    return Selection("key", BOOK, ((1, 2),))


def test_each_finished_sentence_is_judged_at_once() -> None:
    evidence, run, came = ScriptedEvidence(), Run("key", "What of the ships?"), threading.Semaphore(0)
    evidence.judges = True
    SentenceChecks(evidence, lambda run: came.release()).begin(run, selection())
    assert run.judges and run.support == []
    run.accumulator.add(TextDelta(f"{KEPT} {DENIED} Nobody has"))
    wait_for(lambda: len(run.support or ()) == 2)
    assert [one["verdict"] for one in run.support or ()] == ["supported", "contradicted"] and run.judges
    run.accumulator.add(TextDelta(" ever seen it."))
    run.written.set()
    wait_for(lambda: not run.judges)
    told = run.accumulator.text
    assert [told[one["start"] : one["end"]] for one in run.support or ()] == [KEPT, DENIED, INVENTED]
    assert [one["verdict"] for one in run.support or ()][-1] == "not found"
    assert (run.support or ())[0]["places"][0]["page"] == 2
    assert all(came.acquire(timeout=5) for _ in range(4)), "after each sentence, and when all are judged"


def test_what_turns_out_to_be_reasoning_is_not_judged() -> None:
    evidence, run = ScriptedEvidence(), Run("key", "What of the ships?")
    evidence.judges = True
    SentenceChecks(evidence, lambda run: None).begin(run, selection())
    run.accumulator.add(TextDelta(f"{INVENTED} Or not"))
    wait_for(lambda: len(run.support or ()) == 1)
    run.accumulator.add(TextDelta(f".\n</think>\n\n{KEPT}"))
    run.written.set()
    wait_for(lambda: not run.judges)
    assert [one["verdict"] for one in run.support or ()] == ["supported"]


def test_an_answer_ends_also_where_nothing_can_be_judged() -> None:
    run = Run("key", "What?")
    evidence = ScriptedEvidence()
    evidence.check = lambda *args, **kwargs: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    SentenceChecks(evidence, lambda run: None).begin(run, selection())
    run.accumulator.add(TextDelta(KEPT))
    run.written.set()
    wait_for(lambda: not run.judges)
    assert run.support == []


def test_an_app_that_closes_meanwhile_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    run, evidence = Run("key", "What?"), ScriptedEvidence()

    def check(*args: object, **settings: object) -> Iterator[SentenceSupport]:
        raise EvidenceDiedError("The document could not be searched: the app is closing")
        yield

    evidence.check = check  # type: ignore[method-assign, assignment]
    run.accumulator.add(TextDelta(KEPT))
    run.written.set()
    SentenceChecks(evidence, lambda run: None).begin(run, selection())
    wait_for(lambda: not run.judges)
    assert run.support == [] and not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
