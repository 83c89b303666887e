"""Drawing several guesses at one token, each with the law that it was drawn from.

Letters: m families, V vocabulary. Without replacement (Sequoia, arXiv 2402.12374, algorithm 2): each law is the one
before without the token drawn, scaled up. A family ends where its law has nothing left; Sequoia goes on uniformly then,
but a token that the drafter gives no chance is no guess (top-p leaves one token in most rows), and how many
children there are may depend on the law they are drawn from. With replacement (SpecInfer, arXiv 2305.09781): one law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..sampling import Chance, DrawnChance, Sampler, TensorChance


@dataclass(frozen=True, slots=True)
class Family:
    """Siblings in the order in which they were drawn. laws: see ``Draft``."""

    token_ids: list[int] = field(default_factory=list)
    laws: list[Tensor | None] = field(default_factory=list)


def draw(logits: Tensor, context: Sequence[int], tails: Sequence[Sequence[int]], counts: Sequence[int],
         sampler: Sampler, *, replacing: bool) -> list[Family]:
    """Up to ``counts[i]`` guesses at what follows ``context`` and ``tails[i]``, by logits [m, V]."""
    if sampler.by_draws:  # one draw is right there, and the seed decides it: further ones are what it else might be
        best = sampler.best(logits, context, tails, max(counts))
        return [Family(tokens[:count], [None] * min(count, len(tokens)))
                for tokens, count in zip(best, counts, strict=True)]
    laws = sampler.distributions(logits, context, tails=tails)
    if laws.is_cuda:
        numbers = sampler.chance.numbers(sum(counts)).to(laws.device)
        return draw_at_once(laws, counts, DrawnChance(numbers), sampler.same, replacing=replacing)
    return [draw_one_by_one(law, count, sampler.chance, replacing=replacing)
            for law, count in zip(laws, counts, strict=True)]


def draw_one_by_one(law: Tensor, count: int, chance: Chance, *, replacing: bool) -> Family:
    """law [V]."""
    family = Family()
    while len(family.token_ids) < count:
        if family.token_ids and not replacing:
            left = law.clone()
            left[family.token_ids[-1]] = 0.0
            total = left.sum()
            if not float(total) > 0.0:
                break
            law = left / total
        family.token_ids.append(chance.pick(law))
        family.laws.append(law)
    return family


def draw_at_once(laws: Tensor, counts: Sequence[int], chance: TensorChance,
                 same: Callable[[list[int]], list[int]] = list, *, replacing: bool) -> list[Family]:
    """``draw_one_by_one`` for each of laws [m, V], where the host waits once. same: see ``Sampler``; where a law has
    nothing left is every process's own finding, too."""
    drawn: list[tuple[list[int], Tensor, Tensor]] = []  # by rank: families, their tokens (-1: nothing is left), laws
    members = list(range(len(counts)))
    for rank in range(max(counts)):
        further = [place for place, family in enumerate(members) if counts[family] > rank]
        members = [members[place] for place in further]
        if rank or len(further) < len(laws):
            laws = laws[torch.tensor(further, device=laws.device)]
        tokens = chance.pick(laws)
        some = laws.sum(-1) > 0.0
        drawn.append((members, torch.where(some, tokens, -1), laws))
        if not replacing:
            laws = _without(laws, tokens)
    listed = same(torch.cat([tokens for _, tokens, _ in drawn]).tolist())
    families, at = [Family() for _ in counts], 0
    for members, tokens, rows in drawn:
        for family, token, law in zip(members, listed[at : at + len(tokens)], rows.unbind(), strict=True):
            if token >= 0:
                families[family].token_ids.append(token)
                families[family].laws.append(law)
        at += len(tokens)
    return families


def siblings_on_tensors(laws: Tensor, count: int, chance: TensorChance, *,
                        replacing: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """``draw_one_by_one`` for each of laws [m, V] without the host: by rank, tokens [m], -1 where nothing is left, and
    the laws [m, V] that they were drawn from."""
    for rank in range(count):
        tokens = chance.pick(laws)
        yield torch.where(laws.sum(-1) > 0.0, tokens, -1), laws
        if rank + 1 < count and not replacing:
            laws = _without(laws, tokens)


def _without(laws: Tensor, tokens: Tensor) -> Tensor:
    """What is left of laws [m, V] without tokens [m], scaled up; a law of which nothing is left is zero."""
    left = laws.scatter(1, tokens[:, None], 0.0)
    return left / left.sum(-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)
