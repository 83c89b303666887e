"""Losslessness, by exact enumeration of every random branch on toy distributions (total variation < 1e-12)."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from speculation.toy import Settling, TableModel, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.drafters.cascade import HorizontalCascade, with_ngrams
from triforce_core.drafters.chain import ModelDrafter
from triforce_core.drafters.either import Either
from triforce_core.drafters.hierarchical import HierarchicalDrafter
from triforce_core.drafters.ngram import NGramDrafter, TextIndex
from triforce_core.sampling import Sampler
from triforce_core.speculation import round as rounds
from triforce_core.speculation import verifier
from triforce_core.speculation.draft import Draft, Verdict
from triforce_core.speculation.drafter import NoDrafter
from triforce_core.speculation.lenience import lenient_laws
from triforce_core.speculation.round import speculate
from triforce_core.tuning.acceptance import Acceptance
from triforce_core.tuning.controller import Controller, RoundSeen, Ways
from triforce_core.tuning.costs import Costs, Curve

BOUND = 1e-12
START = [0, 1]


def models(vocabulary: int = 3) -> tuple[TableModel, TableModel, TableModel]:
    target = TableModel(vocabulary, 1)
    retrieval = TableModel(vocabulary, 2, like=target, blend=0.6)
    return target, retrieval, TableModel(vocabulary, 3, like=target, blend=0.2)


def tiers(retrieval: TableModel, small: TableModel, gamma1: int):
    return HierarchicalDrafter(Settling(retrieval), ModelDrafter(Settling(small)), gamma1)


TEXT = [0, 2, 1, 1, 0, 0, 2, 1]  # what n-grams copy to its end (1, 0) is as likely to be refused as not


def ngrams() -> NGramDrafter:
    return NGramDrafter(TextIndex(TEXT))


def cascades(retrieval: TableModel, small: TableModel) -> dict:
    """Every way to combine chains; each is made anew for each branch, as what n-grams measure is a state."""
    return {
        "small model": lambda: ModelDrafter(Settling(small)),
        "retrieval": lambda: tiers(retrieval, small, 0),
        "small model, retrieval": lambda: tiers(retrieval, small, 2),
        "small model, lenient retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), ModelDrafter(Settling(small)), 2, lenience=2.0),
        "n-grams, lenient small model, lenient retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), with_ngrams(Settling(small), TextIndex(TEXT), 1, 3.0), 1, lenience=1.5),
        "n-grams alone": ngrams,
        "n-grams, small model": lambda: with_ngrams(Settling(small), TextIndex(TEXT), 0),
        "n-grams, small model, n-grams behind": lambda: with_ngrams(Settling(small), TextIndex(TEXT), 1),
        "n-grams, retrieval": lambda: HierarchicalDrafter(Settling(retrieval), ngrams(), 2),
        "n-grams, small model, retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), with_ngrams(Settling(small), TextIndex(TEXT), 0), 1),
        "n-grams, small model, n-grams behind, retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), with_ngrams(Settling(small), TextIndex(TEXT), 1), 1),
        "small model beside retrieval": lambda: HorizontalCascade(
            HierarchicalDrafter(Settling(retrieval), ngrams(), 1), ModelDrafter(Settling(small)), 1),
        "retrieval or n-grams": lambda: Either(tiers(retrieval, small, 1), ngrams(), 4, 2.0),
        "n-grams rather than retrieval": lambda: Either(tiers(retrieval, small, 1), ngrams(), 4, 9.0),
    }


CASCADES = list(cascades(*models()[1:]))


def one_round(target, drafter, gamma2: int, params: SamplingParams, chance, masks=None) -> tuple[int, ...]:
    sampler = Sampler(params, chance=chance, masks=masks)
    made, context = (drafter(), TEXT) if callable(drafter) else (drafter, START)
    return tuple(speculate(target, made, list(context), gamma2, sampler).verdict.token_ids)


def completed(target, params, rounds: dict, length: int, masks=None, start=START) -> dict:
    """The law of the first ``length`` tokens if what a round left open is filled in by the target itself.

    Every round starts from a true context, so by induction the whole text has the target's law if and only if
    this equals it."""
    sampler, law = Sampler(params, masks=masks), {}
    waiting = list(rounds.items())
    while waiting:
        tokens, probability = waiting.pop()
        if len(tokens) >= length:
            law[tokens[:length]] = law.get(tokens[:length], 0.0) + probability
            continue
        context = [*start, *tokens]
        row = sampler.distributions(target.logits(context, ()), context)[0].tolist()
        waiting.extend(((*tokens, token), probability * p) for token, p in enumerate(row) if p > 0)
    return law


def plain_law(target, params, length: int, masks=None, start=START) -> dict:
    return completed(target, params, {(): 1.0}, length, masks, start)


def deviation(target, drafter, gamma2, params, masks=None) -> float:
    rounds = enumerate_exactly(lambda chance: one_round(target, drafter, gamma2, params, chance, masks))
    length = max(map(len, rounds))
    assert length >= min(gamma2, 2)  # the drafts were really tested
    start = TEXT if callable(drafter) else START
    return total_variation(completed(target, params, rounds, length, masks, start),
                           plain_law(target, params, length, masks, start))


class OnTensors:
    """A ``TensorChance`` over one that walks every branch."""

    def __init__(self, chance) -> None:
        self._chance = chance

    def happens(self, probabilities: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self._chance.happens(p) for p in probabilities.tolist()], dtype=torch.bool)

    def pick(self, weights: torch.Tensor) -> torch.Tensor:
        rows = weights.view(-1, weights.shape[-1])
        return torch.tensor([self._chance.pick(row) if row.sum() > 0 else 0 for row in rows])


@pytest.fixture(params=["one by one", "at once"])
def rejection(request, monkeypatch) -> None:
    """Both ways to decide by chance: on the host, and all at once where the odds are."""
    if request.param == "at once":
        monkeypatch.setattr(verifier, "reject", lambda draft, target, chance: verifier.reject_at_once(
            draft, torch.stack([target[row] for row in range(len(draft.token_ids) + 1)]), OnTensors(chance)))


PARAMS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9),
          SamplingParams(temperature=1.3, top_k=2)]


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
    """What the outer verifier is told about the draft is true: token and law agree, position by position."""
    _, retrieval, small = models()
    params = SamplingParams(temperature=1.0)
    law = enumerate_exactly(
        lambda c: tuple(tiers(retrieval, small, 1).propose(START, 2, Sampler(params, chance=c)).token_ids[:2]))
    context_law = enumerate_exactly(
        lambda c: tuple(tiers(retrieval, small, 0).propose(START, 2, Sampler(params, chance=c)).token_ids))
    assert total_variation(law, context_law) < BOUND


def test_the_enumeration_sees_a_verifier_that_draws_from_p_instead_of_the_residual(monkeypatch):
    """The known defect of a published implementation: if this passed unseen, the tests above would prove nothing."""

    def from_p(draft: Draft, target: torch.Tensor, chance) -> Verdict:
        for i, token in enumerate(draft.token_ids):
            law = draft.laws[i]
            q = 1.0 if law is None else float(law[token])
            if not chance.happens(min(1.0, float(target[i][token]) / q)):
                return Verdict([*draft.token_ids[:i], chance.pick(target[i])], range(i), [i])
        n = len(draft.token_ids)
        return Verdict([*draft.token_ids, chance.pick(target[n])], range(n), [])

    monkeypatch.setattr(verifier, "reject", from_p)
    target, retrieval, small = models()
    assert deviation(target, tiers(retrieval, small, 1), 2, PARAMS[0]) > 0.01


@pytest.mark.parametrize("lenience", [1.0, 1.5, 4.0, 100.0])
def test_what_passes_a_lenient_review_has_the_law_that_goes_up(lenience):
    """The paper's rule, by its own words, against the law that is told."""
    generator = torch.Generator().manual_seed(0)
    q, p = torch.rand(2, 5, generator=generator, dtype=torch.float64).softmax(-1).pow(4).softmax(-1)
    q = torch.tensor([0.7, 0.1, 0.1, 0.1, 0.0], dtype=torch.float64)
    told = lenient_laws(q[None], torch.stack((p, p)), lenience)
    passes = (lenience * p / q).clamp_max(1.0)
    residual = (p - q).clamp_min(0.0)
    review = q * passes + (1 - (q * passes).sum()) * residual / residual.sum()
    assert torch.allclose(told[0], review, atol=1e-12) and torch.equal(told[1], p)
    assert torch.allclose(told[0], p) == (lenience == 1.0)
    assert torch.allclose(lenient_laws(p[None], torch.stack((p, p)), lenience)[0], p)


def test_the_enumeration_sees_a_lenient_review_that_tells_its_models_law(monkeypatch):
    """Lenience would be lossy if its tokens went up as if they had been reviewed strictly."""
    honest = rounds.verify

    def flattered(draft, logits, context, sampler, lenience=1.0):
        verdict, laws = honest(draft, logits, context, sampler, lenience)
        if lenience > 1.0:
            laws = list(sampler.distributions(logits, context, draft.token_ids)[: len(laws)])
        return verdict, laws

    target, retrieval, small = models()
    drafter = cascades(retrieval, small)["small model, lenient retrieval"]
    assert deviation(target, drafter, 2, PARAMS[0]) < BOUND
    monkeypatch.setattr(rounds, "verify", flattered)
    assert deviation(target, drafter, 2, PARAMS[0]) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_lenience_lets_more_pass(temperature):
    """From every context of two tokens, so that what was written before does not matter."""
    _, retrieval, small = models(vocabulary=12)
    kept = []
    for lenience in (1.0, 8.0, 100.0):
        drafter = HierarchicalDrafter(Settling(retrieval), ModelDrafter(Settling(small)), 2, lenience=lenience)
        sampler = Sampler(SamplingParams(temperature=temperature, seed=2))
        for context in product(range(12), repeat=2):
            drafter.propose(list(context), 1, sampler)
        kept.append(sum(count.accepted for count in drafter.counts()))
    assert kept[0] < kept[1] < kept[2]


class EvenAfterTwo:
    """A mask with a state: after token 2 only token 0 may follow (so it is forced)."""

    def allowed(self, context, draft):
        whole = [*context, *draft]
        ends = [whole[len(context) + i - 1] for i in range(len(draft) + 1)]
        return [np.array([0]) if end == 2 else None for end in ends]

    def prior(self, context, draft):
        return [None] * (len(draft) + 1)

    def forced(self, context, limit):
        return [0][:limit] if context[-1] == 2 else []


class Leaning(EvenAfterTwo):
    """Everywhere else two tokens may follow, and a prior prefers the second by 1.5 nats."""

    def allowed(self, context, draft):
        return [np.array([0, 1]) if ids is None else ids for ids in super().allowed(context, draft)]

    def prior(self, context, draft):
        return [np.array([0.0, 1.5]) if len(ids) == 2 else None for ids in self.allowed(context, draft)]


@pytest.mark.parametrize("params", [PARAMS[0], SamplingParams(temperature=0.6), PARAMS[1]],
                         ids=["T1", "T0.6", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("name", CASCADES)
@pytest.mark.parametrize("gamma2", [1, 2])
def test_every_cascade_is_lossless(params, name, gamma2):
    target, retrieval, small = models()
    assert deviation(target, cascades(retrieval, small)[name], gamma2, params) < BOUND


@pytest.mark.parametrize("name", CASCADES)
@pytest.mark.parametrize("masked", ["forced", "prior"])
def test_every_cascade_under_masks_and_beside_forced_tokens_is_lossless(name, masked):
    target, retrieval, small = models()
    masks = {"forced": EvenAfterTwo, "prior": Leaning}[masked]()
    assert deviation(target, cascades(retrieval, small)[name], 2, PARAMS[0], masks) < BOUND


def test_copies_may_be_decided_all_at_once(rejection):
    target, retrieval, small = models()
    for name in ("n-grams alone", "n-grams, small model", "n-grams, small model, n-grams behind",
                 "small model, lenient retrieval"):
        assert deviation(target, cascades(retrieval, small)[name], 2, PARAMS[0]) < BOUND


def test_the_enumeration_sees_a_copy_that_is_taken_for_likely(monkeypatch):
    """If a verifier took an n-gram for drawn from its own law, every copy would be accepted."""
    proposed = NGramDrafter.propose

    def sure(self, context, count, sampler):
        draft = proposed(self, context, count, sampler)
        laws = [torch.full((3,), 1e-9, dtype=torch.float64) for _ in draft.laws]
        return Draft(draft.token_ids, laws, draft.origins)

    monkeypatch.setattr(NGramDrafter, "propose", sure)
    assert deviation(models()[0], ngrams, 2, PARAMS[0]) > 0.01


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("masks", [EvenAfterTwo(), Leaning()], ids=["forced", "prior"])
def test_masks_and_forced_tokens_stay_lossless(params, masks, rejection):
    """Constrained speculation has the law of constrained plain decoding."""
    target, retrieval, small = models()
    assert deviation(target, tiers(retrieval, small, 1), 2, params, masks) < BOUND


def test_a_prior_is_added_to_the_logits_of_what_is_allowed():
    law = Sampler(PARAMS[0], masks=Leaning()).distributions(torch.tensor([[0.3, -0.2, 5.0]]), [1])[0]
    assert torch.allclose(law, torch.tensor([*torch.tensor([0.3, 1.3]).softmax(-1), 0.0]))


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


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("name", CASCADES)
def test_deciding_by_draws_gives_plain_decodings_words_with_every_cascade(temperature, name):
    target, retrieval, small = models(vocabulary=12)
    params = SamplingParams(temperature=temperature, seed=3)

    def words(drafter, gamma2):
        sampler = Sampler(params, verifier="coupled")
        context, copied = list(TEXT), 0
        while len(context) < 160:
            done = speculate(target, drafter, context, gamma2, sampler)
            copied += done.origins.count("n-gram")
            context.extend(done.verdict.token_ids)
            drafter.settle(context, committed=True)
        return context[:160], copied

    fast, copied = words(cascades(retrieval, small)[name](), 4)
    assert fast == words(NoDrafter(), 0)[0]
    # At temperature 0 the text goes in a circle that the tiers between do not see.
    assert copied > 0 or "n-grams" not in name or temperature == 0


def adaptive(target, retrieval, small, chance, params, length: int, cheat: bool = False) -> tuple[int, ...]:
    """Rounds whose lengths a controller chooses by how the rounds before fared; at least ``length`` tokens."""
    costs = Costs(2.0, Curve(((1, 2.0), (9, 2.2))), {0: 0.5, 1: 0.6}, 0.0)
    controller = Controller(costs, Ways((0, 1), (1, 2), True, True), Acceptance(0.5), clocks=False)
    drafter, sampler, context = tiers(retrieval, small, 1), Sampler(params, chance=chance), list(START)
    while len(context) - len(START) < length:
        choice = controller.next()
        drafter.gamma1 = choice.gamma1
        if cheat:
            done = speculate(target, Cheating(drafter), context, choice.gamma2, sampler)
        else:
            done = speculate(target, drafter, context, choice.gamma2, sampler)
        context += done.verdict.token_ids
        below = drafter.counts()
        controller.learn(RoundSeen(choice, [False] * len(done.draft.token_ids), done.verdict.num_tested,
                                   done.verdict.num_accepted, drafter.passes()["retrieval"],
                                   (sum(c.tested for c in below), sum(c.accepted for c in below)), 1.0, 1.0, 0.0))
    return tuple(context[len(START) :])


class Cheating(NoDrafter):
    """A length that is decided by the tokens it cuts off: 0 is never handed up."""

    def __init__(self, drafter) -> None:
        self.drafter, self.tier = drafter, drafter.tier

    def propose(self, context, num_draft_tokens, sampler):
        draft = self.drafter.propose(context, num_draft_tokens, sampler)
        return draft.first(draft.token_ids.index(0)) if 0 in draft.token_ids else draft


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
def test_lengths_chosen_by_the_past_are_lossless(params):
    target, retrieval, small = models()
    rounds = enumerate_exactly(lambda chance: adaptive(target, retrieval, small, chance, params, 3))
    lengths = {len(tokens) for tokens in rounds}
    assert max(lengths) > 3  # rounds of more than one token
    law = completed(target, params, rounds, max(lengths))
    assert total_variation(law, plain_law(target, params, max(lengths))) < BOUND


def test_the_enumeration_sees_a_length_that_knows_its_own_tokens():
    target, retrieval, small = models()
    rounds = enumerate_exactly(lambda chance: adaptive(target, retrieval, small, chance, PARAMS[0], 2, cheat=True))
    length = max(map(len, rounds))
    law = completed(target, PARAMS[0], rounds, length)
    assert total_variation(law, plain_law(target, PARAMS[0], length)) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_lengths_chosen_by_the_past_change_no_word_when_deciding_by_draws(temperature):
    target, retrieval, small = models(vocabulary=12)
    params = SamplingParams(temperature=temperature, seed=3)
    sampler, context = Sampler(params, verifier="coupled"), list(START)
    while len(context) < 150:
        context += speculate(target, NoDrafter(), context, 0, sampler).verdict.token_ids
    chosen = adaptive(target, retrieval, small, Sampler(params).chance, params, 148) if not temperature else None
    costs = Costs(2.0, Curve(((1, 2.0), (9, 3.0))), {0: 1.0, 2: 1.5}, 0.1)
    controller = Controller(costs, Ways((0, 2), (1, 2, 4), True, True), Acceptance(0.5), clocks=True)
    drafter, sampler, text, asked = tiers(retrieval, small, 1), Sampler(params, verifier="coupled"), list(START), set()
    while len(text) < 150:
        choice = controller.next()
        asked.add(choice.gamma2)
        drafter.gamma1 = choice.gamma1
        done = speculate(target, drafter, text, choice.gamma2, sampler)
        text += done.verdict.token_ids
        drafter.settle(text, committed=True)
        controller.learn(RoundSeen(choice, [False] * len(done.draft.token_ids), done.verdict.num_tested,
                                   done.verdict.num_accepted, drafter.passes()["retrieval"], (0, 0), 1.0, 1.0, 0.0))
    assert text[:150] == context[:150] and len(asked) > 1
    assert chosen is None or list(chosen[:148]) == context[2:150]


def test_sampled_frequencies_pass_a_chi_square_test():
    """20,000 seeded answers of two tokens against the exact law: the real generator, not the enumeration."""
    target, retrieval, small = models(vocabulary=4)
    params = SamplingParams(temperature=1.0)
    law: dict[tuple[int, int], float] = {}
    for a, p in enumerate(target.row(START).softmax(-1).tolist()):
        for b, q in enumerate(target.row([1, a]).softmax(-1).tolist()):
            law[a, b] = p * q
    runs, drafter, seen = 20_000, tiers(retrieval, small, 1), Counter()
    sampler = Sampler(SamplingParams(temperature=1.0, seed=5))
    assert params.temperature == sampler.params.temperature
    for _ in range(runs):
        context = list(START)
        while len(context) < 4:
            context.extend(speculate(target, drafter, context, 2, sampler).verdict.token_ids)
        seen[tuple(context[2:4])] += 1
    statistic = sum((seen[k] - runs * p) ** 2 / (runs * p) for k, p in law.items())
    assert statistic < 37.7  # 15 degrees of freedom, p = 0.001
