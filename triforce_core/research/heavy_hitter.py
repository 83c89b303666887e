"""H2O (arXiv 2306.14048): the tokens that all queries so far attended most, and as many of the newest; what has been
evicted never comes back. A comparison: what a question asks for late, nobody attended early.

A selection like retrieval's, of single tokens instead of chunks, so the same buffers serve. The published code takes
softmax probabilities summed over queries, per head; here a KV head sums over its group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kv_cache.full import FullCache
from ..kv_cache.retrieval import RetrievalCache


class HeavyHitterCache(RetrievalCache):
    """``budget`` tokens of ``full`` per layer and KV head: token 0, the heaviest, the ``recent`` newest.

    With ``frequencies`` it is Streaming-H2O: the same tokens at positions inside the cache."""

    def __init__(self, full: FullCache, *, budget: int, recent: int, frequencies: Tensor | None = None) -> None:
        self._alive: Tensor | None = None  # bool [layers, H, n]: not evicted, of the first n tokens
        super().__init__(full, budget=budget, chunk_size=1, recent=recent, frequencies=frequencies)

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
