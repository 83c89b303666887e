"""Lengths that a controller chooses by the past keep the target's law and words, and so do drafts that end where their
tier is no longer sure; lengths by the tokens that they cut off would not."""

from __future__ import annotations

import pytest
from speculation.probs import BOUND, PARAMS, START, completed, models, plain_probs, tiers
from speculation.toy import enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.sampling import Sampler
from triforce_core.speculation.draft_length import Candidates, Controller, Costs, Prior, RoundSeen
from triforce_core.speculation.drafter import NoDrafter
from triforce_core.speculation.round import speculate

ERROR_RATES = (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


def adaptive(target, retrieval, small, chance, params, length: int, *, cheat: bool = False,
             errors: tuple[float, ...] = ()) -> tuple[int, ...]:
    """Rounds whose lengths a controller chooses by how the rounds before fared; at least ``length`` tokens."""
    costs = Costs(2.0, ((1, 2.0), (9, 2.2)), 0.6, 0.0)
    controller = Controller(costs, Candidates((1, 2), True), Prior(0.5, 1.5, errors=errors), clocks=False)
    drafter, sampler, context = tiers(retrieval, small, 1), Sampler(params, chance=chance), list(START)
    while len(context) - len(START) < length:
        choice = controller.next()
        drafter.keep_going = choice.keep_going
        if cheat:
            done = speculate(target, Cheating(drafter), context, choice.gamma2, sampler)
        else:
            done = speculate(target, drafter, context, choice.gamma2, sampler)
        context += done.verdict.token_ids
        stats = drafter.stats()
        controller.learn(RoundSeen(choice, [False] * len(done.draft.token_ids), done.verdict.num_tested,
                                   done.verdict.num_accepted, stats.passes["retrieval"], 2.0,
                                   done.draft.confidence))
    return tuple(context[len(START) :])


class Cheating(NoDrafter):
    """A length that is decided by the tokens it cuts off: 0 is never handed up."""

    def __init__(self, drafter) -> None:
        self.drafter, self.tier = drafter, drafter.tier

    def propose(self, context, num_draft_tokens, sampler):
        draft = self.drafter.propose(context, num_draft_tokens, sampler)
        return draft.first(draft.token_ids.index(0)) if 0 in draft.token_ids else draft


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("confident", [False, True])
def test_lengths_chosen_by_the_past_are_lossless(params, confident):
    target, retrieval, small = models()
    rounds = enumerate_exactly(lambda chance: adaptive(target, retrieval, small, chance, params, 3,
                                                       errors=ERROR_RATES if confident else ()))
    lengths = {len(tokens) for tokens in rounds}
    assert max(lengths) > 3  # rounds of more than one token
    token_probs = completed(target, params, rounds, max(lengths))
    assert total_variation(token_probs, plain_probs(target, params, max(lengths))) < BOUND


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("middle", [True, False])
def test_drafts_that_end_where_their_tier_is_not_sure_are_lossless(params, middle):
    target, retrieval, small = models()
    drafter, drafted = tiers(retrieval, small, 1) if middle else tiers(retrieval, small, 1).drafter, set()
    found: list[float] = []

    def always(confidence, num_drafted, steps, under_way):
        assert num_drafted == len(confidence)
        found.extend(confidence[1:2])
        return True

    def a_round(chance):
        sampler = Sampler(params, chance=chance)
        done = speculate(target, drafter, list(START), 3, sampler)
        drafted.add(len(done.draft.token_ids))
        assert len(done.draft.confidence) == len(done.draft.token_ids)
        return tuple(done.verdict.token_ids)

    drafter.keep_going = always
    enumerate_exactly(a_round)
    least = sorted(set(found))[(len(set(found)) - 1) // 2]
    drafter.keep_going = lambda confidence, *_: len(confidence) == 1 or confidence[-1] > least
    drafted.clear()
    rounds = enumerate_exactly(a_round)
    length = max(map(len, rounds))
    assert len(drafted) > 1  # some went on, some did not
    token_probs = completed(target, params, rounds, length)
    assert total_variation(token_probs, plain_probs(target, params, length)) < BOUND


def test_the_enumeration_sees_a_length_that_knows_its_own_tokens():
    target, retrieval, small = models()
    rounds = enumerate_exactly(lambda chance: adaptive(target, retrieval, small, chance, PARAMS[0], 2, cheat=True))
    length = max(map(len, rounds))
    token_probs = completed(target, PARAMS[0], rounds, length)
    assert total_variation(token_probs, plain_probs(target, PARAMS[0], length)) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_lengths_chosen_by_the_past_change_no_word_when_deciding_by_draws(temperature):
    target, retrieval, small = models(vocabulary=12)
    params = SamplingParams(temperature=temperature, seed=3)
    sampler, context = Sampler(params, verifier="coupled"), list(START)
    while len(context) < 150:
        context += speculate(target, NoDrafter(), context, 0, sampler).verdict.token_ids
    chosen = adaptive(target, retrieval, small, Sampler(params).chance, params, 148) if not temperature else None
    costs = Costs(2.0, ((1, 2.0), (9, 3.0)), 1.5, 0.1)
    controller = Controller(costs, Candidates((1, 2, 4), True), Prior(0.5, 1.5, errors=ERROR_RATES), clocks=True)
    drafter, sampler, text, asked = tiers(retrieval, small, 1), Sampler(params, verifier="coupled"), list(START), set()
    while len(text) < 150:
        choice = controller.next()
        asked.add(choice.gamma2)
        drafter.keep_going = choice.keep_going
        done = speculate(target, drafter, text, choice.gamma2, sampler)
        text += done.verdict.token_ids
        drafter.settle(text, committed=True)
        controller.learn(RoundSeen(choice, [False] * len(done.draft.token_ids), done.verdict.num_tested,
                                   done.verdict.num_accepted, drafter.stats().passes["retrieval"], 2.0,
                                   done.draft.confidence))
    assert text[:150] == context[:150] and len(asked) > 1
    assert chosen is None or list(chosen[:148]) == context[2:150]


@pytest.mark.parametrize("dearer", [1.0, 5.0])
def test_drafts_that_take_longer_than_was_measured_end_where_times_are_compared(dearer: float) -> None:
    """With much else to do a machine measured a drafted token at a fifth of what it takes, and answers at 0.7x."""
    costs = Costs(10.0, ((1, 10.0), (32, 12.0)), 2.0)
    controller = Controller(costs, Candidates((2, 4, 8), True), Prior(0.9), clocks=False, compares=True)
    drafted = 0
    for number in range(60):
        choice = controller.next()
        assert number >= 2 or choice.gamma2 == 0
        length, load = choice.gamma2, 3.0 + number % 2  # whatever else the machine does
        steps = 2.0 * dearer * length
        took = (costs.verifying(length + 1) + steps if length else 10.0) * load
        controller.learn(RoundSeen(choice, [False] * length, length, length, length, took))
        drafted += length > 0
    assert drafted > 50 if dearer == 1 else drafted < 20
