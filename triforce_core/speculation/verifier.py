"""THE lossless step: what a model makes of a draft.

p is the verifying model's distribution, q the distribution a token was *actually drawn from*. Rejection
(Leviathan et al., arXiv 2211.17192, appendix A.1; Chen et al., arXiv 2302.01318): accept x with
min(1, p(x)/q(x)); at the first refusal draw from norm(max(p - q, 0)); after the last acceptance draw from the
next p. So it is in the middle tier. The full cache decides on the draft as a whole (block verification, arXiv
2403.10444), which keeps more. Coupled (arXiv 2408.07978): the model draws each position itself,
with noise that the seed and the position decide, and keeps what agrees. All this is of chains.

Whichever it is, each emitted token is distributed exactly as the verifying model's, given those before it, so a round
is itself a valid drafter for the round above it. That is the whole hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..device.streams import sent
from ..kv_cache import shared_prefix
from ..sampling import Chance, DrawnChance, Sampler, TensorChance
from .drafter import Draft, Verdict

Verified = tuple[Verdict, list[Tensor | None]]
Verifier = Callable[[Draft, Tensor, Sequence[int], Sampler], Verified]  # ``verify``, or what keeps its contract


def drafted_probs(token_ids: Tensor, probs: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """Return [n, V]: what each of token_ids [n] was drawn from, one-hot where it was not; like [.., V]: its type."""
    drawn = [row.to(like) for row in probs if row is not None]
    if drawn and len(drawn) == len(probs):
        return torch.stack(drawn)
    found = torch.zeros(len(probs), like.shape[-1], dtype=like.dtype, device=like.device)
    if drawn:
        found = torch.stack([found[0] if row is None else row.to(like) for row in probs])
    one_hot = torch.tensor([row is None for row in probs], dtype=like.dtype, device=like.device)
    return found.scatter_add_(1, token_ids[:, None], one_hot[:, None])


def verify(draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler) -> Verified:
    """Return the verdict and the distribution of each of its tokens (a tier above needs it as its draft's ``probs``).

    logits [n + 1, V]: the verifying model's, after ``context`` and after each drafted token."""
    return _verify(draft, logits, context, sampler, whole=True)


def verify_tokens(draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler) -> Verified:
    """Verify token by token, where chains are short: to decide on the whole would keep 1 to 2 % more of two tokens,
    and a captured round does not."""
    return _verify(draft, logits, context, sampler, whole=False)


def _verify(draft: Draft, logits: Tensor, context: Sequence[int], sampler: Sampler, *, whole: bool) -> Verified:
    assert len(logits) == len(draft.token_ids) + 1
    assert not draft.parents, "trees have a verifier of their own"
    if sampler.coupled:
        verdict = agree(draft, sampler.draws(logits, context, draft.token_ids))
        return verdict, [None] * len(verdict.token_ids)
    return tested(draft, sampler.distributions(logits, context, draft.token_ids), sampler, whole=whole)


def tested(draft: Draft, target: Tensor, sampler: Sampler, *, whole: bool = False) -> Verified:
    """Test a chain against target [n + 1, V], and return what ``verify`` does. whole: by block verification."""
    if target.is_cuda:  # each decision on the host would wait for the device
        chance = drawn_chance(sampler, target)
        verdict = reject_at_once(draft, target, chance, sampler.same, whole=whole)
    else:
        verdict = (reject_block if whole else reject)(draft, target, sampler.chance)
    return verdict, list(target[: len(verdict.token_ids)])


def drawn_chance(sampler: Sampler, target: Tensor) -> DrawnChance:
    """Return the answer's next numbers, one for each row of target [n + 1, V], where that lies."""
    return DrawnChance(sent(sampler.chance.numbers(len(target)), target.device), sampler.faster)


def _verdict(draft: Draft, accepted: int, own: int) -> Verdict:
    """Return a chain's first ``accepted`` tokens, then the model's own."""
    refused = [accepted] if accepted < len(draft.token_ids) else []
    return Verdict([*draft.token_ids[:accepted], own], range(accepted), refused)


def agree(draft: Draft, own_draws: Sequence[int]) -> Verdict:
    """Keep what equals the model's own draws [n + 1]; then the model's own token."""
    accepted = shared_prefix(draft.token_ids, own_draws)
    return _verdict(draft, accepted, own_draws[accepted])


def reject(draft: Draft, target: Tensor, chance: Chance) -> Verdict:
    """Test token by token against target [n + 1, V]; a drafted token's distribution that is None is one-hot."""
    for i, (token, q) in enumerate(zip(draft.token_ids, draft.probs, strict=True)):
        p = target[i]
        q_token, residual = odds_of(token, p, q)
        if not chance.happens(min(1.0, float(p[token]) / q_token)):
            # p = q up to rounding: a refusal there has probability zero but for the last bit.
            return _verdict(draft, i, chance.pick(residual if float(residual.sum()) > 0.0 else p))
    return _verdict(draft, len(draft.token_ids), chance.pick(target[len(draft.token_ids)]))


def reject_block(draft: Draft, target: Tensor, chance: Chance) -> Verdict:
    """Test the whole against target [n + 1, V] (block verification, arXiv 2403.10444, algorithm 2).

    A token that the model finds likelier than its drafter did makes up for one behind it, so more is kept than by tests
    token by token. Whether a token is kept depends on those behind it, and yet the emitted one at position i has the
    model's distribution given those before it and that anything is emitted there. So the tier above may take it as
    drawn from that."""
    n = len(draft.token_ids)
    kept = [1.0]  # kept[i]: with which probability at least i of these tokens are
    for token, p, q in zip(draft.token_ids, target, draft.probs, strict=False):
        kept.append(min(1.0, kept[-1] * float(p[token]) / (1.0 if q is None else float(q[token]))))
    if n == 0 or chance.happens(kept[n]):
        return _verdict(draft, n, chance.pick(target[n]))
    for i in reversed(range(n)):
        residual = odds_of(draft.token_ids[i], kept[i] * target[i], draft.probs[i])[1]
        left = float(residual.sum())
        if i == 0 or (left > 0.0 and chance.happens(left / (left + 1.0 - kept[i]))):
            break
    # p = q up to rounding: a refusal there has probability zero but for the last bit.
    return _verdict(draft, i, chance.pick(residual if left > 0.0 else target[i]))


def odds_of(token: int, p: Tensor, q: Tensor | None) -> tuple[float, Tensor]:
    """Return q(token) and max(p - q, 0), for p [V] and q [V], or None: one-hot."""
    if q is None:
        residual = p.clone()
        residual[token] = 0.0
        return 1.0, residual
    q = q.to(p)
    return float(q[token]), (p - q).clamp_min(0.0)


def reject_at_once(draft: Draft, target: Tensor, chance: TensorChance,
                   same: Callable[[list[int]], list[int]] = list, *, whole: bool = False) -> Verdict:
    """Do ``reject``, or if whole ``reject_block``; the host waits once, for all decisions. same: see ``Sampler``."""
    tokens = sent(torch.tensor(draft.token_ids, dtype=torch.int64), target.device)
    probs = drafted_probs(tokens, draft.probs, target)
    decide = reject_block_on_tensors if whole else reject_on_tensors
    accepted, own = same(decide(tokens, probs, target, chance).tolist())
    return _verdict(draft, accepted, own)


def agree_on_tensors(drafted: Tensor, own_draws: Tensor) -> Tensor:
    """Do ``agree`` without the host: return how many of drafted [n] are kept, int64 [1]; own_draws [n + 1]."""
    return (drafted == own_draws[:-1]).long().cumprod(0).sum(0, keepdim=True)


def reject_on_tensors(drafted: Tensor, probs: Tensor, target: Tensor, chance: TensorChance) -> Tensor:
    """Do ``reject`` without the host: drafted [n] from probs [n, V] against target [n + 1, V].

    Return int64 [2]: how many are kept, and the token that follows them. Every test is made, also those behind the
    first refusal; they are independent of it."""
    fast = chance.reject(drafted, probs, target) if isinstance(chance, DrawnChance) else None
    if fast is not None:
        return fast
    at = drafted[:, None]
    kept = chance.happens((target[:-1].gather(1, at) / probs.gather(1, at)).squeeze(1).clamp_max(1.0))
    accepted = kept.long().cumprod(0).sum(0, keepdim=True)
    residuals = torch.cat(((target[:-1] - probs).clamp_min(0.0), target[-1:]))
    return _with_follower(accepted, residuals, target, chance)


def _with_follower(accepted: Tensor, residuals: Tensor, target: Tensor, chance: TensorChance) -> Tensor:
    """Return accepted int64 [1], and behind it the token drawn from its row of residuals [n + 1, V]."""
    weights, p = residuals.index_select(0, accepted)[0], target.index_select(0, accepted)[0]
    # p = q up to rounding: a refusal there has probability zero but for the last bit.
    return torch.cat((accepted, chance.pick(torch.where(weights.sum() > 0.0, weights, p))))


def reject_block_on_tensors(drafted: Tensor, probs: Tensor, target: Tensor, chance: TensorChance) -> Tensor:
    """Do ``reject_block`` without the host, as ``reject_on_tensors``.

    The host tests from the last token backwards until a test passes; here every test is made, as they are independent,
    and the last one passed counts."""
    n, at = len(drafted), drafted[:, None]
    ratios = (target[:-1].gather(1, at) / probs.gather(1, at)).log().cumsum(0).squeeze(1)
    ratios = torch.nn.functional.pad(ratios, (1, 0))
    kept = (ratios - ratios.cummax(0).values).exp()  # min(1, ..) at every step, all steps at once; [n + 1]
    residuals = torch.cat(((kept[:-1, None] * target[:-1] - probs).clamp_min_(0.0), target[-1:]))
    left = residuals[:-1].sum(1)
    odds = torch.cat(((left / (left + 1.0 - kept[:-1])).nan_to_num_(0.0)[1:], kept[1:][-1:]))
    passed = chance.happens(odds) * torch.arange(1, n + 1, device=odds.device)
    accepted = torch.nn.functional.pad(passed, (1, 0)).amax(0, keepdim=True)
    return _with_follower(accepted, residuals, target, chance)
