"""Attention that every token has had from all queries since the first: what H2O (arXiv 2306.14048) evicts by."""

from __future__ import annotations

import torch
from torch import Tensor

from ..engine.pipeline import AttentionMass

# Queries counted of one pass, its newest; of a wider pass the others are left out. Probabilities that a fused attention
# never shows are computed once more, heads x tokens fp32 numbers a row: in 2 GiB at most; short passes whole.
_MOST_ROWS, _LEAST_ROWS = 512, 64
_NUMBERS = 2**29


class AccumulatedMass(AttentionMass):
    """An ``AttentionObserver`` of every pass of the full cache from the first on; hands each to ``shown``, by chunks.

    Two small untruths: within one pass a token's attention by the pass's own later tokens is not counted (mass covers
    what was committed before), and that by drafted tokens is, also if they are refused later."""

    def __init__(self, shown: AttentionMass, heads: int, tokens: int) -> None:
        """heads: query heads of a layer; tokens: about how long the context is."""
        super().__init__(1, max(_LEAST_ROWS, min(_MOST_ROWS, _NUMBERS // (heads * tokens))))
        self._shown = shown
        self._sums: dict[int, Tensor] = {}  # fp32 [H, at least the tokens committed] per layer; never written again
        self._kept: tuple[int, dict[int, Tensor]] = (0, {})

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        assert mass is not None
        size = self.shown.chunk_size
        chunks = mass.shape[1] // size
        self.shown.see(layer, queries, mass[:, : chunks * size].unflatten(1, (chunks, size)).sum(-1))
        before = self._sums.get(layer, mass[:, :0])
        longer, shorter = (mass, before) if mass.shape[1] >= before.shape[1] else (before, mass)
        self._sums[layer] = longer.clone()
        self._sums[layer][:, : shorter.shape[1]] += shorter

    @property
    def shown(self) -> AttentionMass:
        return self._shown

    @shown.setter
    def shown(self, shown: AttentionMass) -> None:
        self._shown = shown

    @property
    def latest(self) -> Tensor | None:
        return self._shown.latest

    @property
    def sums(self) -> Tensor:
        """fp32 [layers, H, tokens]."""
        return torch.stack([self._sums[layer] for layer in sorted(self._sums)])

    def keep(self, length: int) -> None:
        """Remember now, when just the first ``length`` tokens of the context have asked."""
        self._kept = length, dict(self._sums)

    def rewind(self, length: int) -> int:
        """Back to what was kept if that is no longer than ``length``, else to nothing; -> its length: from
        there on, tokens must be read again."""
        if self._kept[0] > length:
            self._kept = 0, {}
        self._sums = dict(self._kept[1])
        return self._kept[0]
