"""Every way to combine drafters keeps the target's law, lenient reviews and copies too: every branch enumerated."""

from __future__ import annotations

import pytest
import torch
from speculation.probs import (
    BOUND,
    PARAMS,
    START,
    TEXT,
    EvenAfterTwo,
    TwoAllowed,
    completed,
    deviation,
    models,
    ngrams,
    plain_probs,
    proven_ngrams,
    tiers,
)
from speculation.toy import Settling, TableModel, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.research import lenience
from triforce_core.research.cascade import HorizontalCascade, with_ngrams
from triforce_core.research.lenience import lenient, lenient_probs, verify_leniently
from triforce_core.sampling import Sampler
from triforce_core.speculation.drafter import Draft, NoDrafter
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelDrafter
from triforce_core.speculation.prompt_lookup import PromptLookupDrafter, Router, TextIndex
from triforce_core.speculation.round import speculate


def cascades(retrieval: TableModel, small: TableModel) -> dict:
    """Every way to combine chains; each is made anew for each branch, as what n-grams measure is a state."""
    return {
        "small model": lambda: ModelDrafter(Settling(small)),
        "retrieval": lambda: tiers(retrieval, small, 0),
        "small model, retrieval": lambda: tiers(retrieval, small, 2),
        "small model, lenient retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), ModelDrafter(Settling(small)), 2, verify=lenient(2.0)),
        "n-grams, lenient small model, lenient retrieval": lambda: HierarchicalDrafter(
            Settling(retrieval), with_ngrams(Settling(small), TextIndex(TEXT), 1, lenient(3.0)), 1,
            verify=lenient(1.5)),
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
        "retrieval or n-grams": lambda: Router(tiers(retrieval, small, 1), ngrams(), 4, 2.0),
        "n-grams rather than retrieval": lambda: Router(tiers(retrieval, small, 1), ngrams(), 4, 9.0),
        "proven n-grams straight": lambda: Router(tiers(retrieval, small, 1), proven_ngrams(), 4, 9.0),
        "proven n-grams straight, of one length": lambda: Router(ModelDrafter(Settling(small)), proven_ngrams(), 4, 9.0,
                                                                 (2,)),
    }


CASCADES = list(cascades(*models()[1:]))


@pytest.mark.parametrize("lenience", [1.0, 1.5, 4.0, 100.0])
def test_what_passes_a_lenient_review_has_the_law_that_goes_up(lenience):
    """The paper's rule, by its own words, against the law that is told."""
    generator = torch.Generator().manual_seed(0)
    q, p = torch.rand(2, 5, generator=generator, dtype=torch.float64).softmax(-1).pow(4).softmax(-1)
    q = torch.tensor([0.7, 0.1, 0.1, 0.1, 0.0], dtype=torch.float64)
    told = lenient_probs(q[None], torch.stack((p, p)), lenience)
    passes = (lenience * p / q).clamp_max(1.0)
    residual = (p - q).clamp_min(0.0)
    review = q * passes + (1 - (q * passes).sum()) * residual / residual.sum()
    assert torch.allclose(told[0], review, atol=1e-12) and torch.equal(told[1], p)
    assert torch.allclose(told[0], p) == (lenience == 1.0)
    assert torch.allclose(lenient_probs(p[None], torch.stack((p, p)), lenience)[0], p)


def test_the_enumeration_sees_a_lenient_review_that_tells_its_models_law(monkeypatch):
    """Lenience would be lossy if its tokens went up as if they had been reviewed strictly."""
    def flattered(share, draft, logits, context, sampler):
        verdict, probs = verify_leniently(share, draft, logits, context, sampler)
        return verdict, list(sampler.distributions(logits, context, draft.token_ids)[: len(probs)])

    target, retrieval, small = models()
    drafter = cascades(retrieval, small)["small model, lenient retrieval"]
    assert deviation(target, drafter, 2, PARAMS[0]) < BOUND
    monkeypatch.setattr(lenience, "verify_leniently", flattered)
    assert deviation(target, drafter, 2, PARAMS[0]) > 0.01


@pytest.mark.parametrize("params", [PARAMS[0], SamplingParams(temperature=0.6), PARAMS[1]],
                         ids=["T1", "T0.6", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("name", CASCADES)
@pytest.mark.parametrize("gamma2", [1, 2])
def test_every_cascade_is_lossless(params, name, gamma2):
    target, retrieval, small = models()
    assert deviation(target, cascades(retrieval, small)[name], gamma2, params) < BOUND


@pytest.mark.parametrize("name", CASCADES)
@pytest.mark.parametrize("masked", ["forced", "two"])
def test_every_cascade_under_masks_and_beside_forced_tokens_is_lossless(name, masked):
    target, retrieval, small = models()
    masks = {"forced": EvenAfterTwo, "two": TwoAllowed}[masked]()
    assert deviation(target, cascades(retrieval, small)[name], 2, PARAMS[0], masks) < BOUND


def test_copies_may_be_decided_all_at_once(rejection):
    target, retrieval, small = models()
    for name in ("n-grams alone", "n-grams, small model", "n-grams, small model, n-grams behind",
                 "small model, lenient retrieval"):
        assert deviation(target, cascades(retrieval, small)[name], 2, PARAMS[0]) < BOUND


@pytest.mark.parametrize(("name", "most"), [("proven n-grams straight", 4),
                                            ("proven n-grams straight, of one length", 2)])
def test_proven_copies_write_rounds_alone(name, most):
    """Else the enumeration above would have shown nothing of them."""
    draft = cascades(*models()[1:])[name]().propose(TEXT, 2, Sampler(PARAMS[0]))
    assert draft.sources == ["n-gram"] * most


class Marked(Settling):
    """A model whose law follows from the text up to the last full verification, as that of a small model does which
    attends what the target attended then."""

    def __init__(self, *probs: TableModel) -> None:
        super().__init__(probs[0])
        self._probs, self._seen, self.switched = probs, 0, 0

    def agree(self, context) -> None:
        self._seen = sum(context)

    def commit(self) -> None:
        self.switched += self.model is not self._probs[self._seen % 2]
        self.model = self._probs[self._seen % 2]


@pytest.mark.parametrize("params", PARAMS[::2], ids=["T1", "T1.3 top-k 2"])
@pytest.mark.parametrize("middle", [False, True])
def test_a_small_model_that_attends_what_was_marked_changes_nothing(params, middle):
    """Over several rounds: what it attends changes between them, never the law of the text."""
    target, retrieval, small = models()
    switched = []

    def text(chance) -> tuple[int, ...]:
        marked, context = Marked(small, TableModel(3, 7)), list(START)
        drafter = ModelDrafter(marked)
        if middle:
            drafter = HierarchicalDrafter(Settling(retrieval), drafter, 1)
        sampler = Sampler(params, chance=chance)
        while len(context) < len(START) + 3:
            context += speculate(target, drafter, context, 1, sampler).verdict.token_ids
            drafter.settle(context, committed=True)
        switched.append(marked.switched)
        return tuple(context[len(START) :])

    texts = enumerate_exactly(text)
    longest = max(map(len, texts))
    token_probs, plain = completed(target, params, texts, longest), plain_probs(target, params, longest)
    assert total_variation(token_probs, plain) < BOUND and max(switched) > 0


def test_the_enumeration_sees_a_copy_that_is_taken_for_likely(monkeypatch):
    """If a verifier took an n-gram for drawn from its own law, every copy would be accepted."""
    proposed = PromptLookupDrafter.propose

    def sure(self, context, count, sampler):
        draft = proposed(self, context, count, sampler)
        probs = [torch.full((3,), 1e-9, dtype=torch.float64) for _ in draft.probs]
        return Draft(draft.token_ids, probs, draft.sources)

    monkeypatch.setattr(PromptLookupDrafter, "propose", sure)
    assert deviation(models()[0], ngrams, 2, PARAMS[0]) > 0.01


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
            copied += done.sources.count("n-gram")
            context.extend(done.verdict.token_ids)
            drafter.settle(context, committed=True)
        return context[:160], copied

    fast, copied = words(cascades(retrieval, small)[name](), 4)
    assert fast == words(NoDrafter(), 0)[0]
    # At temperature 0 the text goes in a circle that the tiers between do not see.
    assert copied > 0 or "n-grams" not in name or temperature == 0
