"""A cache that lives in a full cache's buffers: staged tokens stand behind the committed ones, at their own slots."""

from __future__ import annotations

from abc import abstractmethod

from .full import FullCache
from .staging import StagingCache


class SharedBufferCache(StagingCache):
    """What is committed is the full cache's; kinds differ in what of it they attend. The full cache stages nothing
    while this one does, and its next pass writes over what was staged here."""

    def __init__(self, full: FullCache) -> None:
        super().__init__(full.num_layers, full.num_kv_heads, full.head_dim, slots=0, dtype=full.dtype,
                         device=full.device, layers=full.layers)
        self.full = full

    @abstractmethod
    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""

    def _make_room(self, n: int) -> None:
        assert self.full.num_staged == 0 and self.full.num_committed == self.num_committed
        self.full.make_room(self.num_staged + n)

    def commit(self) -> None:
        """The full cache commits, this one follows: see ``sync``."""
        self.sync()

    def _committed(self, added: int) -> None:
        raise AssertionError("sync replaces the common commit")

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        self.length = length
        self.num_committed = self._filled = min(length, self.num_committed)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._filled == self.num_committed <= self.full.num_committed
