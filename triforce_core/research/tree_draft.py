"""A draft in which several tokens may follow one, and the model that such a tree grows on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ..drafters.model import ModelOnCache
from ..sampling import Sampler
from ..speculation.draft import Draft, Layout, Verdict
from . import tree, tree_verifier


@lru_cache(maxsize=8)
def sees(parents: tuple[int, ...], before: int, device: torch.device) -> tuple[list[int], Tensor]:
    """Of staged tokens from ``before`` on: depths, counted from there, and a pass's mask, on the device. Kept, as the
    trees of most rounds have one shape: what every layer reads is sent there once."""
    found = [depth - before for depth in tree.depths(parents)[before:]]
    rows = tree.ancestry(parents)[before:]
    for_all = int(rows[:, :before].all(0).cumprod().sum())  # staged tokens that all of these follow
    return found, torch.from_numpy(rows[:, for_all:].copy()).to(device)


def layout_of(parents: Sequence[int]) -> Layout:
    """Of a tree behind tokens of the context, the first of which follows all that is staged."""

    def layout(pending: int, device: torch.device) -> tuple[list[int], Tensor]:
        return sees((*range(-1, pending - 1), *(pending + parent for parent in parents)), 0, device)

    return layout


@dataclass(frozen=True, slots=True)
class TreeDraft(Draft):
    """``parents``: of each token; empty: a chain after all, and verified like any.

    probs: given the older siblings too. Siblings drawn independently share a distribution, and without replacement each
    one lacks the older siblings: how they were drawn is all in their distributions."""

    parents: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        Draft.__post_init__(self)
        assert not self.parents or len(self.parents) == len(self.token_ids)

    @property
    def families(self) -> list[list[int]]:
        return tree.families(self.parents or range(-1, len(self.token_ids) - 1))

    @property
    def depth(self) -> int:
        return 1 + max(tree.depths(self.parents)) if self.parents else len(self.token_ids)

    @property
    def layout(self) -> Layout | None:
        return layout_of(self.parents) if self.parents else None

    def verdict(self, logits: Tensor, context: Sequence[int],
                sampler: Sampler) -> tuple[Verdict, list[Tensor | None]] | None:
        return tree_verifier.verify(self, logits, context, sampler) if self.parents else None

    def first(self, count: int) -> Draft:
        """Its first levels."""
        if not self.parents:
            return Draft.first(self, count)
        if count >= len(self.token_ids):
            return self
        return self._only([i for i, depth in enumerate(tree.depths(self.parents)) if depth < count])

    def within(self, room: int) -> Draft:
        """The last tokens left out: no token needs those behind it."""
        return self if not self.parents or room >= len(self.token_ids) else self._only(range(room))

    def _only(self, nodes: Sequence[int]) -> TreeDraft:
        number = {old: new for new, old in enumerate(nodes)} | {-1: -1}
        return TreeDraft([self.token_ids[i] for i in nodes], [self.probs[i] for i in nodes],
                         [self.sources[i] for i in nodes], [self.proposers[i] for i in nodes] if self.proposers else [],
                         parents=[number[self.parents[i]] for i in nodes])


class GrowingModel:
    """A model on a cache while a tree grows on it: knows which staged tokens follow which, from one ``agree`` to the
    next. What is staged without it stands in a chain."""

    def __init__(self, on: ModelOnCache) -> None:
        self.on = on
        self._parents: list[int] = []

    def grow(self, token_ids: Sequence[int], parents: Sequence[int], logits_rows: int) -> Tensor:
        """Stage these tokens, each behind the staged one that ``parents`` names as they are counted, these included;
        logits [logits_rows, V] of the last of them."""
        on = self.on
        before = on.num_staged
        self._chain_up()
        chain = self._parents == list(range(-1, before - 1)) and min(parents) >= before - 1
        self._parents.extend(parents)
        # Behind a chain, a tree looks the same wherever it stands.
        found, mask = (sees(tuple(parent - before for parent in parents), 0, on.device) if chain
                       else sees(tuple(self._parents), before, on.device))
        return on.feed(token_ids, logits_rows, found, mask)

    def grown_elsewhere(self, token_ids: Sequence[int], parents: Sequence[int]) -> None:
        """A pass that this object did not run has staged these; parents as for ``grow``. A token that is none (-1) is
        never kept."""
        self._chain_up()
        self.on.staged_elsewhere(token_ids)
        self._parents.extend(parents)

    def agree(self, context: Sequence[int]) -> None:
        """Keep staged tokens as far as they are the context's, but never its last token."""
        self._chain_up()
        staged, last = self.on.staged, -1
        path: list[int] = []
        for true in context[self.on.length - len(staged) : len(context) - 1]:
            matching = (node for node in range(last + 1, len(staged))
                        if self._parents[node] == last and staged[node] == true)
            last = next(matching, len(staged))
            if last == len(staged):
                break
            path.append(last)
        self.on.keep_staged(path)
        self.forget()

    def forget(self) -> None:
        """What is staged by now is a chain, or nothing."""
        self._parents.clear()

    def _chain_up(self) -> None:
        self._parents.extend(range(len(self._parents) - 1, self.on.num_staged - 1))
