"""The controller on worlds with stated odds and stated costs: it finds the best lengths, rests, and comes back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from triforce_core.speculation.draft_length import Candidates, Controller, Costs, Prior, RoundSeen, Selection, can_pay
from triforce_core.speculation.draft_length_selector import ERROR_RATES

LENGTHS = (2, 4, 6, 8, 12, 16, 24)
FLAT = ((1, 20.0), (33, 24.0))


class World:
    """Tokens are right with one chance ``a``, those of the tier below with ``b``; times are exact."""

    def __init__(self, a: float, b: float, *, plain: float = 20.0, verify: tuple = FLAT,
                 small: float = 1.0, retrieval: float = 3.0, seed: int = 0, gamma1: int = 2) -> None:
        self.a, self.b = a, b
        self.gamma1 = gamma1
        self.costs = Costs(plain, verify, small * gamma1 + retrieval, 1.0)
        self._chance = random.Random(seed)

    def round(self, choice: Selection) -> tuple[int, float, RoundSeen]:
        """Tokens, milliseconds, and what the controller is shown."""
        if not choice.gamma2:
            seen = RoundSeen(choice, [], 0, 0, 0, self.costs.plain)
            return 1, self.costs.plain, seen
        drafted = steps = 0
        while drafted < choice.gamma2:
            steps += 1
            drafted += self._run(self.b, self.gamma1) + 1
        accepted = self._run(self.a, drafted)
        drafting, verifying = steps * self.costs.step, self.costs.verifying(drafted + 1)
        seen = RoundSeen(choice, [False] * drafted, min(accepted + 1, drafted), accepted, steps,
                         drafting + verifying + self.costs.choose)
        return accepted + 1, drafting + verifying + self.costs.choose, seen

    def _run(self, chance: float, most: int) -> int:
        run = 0
        while run < most and self._chance.random() < chance:
            run += 1
        return run

    def rate(self, controller: Controller | Selection, tokens: int) -> float:
        """Tokens per second over about so many."""
        written, spent = 0, 0.0
        while written < tokens:
            choice = controller if isinstance(controller, Selection) else controller.next()
            more, milliseconds, seen = self.round(choice)
            if isinstance(controller, Controller):
                controller.learn(seen)
            written, spent = written + more, spent + milliseconds
        return 1e3 * written / spent

    def best_fixed(self, tokens: int = 20_000) -> float:
        return max(self.rate(Selection(gamma2), tokens) for gamma2 in LENGTHS)


def controller(world: World, *, gamma2s=LENGTHS, may_rest=True, hope=0.9, clocks=True):
    prior = Prior(hope, 1.0 + 0.5 * world.gamma1)
    return Controller(world.costs, Candidates(gamma2s, may_rest), prior, clocks=clocks)


@pytest.mark.parametrize(("a", "b"), [(0.98, 0.8), (0.95, 0.2), (0.9, 0.6), (0.7, 0.2), (0.5, 0.5)])
def test_within_a_few_percent_of_the_best_fixed_lengths(a, b):
    world = World(a, b)
    assert world.rate(controller(world), 20_000) > 0.95 * max(world.best_fixed(), 1e3 / world.costs.plain)


@pytest.mark.parametrize(("step", "gamma1", "pays"), [(1.0, 0, True), (17.0, 0, False), (17.0, 2, True),
                                                      (60.0, 2, False)])
def test_whether_drafts_can_pay_at_all(step, gamma1, pays):
    """A step writes a token, and where a small model is below up to gamma1 more."""
    costs, lengths = Costs(20.0, FLAT, step, 1.0), Candidates(LENGTHS, True)
    assert can_pay(costs, lengths, gamma1 + 1) is pays
    assert can_pay(costs, lengths, gamma1 + 1, 0.97) >= pays, "no more than to be as quick, where that is known"
    assert not can_pay(costs, lengths, 1, 0.05)


@pytest.mark.parametrize("a", [0.0, 0.1, 0.3])
def test_hardly_slower_than_plain_decoding_where_no_draft_pays(a):
    world = World(a, 0.2, retrieval=15.0)
    assert world.rate(controller(world), 2_000) > 0.97 * 1e3 / world.costs.plain
    assert world.rate(Selection(8), 2_000) < 0.9 * 1e3 / world.costs.plain  # or there was nothing to avoid


@pytest.mark.parametrize("a", [0.6, 0.65, 0.7])
def test_luck_is_not_taken_for_gain_where_drafts_just_pay_or_just_do_not(a):
    """The best of many noisy estimates is too good: what drafts really brought decides there."""
    world = World(a, 0.1, plain=8.4, verify=((3, 8.6), (33, 9.8)), small=0.15, retrieval=3.1)
    assert world.rate(controller(world), 10_000) > 0.97 * 1e3 / world.costs.plain


def test_one_long_draft_that_fails_does_not_end_drafting():
    world = World(0.985, 0.9, plain=8.4, verify=((3, 8.6), (33, 9.8)), small=0.15, retrieval=3.1)
    made = controller(world)
    rests = 0
    for _ in range(400):
        choice = made.next()
        rests += choice.gamma2 == 0
        made.learn(world.round(choice)[2])
    assert rests < 20
    assert made.why().startswith(f"the next draft would have {made.next().gamma2} tokens: a full pass over one token "
                                 "takes 8.4 ms")


def test_it_rests_and_comes_back_when_the_text_changes():
    world = World(0.0, 0.2, retrieval=10.0)
    made = controller(world)
    world.rate(made, 300)
    choices = []
    for _ in range(100):
        choices.append(made.next())
        made.learn(world.round(choices[-1])[2])
    drafting = [i for i, choice in enumerate(choices) if choice.gamma2]
    assert 0 < len(drafting) < 25  # seldom, but it tries
    for i in drafting:  # and what it then drafts from was chosen just before
        assert i == 0 or choices[i - 1].observed
    assert sum(choice.observed for choice in choices) <= 2 * len(drafting) + 1
    world.a = 0.97
    world.rate(made, 400)
    assert world.rate(made, 4_000) > 0.93 * world.best_fixed()


def test_one_stop_changes_little_but_a_slower_machine_does():
    world = World(0.95, 0.5)
    made = controller(world)
    world.rate(made, 4_000)
    calm = made.next()
    seen = world.round(calm)[2]
    slow = replace(seen, milliseconds=50 * seen.milliseconds)
    made.learn(slow)
    assert abs(made.next().gamma2 - calm.gamma2) <= 4
    for _ in range(20):
        made.learn(slow)
    assert made.next().gamma2 < calm.gamma2 or made.next().gamma2 == 0


def test_without_clocks_the_same_rounds_decide_the_same():
    chosen = []
    for slowness in (1.0, 7.0):
        world = World(0.9, 0.5, seed=4)
        made = controller(world, clocks=False)
        lengths = []
        for number in range(60):
            choice = made.next()
            seen = world.round(choice)[2]
            lengths.append(choice.gamma2)
            made.learn(replace(seen, milliseconds=seen.milliseconds * (slowness if number % 3 else 1.0)))
        chosen.append(lengths)
    assert chosen[0] == chosen[1] and len(set(chosen[0])) > 1


def test_forced_tokens_are_neither_drafted_nor_doubted():
    """Three in four tokens of each draft come from the document; the others are seldom right."""
    made = controller(World(0.5, 0.5), hope=0.5)
    for _ in range(200):
        made.learn(RoundSeen(Selection(8), [False, True, True, True] * 2, 1, 0, 2, 30.0))
    assert made.right.value < 0.1 and made._forced.value == pytest.approx(2.0, rel=0.01)  # the verdict's own counts
    for _ in range(200):
        made.learn(RoundSeen(Selection(8), [True] * 8, 8, 8, 0, 30.0))
    assert made.right.weight < 0.1  # nothing new is known of what is really drafted


def test_costs_between_and_beyond_what_was_measured():
    costs = Costs(9.0, ((1, 10.0), (5, 14.0), (9, 12.0)), 1.0)
    # A wider pass is never quicker.
    assert [costs.verifying(rows) for rows in (0, 1, 3, 5, 7, 9, 90)] == [10, 10, 12, 14, 14, 14, 14]
    assert Costs(9.0, ((3, 7.0),), 1.0).verifying(50) == 7.0


def test_a_dear_step_between_quotations_has_to_pay():
    """Most tokens are the document's. Where steps and rows are cheap all of it is drafted; dear steps end drafts."""
    for small, ends in ((1.0, False), (16.0, True)):
        made = Controller(World(0.6, 0.5, small=small).costs, Candidates(LENGTHS, True),
                          Prior(0.6, 1.75, 6.0, ERROR_RATES[1]), clocks=False)
        choice = made.next()
        assert choice.gamma2 and (choice.keep_going is not None) == ends
        if choice.keep_going is not None:
            assert not choice.keep_going([0.2, 0.2, 0.2], 3, 1, 0)
