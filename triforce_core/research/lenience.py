"""A review between two drafters that lets more pass than it should (Cascade Speculative Drafting, arXiv 2312.11462,
section 3.1), without telling the tier above anything untrue.

The paper accepts x where p(x) > q(x) / l, p being the reviewer's distribution and q the drafter's. At any temperature
that is: accept with min(1, l p(x) / q(x)), else draw from norm(max(p - q, 0)). What comes out has the distribution

    s = min(q, l p) + (1 - sum min(q, l p)) norm(max(p - q, 0)),

which is p for l = 1. Rejection of the same draft against s *is* that review: where p >= q, s >= q, so x passes;
elsewhere s = min(q, l p), so it passes with min(1, l p(x) / q(x)); and max(s - q, 0) is proportional to max(p - q, 0).
So a lenient reviewer is a strict one with another distribution, s goes up as the distribution of its tokens, and the
hierarchy stays exact. The target itself is never lenient: its own distribution is what plain decoding writes. Of chains
only: siblings are reviewed strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..model.graphs import Capture
from ..sampling import Sampler, SamplingKind
from ..speculation.drafter import Draft
from ..speculation.graph_runner import GraphBuffers, GraphRunner
from ..speculation.hierarchical import HierarchicalDrafter
from ..speculation.verifier import Verified, Verifier, agree, drafted_probs, tested, verify_tokens


def lenient(lenience: float) -> Verifier:
    """Return a tier's own way to verify, the exact one up to 1.0."""
    return partial(verify_leniently, lenience) if lenience > 1.0 else verify_tokens


def verify_leniently(lenience: float, draft: Draft, logits: Tensor, context: Sequence[int],
                     sampler: Sampler) -> Verified:
    """Return the verdict and s of each of its tokens, which goes up as its probabilities."""
    drafted = torch.tensor(draft.token_ids, dtype=torch.int64, device=logits.device)
    if sampler.coupled:
        drawn = torch.tensor(sampler.draws(logits, context, draft.token_ids), device=logits.device)
        verdict = agree(draft, sampler.same(lenient_draws(drafted, drawn, logits, lenience).tolist()))
        return verdict, [None] * len(verdict.token_ids)
    target = sampler.distributions(logits, context, draft.token_ids)
    return tested(draft, lenient_probs(drafted_probs(drafted, draft.probs, target), target, lenience), sampler)


class LenientRunner(GraphRunner):
    """Run rounds on the device with a lenient intermediate verifier."""

    def __init__(self, host: HierarchicalDrafter, lenience: float, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__(host, capture, same)
        self._lenience = lenience

    def own_draws(self, draws: Tensor, state: GraphBuffers, logits: Tensor) -> Tensor:
        return lenient_draws(state.drafted, draws, logits, self._lenience) if self._gamma else draws

    def target(self, probs: Tensor, state: GraphBuffers) -> Tensor:
        return lenient_probs(state.draft_probs, probs, self._lenience) if self._gamma else probs

    def _agree(self, kind: SamplingKind, numbers: Tensor) -> Tensor:
        """Agree on greedy choices too: a running sum has its part in them."""
        return numbers if self._same is None else self._same(numbers)


def lenient_probs(drafted: Tensor, target: Tensor, lenience: float) -> Tensor:
    """Return s of each position, [n + 1, V]: drafted [n, V] is q, target [n + 1, V] is p, and s behind the draft."""
    p = target[:-1]
    passed = torch.minimum(drafted, lenience * p)
    residual = (p - drafted).clamp_min(0.0)
    rest = residual / residual.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    return torch.cat((passed + (1.0 - passed.sum(-1, keepdim=True)).clamp_min(0.0) * rest, target[-1:]))


def lenient_draws(token_ids: Tensor, own_draws: Tensor, logits: Tensor, lenience: float) -> Tensor:
    """Return int64 [n + 1]: own_draws [n + 1], but token_ids [n] where they are likely enough by logits [n + 1, V].

    Where noise that all tiers share decides, there is no distribution to be true to: a drafted token is taken for the
    reviewer's own draw where p(x) > 1 / l at temperature 1."""
    likely = logits[:-1].float().softmax(-1).gather(1, token_ids[:, None]).squeeze(1) * lenience > 1.0
    return torch.cat((torch.where(likely, token_ids, own_draws[:-1]), own_draws[-1:]))
