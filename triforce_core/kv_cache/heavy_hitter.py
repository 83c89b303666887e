"""H2O (arXiv 2306.14048): the tokens that all queries so far attended most, and as many of the newest; what has been
evicted never comes back. A comparison: what a question asks for late, nobody attended early.

A selection like retrieval's, of single tokens instead of chunks, so the same buffers serve. The published code takes
softmax probabilities summed over queries, per head; here a KV head sums over its group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .full import FullCache
from .retrieval import RetrievalCache
from .streaming import turn


class HeavyHitterCache(RetrievalCache):
    """``budget`` tokens of ``full`` per layer and KV head: token 0, the heaviest, the ``recent`` newest."""

    def __init__(self, full: FullCache, *, budget: int, recent: int) -> None:
        self._alive: Tensor | None = None  # bool [layers, H, n]: not evicted, of the first n tokens
        super().__init__(full, budget=budget, chunk_size=1, recent=recent)

    def select(self, mass: Tensor) -> None:
        """Keep the heaviest by accumulated ``mass`` [layers, H, tokens] of what was kept or is new; the first time, and
        after ``truncate(0)``, of everything."""
        if self._alive is not None:
            mass = mass.clone()
            known = min(self._alive.shape[-1], mass.shape[-1])
            mass[..., :known].masked_fill_(~self._alive[..., :known], -1.0)
        super().select(mass)
        if self.selection is not None:
            shape = (self.num_layers, self.num_kv_heads, self._tail_start)
            self._alive = torch.zeros(shape, dtype=torch.bool, device=self.device).scatter_(-1, self.selection, True)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if length == 0:
            self._alive = None


class RollingHeavyHitterCache(HeavyHitterCache):
    """The same tokens at positions inside the cache, side by side in the order of the text (Streaming-H2O).

    Attention sees differences of positions only, so the newest stay where they are in the text and the others move up
    to them, as ``StreamingCache`` moves its sinks: each time from the full cache's keys, so rounding never adds up."""

    def __init__(self, full: FullCache, *, budget: int, recent: int, frequencies: Tensor) -> None:
        """frequencies: radians per position, fp32 [head_dim / 2] (``Llama.rope.frequencies``)."""
        self._frequencies = frequencies.to(full.device)
        super().__init__(full, budget=budget, recent=recent)

    def _best(self, mass: Tensor, wanted: int, tail_start: int) -> Tensor:
        return super()._best(mass, wanted, tail_start).sort(-1).values

    def _take(self, layer: int, chunks: Tensor, tail_start: int) -> None:
        super()._take(layer, chunks, tail_start)
        held = chunks.shape[-1]
        moved = torch.arange(tail_start - held, tail_start, device=self.device) - chunks  # [H, held]
        keys = self.layers[layer].keys
        keys[:, :held] = turn(keys[:, :held].float(), moved[:, :, None] * self._frequencies)
