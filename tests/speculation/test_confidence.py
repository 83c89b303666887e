"""The worth of confidence is assumed, then learnt; drafts end where it says that another step does not pay."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from triforce_core.speculation.draft_length import Candidates, Controller, Costs, Prior, RoundSeen, Selection

ASSUMED = (0.3, 0.12, 0.06, 0.04, 0.02, 0.005)
COSTS = Costs(20.0, ((1, 20.0), (33, 24.0)), 3.0, 1.0)
LENGTHS = (2, 4, 6, 8, 12, 16, 24, 32)


class Patches:
    """Text in patches: for a while each token is right and its tier sure of it, then neither for some."""

    def __init__(self, easy: int, hard: int, chance: float, told: bool = True, seed: int = 0) -> None:
        self._period, self._easy, self._odds, self._told = easy + hard, easy, chance, told
        self._chance, self._place = random.Random(seed), 0

    def round(self, choice: Selection) -> tuple[int, float, RoundSeen]:
        sure: list[float] = []
        while len(sure) < choice.gamma2 and (choice.keep_going is None or not sure
                                             or choice.keep_going(sure, len(sure), len(sure), 0)):
            sure.append(self._sure(self._place + len(sure)))
        count, accepted = len(sure), 0
        while accepted < count and self._right(self._place + accepted):
            accepted += 1
        drafting, verifying = count * COSTS.step, COSTS.verifying(count + 1) if count else COSTS.plain
        self._place += accepted + 1
        seen = RoundSeen(choice, [False] * count, min(accepted + 1, count), accepted, count,
                         drafting + verifying + 1.0, sure)
        return accepted + 1, drafting + verifying + 1.0, seen

    def rate(self, lengths: Selection | Controller, tokens: int) -> float:
        """Tokens per millisecond."""
        written, spent = 0, 0.0
        while written < tokens:
            more, milliseconds, seen = self.round(lengths if isinstance(lengths, Selection) else lengths.next())
            if isinstance(lengths, Controller):
                lengths.learn(seen)
            written, spent = written + more, spent + milliseconds
        return written / spent

    def _easy_at(self, place: int) -> bool:
        return place % self._period < self._easy

    def _sure(self, place: int) -> float:
        return (0.99 if self._easy_at(place) else 0.2) if self._told else 0.6

    def _right(self, place: int) -> bool:
        return self._easy_at(place) or self._chance.random() < self._odds


def controller(*, confident: bool = True, hope: float = 0.9) -> Controller:
    return Controller(COSTS, Candidates(LENGTHS, True), Prior(hope, errors=ASSUMED if confident else ()), clocks=False)


def taught(*rounds: tuple[list[float], int, int]) -> list[float]:
    """Return a controller's errors of each row after rounds of (confidence, tested, accepted)."""
    made = controller()
    for sure, tested, accepted in rounds:
        made.learn(RoundSeen(Selection(len(sure)), [False] * len(sure), tested, accepted, 1, 1.0, sure))
    return made._errors


def test_errors_are_the_assumed_ones_until_something_was_seen():
    assert taught() == pytest.approx(ASSUMED)


def test_a_row_that_is_seen_often_is_known_by_itself():
    errors = taught(*[([0.99, 0.2], 2, 1 if number % 2 else 2) for number in range(200)])
    assert errors[0] == pytest.approx(0.5, abs=0.1) and errors[-1] < 0.01


def test_what_is_refused_anywhere_raises_all_errors():
    errors = taught(*[([0.95], 1, 0)] * 10)
    assert errors[0] > 2 * ASSUMED[0] or errors[0] == 1.0
    assert all(now > before for now, before in zip(errors, ASSUMED, strict=True))


def test_what_was_not_tested_teaches_nothing():
    assert taught(([0.99, 0.2, 0.99, 0.99], 2, 1)) == taught(([0.99, 0.2], 2, 1))


def test_drafts_end_where_the_text_gets_hard_and_beat_every_fixed_length():
    best = max(Patches(20, 6, 0.2).rate(Selection(length), 20_000) for length in LENGTHS)
    blind = Patches(20, 6, 0.2).rate(controller(confident=False), 20_000)
    assert Patches(20, 6, 0.2).rate(controller(), 20_000) > 1.2 * max(best, blind)


def test_sureness_that_tells_nothing_costs_little():
    best = max(Patches(9, 3, 0.3, told=False).rate(Selection(length), 20_000) for length in LENGTHS)
    assert Patches(9, 3, 0.3, told=False).rate(controller(), 20_000) > 0.93 * best


def test_no_draft_pays_and_it_rests_though_its_tier_is_sure():
    """Sureness alone is no proof."""
    hard = Patches(0, 10, 0.05)
    hard._sure = lambda place: 0.99
    assert hard.rate(controller(), 3_000) > 0.96 * 1.0 / (COSTS.plain + 1.0)


def test_steps_under_way_are_reckoned_with():
    made = controller()
    for _ in range(60):
        made.learn(Patches(20, 6, 0.2).round(made.next())[2])
    keep_going = made.next().keep_going
    assert keep_going is not None
    ends = [next(n for n in range(1, 200) if not keep_going([0.8] * n, n, n, under_way)) for under_way in (0, 1, 8)]
    assert ends[0] >= ends[1] >= ends[2] and ends[0] > ends[2]


def test_where_the_longest_draft_costs_nothing_it_is_always_made():
    cheap = replace(COSTS, plain=1000.0, verify=((1, 1000.0), (33, 1001.0)))
    choice = Controller(cheap, Candidates(LENGTHS, True), Prior(0.9, errors=ASSUMED), clocks=False).next()
    assert choice.gamma2 == max(LENGTHS) and choice.keep_going([0.99] * 31, 31, 31, 0)
