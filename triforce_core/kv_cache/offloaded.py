"""The whole context where GPU memory is too small for it: layers in host memory, streamed through the GPU each pass.

Of a streamed layer the host holds the oldest tokens (``HostLayer.filled``), the GPU a short tail with all newer ones.
A pass over a few tokens appends to the tail; one for which the tail has no room sends the tail to the host, and a
wide one (prefill) its own tokens too. Either way a layer's buffers in the ring are put together as [host | tail | new]
and look to attention exactly like a full cache's: the same kernel over the same numbers gives the same text.

What the host holds of staged tokens counts for nothing until they are committed: a shorter ``length`` is all it takes
to forget them. Passes are never captured as graphs: their buffers change places.

Letters: H KV heads, D head_dim, m tokens.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import LayerBuffers, too_little
from .full import STEP, FullCache

TAIL = 256  # newest tokens of a streamed layer that stay on the device
RING_BUFFERS = 2  # a layer takes far longer to come in than to be attended


class HostLayer:
    """One layer's keys and values in host memory, page-locked where a GPU copies from it: token i lies at slot i.
    ``filled``: tokens that are here (or on their way: see ``written``).

    Memory comes in segments that never move: growth copies nothing, and a copy that is still under way stays valid. It
    is mapped and registered here, not taken from torch's pinned allocator, which rounds each piece up to a power of two
    (of a 61 GiB cache that may be 60 GiB more)."""

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
        """Make room for ``slots`` tokens, behind what there is. Raises NotEnoughMemoryError, nothing changed."""
        if slots <= self.slots:
            return
        shape = (2, self._heads, slots - self.slots, self._dim)
        try:
            with torch.inference_mode(False):  # also when growing inside a pass: anyone may write to it
                segment = _mapped(shape, self._dtype) if self._for_gpu else torch.zeros(shape, dtype=self._dtype)
        except (OSError, RuntimeError, MemoryError) as error:
            raise too_little(shape, self._dtype, "host ") from error
        self._segments.append((self.slots, segment))
        if self._for_gpu:
            self._unlocked.append(segment)
        self.slots = slots

    def lock(self) -> None:
        """Page-lock what is not yet, which takes seconds. Copies are right without it, only not beside the computation.
        Raises NotEnoughMemoryError."""
        while self._unlocked:
            segment = self._unlocked[0]
            segment.mul_(1)  # touched by all cores: the driver alone would take page after page
            size = segment.numel() * segment.element_size()
            if int(torch.cuda.cudart().cudaHostRegister(segment.data_ptr(), size, 0)) != 0:
                raise too_little(segment.shape, self._dtype, "host ")
            weakref.finalize(self, _unlock, segment).atexit = False  # a process that ends needs no tidying
            del self._unlocked[0]

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield tokens [start, stop) as (first token, keys [H, m, D], values [H, m, D]): views, one per segment."""
        for first, segment in self._segments:
            low, high = max(start, first), min(stop, first + segment.shape[2])
            if low < high:
                part = segment[:, :, low - first : high - first]
                yield low, part[0], part[1]

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [H, stop - start, D]: views if one segment holds them all, else copies. Waits."""
        self.wait()
        parts = list(self.runs(start, stop))
        if not parts:
            empty = torch.zeros(self._heads, 0, self._dim, dtype=self._dtype)
            return empty, empty
        if len(parts) == 1:
            return parts[0][1], parts[0][2]
        return torch.cat([keys for _, keys, _ in parts], 1), torch.cat([values for *_, values in parts], 1)

    def write(self, start: int, keys: Tensor, values: Tensor) -> None:
        """Write [H, m, D] from host or device to tokens [start, start + m). Waits."""
        self.wait()
        for first, own_keys, own_values in self.runs(start, start + keys.shape[1]):
            part = slice(first - start, first - start + own_keys.shape[1])
            own_keys.copy_(keys[:, part])
            own_values.copy_(values[:, part])

    def wait(self) -> None:
        """Wait until all that is on its way has arrived."""
        if self.written is not None:
            self.written.synchronize()
            self.written = None

    def one_segment(self) -> None:
        """Forget all tokens; have the same room in one piece. Raises NotEnoughMemoryError."""
        self.wait()
        self.filled = 0
        if len(self._segments) > 1:
            slots, self._segments, self._unlocked, self.slots = self.slots, [], [], 0
            self.grow(slots)


def send(target: Tensor, source: Tensor) -> None:
    """Copy [H, m, D] between host and device in the current stream, or within one of them. Head by head between them:
    only what is contiguous on both sides is one transfer that nobody waits for."""
    if target.is_cuda == source.is_cuda:
        target.copy_(source)
        return
    for to, origin in zip(target, source, strict=True):
        to.copy_(origin, non_blocking=True)


def _mapped(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros in fresh pages, large ones where the system has them: fewer to lock."""
    count = torch.Size(shape).numel()
    memory = mmap.mmap(-1, count * dtype.itemsize)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def _unlock(segment: Tensor) -> None:
    torch.cuda.synchronize()  # copies from or to it may be under way
    torch.cuda.cudart().cudaHostUnregister(segment.data_ptr())


@dataclass(slots=True, eq=False)
class _Space:
    """One buffer pair. layer: whose tokens are in it, or coming, the first ``valid`` of them. Events: after ``arrived``
    they are there; after ``read`` and ``saved`` nobody reads what was there."""

    buffers: LayerBuffers
    layer: int | None = None
    valid: int = 0
    arrived: torch.cuda.Event | None = None
    read: torch.cuda.Event | None = None
    saved: torch.cuda.Event | None = None


class Ring:
    """Device buffers through which ``layers`` (host side) pass in turn, in the order in which passes ask for them.

    A copy stream fills the next buffers while the computation reads one; it waits for nothing but a buffer that is
    still being read. That also runs on between passes: while tokens are sampled and drafted, the next pass's first
    layers come in. On a CPU, copies happen at once and in place; the order of things is the same."""

    def __init__(self, layers: Sequence[HostLayer], heads: int, slots: int, dim: int, dtype: torch.dtype,
                 device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        self._layers, self._shape, self._dtype, self._device = layers, (heads, dim), dtype, device
        self._up = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._down = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._spaces: list[_Space] = []
        self._taken: _Space | None = None
        self.uploaded_bytes = 0
        self.resize(slots)

    @property
    def slots(self) -> int:
        return self._spaces[0].buffers.slots

    def resize(self, slots: int) -> None:
        """Take empty buffers of ``slots`` slots. Raises NotEnoughMemoryError."""
        lanes = [lane for lane in (self._up, self._down) if lane is not None]
        for lane in lanes:
            lane.synchronize()
        self._spaces, self._taken = [], None
        heads, dim = self._shape
        self._spaces = [_Space(LayerBuffers(heads, slots, dim, self._dtype, self._device)) for _ in range(RING_BUFFERS)]
        for space in self._spaces:
            for lane in lanes:  # memory given back while a copy is under way waits for it
                space.buffers.keys.record_stream(lane)
                space.buffers.values.record_stream(lane)
        if self._up is not None:  # zeros first
            self._up.wait_stream(torch.cuda.current_stream(self._device))

    def start(self, length: int) -> None:
        """Begin a pass behind ``length`` tokens: what was held of later ones is void; the first layers come in."""
        self.release()
        for layer in self._layers:
            layer.filled = min(layer.filled, length)
        for space in self._spaces:
            space.valid = min(space.valid, length)
        for index in range(min(RING_BUFFERS, len(self._layers))):
            if self._space_of(index) is None:
                self._load(self._last_needed(index), index)

    def take(self, index: int) -> LayerBuffers:
        """Return buffers with all that layer ``index`` has in host memory, for the computation to read, and to write
        behind that, until ``release`` or the next ``take``."""
        self.release()
        space = self._space_of(index)
        if space is None:
            space = self._last_needed(index)
            self._load(space, index)
        self._fill(space)
        for event in (space.arrived, space.saved):
            if event is not None:
                torch.cuda.current_stream(self._device).wait_event(event)
        self._taken = space
        return space.buffers

    def taken(self, index: int) -> LayerBuffers | None:
        """Return the buffers last taken, if they are this layer's and not released."""
        return self._taken.buffers if self._taken is not None and self._taken.layer == index else None

    def release(self) -> None:
        """Bring in whose turn is next: all that reads the buffers taken has been queued."""
        space, self._taken = self._taken, None
        if space is None:
            return
        assert space.layer is not None
        if self._up is not None:
            space.read = torch.cuda.current_stream(self._device).record_event()
        coming = (space.layer + RING_BUFFERS) % len(self._layers)
        if self._space_of(coming) is None:
            self._load(space, coming)

    def download(self, index: int, start: int, stop: int) -> None:
        """Copy tokens [start, stop) of the buffers taken to their layer in host memory, beside the computation."""
        space, layer = self._taken, self._layers[index]
        assert space is not None and space.layer == index
        if self._down is not None:
            self._down.wait_stream(torch.cuda.current_stream(self._device))
        with _on(self._down):
            for first, keys, values in layer.runs(start, stop):
                end = first + keys.shape[1]
                send(keys, space.buffers.keys[:, first:end])
                send(values, space.buffers.values[:, first:end])
        if self._down is not None:
            layer.written = space.saved = self._down.record_event()
        layer.filled = space.valid = stop

    def forget(self, index: int, start: int) -> None:
        """Hold no more that tokens of this layer from ``start`` on are here: they have changed in host memory."""
        space = self._space_of(index)
        if space is not None:
            space.valid = min(space.valid, start)

    def _load(self, space: _Space, index: int) -> None:
        space.layer, space.valid = index, 0
        self._fill(space)

    def _fill(self, space: _Space) -> None:
        """Bring in what its layer has and it has not."""
        assert space.layer is not None
        layer, start = self._layers[space.layer], space.valid
        if start >= layer.filled:
            return
        if self._up is not None:
            for event in (space.read, space.saved, layer.written):
                if event is not None:
                    self._up.wait_event(event)
        with _on(self._up):
            for first, keys, values in layer.runs(start, layer.filled):
                end = first + keys.shape[1]
                send(space.buffers.keys[:, first:end], keys)
                send(space.buffers.values[:, first:end], values)
        if self._up is not None:
            space.arrived = self._up.record_event()
        space.valid = layer.filled
        heads, dim = self._shape
        self.uploaded_bytes += 2 * (layer.filled - start) * heads * dim * self._dtype.itemsize

    def _space_of(self, index: int) -> _Space | None:
        return next((space for space in self._spaces if space.layer == index), None)

    def _last_needed(self, index: int) -> _Space:
        """Return an empty space, or the one whose layer is furthest ahead, when ``index`` is wanted out of turn."""
        return max(self._spaces, key=lambda space: len(self._layers) if space.layer is None
                   else (space.layer - index) % len(self._layers))


def _on(lane: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if lane is None else torch.cuda.stream(lane)


class StreamedLayer(LayerBuffers):
    """keys and values are the ring's while its pass attends them; empty otherwise."""

    __slots__ = ("_host", "_index", "_ring", "_tail")

    def __init__(self, ring: Ring, index: int, host: HostLayer, tail: LayerBuffers) -> None:
        self._ring, self._index, self._host, self._tail = ring, index, host, tail
        self._release()

    @property
    def slots(self) -> int:
        return self._host.slots

    def resize(self, slots: int, keep: int) -> None:
        """Grow in host memory; the ring's buffers are the owner's to resize. Raises NotEnoughMemoryError."""
        self._release()
        self._host.grow(slots)
        self._host.lock()

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        n, host, tail = k.shape[0], self._host, self._tail
        whole = self._ring.take(self._index)
        kept = start - host.filled  # tokens in the tail
        tail.lend(whole, host.filled, 0, kept)
        whole.write(start, k, v)
        if kept + n <= tail.slots:
            tail.write(kept, k, v)
        elif n <= tail.slots:
            self._ring.download(self._index, host.filled, start)
            tail.write(0, k, v)
        else:
            self._ring.download(self._index, host.filled, start + n)
        self.keys, self.values = whole.keys, whole.values

    def move(self, source: Tensor, target: int) -> None:
        filled = self._host.filled
        if target >= filled:
            self._tail.move(source - filled, target - filled)
            return
        self._settle(int(source[-1]) + 1)
        index = source.cpu() - target
        keys, values = self._host.read(target, target + int(index[-1]) + 1)
        self._host.write(target, keys.index_select(1, index), values.index_select(1, index))
        self._host.filled = target + index.numel()
        self._ring.forget(self._index, target)

    @torch.inference_mode()
    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of tokens [start, stop) in host memory. Waits."""
        self._settle(stop)
        return self._host.read(start, stop)

    def lend(self, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        whole = self._ring.taken(self._index)
        if whole is not None:
            whole.lend(into, at, start, stop)
            return
        filled = min(max(start, self._host.filled), stop)
        if start < filled and self._host.written is not None and into.keys.is_cuda:
            torch.cuda.current_stream(into.keys.device).wait_event(self._host.written)
        for first, keys, values in self._host.runs(start, filled):
            part = slice(at + first - start, at + first - start + keys.shape[1])
            send(into.keys[:, part], keys)
            send(into.values[:, part], values)
        if filled < stop:
            self._tail.lend(into, at + filled - start, filled - self._host.filled, stop - self._host.filled)

    def lend_chunks(self, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        """From the ring it costs what it costs in a full cache; at another time than its pass the host picks them."""
        whole = self._ring.taken(self._index)
        if whole is not None:
            whole.lend_chunks(into, chunks, chunk_size)
            return
        slots = (chunks.cpu()[:, :, None] * chunk_size + torch.arange(chunk_size)).flatten(1)
        for own, source in zip((into.keys, into.values), self.read(0, int(slots.max()) + 1), strict=True):
            index = slots[:, :, None].expand(-1, -1, source.shape[2])
            own[:, : slots.shape[1]] = source.gather(1, index).to(own.device)

    def restore(self, num_tokens: int) -> tuple[Tensor, Tensor]:
        self._release()
        self._host.one_segment()
        self._host.lock()
        self._host.filled = num_tokens
        self._ring.forget(self._index, 0)
        return self._host.read(0, num_tokens)

    def lock(self) -> None:
        self._host.lock()

    def check(self, length: int, heads: int, dim: int) -> None:
        """Assert the invariants of a layer whose first ``length`` tokens are committed or staged."""
        tail = self._tail
        assert tail.keys.shape == tail.values.shape == (heads, tail.slots, dim)
        assert length - self._host.filled <= tail.slots
        for part in (tail.keys, tail.values, *self._host.read(0, min(length, self._host.filled))):
            assert bool(torch.isfinite(part).all())

    def _settle(self, length: int) -> None:
        """Bring the first ``length`` tokens to the host. Waits."""
        filled = self._host.filled
        if filled < length:
            part = slice(0, length - filled)
            self._host.write(filled, self._tail.keys[:, part], self._tail.values[:, part])
            self._host.filled = length
            self._tail.move(torch.arange(part.stop, self._tail.slots, device=self._tail.keys.device), 0)

    def _release(self) -> None:
        self.keys = self.values = self._tail.keys[:, :0]


class OffloadedCache(FullCache):
    """A full cache of which ``resident_layers`` lie on the device, spread evenly among the streamed ones, so that what
    is computed on them leaves the copy stream no gap."""

    capturable = False
    streams = True

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, max_tokens: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", slots: int = STEP, resident_layers: int = 0,
                 tail: int = TAIL, windows: Sequence[int] = ()) -> None:
        """Takes the device's memory for RING_BUFFERS layers of the whole context beside the resident ones, and beside
        those that attend windows, which never stream. Raises NotEnoughMemoryError."""
        whole = num_layers - sum(map(bool, windows))
        assert 0 <= resident_layers < whole and tail >= 1
        device, slots = torch.device(device), min(slots, max_tokens)
        hosts = [HostLayer(num_kv_heads, slots, head_dim, dtype, for_gpu=device.type == "cuda")
                 for _ in range(whole - resident_layers)]
        self._ring = Ring(hosts, num_kv_heads, slots, head_dim, dtype, device)
        tails = [LayerBuffers(num_kv_heads, tail, head_dim, dtype, device) for _ in hosts]
        self._streamed = [StreamedLayer(self._ring, index, *own)
                          for index, own in enumerate(zip(hosts, tails, strict=True))]
        waiting = iter(self._streamed)
        layers = [LayerBuffers(num_kv_heads, slots, head_dim, dtype, device)
                  if (i + 1) * resident_layers // whole > i * resident_layers // whole else next(waiting)
                  for i in range(whole)]
        super().__init__(num_layers, num_kv_heads, head_dim, max_tokens=max_tokens, dtype=dtype, device=device,
                         slots=slots, windows=windows, layers=layers)

    @property
    def resident_layers(self) -> int:
        return self.num_layers - len(self._streamed)

    @property
    def streamed_bytes(self) -> int:
        return self._ring.uploaded_bytes

    def prepare(self) -> Iterator[float]:
        """Page-lock host memory, layer by layer: without it copies keep the computation waiting.
        Raises NotEnoughMemoryError."""
        for done, layer in enumerate(self._streamed, start=1):
            layer.lock()
            yield done / len(self._streamed)

    def reserve(self, tokens: int) -> None:
        super().reserve(tokens)
        if tokens > self._ring.slots:
            self._ring.resize(tokens)

    @torch.inference_mode()
    def begin(self, n: int, staged_mask: Tensor | None = None) -> None:
        super().begin(n, staged_mask)
        self._ring.start(self.length)

    def keep(self, indices: Sequence[int]) -> None:
        super().keep(indices)
        self._ring.release()

    def commit(self) -> None:
        super().commit()
        self._ring.release()

    def restore(self, num_tokens: int) -> Sequence[tuple[Tensor, Tensor]]:
        self._ring.start(0)
        return super().restore(num_tokens)

    def check_integrity(self) -> None:
        assert 0 <= self.num_committed == self._filled <= self.length <= self.slots == self._ring.slots
        shape = (self.num_kv_heads, self.slots, self.head_dim)
        for place in self.layers:
            if place.window:
                continue
            assert place.slots == self.slots
            if isinstance(place, StreamedLayer):
                place.check(self.length, self.num_kv_heads, self.head_dim)
            else:
                assert place.keys.shape == place.values.shape == shape
