"""Short answers: each is the middle of its repeats, and the same questions are asked in every one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.steady_engine import FAST, PLAIN

from triforce_core.bench import short_answers
from triforce_core.bench.measure import Answer
from triforce_core.config import SamplingParams
from triforce_core.metrics import answer_stats

STATS = answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine=FAST, why="")


@pytest.mark.parametrize(("repeats", "rate"), [(1, 20.0), (3, 30.0)])
def test_the_middle_of_the_repeats_counts(monkeypatch, repeats, rate):
    asked = []

    def answer(engine, question, sampling, speculation):
        asked.append((question, speculation.engine))
        rates = {PLAIN: [10.0], FAST: [20.0, 30.0, 100.0]}[speculation.engine]
        own = rates[(asked.count((question, speculation.engine)) - 1) % len(rates)]
        return Answer((1,) * (2 if question == "Short?" else 10), replace(STATS, decode_tokens_per_second=own), {}, {})

    monkeypatch.setattr(short_answers, "answer", answer)
    pairs = short_answers.measure(None, ["One?", "Short?", "Two?", "Three?"], 2, SamplingParams(), 5, repeats)
    assert list(pairs) == ["One?", "Two?"]
    assert [fast.stats.decode_tokens_per_second for _, fast in pairs.values()] == pytest.approx([rate, rate])
    assert asked.count(("Short?", FAST)) == 1 and asked.count(("One?", FAST)) == repeats
    assert ("Three?", FAST) not in asked
    found = short_answers.summary(0.0, pairs)
    assert found["speedup"] == found["speedup_of_all_time"] == pytest.approx(rate / 10) and found["answers"] == 2
