"""The order in which jobs are done, whatever the order in which they were asked for."""

from __future__ import annotations

import itertools

import pytest
from little_books import make_document

from ui.app.jobs import SHORT, Job, JobKind, Selection, in_order


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
    seen, trial = job("prefill", "seen"), job("trial", "seen")
    for asked in itertools.permutations([unseen, question, race, seen, trial]):
        taken = order(list(asked))
        assert taken[3:] == [unseen, trial], [each.kind for each in asked]
        assert taken[:3] == [each for each in asked if each in (question, race, seen)], "as they were asked for"


@pytest.mark.parametrize("front", [(), ("seen",)])
def test_also_where_it_is_short_and_what_is_waited_for_is_long(front: tuple[str, ...]) -> None:
    unseen, question = job("prefill", "unseen", short=True), job("answer", "other")
    assert order([unseen, question], front) == [question, unseen]


def test_one_that_comes_to_the_front_is_no_longer_last() -> None:
    one, two, question = job("prefill", "one"), job("prefill", "two"), job("answer", "other")
    assert order([one, two, question], ("",)) == [question, one, two]
    assert order([one, two, question], ("two",)) == [two, question, one]
