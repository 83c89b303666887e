"""What a sampler says of the rows of a tree: each follows the context and a tail of drafted tokens of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..sampling import Sampler

Tails = Sequence[Sequence[int]]  # of each row: the drafted tokens between the context and it


def distributions(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails) -> Tensor:
    """``Sampler.distributions`` of logits [m, V]: without masks no row depends on what it follows."""
    if sampler.masks is None:
        return sampler.distributions(logits, context)
    return _by_row(sampler.distributions, logits, context, tails)


def scores(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails) -> Tensor:
    """``Sampler.scores`` of logits [m, V]; rows at one position share their noise."""
    if sampler.masks is None and sampler.kind.greedy:
        return sampler.scores(logits, context)
    return _by_row(sampler.scores, logits, context, tails)


def draws(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails) -> list[int]:
    """``Sampler.draws`` of logits [m, V]."""
    drawn: list[int] = scores(sampler, logits, context, tails).argmax(-1).tolist()
    return drawn if sampler.kind.greedy else sampler.same(drawn)


def best(sampler: Sampler, logits: Tensor, context: Sequence[int], tails: Tails, count: int) -> list[list[int]]:
    """Return each row's own draw and what would have come next, ``count`` or as many as may come at all. As rows at one
    position share their noise, this is what another tier's draw there most likely is."""
    values, found = scores(sampler, logits, context, tails).topk(min(count, logits.shape[-1]), dim=-1)
    listed: list[int] = sampler.same(torch.where(values > -torch.inf, found, -1).flatten().tolist())
    width = found.shape[1]
    return [[token for token in listed[at : at + width] if token >= 0] for at in range(0, len(listed), width)]


def _by_row(asked: Callable[[Tensor, Sequence[int]], Tensor], logits: Tensor, context: Sequence[int],
            tails: Tails) -> Tensor:
    return torch.cat([asked(logits[row : row + 1], [*context, *tail]) for row, tail in enumerate(tails)])
