"""The lossless step for trees: a draft in which several tokens may follow one.

As in ``speculation.verifier``, but where a sibling is refused p becomes the residual, norm(max(p - q, 0)), and the next
one is tried against that; after the last the residual is drawn from (SpecInfer, arXiv 2305.09781, algorithm 2, where
all were drawn from one q; Sequoia, arXiv 2402.12374, algorithm 2, where each q lacks the older siblings).

Letters: n drafted tokens, V vocabulary; row 0 is what came before them, row i + 1 token i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from ..sampling import Chance, Sampler, TensorChance
from ..speculation import tree
from ..speculation.drafter import Draft, Verdict
from ..speculation.verifier import Verified, Verifier, drafted_probs, drawn_chance, odds_of

Tails = Sequence[Sequence[int]]  # of each row of logits: the drafted tokens between the context and it


def distributions(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails) -> Tensor:
    """Return ``Sampler.distributions`` of logits [m, V]: no row depends on what it follows unless the host leads."""
    if not sampler.host_leads:
        return sampler.distributions(logits, context)
    return _by_row(sampler.distributions, logits, context, tails)


def scores(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails) -> Tensor:
    """Return ``Sampler.scores`` of logits [m, V]; rows at one position share their noise."""
    if not sampler.host_leads and sampler.kind.greedy:
        return sampler.scores(logits, context)
    return _by_row(sampler.scores, logits, context, tails)


def _by_row(asked: Callable[[Tensor, Sequence[int]], Tensor], logits: Tensor, context: Sequence[int],
            tails: Tails) -> Tensor:
    return torch.cat([asked(logits[row : row + 1], [*context, *tail]) for row, tail in enumerate(tails)])


class RowsOnDemand(dict[int, Tensor]):
    """Compute a row [V] when it is first asked for: of a tree most never are, and each may cost a sort."""

    def __init__(self, asked: Callable[[int], Tensor]) -> None:
        super().__init__()
        self._asked = asked

    def __missing__(self, row: int) -> Tensor:
        self[row] = self._asked(row)
        return self[row]


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
        drawn: list[int] = scores(sampler, logits, context, tails).argmax(-1).tolist()
        verdict = agree(draft, drawn if sampler.kind.greedy else sampler.same(drawn))
        return verdict, [None] * len(verdict.token_ids)
    target: Tensor | RowsOnDemand
    if logits.is_cuda:  # each decision on the host would wait for the device
        target = distributions(sampler, logits, context, tails)
        verdict = reject_at_once(draft, target, drawn_chance(sampler, target), sampler.same)
    else:
        target = RowsOnDemand(lambda row: distributions(sampler, logits[row : row + 1], context, [tails[row]])[0])
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


def reject(draft: Draft, target: Tensor | RowsOnDemand, chance: Chance) -> Verdict:
    """Test siblings against target, n + 1 rows; where a drafted token's distribution is None it is one-hot."""
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
    """Do ``reject``; the host waits once, for all decisions together. same: see ``Sampler``."""
    tokens = torch.tensor(draft.token_ids, dtype=torch.int64, device=target.device)
    probs = drafted_probs(tokens, draft.probs, target)
    shape = ShapeOnDevice.of(tuple(draft.parents), target.device)
    decided, residuals = reject_tree_on_tensors(tokens, shape, probs, target, chance)
    found, row = shape.walk(decided)
    *kept, token = same(torch.cat((found.long(), chance.pick(residuals.index_select(0, row)[0]))).tolist())
    path = [node for node, is_kept in enumerate(kept) if is_kept]
    last = path[-1] + 1 if path else 0
    return Verdict([*(draft.token_ids[node] for node in path), token], path, tree.families(draft.parents)[last])


@dataclass(frozen=True, slots=True)
class ShapeOnDevice:
    """Hold a tree's shape as numbers on a device.

    by_rank: of all first, all second ... siblings the tokens and the rows that they follow, int64 each. above, older:
    bool [n, n], whether token i follows token j or is it, and whether j is an older sibling of i."""

    by_rank: tuple[tuple[Tensor, Tensor], ...]
    above: Tensor
    older: Tensor

    @staticmethod
    @lru_cache(maxsize=16)
    def of(parents: tuple[int, ...], device: torch.device) -> ShapeOnDevice:
        above, ranks = np.array(parents), np.array(tree.ranks(parents))
        members = [np.flatnonzero(ranks == rank) for rank in range(ranks.max() + 1)]
        with torch.inference_mode(False):  # kept from one round to the next
            return ShapeOnDevice(
                tuple((torch.from_numpy(nodes).to(device), torch.from_numpy(above[nodes] + 1).to(device))
                      for nodes in members),
                torch.from_numpy(tree.ancestry(parents)).to(device),
                torch.from_numpy(older_siblings(parents)).to(device))

    def walk(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return bool [n], which tokens are on the path, and int64 [1], the row at which it ends.

        kept [n]: of each token, whether it is if its turn comes."""
        first = kept & ~(self.older & kept).any(1)
        path = ~(self.above & ~first).any(1)
        rows = torch.arange(1, len(path) + 1, device=path.device)
        return path, (path * rows).amax(0, keepdim=True)


def older_siblings(parents: Sequence[int]) -> np.ndarray:
    """Return bool [n, n]: token j is an older sibling of token i."""
    above, ranks = np.array(parents), np.array(tree.ranks(parents))
    older: np.ndarray = (above[:, None] == above[None, :]) & (ranks[:, None] > ranks[None, :])
    return older


def reject_tree_on_tensors(drafted: Tensor, shape: ShapeOnDevice, probs: Tensor, target: Tensor,
                           chance: TensorChance) -> tuple[Tensor, Tensor]:
    """Do ``reject`` for all families side by side: drafted [n] from probs [n, V] against target [n + 1, V].

    -1 stands for what was not drafted. Return bool [n], whether each is kept if its turn comes, and [n + 1, V], what
    each row's own token is drawn from when all its children are refused. As in ``reject_on_tensors``, every test is
    made."""
    odds, residuals = target.new_zeros(len(drafted)), target.clone()
    for nodes, rows in shape.by_rank:
        p, q, token = residuals[rows], probs[nodes], drafted[nodes]
        there, at = token >= 0, token.clamp_min(0)[:, None]
        odds[nodes] = torch.where(there, (p.gather(1, at) / q.gather(1, at)).squeeze(1).clamp_max(1.0), 0.0)
        left = (p - q).clamp_min(0.0)
        total = left.sum(1, keepdim=True)
        residuals[rows] = torch.where(there[:, None] & (total > 0.0), left / total, p)
    return chance.happens(odds), residuals
