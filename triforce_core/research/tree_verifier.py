"""What a model makes of a draft in which several tokens may follow one: the lossless step for trees.

As in ``speculation.verifier``, but where a sibling is refused p becomes the residual, norm(max(p - q, 0)), and the next
one is tried against that; after the last the residual is drawn from (SpecInfer, arXiv 2305.09781, algorithm 2, where
all were drawn from one q; Sequoia, arXiv 2402.12374, algorithm 2, where each q lacks the older siblings). Siblings are
reviewed exactly, whoever reviews.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ..sampling import Chance, Sampler, TensorChance
from ..speculation import tree
from ..speculation.draft import Draft, Verdict
from ..speculation.verifier import Verified, Verifier, drafted_probs, drawn_chance, odds_of
from . import tree_rows
from .tree_tensors import OnDevice, reject_tree_on_tensors


class Rows(Protocol):
    """The verifying model's distributions [V]: row 0 after the context, row i + 1 after drafted token i."""

    def __getitem__(self, row: int) -> Tensor: ...


class RowsOnDemand:
    """Of a tree most rows are never asked for, and each may cost a sort of the vocabulary."""

    def __init__(self, tails: tree_rows.Tails, logits: Tensor, context: Sequence[int], sampler: Sampler) -> None:
        self._tails, self._logits, self._context, self._sampler = tails, logits, context, sampler
        self._known: dict[int, Tensor] = {}

    def __getitem__(self, row: int) -> Tensor:
        if row not in self._known:
            self._known[row] = tree_rows.distributions(self._sampler, self._logits[row : row + 1], self._context,
                                                       [self._tails[row]])[0]
        return self._known[row]


def for_trees(chains: Verifier) -> Verifier:
    """Return a verifier of trees that leaves chains to the one given."""
    return partial(_verify_either, chains)


def _verify_either(chains: Verifier, draft: Draft, logits: Tensor, context: Sequence[int],
                   sampler: Sampler) -> Verified:
    return (verify if draft.parents else chains)(draft, logits, context, sampler)


def verify(draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler) -> Verified:
    """See ``speculation.verifier.verify``."""
    tails = tree.tails(draft.token_ids, draft.parents)
    if sampler.coupled:
        verdict = agree(draft, tree_rows.draws(sampler, logits, context, tails))
        return verdict, [None] * len(verdict.token_ids)
    target: Rows
    if logits.is_cuda:  # each decision on the host would wait for the device
        target = whole = tree_rows.distributions(sampler, logits, context, tails)
        chance = drawn_chance(sampler, whole)
        verdict = reject_at_once(draft, whole, chance, sampler.same)
    else:
        target = RowsOnDemand(tails, logits, context, sampler)
        verdict = reject(draft, target, sampler.chance)
    return verdict, [target[row] for row in (0, *(node + 1 for node in verdict.path))]


def agree(draft: Draft, own_draws: Sequence[int]) -> Verdict:
    """Keep the path that equals the model's own draws [n + 1]; then the model's own token."""
    families, row = tree.families(draft.parents), 0
    path: list[int] = []
    while True:
        own = own_draws[row]
        kept = next((node for node in families[row] if draft.token_ids[node] == own), None)
        if kept is None:
            return Verdict([*(draft.token_ids[node] for node in path), own], path, families[row])
        path.append(kept)
        row = kept + 1


def reject(draft: Draft, target: Rows, chance: Chance) -> Verdict:
    """Rejection against target, n + 1 rows; where a drafted token's distribution is None it is one-hot."""
    families, row = tree.families(draft.parents), 0
    path: list[int] = []
    while True:
        kept, p = None, target[row]
        for number, node in enumerate(families[row]):
            p = p / p.sum() if number else p
            token = draft.token_ids[node]
            q_token, residual = odds_of(token, p, draft.probs[node])
            if chance.happens(min(1.0, float(p[token]) / q_token)):
                kept = node
                break
            if float(residual.sum()) > 0.0:
                p = residual
            # else p = q up to rounding: a refusal there has probability zero but for the last bit.
        if kept is None:
            return Verdict([*(draft.token_ids[node] for node in path), chance.pick(p)], path, families[row])
        path.append(kept)
        row = kept + 1


def reject_at_once(draft: Draft, target: Tensor, chance: TensorChance,
                   same: Callable[[list[int]], list[int]] = list) -> Verdict:
    """``reject`` where the host waits once, for all decisions together. same: see ``Sampler``."""
    n = len(draft.token_ids)
    tokens = torch.tensor(draft.token_ids, dtype=torch.int64, device=target.device)
    probs = drafted_probs(tokens, draft.probs, target)
    shape = OnDevice.of(tuple(draft.parents), target.device)
    decided, residuals = reject_tree_on_tensors(tokens, shape, probs, target, chance)
    found, row = shape.walk(decided)
    *kept, token = same(torch.cat((found.long(), chance.pick(residuals.index_select(0, row)[0]))).tolist())
    path = [node for node in range(n) if kept[node]]
    last = path[-1] + 1 if path else 0
    return Verdict([*(draft.token_ids[node] for node in path), token], path, tree.families(draft.parents)[last])
