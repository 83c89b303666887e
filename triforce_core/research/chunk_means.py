"""Chunks scored by the query against the mean of their keys (TriForce, arXiv 2404.11912, 4.1), with the means kept.

Means of whole chunks never change while their tokens stay, so only new chunks are read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..engine.loading import Loaded
from ..engine.pipeline import AttentionMass, Pipeline, PipelineParts
from ..engine.plan import Plan
from ..kv_cache.full import FullCache
from ..speculation.model_drafter import ModelOnCache


class LastQueries(AttentionMass):
    """Remember the newest observed pass's last query of every layer, too."""

    def __init__(self, chunk_size: int, mass_rows: int) -> None:
        super().__init__(chunk_size, mass_rows)
        self._queries: dict[int, Tensor] = {}

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        super().see(layer, queries, mass)
        self._queries[layer] = queries[-1:]

    @property
    def latest_queries(self) -> Tensor:
        """Return [layers, 1, query_heads, D]."""
        return torch.stack([self._queries[layer] for layer in sorted(self._queries)])


class ChunkMeans:
    """Keep the mean keys of every whole chunk of a full cache's committed tokens, per layer and KV head."""

    def __init__(self, full: FullCache, chunk_size: int) -> None:
        assert chunk_size >= 1
        self.full, self.chunk_size = full, chunk_size
        empty = torch.zeros(full.num_kv_heads, 0, full.head_dim, device=full.device)
        self._means = [empty] * full.num_layers  # fp32 [H, at least num_chunks, D]
        self.num_chunks = 0
        self._mark = full.mark

    @torch.inference_mode()
    def update(self) -> None:
        """Be level with the full cache's committed tokens."""
        lowest = self.full.lowest_since(self._mark)
        self._mark = self.full.mark
        size, wanted = self.chunk_size, self.full.num_committed // self.chunk_size
        known = min(self.num_chunks, wanted, self.num_chunks if lowest is None else lowest // size)
        if known < wanted:
            for layer, means in enumerate(self._means):
                keys, _ = self.full.layers[layer].numbers(known * size, wanted * size)
                fresh = keys.unflatten(1, (wanted - known, size)).float().mean(2)
                self._means[layer] = torch.cat((means[:, :known], fresh), 1)
        self.num_chunks = wanted

    @torch.inference_mode()
    def score(self, queries: Tensor) -> Tensor:
        """Return fp32 [layers, H, num_chunks] by queries [layers, r, query_heads, D], rotated.

        Query times mean key, as a softmax over chunks summed over rows and the group's heads (a sum of raw products
        would let one head with long vectors decide for its group)."""
        layers, rows, num_heads, dim = queries.shape
        heads = self.full.num_kv_heads
        assert layers == self.full.num_layers and num_heads % heads == 0
        by_head = queries.float().view(layers, rows, heads, -1, dim).permute(0, 2, 1, 3, 4).flatten(2, 3)
        found = []
        for layer, means in enumerate(self._means):
            products = torch.bmm(by_head[layer], means[:, : self.num_chunks].transpose(1, 2)) * dim**-0.5
            found.append(products.softmax(-1).sum(1))
        return torch.stack(found)


class MeansPipeline(Pipeline):
    """Choose chunks by the last query against the means of their keys."""

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, observer: LastQueries,
                 parts: PipelineParts) -> None:
        super().__init__(loaded, full, plan, observer, parts)
        self._queries, self._means = observer, ChunkMeans(full.cache, plan.chunk_size)

    def overlap(self) -> None:
        """Choose nothing ahead: means are of what is committed."""

    def _scores(self) -> Tensor | None:
        if self.observer.latest is None:
            return None
        self._means.update()
        return self.target.kernels.look_ahead(self._means.score(self._queries.latest_queries))
