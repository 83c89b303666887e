"""One layer's keys and values: a pair of whole buffers that grow, and the copies caches need. Knows no policy.

Letters: H KV heads, C slots, D head_dim, n tokens. Buffers start as zeros and never hold anything but what was
written: an unfilled slot is finite, so that a probability of zero times it is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import NotEnoughMemoryError


class LayerBuffers:
    """keys and values [H, C, D]; slots are what the owner says they are."""

    __slots__ = ("keys", "values")

    def __init__(self, heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        self.keys = _zeros(heads, slots, dim, dtype, device)
        self.values = _zeros(heads, slots, dim, dtype, device)

    @property
    def slots(self) -> int:
        return self.keys.shape[1]

    def resize(self, slots: int, keep: int) -> None:
        """New buffers of ``slots`` slots with the first ``keep`` copied. Raises NotEnoughMemoryError, nothing changed."""
        heads, _, dim = self.keys.shape
        fresh_keys = _zeros(heads, slots, dim, self.keys.dtype, self.keys.device)
        fresh_values = _zeros(heads, slots, dim, self.keys.dtype, self.keys.device)
        fresh_keys[:, :keep] = self.keys[:, :keep]
        fresh_values[:, :keep] = self.values[:, :keep]
        self.keys, self.values = fresh_keys, fresh_values

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        """k, v [n, H, D] into slots [start, start + n)."""
        n = k.shape[0]
        self.keys[:, start : start + n] = k.transpose(0, 1)
        self.values[:, start : start + n] = v.transpose(0, 1)

    def move(self, source: Tensor, target: int) -> None:
        """Slots ``source`` (int64 [m], ascending) to [target, target + m); target <= source[0]."""
        stop = target + source.numel()
        self.keys[:, target:stop] = self.keys.index_select(1, source)
        self.values[:, target:stop] = self.values.index_select(1, source)

    def gather(self, source: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        """Chunks of ``source`` (int64 [H, k], in chunks of ``chunk_size`` slots) to slots [0, k * chunk_size)."""
        heads, k = chunks.shape
        dim = self.keys.shape[-1]
        whole = source.slots // chunk_size  # chunks per head; a ragged end is never selected
        for own, other in ((self.keys, source.keys), (self.values, source.values)):
            for head in range(heads):
                table = other[head, : whole * chunk_size].view(whole, chunk_size * dim)
                torch.index_select(table, 0, chunks[head], out=own[head, : k * chunk_size].view(k, chunk_size * dim))


def _zeros(heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    try:
        with torch.inference_mode(False):  # also when growing inside a pass: anyone may write to a buffer
            return torch.zeros(heads, slots, dim, dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        megabytes = heads * slots * dim * dtype.itemsize / 2**20
        raise NotEnoughMemoryError(f"No {megabytes:.0f} MiB of memory for {slots} tokens of keys in one layer",
                                   remedy="Choose fewer pages, or a smaller --max-context.") from error
