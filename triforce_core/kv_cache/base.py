"""The one contract of every KV cache, and the bookkeeping that all kinds share.

Letters: n tokens of one pass, H KV heads, C slots (capacity), D head_dim. Batch is 1 throughout.

Life of a pass: ``begin(n)`` announces n tokens; each layer calls ``stage(layer, k, v)`` and attends the
returned view; ``keep(indices)`` names the staged tokens that survive, ``commit()`` folds survivors in.
Inner rounds only stage and keep; the outer round alone commits, so a sliding window never loses what a
rejection still needs.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ..errors import NotEnoughMemoryError
from ..kernels import gather_chunks, values_transposed

Masks = dict[tuple[int, int], "Tensor | None"]  # of layers that attend windows


class LayerBuffers:
    """keys and values [H, C, D]; slots are what the owner says they are.

    values may be a transposed view of memory laid out [H, D, C], where attention reads that faster."""

    __slots__ = ("keys", "values")
    window = 0  # tokens that attention reaches back, itself included; 0: all

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

    def make_room(self, start: int, n: int) -> None:
        """Have slots for n tokens from ``start`` on, where the owner does not see to it."""

    def view(self, start: int, n: int, mask: Tensor | None, index: ChunkIndex | None, masks: Masks) -> KVView:
        """Return what n tokens written from ``start`` on attend. mask: see KVView. masks: of this pass."""
        return KVView(self.keys, self.values, start + n, mask, index, room=self.room)

    def put(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Write k, v [n, H, D] into ``slots`` (int64 [n], on the device). May be captured."""
        for own, new in ((self.keys, k), (self.values, v)):
            own.index_copy_(1, slots, new.transpose(0, 1).to(own.dtype))

    def evict(self, committed: int) -> None:
        """Keep of so many tokens what the next ones attend: all."""

    def mark(self, committed: int) -> None:
        """Be able to go back to here, however many tokens follow."""

    def reachable(self, length: int) -> int:
        """Return the greatest length up to this one to which the context can be cut."""
        return length

    def cut(self, length: int) -> None:
        """Forget tokens from ``length`` on, which is ``reachable``."""

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


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Name the slots of whole buffers that one layer attends: per KV head, its first k chunks (chunk i is slots from
    i * size), then every slot from ``newest`` on.

    chunks: int32 [H, at least k]; bounds: int32 [2], (k, newest). Both stay where they are; their values change."""

    chunks: Tensor
    bounds: Tensor
    size: int


@dataclass(slots=True)
class KVView:
    """Show what one layer attends in one pass; valid until the next ``stage`` or ``keep`` of the same cache.

    keys, values: whole fixed buffers [H, C, D] (a slice of a bf16 buffer makes CPU products copy).
    length: slots [0, length) are filled, the n staged tokens last, in order; in a captured pass an int32 tensor [1].
    staged_mask: bool [n, m], m >= n: which of the last m staged tokens each of the n sees (also earlier passes' staged
    ones, where a tree grows level by level); None means causal. Slots before these m are seen by all n: those that
    ``index`` names, or all.
    window: of a layer that attends no more (``staged_mask`` says which of its slots that is); 0: all.
    room: where keys and values are rows of bytes and passes unpack them: for bfloat16 buffers [H, C, D] to do so in.
    """

    keys: Tensor
    values: Tensor
    length: int | Tensor
    staged_mask: Tensor | None = None
    index: ChunkIndex | None = None
    window: int = 0
    room: Callable[[], tuple[Tensor, Tensor]] | None = None


class KVCache(ABC):
    """Keys and values of one model for one conversation. Slots [0, _filled) are committed, then the staged ones.

    ``num_committed``: tokens folded in; ``length`` = committed + staged. Both count *tokens of the context*,
    also where a kind holds only some of them (streaming, retrieval). A kind decides where its slots begin and what
    commit does."""

    capturable = True  # buffers stay where they are from pass to pass: one may be captured as a graph
    lies_still: bool  # they do so within a pass
    streams = False  # each pass brings keys and values through a link, layer by layer

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, slots: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", layers: list[LayerBuffers] | None = None) -> None:
        """layers: another cache's buffers, to live in instead of own ones. Raises NotEnoughMemoryError."""
        self.num_layers, self.num_kv_heads, self.head_dim = num_layers, num_kv_heads, head_dim
        self.dtype, self.device = dtype, torch.device(device)
        self.layers = layers or [LayerBuffers(num_kv_heads, slots, head_dim, dtype, self.device)
                                 for _ in range(num_layers)]
        self.indices: Sequence[ChunkIndex | None] = [None] * num_layers  # what each layer's views leave out
        self.num_committed = 0
        self.length = 0
        self._filled = 0
        self._pass_size = 0
        self._mask: Tensor | None = None
        self._masks: Masks = {}
        self.windows = tuple(layer.window for layer in self.layers) if any(
            layer.window for layer in self.layers) else ()
        self.lies_still = self.capturable
        self.capturable = self.capturable and not self.windows  # their tokens change places between passes

    @property
    def num_staged(self) -> int:
        return self.length - self.num_committed

    @property
    def slots(self) -> int:
        """Return those of layers that attend all tokens."""
        return next((layer.slots for layer in self.layers if not layer.window), sys.maxsize)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all buffers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.slots * self.dtype.itemsize

    @property
    def next_slot(self) -> int:
        """Return the slot of the next staged token."""
        return self._filled + self.num_staged

    @property
    def addresses(self) -> tuple[int, ...]:
        """Return the addresses of all buffers: a captured pass is good for these alone."""
        return tuple(place for layer in self.layers for place in (layer.keys.data_ptr(), layer.values.data_ptr()))

    @property
    def room(self) -> int:
        """Return how many tokens can still be staged, however much the buffers grow."""
        return sys.maxsize

    @property
    def streamed_bytes(self) -> int:
        """Return the bytes brought to the device for passes so far, by a kind that keeps tokens elsewhere."""
        return 0

    def positions(self, n: int, depths: Sequence[int] | None = None) -> Tensor:
        """Return the absolute rotary positions, int64 [n], of the next n tokens to stage (depths: for a tree, counted
        from ``length``, negative where one follows a token staged before the last; None = a chain)."""
        if depths is None:
            return torch.arange(self.length, self.length + n)
        assert len(depths) == n
        return torch.tensor(depths) + self.length

    @torch.inference_mode()
    def begin(self, n: int, staged_mask: Tensor | None = None) -> None:
        """Announce a pass of n tokens, before its first ``stage``. Grows buffers if it must. staged_mask: see KVView.

        Raises NotEnoughMemoryError / ContextTooLongError when they cannot grow."""
        assert n > 0
        assert staged_mask is None or (len(staged_mask) == n <= staged_mask.shape[1] <= self.num_staged + n)
        self.make_room(n)
        self._pass_size, self._mask, self._masks = n, staged_mask, {}

    @torch.inference_mode()
    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        """Write this pass's k, v [n, H, D] (k already rotated) behind what is there; return what to attend.

        After the last layer's stage, ``length`` has grown by n."""
        n = self._pass_size
        assert k.shape == v.shape == (n, self.num_kv_heads, self.head_dim), (k.shape, n)
        buffers = self.layers[layer]
        start = self.length if buffers.window else self.next_slot
        buffers.write(start, k, v)
        if layer == self.num_layers - 1:
            self.staged_elsewhere()
        return buffers.view(start, n, self._mask, self.indices[layer], self._masks)

    def upcoming(self) -> list[KVView]:
        """Return what each layer will attend of the pass that began, which writes its keys and values itself."""
        found, n = [], self._pass_size
        for layer, index in zip(self.layers, self.indices, strict=True):
            start = self.length if layer.window else self.next_slot
            layer.make_room(start, n)
            found.append(layer.view(start, n, self._mask, index, self._masks))
        return found

    def staged_elsewhere(self) -> None:
        """Count what ``begin`` announced as staged: a captured pass has written it, from next_slot."""
        self.length += self._pass_size
        self._pass_size = 0

    @torch.inference_mode()
    def keep(self, indices: Sequence[int]) -> None:
        """Keep these of all staged tokens (ascending; a prefix or a tree path) and forget the others."""
        indices = list(indices)
        assert all(a < b for a, b in pairwise(indices)), "indices must ascend"
        assert not indices or (0 <= indices[0] and indices[-1] < self.num_staged), (indices, self.num_staged)
        prefix = 0
        while prefix < len(indices) and indices[prefix] == prefix:
            prefix += 1
        if prefix < len(indices):  # a tree path: survivors close ranks
            source = torch.tensor(indices[prefix:], device=self.device)
            for buffers in self.layers:
                first = self.num_committed if buffers.window else self._filled
                buffers.move(source + first, first + prefix)
        self.length = self.num_committed + len(indices)

    @torch.inference_mode()
    def commit(self) -> None:
        """Fold the kept tokens in. The only moment at which eviction or a copy elsewhere may happen."""
        self._filled += self.num_staged
        self.num_committed = self.length
        for layer in self.layers:
            layer.evict(self.num_committed)

    def reset(self) -> None:
        """Behave in every way like a fresh object of the same arguments from now on."""
        self.truncate(0)

    def check_integrity(self) -> None:
        """Assert every invariant that can be checked cheaply. For tests."""
        assert 0 <= self.num_committed <= self.length
        assert 0 <= self._filled and self._filled + self.num_staged <= self.slots
        assert len(self.layers) == self.num_layers
        for buffers in self.layers:
            if buffers.window:
                assert bool(torch.isfinite(buffers.keys).all() and torch.isfinite(buffers.values).all())
                continue
            keys, values = buffers.numbers(0, self.slots)
            assert keys.shape == values.shape == (self.num_kv_heads, self.slots, self.head_dim)
            assert bool(torch.isfinite(keys).all() and torch.isfinite(values).all())

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Forget back to the first ``length`` tokens, staged ones included.

        A kind that has evicted what it would need raises ValueError unless length is 0 (see ``reachable``)."""

    def reachable(self, length: int) -> int:
        """Return the greatest length up to this one to which layers that attend windows can be cut."""
        while (back := min((layer.reachable(length) for layer in self.layers), default=length)) < length:
            length = back
        return length

    def cut_windows(self, length: int) -> None:
        """Cut the layers that attend windows. Raises ValueError: ``length`` is not reachable."""
        if self.windows and self.reachable(length) < length:
            raise ValueError(f"tokens before {length} are evicted from layers that attend a window")
        for layer in self.layers:
            layer.cut(length)

    @abstractmethod
    def make_room(self, n: int) -> None:
        """Have slots for n more tokens behind the staged ones. Raises as ``begin``."""
