"""The controller on recorded answers, against every fixed pair of lengths and plain decoding. No model, no clock."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import exp, log

import pytest

from tests.tuning.replay import MEASURED, ON_A_GPU, TEMPERATURES, WORKLOADS, Replay, Trace
from triforce_core.engine.pacing import QUOTING, hopes
from triforce_core.kernels import ALIKE_ROWS
from triforce_core.tuning.acceptance import Acceptance
from triforce_core.tuning.controller import Choice, Controller, Ways

GAMMA1S, GAMMA2S = (0, 1, 2, 3, 4, 6), (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28)
USUAL = Choice(2, 10)
CELLS = list(product(WORKLOADS, TEMPERATURES))


def seeds(temperature: float) -> range:
    return range(6 if temperature else 1)


@cache
def fixed(workload: str, temperature: float, lengths: Choice) -> float:
    """Milliseconds per token."""
    traces = Trace.of(workload, temperature)
    spent = [Replay(trace, seed).spend(lengths) for seed in seeds(temperature) for trace in traces]
    return sum(spent) / len(seeds(temperature)) / sum(map(len, traces))


@cache
def chosen(workload: str, temperature: float) -> float:
    """The same, lengths chosen as the engine does: above temperature 0 each answer learns from nothing."""
    traces, spent = Trace.of(workload, temperature), 0.0
    for seed in seeds(temperature):
        made = controller(workload, temperature)
        if not temperature:
            Replay(traces[0], seed).spend(made)  # as a benchmark's warm-up
        for trace in traces:
            made = controller(workload, temperature) if temperature else made
            spent += Replay(trace, seed).spend(made)
    return spent / len(seeds(temperature)) / sum(map(len, traces))


def controller(workload: str, temperature: float) -> Controller:
    hoped = QUOTING if workload == "questions" else hopes("retrieval", temperature)
    ways = Ways(GAMMA1S, GAMMA2S, True, True, ALIKE_ROWS - 1)
    return Controller(MEASURED, ways, Acceptance(hoped), clocks=False)


def best(workload: str, temperature: float) -> float:
    return min(fixed(workload, temperature, Choice(*lengths)) for lengths in product(GAMMA1S, GAMMA2S))


def mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


@pytest.mark.parametrize(("workload", "temperature"), CELLS)
def test_near_the_best_fixed_lengths_wherever_they_are(workload, temperature):
    """The best of 66 was chosen with knowledge of the answer, and of so few rounds partly by luck."""
    assert best(workload, temperature) > 0.9 * chosen(workload, temperature)


@pytest.mark.parametrize(("temperature", "share", "gain"), [(0.0, 0.97, 1.15), (0.6, 0.93, 1.05), (1.0, 0.93, 1.05)])
def test_over_five_workloads_they_beat_the_usual_lengths(temperature, share, gain):
    assert mean([best(name, temperature) / chosen(name, temperature) for name in WORKLOADS]) > share
    assert mean([fixed(name, temperature, USUAL) / chosen(name, temperature) for name in WORKLOADS]) > gain


@pytest.mark.parametrize(("workload", "temperature"), CELLS)
def test_never_slower_than_plain_decoding_nor_much_than_the_usual_lengths(workload, temperature):
    assert chosen(workload, temperature) < MEASURED.plain / 0.97
    assert chosen(workload, temperature) < fixed(workload, temperature, USUAL) / 0.95


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_where_rows_cost_little_a_quotation_is_drafted_whole(temperature):
    """How far forced runs reach is known roughly; drafts that end within one cost a round more."""
    traces, lengths = Trace.of("questions", temperature), list(product((1, 2, 4), (2, 4, 6, 8, 12, 16, 24, 32)))
    ways, mine = Ways((1, 2, 4), (2, 4, 6, 8, 12, 16, 24, 32), True, True), 0.0
    made = Controller(ON_A_GPU, ways, Acceptance(QUOTING), clocks=False)
    for trace in traces:
        mine += Replay(trace, 0, ON_A_GPU).spend(made)
    theirs = min(sum(Replay(trace, 0, ON_A_GPU).spend(Choice(*pair)) for trace in traces) for pair in lengths)
    assert theirs > 0.93 * mine


def test_there_is_something_to_choose():
    """No fixed pair of lengths is good everywhere, or the tests above would show little."""
    pairs = [Choice(*lengths) for lengths in product(GAMMA1S, GAMMA2S)]
    worst = {lengths: min(best(*cell) / fixed(*cell, lengths) for cell in CELLS) for lengths in pairs}
    assert max(worst.values()) < 0.85
