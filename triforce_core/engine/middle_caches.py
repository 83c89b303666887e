"""What the middle tier attends: which cache stands for which policy, for those that hold a part of the full cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..config import HEAVY_HITTERS
from ..drafters.model import MAX_FORCED
from ..drafters.prompt_lookup import MOST_COPIED
from ..errors import ConfigError
from ..kv_cache.full import FullCache
from ..kv_cache.offloaded import OffloadedCache
from ..kv_cache.retrieval_copied import RetrievalCache
from ..kv_cache.retrieval_indexed import IndexedCache
from ..model import Llama
from ..research.heavy_hitter import HeavyHitterCache
from ..research.top_k import TopKCache
from .plan import Dials

PartCache = RetrievalCache | IndexedCache | TopKCache  # each follows its full cache


def part_cache(target: Llama, full: FullCache, dials: Dials) -> PartCache:
    """Raises ConfigError: not every policy can follow a cache in host memory."""
    kind = dials.middle_cache
    if kind != "retrieval" and isinstance(full, OffloadedCache):
        raise ConfigError(f"middle_cache is {kind!r} and the cache is in host memory", allowed="retrieval, streaming",
                          remedy="It needs every token's attention, or every key, at hand.")
    if kind in HEAVY_HITTERS:
        return HeavyHitterCache(full, budget=dials.budget, recent=dials.recent,
                                frequencies=target.rope.frequencies if kind == "streaming-h2o" else None)
    if kind == "top-k":
        return TopKCache(full, budget=dials.budget)
    settings: dict[str, Any] = {"budget": dials.budget, "chunk_size": dials.chunk_size, "recent": dials.recent}
    if isinstance(full, OffloadedCache):
        if dials.refresh == "chunk-means":
            raise ConfigError("refresh is 'chunk-means' and the cache is in host memory", allowed="attention",
                              remedy="Means would have to be read through the link; attention is known anyway.")
        # A long draft's tokens, and the last one's, whose selection was made before they were committed.
        longest = dials.longest + max(dials.gamma1s) + 1 + MAX_FORCED + dials.ngram_tail + MOST_COPIED * dials.ngram
        longest = max(longest + dials.tree_size, dials.straight + 1)
        return RetrievalCache(full, **settings, slack=2 * longest)
    return (IndexedCache if target.retrieves_in_place else RetrievalCache)(full, **settings)


def follow(retrieval: PartCache, look_ahead: Callable[[Tensor], Tensor]) -> Callable[[int, Tensor], None]:
    """Chooses a layer's chunks when its mass is known. No method: the observer must not hold the hierarchy."""
    assert isinstance(retrieval, RetrievalCache)
    return lambda layer, mass: retrieval.select_layer(layer, look_ahead(mass))
