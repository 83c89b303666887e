"""Short answers: each is the middle of its repeats, and the same questions are asked in every one."""

from __future__ import annotations

import pytest

from triforce_core.bench import short_answers
from triforce_core.bench.short_answers import FAST, PLAIN, Timed
from triforce_core.config import SamplingParams


@pytest.mark.parametrize(("repeats", "rate"), [(1, 20.0), (3, 30.0)])
def test_the_middle_of_the_repeats_counts(monkeypatch, repeats, rate):
    asked = []

    def answer(engine, question, sampling, kind):
        asked.append((question, kind))
        seconds = {PLAIN: [1.0], FAST: [0.5, 1 / 3, 0.1]}[kind]
        tokens = 2 if question == "Short?" else 10
        spent = seconds[(asked.count((question, kind)) - 1) % len(seconds)]
        return Timed(tokens, 0.1, spent, spent, 0.0, ())

    monkeypatch.setattr(short_answers, "answer", answer)
    pairs = short_answers.measure(None, ["One?", "Short?", "Two?", "Three?"], 2, SamplingParams(), 5, repeats)
    assert [pair.question for pair in pairs] == ["One?", "Two?"]
    assert [pair.fast.rate for pair in pairs] == pytest.approx([rate, rate])
    assert asked.count(("Short?", FAST)) == 1 and asked.count(("One?", FAST)) == repeats
    assert ("Three?", FAST) not in asked
