"""The whole context in 8 or 4 bits: keys and values as rows of bytes (see ``kernels.kv_rows``), in half the memory of
bfloat16 or in less than a third.

Tokens are rounded when they are staged, so whoever attends this cache, for one token or for many, sees the same
numbers: speculation gives the words that plain decoding over this same cache would. Parts of it that are copied
elsewhere are the bfloat16 numbers that the rows stand for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels import KV_BITS, from_rows, row_bytes, to_rows, write_rows
from .buffers import LayerBuffers
from .full import _STEP, FullCache


class UnpackingRoom:
    """Memory on a GPU in which one layer's numbers stand while a wide pass attends them: all layers share it."""

    def __init__(self) -> None:
        self._held: Tensor | None = None

    def take(self, heads: int, slots: int, dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Buffers [H, C, D], which hold anything until they are written."""
        shape = (2, heads, slots, dim)
        if self._held is None or self._held.shape != shape:
            self._held = None
            self._held = torch.empty(shape, dtype=torch.bfloat16, device=device)
        return self._held[0], self._held[1]

    def clear(self) -> None:
        self._held = None


class RowsBuffers(LayerBuffers):
    """keys and values int8 [H, C, W], never turned. Unfilled slots are zero bytes, which stand for zeros."""

    __slots__ = ("_room", "bits", "dim")

    def __init__(self, heads: int, slots: int, dim: int, bits: int, device: torch.device,
                 room: UnpackingRoom | None = None) -> None:
        """bits: of a number. room: what layers of a cache on a GPU share. Raises NotEnoughMemoryError."""
        super().__init__(heads, slots, row_bytes(dim, bits), torch.int8, device)
        self.dim, self.bits, self._room = dim, bits, room

    @property
    def room(self) -> Callable[[], tuple[Tensor, Tensor]] | None:
        shared = self._room
        if shared is None:
            return None
        heads, slots, _ = self.keys.shape
        return lambda: shared.take(heads, slots, self.dim, self.keys.device)

    def resize(self, slots: int, keep: int) -> None:
        if self._room is not None:
            self._room.clear()  # a layer is there twice while it grows
        super().resize(slots, keep)

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        if self.keys.is_cuda:
            self.put(torch.arange(start, start + k.shape[0], device=self.keys.device), k, v)
        else:
            super().write(start, to_rows(k, self.bits), to_rows(v, self.bits))

    def put(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        write_rows(self.keys, slots, k)
        write_rows(self.values, slots, v)

    def numbers(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return copies of the numbers in slots [start, stop): bfloat16 [H, stop - start, D]."""
        return from_rows(self.keys[:, start:stop], self.dim), from_rows(self.values[:, start:stop], self.dim)


class RowsCache(FullCache):
    """A ``FullCache`` whose ``dtype`` is that of the model and of what it lends, not of what it holds."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, kind: str, max_tokens: int,
                 dtype: torch.dtype, device: torch.device | str = "cpu", slots: int = _STEP) -> None:
        """kind: "int8" or "int4". See FullCache. Raises NotEnoughMemoryError."""
        self.kind, self._bits = kind, KV_BITS[kind]
        at = torch.device(device)
        room = UnpackingRoom() if at.type == "cuda" else None
        layers: list[LayerBuffers] = [
            RowsBuffers(num_kv_heads, min(slots, max_tokens), head_dim, self._bits, at, room)
            for _ in range(num_layers)]
        super().__init__(num_layers, num_kv_heads, head_dim, max_tokens=max_tokens, dtype=dtype, device=device,
                         layers=layers)

    @property
    def nbytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * row_bytes(self.head_dim, self._bits) * self.slots

    def numbers(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.layers[layer].numbers(start, stop)

    def lend_chunks(self, layer: int, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        size = chunks.shape[1] * chunk_size
        gathered = RowsBuffers(self.num_kv_heads, size, self.head_dim, self._bits, self.device)
        gathered.gather(self.layers[layer], chunks, chunk_size)
        into.copy(0, gathered, 0, size)
