"""Drawing several guesses at one token, each with the distribution that it was drawn from.

Letters: m families, V vocabulary. Without replacement (Sequoia, arXiv 2402.12374, algorithm 2): each distribution is
the one before without the token drawn, scaled up. A family ends where its distribution has nothing left; Sequoia goes
on uniformly then, but a token that the drafter gives no chance is no guess (top-p leaves one token in most rows), and
how many children there are may depend on the distribution they are drawn from. With replacement (SpecInfer, arXiv
2305.09781): one distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..sampling import Chance, DrawnChance, Sampler, TensorChance
from . import tree_rows


@dataclass(frozen=True, slots=True)
class Family:
    """Siblings in the order in which they were drawn. probs: see ``Draft``."""

    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor | None] = field(default_factory=list)


def draw(logits: Tensor, context: Sequence[int], tails: Sequence[Sequence[int]], counts: Sequence[int],
         sampler: Sampler, *, replacing: bool) -> list[Family]:
    """Up to ``counts[i]`` guesses at what follows ``context`` and ``tails[i]``, by logits [m, V]."""
    if sampler.coupled:  # one draw is right there, and the seed decides it: further ones are what it else might be
        best = tree_rows.best(sampler, logits, context, tails, max(counts))
        return [Family(tokens[:count], [None] * min(count, len(tokens)))
                for tokens, count in zip(best, counts, strict=True)]
    probs = tree_rows.distributions(sampler, logits, context, tails)
    if probs.is_cuda:
        numbers = sampler.chance.numbers(sum(counts)).to(probs.device)
        return draw_at_once(probs, counts, DrawnChance(numbers), sampler.same, replacing=replacing)
    return [draw_one_by_one(token_probs, count, sampler.chance, replacing=replacing)
            for token_probs, count in zip(probs, counts, strict=True)]


def draw_one_by_one(token_probs: Tensor, count: int, chance: Chance, *, replacing: bool) -> Family:
    """token_probs [V]."""
    family = Family()
    while len(family.token_ids) < count:
        if family.token_ids and not replacing:
            left = token_probs.clone()
            left[family.token_ids[-1]] = 0.0
            total = left.sum()
            if not float(total) > 0.0:
                break
            token_probs = left / total
        family.token_ids.append(chance.pick(token_probs))
        family.probs.append(token_probs)
    return family


def draw_at_once(probs: Tensor, counts: Sequence[int], chance: TensorChance,
                 same: Callable[[list[int]], list[int]] = list, *, replacing: bool) -> list[Family]:
    """``draw_one_by_one`` for each of probs [m, V], where the host waits once. same: see ``Sampler``; where a
    distribution has nothing left is every process's own finding, too."""
    drawn: list[tuple[list[int], Tensor, Tensor]] = []
    # By rank: families, their tokens (-1: nothing is left), what they were drawn from.
    members = list(range(len(counts)))
    for rank in range(max(counts)):
        further = [place for place, family in enumerate(members) if counts[family] > rank]
        members = [members[place] for place in further]
        if rank or len(further) < len(probs):
            probs = probs[torch.tensor(further, device=probs.device)]
        tokens = chance.pick(probs)
        some = probs.sum(-1) > 0.0
        drawn.append((members, torch.where(some, tokens, -1), probs))
        if not replacing:
            probs = _without(probs, tokens)
    listed = same(torch.cat([tokens for _, tokens, _ in drawn]).tolist())
    families, at = [Family() for _ in counts], 0
    for members, tokens, rows in drawn:
        for family, token, token_probs in zip(members, listed[at : at + len(tokens)], rows.unbind(), strict=True):
            if token >= 0:
                families[family].token_ids.append(token)
                families[family].probs.append(token_probs)
        at += len(tokens)
    return families


def siblings_on_tensors(probs: Tensor, count: int, chance: TensorChance, *,
                        replacing: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """``draw_one_by_one`` for each of probs [m, V] without the host: by rank, tokens [m], -1 where nothing is left, and
    the probs [m, V] that they were drawn from."""
    for rank in range(count):
        tokens = chance.pick(probs)
        yield torch.where(probs.sum(-1) > 0.0, tokens, -1), probs
        if rank + 1 < count and not replacing:
            probs = _without(probs, tokens)


def _without(probs: Tensor, tokens: Tensor) -> Tensor:
    """What is left of probs [m, V] without tokens [m], scaled up; a distribution of which nothing is left is zero."""
    left = probs.scatter(1, tokens[:, None], 0.0)
    return left / left.sum(-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)
