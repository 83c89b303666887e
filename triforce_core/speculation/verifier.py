"""THE lossless step: what a model makes of a draft.

p is the verifying model's distribution, q the distribution a token was *actually drawn from*. Rejection
(Leviathan et al., arXiv 2211.17192, appendix A.1; Chen et al., arXiv 2302.01318): accept x with
min(1, p(x)/q(x)); at the first refusal draw from norm(max(p - q, 0)); after the last acceptance draw from the
next p. Coupled (arXiv 2408.07978): the model draws each position itself, with noise that the seed and the position
decide, and keeps the draft as far as it agrees.

Either way each emitted token is distributed exactly as the verifying model's, so a round is itself a valid
drafter for the round above it. That is the whole hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..sampling import Chance, DrawnChance, Sampler, TensorChance
from .draft import Draft, Verdict


def verify(draft: Draft, logits: Tensor, context: Sequence[int],
           sampler: Sampler) -> tuple[Verdict, list[Tensor | None]]:
    """logits [n + 1, V]: the verifying model's, after ``context`` and after each drafted token.

    Returns the verdict and the law of each of its tokens (what a tier above needs as its draft's ``laws``)."""
    assert len(logits) == len(draft.token_ids) + 1
    if sampler.by_draws:
        verdict = agree(draft, sampler.draws(logits, context, draft.token_ids))
        return verdict, [None] * len(verdict.token_ids)
    target = sampler.distributions(logits, context, draft.token_ids)
    if target.is_cuda:  # each decision on the host would wait for the device
        chance = DrawnChance(sampler.chance.numbers(len(target)).to(target.device))
        verdict = reject_at_once(draft, target, chance, sampler.same)
    else:
        verdict = reject(draft, target, sampler.chance)
    return verdict, list(target[: len(verdict.token_ids)])


def agree(draft: Draft, own_draws: Sequence[int]) -> Verdict:
    """Keep the draft as far as it equals the model's own draws [n + 1]; then the model's own token."""
    accepted = 0
    for drafted, own in zip(draft.token_ids, own_draws, strict=False):
        if drafted != own:
            return Verdict([*draft.token_ids[:accepted], own], accepted, accepted + 1, "recovered")
        accepted += 1
    return Verdict([*draft.token_ids, own_draws[accepted]], accepted, accepted, "bonus")


def reject(draft: Draft, target: Tensor, chance: Chance) -> Verdict:
    """Rejection against target [n + 1, V]; where the draft's law is None it is one-hot."""
    for i, token in enumerate(draft.token_ids):
        p, q = target[i], draft.laws[i]
        if q is None:
            q_token, residual = 1.0, p.clone()
            residual[token] = 0.0
        else:
            q = q.to(p)
            q_token, residual = float(q[token]), (p - q).clamp_min(0.0)
        if chance.happens(min(1.0, float(p[token]) / q_token)):
            continue
        if not float(residual.sum()) > 0.0:
            # p = q up to rounding: a refusal there has probability zero but for the last bit.
            residual = p
        return Verdict([*draft.token_ids[:i], chance.pick(residual)], i, i + 1, "recovered")
    n = len(draft.token_ids)
    return Verdict([*draft.token_ids, chance.pick(target[n])], n, n, "bonus")


def reject_at_once(draft: Draft, target: Tensor, chance: TensorChance,
                   same: Callable[[list[int]], list[int]] = list) -> Verdict:
    """``reject`` where the host waits once, for all decisions together. same: see ``Sampler``."""
    n = len(draft.token_ids)
    tokens = torch.tensor(draft.token_ids, dtype=torch.int64, device=target.device)
    laws = torch.zeros_like(target[:n])
    if any(law is not None for law in draft.laws):
        laws = torch.stack([laws[0] if law is None else law.to(target) for law in draft.laws])
    one_hot = torch.tensor([law is None for law in draft.laws], dtype=target.dtype, device=target.device)
    laws.scatter_add_(1, tokens[:, None], one_hot[:, None])
    accepted, own = same(torch.cat(reject_on_tensors(tokens, laws, target, chance)).tolist())
    tested, kind = (accepted + 1, "recovered") if accepted < n else (n, "bonus")
    return Verdict([*draft.token_ids[:accepted], own], accepted, tested, kind)


def agree_on_tensors(drafted: Tensor, own_draws: Tensor) -> Tensor:
    """``agree`` without the host: how many of drafted [n] are kept, int64 [1]; own_draws [n + 1]."""
    return (drafted == own_draws[:-1]).long().cumprod(0).sum(0, keepdim=True)


def reject_on_tensors(drafted: Tensor, laws: Tensor, target: Tensor, chance: TensorChance) -> tuple[Tensor, Tensor]:
    """``reject`` without the host: drafted [n] from laws [n, V] against target [n + 1, V].

    -> how many are kept and the token that follows them, both int64 [1]. Every test is made, also those behind the
    first refusal; they are independent of it and nobody asks how they went."""
    at = drafted[:, None]
    kept = chance.happens((target[:-1].gather(1, at) / laws.gather(1, at)).squeeze(1).clamp_max(1.0))
    accepted = kept.long().cumprod(0).sum(0, keepdim=True)
    residuals = torch.cat(((target[:-1] - laws).clamp_min(0.0), target[-1:]))
    weights, p = residuals.index_select(0, accepted)[0], target.index_select(0, accepted)[0]
    # p = q up to rounding: a refusal there has probability zero but for the last bit.
    return accepted, chance.pick(torch.where(weights.sum() > 0.0, weights, p))
