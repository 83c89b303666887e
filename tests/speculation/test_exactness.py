"""Losslessness, by exact enumeration of every random branch on toy distributions (total variation < 1e-12)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from speculation.probs import (
    BOUND,
    PARAMS,
    START,
    EvenAfterTwo,
    TwoAllowed,
    counted,
    deviation,
    due_counts,
    models,
    tiers,
)
from speculation.toy import Settling, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.sampling import Sampler
from triforce_core.speculation import verifier
from triforce_core.speculation.drafter import Draft, NoDrafter, Verdict
from triforce_core.speculation.model_drafter import QUOTE, ModelDrafter
from triforce_core.speculation.round import speculate


@pytest.mark.parametrize("params", PARAMS, ids=["T1", "T0.6 top-p 0.9", "T1.3 top-k 2"])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_one_tier_is_lossless(params, gamma, rejection):
    target, _, small = models()
    assert deviation(target, ModelDrafter(Settling(small)), gamma, params) < BOUND


@pytest.mark.parametrize("params", PARAMS, ids=["T1", "T0.6 top-p 0.9", "T1.3 top-k 2"])
@pytest.mark.parametrize(("gamma1", "gamma2"), [(0, 1), (0, 3), (1, 1), (1, 2), (2, 1), (2, 2)])
def test_three_tiers_are_lossless(params, gamma1, gamma2, rejection):
    target, retrieval, small = models()
    assert deviation(target, tiers(retrieval, small, gamma1), gamma2, params) < BOUND


def test_the_middle_tier_alone_emits_its_own_models_law():
    """Its drafts have the law that they claim: token and law agree, position by position."""
    _, retrieval, small = models()
    params = SamplingParams(temperature=1.0)
    token_probs = enumerate_exactly(
        lambda c: tuple(tiers(retrieval, small, 1).propose(START, 2, Sampler(params, chance=c)).token_ids[:2]))
    context_law = enumerate_exactly(
        lambda c: tuple(tiers(retrieval, small, 0).propose(START, 2, Sampler(params, chance=c)).token_ids))
    assert total_variation(token_probs, context_law) < BOUND


@pytest.mark.parametrize("gamma1", [0, 1, 3])
def test_the_middle_tier_counts_what_it_tested(gamma1):
    """Each of its steps ends with a token of its own, so who wrote what shows how many were accepted in each."""
    _, retrieval, small = models()
    seen = set()
    for seed in range(40):
        drafter = tiers(retrieval, small, gamma1)
        draft, stats = drafter.propose(START, 4, Sampler(replace(PARAMS[0], seed=seed))), drafter.stats()
        writers = "".join("r" if source == "retrieval" else "d" for source in draft.sources)
        due = [due_counts(len(run), gamma1) for run in writers.split("r")[:-1]]
        assert stats.passes["retrieval"] == len(due)
        assert counted(stats.counts) == (sum(tested for tested, _ in due), sum(accepted for _, accepted in due))
        seen |= set(due)
    assert len(seen) == gamma1 + 1  # all, some and none of them were accepted


def test_chances_are_of_the_row_that_decided_each_token():
    target, _, small = models()
    longest = 0
    for seed in range(20):
        context = list(START)
        done = speculate(target, ModelDrafter(Settling(small)), context, 3, Sampler(replace(PARAMS[0], seed=seed)),
                         alternatives=1)
        for token, (own, likeliest) in zip(done.verdict.token_ids, done.chances, strict=True):
            probs = target.row(context).softmax(-1)
            assert own == pytest.approx(float(probs[token]))
            assert likeliest == [(int(probs.argmax()), pytest.approx(float(probs.max())))]
            context.append(token)
        longest = max(longest, len(done.chances))
    assert longest > 2


def test_the_enumeration_sees_a_verifier_that_draws_from_p_instead_of_the_residual(monkeypatch):
    """The known defect of a published implementation: if this passed unseen, the tests above would prove nothing."""

    def from_p(draft: Draft, target: torch.Tensor, chance) -> Verdict:
        for i, token in enumerate(draft.token_ids):
            token_probs = draft.probs[i]
            q = 1.0 if token_probs is None else float(token_probs[token])
            if not chance.happens(min(1.0, float(target[i][token]) / q)):
                return Verdict([*draft.token_ids[:i], chance.pick(target[i])], range(i), [i])
        n = len(draft.token_ids)
        return Verdict([*draft.token_ids, chance.pick(target[n])], range(n), [])

    monkeypatch.setattr(verifier, "reject", from_p)
    target, retrieval, small = models()
    assert deviation(target, tiers(retrieval, small, 1), 2, PARAMS[0]) > 0.01


def test_deciding_on_the_whole_draft_keeps_more_of_it():
    """Against the same tests token by token, by exact enumeration (arXiv 2403.10444, theorem 1)."""
    target, _, small = models()

    def kept(verify) -> float:
        found = enumerate_exactly(lambda chance: (speculate(
            target, ModelDrafter(Settling(small)), START, 3, Sampler(PARAMS[0], chance=chance),
            verify=verify).verdict.num_accepted,))
        return sum(probability * count for (count,), probability in found.items())

    assert kept(verifier.verify) > 1.02 * kept(verifier.verify_tokens)


@pytest.mark.parametrize("scale", [0.9, 1.0])
def test_the_enumeration_sees_a_wrong_share_kept(scale, monkeypatch):
    """By a tenth, of a draft that is decided on as a whole."""
    exact = verifier.reject_block

    class Scaled:
        def __init__(self, chance) -> None:
            self.pick, self._happens = chance.pick, chance.happens

        def happens(self, probability: float) -> bool:
            return self._happens(scale * probability)

    monkeypatch.setattr(verifier, "reject_block", lambda draft, target, chance: exact(draft, target, Scaled(chance)))
    target, _, small = models()
    assert (deviation(target, ModelDrafter(Settling(small)), 3, PARAMS[0]) < BOUND) == (scale == 1.0)


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("masks", [EvenAfterTwo(), TwoAllowed()], ids=["forced", "two"])
@pytest.mark.parametrize("leaves_guided", [False, True])
def test_masks_and_forced_tokens_stay_lossless(params, masks, leaves_guided, rejection):
    """Constrained speculation has the law of constrained plain decoding."""
    target, retrieval, small = models()
    drafter = tiers(retrieval, small, 1, leaves_guided=leaves_guided)
    assert deviation(target, drafter, 2, params, masks) < BOUND


def test_a_small_model_may_leave_to_the_tier_above_what_the_document_forces():
    _, _, small = models()
    sampler, after_two = Sampler(SamplingParams(), masks=EvenAfterTwo()), [0, 2]
    whole, own = (ModelDrafter(Settling(small), leaves_guided=leaves) for leaves in (False, True))
    written = whole.propose(START, 6, sampler)
    assert QUOTE in written.sources
    assert own.propose(START, 6, sampler).token_ids == written.token_ids[: written.sources.index(QUOTE)]
    assert own.propose(after_two, 6, sampler).token_ids == []


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_deciding_by_draws_gives_the_same_words_with_and_without_speculation(temperature, seed):
    target, retrieval, small = models(vocabulary=12)
    params = SamplingParams(temperature=temperature, seed=seed)

    def words(drafter, gamma2):
        sampler = Sampler(params, verifier="coupled")
        context = list(START)
        while len(context) < 120:
            context.extend(speculate(target, drafter, context, gamma2, sampler).verdict.token_ids)
            drafter.settle(context, committed=True)
        return context[:120]

    assert words(tiers(retrieval, small, 2), 4) == words(NoDrafter(), 0)


@pytest.mark.parametrize("verifier", ["rejection", "coupled"])
@pytest.mark.parametrize("runs", [4_000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_sampled_frequencies_pass_a_chi_square_test(runs, verifier):
    """Seeded answers of two tokens against the exact law: the real generator and noise, not the enumeration."""
    target, retrieval, small = models(vocabulary=4)
    params = SamplingParams(temperature=1.0)
    token_probs: dict[tuple[int, int], float] = {}
    for a, p in enumerate(target.row(START).softmax(-1).tolist()):
        for b, q in enumerate(target.row([1, a]).softmax(-1).tolist()):
            token_probs[a, b] = p * q
    drafter, seen = tiers(retrieval, small, 1), Counter()
    sampler = Sampler(replace(params, seed=5))
    for seed in range(runs):
        if verifier == "coupled":  # a seed decides the whole answer
            sampler = Sampler(replace(params, seed=seed), verifier=verifier)
        context = list(START)
        while len(context) < 4:
            context.extend(speculate(target, drafter, context, 2, sampler).verdict.token_ids)
        seen[tuple(context[2:4])] += 1
    statistic = sum((seen[k] - runs * p) ** 2 / (runs * p) for k, p in token_probs.items())
    assert statistic < 37.7  # 15 degrees of freedom, p = 0.001
