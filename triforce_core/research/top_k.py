"""The oracle among the policies (TriForce, arXiv 2404.11912, table 1, "top-k"): each query attends the tokens that it
scores highest in the whole context. It reads every key to know them, so it saves no time at all: it is
the upper bound on what a selection of so many tokens could be accepted for, never a way to draft.

Like ``IndexedRetrievalCache`` it lives in the full cache's buffers, this tier's staged tokens behind the committed
ones.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..kernels.reference import probabilities
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval import SharedBufferCache
from ..model import Llama


class TopKCache(SharedBufferCache):
    """Hold all that ``full`` has committed, for a model that attends the best of it (``attending_best``)."""

    chooses_ahead = False
    capturable = False  # the kernels that take a length on the device know no such rule

    def __init__(self, full: FullCache, *, budget: int) -> None:
        assert budget >= 1
        super().__init__(full)
        self.budget = budget
        self.sync()

    def select(self, mass: Tensor) -> None:
        """Nothing is chosen before a query comes: ``sync``."""
        self.sync()

    def choose(self, mass: Tensor) -> None:
        """Never called: see ``chooses_ahead``."""
        raise NotImplementedError


def attending_best(model: Llama, budget: int) -> Llama:
    """Return the model with another attention: ``top_k_attention`` over ``budget`` slots."""
    twin = copy(model)
    twin.kernels = replace(model.kernels, attention=partial(_attention, budget),
                           attends_rows=lambda *args: False, device_lengths=())
    twin.graphs = twin._fused = twin._native = None  # each has the usual attention in it
    return twin


def _attention(budget: int, queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None,
               mass_rows: int, chunk_size: int) -> tuple[Tensor, None]:
    assert not mass_rows, "nobody observes the tier that drafts"
    return top_k_attention(queries, keys, values, length, staged_mask, budget), None


def top_k_attention(queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None,
                    top_k: int) -> Tensor:
    """Attend, for each query head of each row, only the ``top_k`` slots that it scores highest."""
    n, num_heads, dim = queries.shape
    probs = probabilities(queries, keys, length, staged_mask, n)
    best = probs.topk(min(top_k, length), dim=-1, sorted=False)
    kept = torch.zeros_like(probs).scatter_(-1, best.indices, best.values / best.values.sum(-1, keepdim=True))
    return (kept @ values[:, None, :length].float()).permute(2, 0, 1, 3).reshape(n, num_heads * dim)
