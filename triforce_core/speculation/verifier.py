"""THE lossless step: what a model makes of a draft.

p is the verifying model's distribution, q the distribution a token was *actually drawn from*. Rejection
(Leviathan et al., arXiv 2211.17192, appendix A.1; Chen et al., arXiv 2302.01318): accept x with
min(1, p(x)/q(x)); at the first refusal draw from norm(max(p - q, 0)); after the last acceptance draw from the
next p. Where siblings were drafted, p becomes the residual, norm(max(p - q, 0)), and the next one is tried against it;
after the last the residual is drawn from (SpecInfer, arXiv 2305.09781, algorithm 2, where all were drawn from one q;
Sequoia, arXiv 2402.12374, algorithm 2, where each q lacks the older siblings). Coupled (arXiv 2408.07978): the model
draws each position itself, with noise that the seed and the position decide, and keeps the path that agrees.

Either way each emitted token is distributed exactly as the verifying model's, so a round is itself a valid
drafter for the round above it. That is the whole hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..sampling import Chance, DrawnChance, Sampler, TensorChance
from .draft import Draft, Verdict
from .staged_tensors import OnDevice


class Rows(Protocol):
    """The verifying model's distributions [V]: row 0 after the context, row i + 1 after drafted token i."""

    def __getitem__(self, row: int) -> Tensor: ...


class Review(Protocol):
    """What a tier that only drafts may put in the place of the exact review of a chain. Its tokens then have the
    probabilities that it says, and the tier above is told those, so that the target's stay exact."""

    def probs(self, drafted: Tensor, target: Tensor) -> Tensor:
        """[n + 1, V] that the draft, of ``drafted`` [n, V], is tested against, in the place of ``target``."""
        ...

    def draws(self, token_ids: Tensor, own_draws: Tensor, logits: Tensor) -> Tensor:
        """Coupled: int64 [n + 1], what counts as the tier's own draws [n + 1] over token_ids [n]."""
        ...


def drafted_probs(token_ids: Tensor, probs: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """[n, V]: what each of token_ids [n] was drawn from, one-hot where it was not drawn; like [.., V]: device and
    type."""
    found = torch.zeros(len(probs), like.shape[-1], dtype=like.dtype, device=like.device)
    if any(row is not None for row in probs):
        found = torch.stack([found[0] if row is None else row.to(like) for row in probs])
    one_hot = torch.tensor([row is None for row in probs], dtype=like.dtype, device=like.device)
    return found.scatter_add_(1, token_ids[:, None], one_hot[:, None])


class RowsOnDemand:
    """Of a tree most rows are never asked for, and each may cost a sort of the vocabulary."""

    def __init__(self, draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler) -> None:
        self._tails, self._logits, self._context, self._sampler = draft.tails, logits, context, sampler
        self._known: dict[int, Tensor] = {}

    def __getitem__(self, row: int) -> Tensor:
        if row not in self._known:
            assert self._tails is not None
            asked = self._sampler.distributions(self._logits[row : row + 1], self._context, tails=[self._tails[row]])
            self._known[row] = asked[0]
        return self._known[row]


def verify(draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler,
           review: Review | None = None) -> tuple[Verdict, list[Tensor | None]]:
    """logits [n + 1, V]: the verifying model's, after ``context`` and after each drafted token. review: of a tier that
    only drafts; None: the exact one. Chains alone have another: siblings are reviewed exactly.

    Returns the verdict and the distribution of each of its tokens (a tier above needs it as its draft's ``probs``)."""
    assert len(logits) == len(draft.token_ids) + 1
    own_review = review if draft.token_ids and not draft.parents else None
    drafted = torch.tensor(draft.token_ids if own_review else [], dtype=torch.int64, device=logits.device)
    if sampler.coupled:
        own = sampler.draws(logits, context, draft.token_ids, draft.tails)
        if own_review is not None:
            drawn = torch.tensor(own, device=logits.device)
            own = sampler.same(own_review.draws(drafted, drawn, logits).tolist())
        verdict = agree(draft, own)
        return verdict, [None] * len(verdict.token_ids)
    target: Rows
    if logits.is_cuda or not draft.parents:
        target = whole = sampler.distributions(logits, context, draft.token_ids, draft.tails)
        if own_review is not None:
            target = whole = own_review.probs(drafted_probs(drafted, draft.probs, whole), whole)
    else:
        target = RowsOnDemand(draft, logits, context, sampler)
    if logits.is_cuda:  # each decision on the host would wait for the device
        chance = DrawnChance(sampler.chance.numbers(len(whole)).to(whole.device))
        verdict = reject_at_once(draft, whole, chance, sampler.same)
    else:
        verdict = reject(draft, target, sampler.chance)
    return verdict, [target[row] for row in (0, *(node + 1 for node in verdict.path))]


def agree(draft: Draft, own_draws: Sequence[int]) -> Verdict:
    """Keep the path that equals the model's own draws [n + 1]; then the model's own token."""
    families, row = draft.families, 0
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
    families, row = draft.families, 0
    path: list[int] = []
    while True:
        kept, p = None, target[row]
        for number, node in enumerate(families[row]):
            token, q = draft.token_ids[node], draft.probs[node]
            p = p / p.sum() if number else p
            if q is None:
                q_token, residual = 1.0, p.clone()
                residual[token] = 0.0
            else:
                q = q.to(p)
                q_token, residual = float(q[token]), (p - q).clamp_min(0.0)
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
    if not draft.parents:
        accepted, own = same(torch.cat(reject_on_tensors(tokens, probs, target, chance)).tolist())
        return Verdict([*draft.token_ids[:accepted], own], list(range(accepted)), [accepted] if accepted < n else [])
    shape = OnDevice.of(tuple(draft.parents), target.device)
    decided, residuals = reject_tree_on_tensors(tokens, shape, probs, target, chance)
    found, row = shape.walk(decided)
    *kept, token = same(torch.cat((found.long(), chance.pick(residuals.index_select(0, row)[0]))).tolist())
    path = [node for node in range(n) if kept[node]]
    last = path[-1] + 1 if path else 0
    return Verdict([*(draft.token_ids[node] for node in path), token], path, draft.families[last])


def agree_on_tensors(drafted: Tensor, own_draws: Tensor) -> Tensor:
    """``agree`` without the host: how many of drafted [n] are kept, int64 [1]; own_draws [n + 1]."""
    return (drafted == own_draws[:-1]).long().cumprod(0).sum(0, keepdim=True)


def reject_on_tensors(drafted: Tensor, probs: Tensor, target: Tensor, chance: TensorChance) -> tuple[Tensor, Tensor]:
    """``reject`` without the host: drafted [n] from probs [n, V] against target [n + 1, V].

    -> how many are kept and the token that follows them, both int64 [1]. Every test is made, also those behind the
    first refusal; they are independent of it and nobody asks how they went."""
    at = drafted[:, None]
    kept = chance.happens((target[:-1].gather(1, at) / probs.gather(1, at)).squeeze(1).clamp_max(1.0))
    accepted = kept.long().cumprod(0).sum(0, keepdim=True)
    residuals = torch.cat(((target[:-1] - probs).clamp_min(0.0), target[-1:]))
    weights, p = residuals.index_select(0, accepted)[0], target.index_select(0, accepted)[0]
    # p = q up to rounding: a refusal there has probability zero but for the last bit.
    return accepted, chance.pick(torch.where(weights.sum() > 0.0, weights, p))


def reject_tree_on_tensors(drafted: Tensor, shape: OnDevice, probs: Tensor, target: Tensor,
                           chance: TensorChance) -> tuple[Tensor, Tensor]:
    """``reject`` of a tree, all families side by side: drafted [n] from probs [n, V] against target [n + 1, V]; -1 for
    what was not drafted.

    -> bool [n], whether each is kept if its turn comes, and [n + 1, V], what each row's own token is drawn from when
    all its children are refused. As in ``reject_on_tensors``, every test is made."""
    odds, residuals = target.new_zeros(len(drafted)), target.clone()
    for nodes, rows in shape.by_rank:
        p, q, token = residuals[rows], probs[nodes], drafted[nodes]
        there, at = token >= 0, token.clamp_min(0)[:, None]
        odds[nodes] = torch.where(there, (p.gather(1, at) / q.gather(1, at)).squeeze(1).clamp_max(1.0), 0.0)
        left = (p - q).clamp_min(0.0)
        total = left.sum(1, keepdim=True)
        residuals[rows] = torch.where(there[:, None] & (total > 0.0), left / total, p)
    return chance.happens(odds), residuals
