"""The law of rounds of toy models, by exact enumeration, beside the law of plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from speculation.toy import Settling, TableModel, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.events import TierCount
from triforce_core.research.tree_verifier import for_trees
from triforce_core.sampling import Sampler
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelDrafter
from triforce_core.speculation.prompt_lookup import PromptLookupDrafter, TextIndex
from triforce_core.speculation.round import speculate
from triforce_core.speculation.verifier import verify

BOUND = 1e-12
ANY_SHAPE = for_trees(verify)  # of drafts
START = [0, 1]
TEXT = [0, 2, 1, 1, 0, 0, 2, 1]  # what n-grams copy to its end (1, 0) is as likely to be refused as not
PARAMS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9),
          SamplingParams(temperature=1.3, top_k=2)]


def models(vocabulary: int = 3) -> tuple[TableModel, TableModel, TableModel]:
    target = TableModel(vocabulary, 1)
    retrieval = TableModel(vocabulary, 2, like=target, blend=0.6)
    return target, retrieval, TableModel(vocabulary, 3, like=target, blend=0.2)


def tiers(retrieval: TableModel, small: TableModel, gamma1: int, *, leaves_guided: bool = False):
    below = ModelDrafter(Settling(small), leaves_guided=leaves_guided)
    return HierarchicalDrafter(Settling(retrieval), below, gamma1)


def ngrams() -> PromptLookupDrafter:
    return PromptLookupDrafter(TextIndex(TEXT))


def proven_ngrams() -> PromptLookupDrafter:
    """Copies that have been right so often that they may write alone."""
    copies = ngrams()
    for kind in range(8):
        copies.estimator.learn(kind, 40, 36)
    return copies


def one_round(target, drafter, gamma2: int, params: SamplingParams, chance, masks=None, start=START) -> tuple[int, ...]:
    sampler = Sampler(params, chance=chance, masks=masks)
    made = drafter() if callable(drafter) else drafter
    done = speculate(target, made, list(start), gamma2, sampler, verify=ANY_SHAPE)
    if not done.draft.parents:
        drafted, accepted = done.draft.token_ids, len(done.verdict.token_ids) - 1
        assert done.verdict.token_ids[:accepted] == drafted[:accepted]
        assert counted(done.counts(["one"] * len(drafted))) == due_counts(accepted, len(drafted))
    return tuple(done.verdict.token_ids)


def due_counts(accepted: int, drafted: int) -> tuple[int, int]:
    """Return a chain's (tested, accepted) tokens: behind the first refusal nothing was tested."""
    return min(accepted + 1, drafted), accepted


def counted(counts: Sequence[TierCount]) -> tuple[int, int]:
    """Return (tested, accepted) tokens of all tiers."""
    return sum(count.tested for count in counts), sum(count.accepted for count in counts)


def completed(target, params, rounds: dict, length: int, masks=None, start=START) -> dict:
    """The law of the first ``length`` tokens if what a round left open is filled in by the target itself.

    Every round starts from a true context, so by induction the whole text has the target's law if and only if
    this equals it."""
    sampler, token_probs = Sampler(params, masks=masks), {}
    waiting = list(rounds.items())
    while waiting:
        tokens, probability = waiting.pop()
        if len(tokens) >= length:
            token_probs[tokens[:length]] = token_probs.get(tokens[:length], 0.0) + probability
            continue
        context = [*start, *tokens]
        row = sampler.distributions(target.logits(context, ()), context)[0].tolist()
        waiting.extend(((*tokens, token), probability * p) for token, p in enumerate(row) if p > 0)
    return token_probs


def plain_probs(target, params, length: int, masks=None, start=START) -> dict:
    return completed(target, params, {(): 1.0}, length, masks, start)


def deviation(target, drafter, gamma2, params, masks=None, start=None) -> float:
    """Total variation between a round's law and the target's.

    drafter: one, or what makes one anew for each branch (which then begins at ``TEXT``, for n-grams to copy)."""
    start = start or (TEXT if callable(drafter) else START)
    rounds = enumerate_exactly(lambda chance: one_round(target, drafter, gamma2, params, chance, masks, start))
    length = max(map(len, rounds))
    assert length >= min(gamma2, 2)  # the drafts were really tested
    return total_variation(completed(target, params, rounds, length, masks, start),
                           plain_probs(target, params, length, masks, start))


class OnTensors:
    """A ``TensorChance`` over one that walks every branch."""

    def __init__(self, chance) -> None:
        self._chance = chance

    def happens(self, probabilities: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self._chance.happens(p) for p in probabilities.tolist()], dtype=torch.bool)

    def pick(self, weights: torch.Tensor) -> torch.Tensor:
        rows = weights.view(-1, weights.shape[-1])
        return torch.tensor([self._chance.pick(row) if row.sum() > 0 else 0 for row in rows])


class EvenAfterTwo:
    """A mask with a state: after token 2 only token 0 may follow (so it is forced)."""

    def allowed(self, context, draft):
        whole = [*context, *draft]
        ends = [whole[len(context) + i - 1] for i in range(len(draft) + 1)]
        return [np.array([0]) if end == 2 else None for end in ends]

    def guided(self, context, limit):
        return [0][:limit] if context[-1] == 2 else []


class TwoAllowed(EvenAfterTwo):
    """Everywhere else two tokens may follow."""

    def allowed(self, context, draft):
        return [np.array([0, 1]) if ids is None else ids for ids in super().allowed(context, draft)]
