"""A tree drafter over a small world, led by the host or by the device, alone or under a middle tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tests.model.tiny import VOCAB
from tests.speculation.test_graph_runner import SMALL, START, TARGET
from triforce_core.config import SamplingParams
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache, RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.research.device_tree import DeviceTree
from triforce_core.research.tree_drafter import TreeDrafter
from triforce_core.research.tree_runner import TreeRunner
from triforce_core.research.tree_shape import TreeShape
from triforce_core.research.tree_verifier import for_trees
from triforce_core.sampling import Sampler
from triforce_core.speculation import tree
from triforce_core.speculation.drafter import Draft, Drafter
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelOnCache
from triforce_core.speculation.verifier import verify_tokens

PARAMS = [SamplingParams(), SamplingParams(temperature=1.0, seed=4),
          SamplingParams(temperature=0.7, top_k=20, top_p=0.8, seed=5)]
WIDE = TreeShape((-1, -1, -1, 0, 0, 1, 2, 3, 3, 5, 7))


class Grown:
    """A context in a full cache, and a tree drafter over it or over the small model's window."""

    def __init__(self, *, on_device: bool, kind: type | None = None, capture: Callable | None = None,
                 replacing: bool = False, max_tokens: int = 2000, reviewed: bool = False,
                 told: Callable | None = None, size: int = 12, model=None, loop: bool = False) -> None:
        c, small = TARGET.config, model or SMALL
        s = small.config
        self.context = [int(t) for t in np.random.default_rng(0).integers(VOCAB, size=START)]
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=TARGET.dtype, slots=8)
        self.full = ModelOnCache(TARGET, cache)
        self.full.feed(self.context[:-1], 0)
        self.full.commit()
        self.part: IndexedRetrievalCache | RetrievalCache | None = None
        if kind is not None:
            self.part = kind(cache, budget=64, recent=16, chunk_size=4)
            on = ModelOnCache(TARGET, self.part)
        else:
            window = StreamingCache(s.num_layers, s.num_kv_heads, s.head_dim, sinks=2, window=24, slack=8,
                                    frequencies=small.rope.frequencies, dtype=small.dtype)
            on = ModelOnCache(small, window)
            on.start(self.context, 2, 24)
        self.host = TreeDrafter(on, size, 5, follows=kind is not None, replacing=replacing, tier="draft",
                                expected=(0.5, 0.3, 0.2))
        self.drafter: Drafter = DeviceTree(self.host, capture, told) if on_device else self.host
        if reviewed:
            self.part = IndexedRetrievalCache(cache, budget=64, recent=16, chunk_size=4)
            self.drafter = HierarchicalDrafter(ModelOnCache(TARGET, self.part), self.drafter, 5,
                                               verify=for_trees(verify_tokens))
        if loop:
            self.drafter = TreeRunner(self.drafter, capture, told)

    def draft(self, levels: int, sampler: Sampler) -> Draft:
        return self.drafter.propose(self.context, levels, sampler)

    def settle(self, draft: Draft, path: Sequence[int], own: int) -> None:
        """The full cache kept ``path`` and wrote ``own``."""
        self.full.logits(self.context, draft.token_ids, draft.parents)
        self.full.keep(len(self.context), path)
        self.context += [*(draft.token_ids[node] for node in path), own]
        self.full.commit()
        self.drafter.settle(self.context, committed=True)
        if self.part is not None:
            g = torch.Generator().manual_seed(own)
            self.part.select(torch.rand(2, 2, self.part.num_chunks, generator=g))


def paths(draft: Draft) -> list[list[int]]:
    """The way to every drafted token."""
    parents = draft.parents or list(range(-1, len(draft.token_ids) - 1))
    return tree.tails(range(len(parents)), parents)
