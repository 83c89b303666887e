"""The controller on recorded answers, against every fixed pair of lengths and plain decoding. No model, no clock."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import exp, log

import pytest

from tests.speculation.replay import (
    MEASURED,
    ON_A_GPU,
    STEPS,
    STEPS_ON_A_GPU,
    TEMPERATURES,
    WORKLOADS,
    Replay,
    Trace,
)
from triforce_core.kernels import BATCH_INVARIANT_ROWS
from triforce_core.speculation.draft_length import Candidates, Controller, Selection
from triforce_core.speculation.draft_length_selector import expected_prior

GAMMA2S = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28)
LENGTHS = (2, 4, 6, 8, 12, 16, 24, 32)  # on a GPU
CHAIN, CHAIN_ON_A_GPU = 2, 4
USUAL = CHAIN, 10  # gamma1, gamma2
CELLS = list(product(WORKLOADS, TEMPERATURES))


def seeds(temperature: float) -> range:
    return range(6 if temperature else 1)


@cache
def fixed(workload: str, temperature: float, gamma1: int, gamma2: int) -> float:
    """Milliseconds per token."""
    traces = Trace.of(workload, temperature)
    costs = replace(MEASURED, step=STEPS[gamma1])
    spent = [Replay(trace, seed, costs, gamma1).spend(Selection(gamma2))
             for seed in seeds(temperature) for trace in traces]
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


def controller(workload: str, temperature: float, *, on_a_gpu: bool = False, confident: bool = True) -> Controller:
    gamma1, lengths, most = (CHAIN_ON_A_GPU, LENGTHS, None) if on_a_gpu else (CHAIN, GAMMA2S, BATCH_INVARIANT_ROWS - 1)
    prior = expected_prior("retrieval", gamma1, temperature, quotes=workload == "questions", confident=confident)
    return Controller(ON_A_GPU if on_a_gpu else MEASURED, Candidates(lengths, True, most), prior, clocks=False)


def best(workload: str, temperature: float) -> float:
    return min(fixed(workload, temperature, *lengths) for lengths in product(STEPS, GAMMA2S))


def mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


@pytest.mark.parametrize(("workload", "temperature"), CELLS)
def test_near_the_best_fixed_lengths_wherever_they_are(workload, temperature):
    """The best of 66 was chosen with knowledge of the answer, and of so few rounds partly by luck."""
    assert best(workload, temperature) > 0.9 * chosen(workload, temperature)


@pytest.mark.parametrize(("temperature", "share", "gain"), [(0.0, 1.0, 1.15), (0.6, 0.94, 1.05), (1.0, 0.94, 1.05)])
def test_over_five_workloads_they_beat_the_usual_lengths(temperature, share, gain):
    assert mean([best(name, temperature) / chosen(name, temperature) for name in WORKLOADS]) > share
    assert mean([fixed(name, temperature, *USUAL) / chosen(name, temperature) for name in WORKLOADS]) > gain


@pytest.mark.parametrize(("workload", "temperature"), CELLS)
def test_never_slower_than_plain_decoding_nor_much_than_the_usual_lengths(workload, temperature):
    assert chosen(workload, temperature) < MEASURED.plain / 0.97
    assert chosen(workload, temperature) < fixed(workload, temperature, *USUAL) / 0.95


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_where_rows_cost_little_a_quotation_is_drafted_whole(temperature):
    """The reach of forced runs is known roughly; drafts that end within one cost a round more."""
    traces, lengths = Trace.of("questions", temperature), list(product(STEPS_ON_A_GPU, LENGTHS))
    made, mine = controller("questions", temperature, on_a_gpu=True), 0.0
    cases = list(product(seeds(temperature), traces))
    for seed, trace in cases:
        mine += Replay(trace, seed, ON_A_GPU, CHAIN_ON_A_GPU).spend(made)
    theirs = min(sum(Replay(trace, seed, replace(ON_A_GPU, step=STEPS_ON_A_GPU[gamma1]), gamma1).spend(
        Selection(gamma2)) for seed, trace in cases) for gamma1, gamma2 in lengths)
    assert theirs > 0.93 * mine


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("on_a_gpu", [False, True], ids=["CPU", "GPU"])
def test_ending_drafts_where_they_are_unsure_earns_its_place(temperature, on_a_gpu):
    """Over all texts that are no quotations, against the same controller without it."""
    gains = []
    costs, gamma1 = (ON_A_GPU, CHAIN_ON_A_GPU) if on_a_gpu else (MEASURED, CHAIN)
    for workload in (name for name in WORKLOADS if name != "questions"):
        spent = []
        for confident in (False, True):
            spent.append(0.0)
            for seed, trace in product(seeds(temperature), Trace.of(workload, temperature)):
                made = controller(workload, temperature, on_a_gpu=on_a_gpu, confident=confident)
                spent[-1] += Replay(trace, seed, costs, gamma1).spend(made)
        gains.append(spent[0] / spent[1])
    assert mean(gains) > (1.02 if temperature == 0 else 1.01)


def test_there_is_something_to_choose():
    """No fixed pair of lengths is good everywhere, or the tests above would show little."""
    pairs = list(product(STEPS, GAMMA2S))
    worst = {lengths: min(best(*cell) / fixed(*cell, *lengths) for cell in CELLS) for lengths in pairs}
    assert max(worst.values()) < 0.85
