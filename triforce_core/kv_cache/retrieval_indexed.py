"""The part of a full cache that matters now, attended where it lies: a selection is an index, nothing is copied.

The same choice as ``RetrievalCache`` makes (chunk 0, the chunks with the most mass, the newest tokens), for devices
whose attention follows an index at memory speed. This tier's staged tokens are written behind the full cache's
committed ones, at their own absolute slots, so that newest and staged tokens are one run. The full cache stages nothing
while this tier does, and its next pass begins at the first of those slots and writes its own keys and values over them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .base import ChunkIndex
from .full import FullCache
from .retrieval_copied import ChosenChunks, FollowingCache


class SharedBufferCache(FollowingCache):
    """Share the full cache's buffers and committed tokens; kinds differ in what of it they attend. The full cache
    stages nothing while this one does, and its next pass writes over what was staged here."""

    def __init__(self, full: FullCache) -> None:
        super().__init__(full.num_layers, full.num_kv_heads, full.head_dim, slots=0, dtype=full.dtype,
                         device=full.device, layers=full.layers)
        self.full = full

    def _make_room(self, n: int) -> None:
        assert self.full.num_staged == 0 and self.full.num_committed == self.num_committed
        self.full.make_room(self.num_staged + n)

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        self.length = length
        self.num_committed = self._filled = min(length, self.num_committed)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._filled == self.num_committed <= self.full.num_committed


class IndexedRetrievalCache(ChosenChunks, SharedBufferCache):
    """``budget`` tokens of ``full`` per layer and KV head at the last selection, then those committed since."""

    chooses_ahead = True

    def __init__(self, full: FullCache, *, budget: int, chunk_size: int = 8, recent: int = 64) -> None:
        """recent: newest tokens attended at least, within the budget. Follows what ``full`` has committed already."""
        assert chunk_size >= 1 and recent >= 0
        assert budget >= recent + 2 * chunk_size, (budget, recent, chunk_size)
        super().__init__(full)
        self.budget, self.chunk_size, self.recent = budget, chunk_size, recent
        with torch.inference_mode(False):
            self._chunks = torch.zeros(full.num_layers, full.num_kv_heads, budget // chunk_size, dtype=torch.int32,
                                       device=full.device)
            self._bounds = torch.zeros(2, dtype=torch.int32, device=full.device)
        self.indices = [ChunkIndex(chunks, self._bounds, chunk_size) for chunks in self._chunks]
        self._held = 0  # chunks per KV head, chunk 0 included
        self._newest = 0  # context position of the first token of the run
        self._mark = full.mark
        self.sync()

    @property
    def selection(self) -> Tensor | None:
        """int32 [layers, H, k] chunk numbers, or None: everything is attended."""
        return self._chunks[:, :, : self._held] if self._held else None

    @property
    def nbytes(self) -> int:
        """Bytes of its own: the index."""
        return self._chunks.nbytes + self._bounds.nbytes

    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped.

        Without a selection (also after the full cache was cut back into what was selected), everything is attended
        while it fits the budget; otherwise the newest tokens and chunk 0, until the next ``select``."""
        lowest = self.full.lowest_since(self._mark)
        self._mark = self.full.mark
        self.num_committed = self.length = self._filled = self.full.num_committed
        if lowest is not None and lowest < self._newest:
            self._point(0, 0)
        if not self._held and self.num_committed > self.budget:
            self._choose(None)

    def select(self, mass: Tensor) -> None:
        """Attend the chunks with the most ``mass`` [layers, H, chunks] (fewer chunks than there are: the rest count
        nothing), chunk 0 and the newest tokens; be level with the full cache. Waits for nothing on the device."""
        self.choose(mass)
        self._mark = self.full.mark
        self.num_committed = self.length = self._filled = self.full.num_committed

    def choose(self, mass: Tensor) -> None:
        """``select`` while tokens are staged, which stay so, and in the full cache too: what is committed of them is
        attended with the newest. Without a ``sync`` in between the full cache must not be cut."""
        assert mass.shape[:2] == (self.num_layers, self.num_kv_heads), mass.shape
        self._choose(mass)

    @torch.inference_mode()
    def _choose(self, mass: Tensor | None) -> None:
        if self.full.num_committed <= self.budget:
            self._point(0, 0)
            return
        newest, wanted = self._division()
        if mass is None:  # nothing known yet: a plain recent window
            newest -= wanted * self.chunk_size
            wanted = 0
        else:
            self._chunks[:, :, 1 : wanted + 1] = self._heaviest(mass, wanted, newest)
        self._point(wanted + 1, newest)

    def _point(self, held: int, newest: int) -> None:
        self._held, self._newest = held, newest
        # Filled one by one: a launch carries its number along, a copy from the host would wait for the device.
        self._bounds[0].fill_(held)
        self._bounds[1].fill_(newest)

    def truncate(self, length: int) -> None:
        """Raises ValueError if ``length`` cuts into the selection; select again (or reset) after such a cut."""
        assert 0 <= length <= self.length, (length, self.length)
        if length == 0:
            self._point(0, 0)
        elif length < self._newest:
            raise ValueError(f"tokens after {self._newest} are attended whole; {length} needs a new selection")
        super().truncate(length)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._bounds.tolist() == [self._held, self._newest]
        assert bool((self._chunks[:, :, :1] == 0).all())
        assert bool((self._chunks[:, :, : self._held].long() * self.chunk_size < max(1, self._newest)).all())
