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

from collections.abc import Sequence

from torch import Tensor

from ..sampling import Chance, Sampler
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
