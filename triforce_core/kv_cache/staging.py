"""Do what every cache of the contract does alike: staged tokens behind committed ones, in one buffer pair per layer.

A kind decides where its slots begin (``_filled``: slots in use by committed tokens) and what commit does.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from .base import ChunkIndex, KVCache, KVView
from .buffers import LayerBuffers


class StagingCache(KVCache):
    """Bookkeeping of begin, stage and keep. Slots [0, _filled) are committed, then the staged ones in order."""

    indices: Sequence[ChunkIndex | None]  # of each layer: what its views leave out

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, slots: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", layers: list[LayerBuffers] | None = None) -> None:
        """layers: another cache's buffers, to live in instead of own ones."""
        self.num_layers, self.num_kv_heads, self.head_dim = num_layers, num_kv_heads, head_dim
        self.dtype, self.device = dtype, torch.device(device)
        self.layers = layers or [LayerBuffers(num_kv_heads, slots, head_dim, dtype, self.device)
                                 for _ in range(num_layers)]
        self.indices = [None] * num_layers
        self.num_committed = 0
        self.length = 0
        self._filled = 0
        self._pass_size = 0
        self._mask: Tensor | None = None

    @property
    def num_staged(self) -> int:
        return self.length - self.num_committed

    @property
    def slots(self) -> int:
        return self.layers[0].slots

    @property
    def room(self) -> int:
        """Tokens that can still be staged, however much the buffers grow."""
        return sys.maxsize

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.slots * self.dtype.itemsize

    def positions(self, n: int, depths: Sequence[int] | None = None) -> Tensor:
        if depths is None:
            return torch.arange(self.length, self.length + n)
        assert len(depths) == n
        return torch.tensor(depths) + self.length

    @torch.inference_mode()
    def begin(self, n: int, staged_mask: Tensor | None = None) -> None:
        assert n > 0
        assert staged_mask is None or (len(staged_mask) == n <= staged_mask.shape[1] <= self.num_staged + n)
        self._make_room(n)
        self._pass_size, self._mask = n, staged_mask

    @torch.inference_mode()
    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        n = self._pass_size
        assert k.shape == v.shape == (n, self.num_kv_heads, self.head_dim), (k.shape, n)
        start = self.next_slot
        buffers = self.layers[layer]
        buffers.write(start, k, v)
        if layer == self.num_layers - 1:
            self.length += n
            self._pass_size = 0
        return KVView(buffers.keys, buffers.values, start + n, self._mask, self.indices[layer], room=buffers.room)

    @property
    def next_slot(self) -> int:
        """Where the next staged token goes."""
        return self._filled + self.num_staged

    @property
    def addresses(self) -> tuple[int, ...]:
        """Return the addresses of all buffers: a captured pass is good for these alone."""
        return tuple(place for layer in self.layers for place in (layer.keys.data_ptr(), layer.values.data_ptr()))

    def staged_elsewhere(self) -> None:
        """Instead of every layer's ``stage``: a captured pass has written what ``begin`` announced, from next_slot."""
        self.length += self._pass_size
        self._pass_size = 0

    @torch.inference_mode()
    def keep(self, indices: Sequence[int]) -> None:
        indices = list(indices)
        assert all(a < b for a, b in pairwise(indices)), "indices must ascend"
        assert not indices or (0 <= indices[0] and indices[-1] < self.num_staged), (indices, self.num_staged)
        prefix = 0
        while prefix < len(indices) and indices[prefix] == prefix:
            prefix += 1
        if prefix < len(indices):  # a tree path: survivors close ranks
            source = torch.tensor(indices[prefix:], device=self.device) + self._filled
            for buffers in self.layers:
                buffers.move(source, self._filled + prefix)
        self.length = self.num_committed + len(indices)

    @torch.inference_mode()
    def commit(self) -> None:
        added = self.num_staged
        self.num_committed, self._filled = self.length, self._filled + added
        self._committed(added)

    def check_integrity(self) -> None:
        assert 0 <= self.num_committed <= self.length
        assert 0 <= self._filled and self._filled + self.num_staged <= self.slots
        assert len(self.layers) == self.num_layers
        for buffers in self.layers:
            keys, values = buffers.numbers(0, self.slots)
            assert keys.shape == values.shape == (self.num_kv_heads, self.slots, self.head_dim)
            assert bool(torch.isfinite(keys).all() and torch.isfinite(values).all())

    @abstractmethod
    def _make_room(self, n: int) -> None:
        """Slots for n more tokens behind the staged ones. Raises as ``begin``."""

    @abstractmethod
    def _committed(self, added: int) -> None:
        """``added`` tokens have just been folded in: evict, if this kind does."""
