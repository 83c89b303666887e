"""The oracle among the policies (TriForce, arXiv 2404.11912, table 1, "top-k"): each query attends the tokens that it
scores highest in the whole context. It reads every key to know them, so it saves no time at all: it is
the upper bound on what a selection of so many tokens could be accepted for, never a way to draft.

Like ``IndexedRetrievalCache`` it lives in the full cache's buffers, this tier's staged tokens behind the committed
ones.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..kv_cache.base import KVView
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval_indexed import SharedBufferCache


class TopKCache(SharedBufferCache):
    """All that ``full`` has committed; a view asks attention for the ``budget`` best slots of each query head."""

    chooses_ahead = False
    capturable = False  # the kernels that take a length on the device know no such rule

    def __init__(self, full: FullCache, *, budget: int) -> None:
        assert budget >= 1
        super().__init__(full)
        self.budget = budget
        self.sync()

    @property
    def nbytes(self) -> int:
        """Bytes of its own."""
        return 0

    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""
        self.num_committed = self.length = self._filled = self.full.num_committed

    def select(self, mass: Tensor) -> None:
        """Nothing is chosen before a query comes: ``sync``."""
        self.sync()

    def choose(self, mass: Tensor) -> None:
        """Never called: see ``chooses_ahead``."""
        raise NotImplementedError

    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        return replace(super().stage(layer, k, v), top_k=self.budget)
