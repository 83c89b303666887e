"""The whole context in int8: keys and values as rows of bytes (see ``kernels.int8_rows``), in half the memory or less.

Tokens are rounded when they are staged, so whoever attends this cache, for one token or for many, sees the same
numbers: speculation gives the words that plain decoding over this same cache would. Parts of it that are copied
elsewhere are the bfloat16 numbers that the rows stand for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels import from_rows, row_bytes, to_rows
from .buffers import LayerBuffers
from .full import _STEP, FullCache


class Int8Buffers(LayerBuffers):
    """keys and values int8 [H, C, W], never turned. Unfilled slots are zero bytes, which stand for zeros."""

    __slots__ = ("dim",)

    def __init__(self, heads: int, slots: int, dim: int, device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        super().__init__(heads, slots, row_bytes(dim), torch.int8, device)
        self.dim = dim

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        super().write(start, to_rows(k), to_rows(v))

    def numbers(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Of slots [start, stop): bfloat16 [H, stop - start, D], copies."""
        return from_rows(self.keys[:, start:stop], self.dim), from_rows(self.values[:, start:stop], self.dim)


class Int8Cache(FullCache):
    """A ``FullCache`` whose ``dtype`` is that of the model and of what it lends, not of what it holds."""

    kind = "int8"

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, max_tokens: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", slots: int = _STEP) -> None:
        """See FullCache. Raises NotEnoughMemoryError."""
        at = torch.device(device)
        layers: list[LayerBuffers] = [Int8Buffers(num_kv_heads, min(slots, max_tokens), head_dim, at)
                                      for _ in range(num_layers)]
        super().__init__(num_layers, num_kv_heads, head_dim, max_tokens=max_tokens, dtype=dtype, device=device,
                         layers=layers)

    @property
    def nbytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * row_bytes(self.head_dim) * self.slots

    def numbers(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.layers[layer].numbers(start, stop)

    def lend_chunks(self, layer: int, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        size = chunks.shape[1] * chunk_size
        gathered = Int8Buffers(self.num_kv_heads, size, self.head_dim, self.device)
        gathered.gather(self.layers[layer], chunks, chunk_size)
        into.copy(0, gathered, 0, size)
