"""One layer's keys and values in host memory, page-locked where a GPU copies from it. Knows no policy.

Letters: H KV heads, D head_dim, m tokens.

Memory comes in segments that never move: growth copies nothing, and a copy that is still under way stays valid. It is
mapped and registered here rather than taken from torch's pinned allocator, which rounds each piece up to a power of two
(of a 61 GiB cache that may be 60 GiB more). Locking touches every page, which takes seconds: ``lock`` is
a step of its own, so that whoever waits can say so. Copies are right without it, only not beside the computation.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import NotEnoughMemoryError


class HostLayer:
    """Token i of the context lies at slot i. ``filled``: tokens that are here (or on their way: see ``written``)."""

    def __init__(self, heads: int, slots: int, dim: int, dtype: torch.dtype, *, for_gpu: bool) -> None:
        """Raises NotEnoughMemoryError."""
        self._heads, self._dim, self._dtype, self._for_gpu = heads, dim, dtype, for_gpu
        self._segments: list[tuple[int, Tensor]] = []  # first token; [2, H, m, D], keys then values
        self._unlocked: list[Tensor] = []
        self.slots = 0
        self.filled = 0
        self.written: torch.cuda.Event | None = None  # after it, all ``filled`` tokens have arrived
        self.grow(slots)

    def grow(self, slots: int) -> None:
        """Room for ``slots`` tokens, behind what there is. Raises NotEnoughMemoryError, nothing changed."""
        if slots <= self.slots:
            return
        shape = (2, self._heads, slots - self.slots, self._dim)
        try:
            with torch.inference_mode(False):  # also when growing inside a pass: anyone may write to it
                segment = _mapped(shape, self._dtype) if self._for_gpu else torch.zeros(shape, dtype=self._dtype)
        except (OSError, RuntimeError, MemoryError) as error:
            raise _too_little(shape, self._dtype) from error
        self._segments.append((self.slots, segment))
        if self._for_gpu:
            self._unlocked.append(segment)
        self.slots = slots

    def lock(self) -> None:
        """Page-lock what is not yet. Raises NotEnoughMemoryError."""
        while self._unlocked:
            segment = self._unlocked[0]
            segment.mul_(1)  # touched by all cores: the driver alone would take page after page
            size = segment.numel() * segment.element_size()
            if int(torch.cuda.cudart().cudaHostRegister(segment.data_ptr(), size, 0)) != 0:
                raise _too_little(segment.shape, self._dtype)
            weakref.finalize(self, _unlock, segment).atexit = False  # a process that ends needs no tidying
            del self._unlocked[0]

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Tokens [start, stop) as (first token, keys [H, m, D], values [H, m, D]): views, one per segment."""
        for first, segment in self._segments:
            low, high = max(start, first), min(stop, first + segment.shape[2])
            if low < high:
                part = segment[:, :, low - first : high - first]
                yield low, part[0], part[1]

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values [H, stop - start, D]: views if one segment holds them all, otherwise copies. Waits."""
        self.wait()
        parts = list(self.runs(start, stop))
        if not parts:
            empty = torch.zeros(self._heads, 0, self._dim, dtype=self._dtype)
            return empty, empty
        if len(parts) == 1:
            return parts[0][1], parts[0][2]
        return torch.cat([keys for _, keys, _ in parts], 1), torch.cat([values for *_, values in parts], 1)

    def write(self, start: int, keys: Tensor, values: Tensor) -> None:
        """[H, m, D] from host or device to tokens [start, start + m). Waits."""
        self.wait()
        for first, own_keys, own_values in self.runs(start, start + keys.shape[1]):
            part = slice(first - start, first - start + own_keys.shape[1])
            own_keys.copy_(keys[:, part])
            own_values.copy_(values[:, part])

    def wait(self) -> None:
        """Until all that is on its way has arrived."""
        if self.written is not None:
            self.written.synchronize()
            self.written = None

    def one_segment(self) -> None:
        """Forget all tokens; the same room in one piece. Raises NotEnoughMemoryError."""
        self.wait()
        self.filled = 0
        if len(self._segments) > 1:
            slots, self._segments, self._unlocked, self.slots = self.slots, [], [], 0
            self.grow(slots)


def send(target: Tensor, source: Tensor) -> None:
    """[H, m, D] between host and device in the current stream, or within one of them. Head by head between them: only
    what is contiguous on both sides is one transfer that nobody waits for."""
    if target.is_cuda == source.is_cuda:
        target.copy_(source)
        return
    for to, origin in zip(target, source, strict=True):
        to.copy_(origin, non_blocking=True)


def _mapped(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros in fresh pages, large ones where the system has them: fewer to lock."""
    count = torch.Size(shape).numel()
    memory = mmap.mmap(-1, count * dtype.itemsize)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def _unlock(segment: Tensor) -> None:
    torch.cuda.synchronize()  # copies from or to it may be under way
    torch.cuda.cudart().cudaHostUnregister(segment.data_ptr())


def _too_little(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> NotEnoughMemoryError:
    megabytes = torch.Size(shape).numel() * dtype.itemsize / 2**20
    return NotEnoughMemoryError(f"No {megabytes:,.0f} MiB of host memory for {shape[2]:,} tokens of keys and values in "
                                "a layer", remedy="Choose fewer pages, or close other programs.")
