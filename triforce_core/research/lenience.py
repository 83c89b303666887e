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

import torch
from torch import Tensor


class LenientReview:
    """A ``speculation.verifier.Review``. lenience: above 1."""

    def __init__(self, lenience: float) -> None:
        self.lenience = lenience

    def probs(self, drafted: Tensor, target: Tensor) -> Tensor:
        return lenient_probs(drafted, target, self.lenience)

    def draws(self, token_ids: Tensor, own_draws: Tensor, logits: Tensor) -> Tensor:
        return lenient_draws(token_ids, own_draws, logits, self.lenience)


def review_of(lenience: float) -> LenientReview | None:
    return LenientReview(lenience) if lenience > 1.0 else None


def lenient_probs(drafted: Tensor, target: Tensor, lenience: float) -> Tensor:
    """s of each position, [n + 1, V]: drafted [n, V] is q, target [n + 1, V] is p; behind the draft it stays p."""
    p = target[:-1]
    passed = torch.minimum(drafted, lenience * p)
    residual = (p - drafted).clamp_min(0.0)
    rest = residual / residual.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    return torch.cat((passed + (1.0 - passed.sum(-1, keepdim=True)).clamp_min(0.0) * rest, target[-1:]))


def lenient_draws(token_ids: Tensor, own_draws: Tensor, logits: Tensor, lenience: float) -> Tensor:
    """Where each position is drawn from noise that all tiers share, there is no distribution to be true to: a drafted
    token is taken for the reviewer's own draw where it is likely enough, p(x) > 1 / l at temperature 1.

    token_ids [n], own_draws [n + 1], logits [n + 1, V] -> int64 [n + 1]."""
    likely = logits[:-1].float().softmax(-1).gather(1, token_ids[:, None]).squeeze(1) * lenience > 1.0
    return torch.cat((torch.where(likely, token_ids, own_draws[:-1]), own_draws[-1:]))
