"""One layer's keys and values: a pair of whole buffers that grow, and the copies caches need. Knows no policy.

Letters: H KV heads, C slots, D head_dim, n tokens. Buffers start as zeros and never hold anything but what was
written: an unfilled slot is finite, so that a probability of zero times it is zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import NotEnoughMemoryError
from ..kernels import gather_chunks, values_transposed


class LayerBuffers:
    """keys and values [H, C, D]; slots are what the owner says they are.

    values may be a transposed view of memory laid out [H, D, C], where attention reads that faster."""

    __slots__ = ("keys", "values")

    def __init__(self, heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        self.keys, self.values = _pair(heads, slots, dim, dtype, device)

    @property
    def slots(self) -> int:
        return self.keys.shape[1]

    @property
    def room(self) -> Callable[[], tuple[Tensor, Tensor]] | None:
        """See KVView."""
        return None

    def resize(self, slots: int, keep: int) -> None:
        """Take new buffers of ``slots`` slots, the first ``keep`` copied. Raises NotEnoughMemoryError, nothing
        changed."""
        heads, _, dim = self.keys.shape
        keys, values = _pair(heads, slots, dim, self.keys.dtype, self.keys.device)
        keys[:, :keep] = self.keys[:, :keep]
        values[:, :keep] = self.values[:, :keep]
        self.keys, self.values = keys, values

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        """Write k, v [n, H, D] into slots [start, start + n)."""
        n = k.shape[0]
        self.keys[:, start : start + n] = k.transpose(0, 1)
        self.values[:, start : start + n] = v.transpose(0, 1)

    def put(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Write k, v [n, H, D] into ``slots`` (int64 [n], on the device). May be captured."""
        for own, new in ((self.keys, k), (self.values, v)):
            own.index_copy_(1, slots, new.transpose(0, 1).to(own.dtype))

    def move(self, source: Tensor, target: int) -> None:
        """Copy slots ``source`` (int64 [m], ascending) to [target, target + m)."""
        stop = target + source.numel()
        self.keys[:, target:stop] = self.keys.index_select(1, source)
        self.values[:, target:stop] = self.values.index_select(1, source)

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of slots [start, stop) as they are held: views, valid until the next write."""
        return self.keys[:, start:stop], self.values[:, start:stop]

    def restore(self, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Return places for the keys and values of that many tokens, all others forgotten."""
        return self.read(0, num_tokens)

    def numbers(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return ``read`` in a type to compute with: [H, stop - start, D], views or copies."""
        return self.read(start, stop)

    def lend(self, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        """Copy slots [start, stop) to slots [at, at + stop - start) of ``into``."""
        end = at + stop - start
        into.keys[:, at:end], into.values[:, at:end] = self.numbers(start, stop)

    def lend_chunks(self, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        """Copy chunks (int64 [H, k]; chunk i is slots from i * chunk_size) to slots [0, k * chunk_size) of ``into``.
        Cheap at any time here; where layers stream by, between a layer's attention and the next ``stage`` (an
        observer's moment)."""
        gather_chunks(into.keys, self.keys, chunks, chunk_size)
        if into.values.is_contiguous() and self.values.is_contiguous():
            gather_chunks(into.values, self.values, chunks, chunk_size)
        else:
            _gather_columns(into.values.transpose(1, 2), self.values.transpose(1, 2), chunks, chunk_size)


def _gather_columns(own: Tensor, source: Tensor, chunks: Tensor, chunk_size: int) -> None:
    """[H, D, C]: a chunk is a few bytes in each of D rows, moved as one wide number where there is one that size."""
    heads, k = chunks.shape
    size = k * chunk_size
    wide = {4: torch.int32, 8: torch.int64, 16: torch.complex128}.get(chunk_size * source.element_size())
    if wide is not None and source.shape[2] % chunk_size == 0 and own.shape[2] % chunk_size == 0:
        index = chunks[:, None].expand(heads, source.shape[1], k)
        own.view(wide)[:, :, :k] = source.view(wide).gather(2, index)
        return
    steps = torch.arange(chunk_size, device=chunks.device)
    slots = (chunks[:, :, None] * chunk_size + steps).view(heads, 1, size).expand(heads, source.shape[1], size)
    own[:, :, :size] = source.gather(2, slots)


def _pair(heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    turned = values_transposed(device, dtype)
    try:
        with torch.inference_mode(False):  # also when growing inside a pass: anyone may write to a buffer
            keys = torch.zeros(heads, slots, dim, dtype=dtype, device=device)
            values = torch.zeros(*((heads, dim, slots) if turned else (heads, slots, dim)), dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        raise too_little((2, heads, slots, dim), dtype) from error
    return keys, values.transpose(1, 2) if turned else values


def too_little(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, kind: str = "") -> NotEnoughMemoryError:
    """Return the error for [2, H, slots, D] keys and values that found no memory of this kind ("host ")."""
    megabytes = torch.Size(shape).numel() * dtype.itemsize / 2**20
    return NotEnoughMemoryError(f"No {megabytes:,.0f} MiB of {kind}memory for {shape[2]:,} tokens of keys and values "
                                "in a layer",
                                remedy="Choose fewer pages, a smaller --max-context, or close other programs.")
