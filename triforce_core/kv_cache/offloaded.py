"""The whole context where GPU memory is too small for it: layers in host memory, streamed through the GPU each pass.

Of a streamed layer the host holds the oldest tokens (``HostLayer.filled``), the GPU a short tail with all newer ones.
A pass over a few tokens appends to the tail; one for which the tail has no room sends the tail to the host, and a
wide one (prefill) its own tokens too. Either way a layer's buffers in the ring are put together as [host | tail | new]
and look to attention exactly like a full cache's: the same kernel over the same numbers gives the same text.

What the host holds of staged tokens counts for nothing until they are committed: a shorter ``length`` is all it takes
to forget them. Passes are never captured as graphs: their buffers change places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .buffers import LayerBuffers
from .full import _STEP, FullCache
from .host import HostLayer, send
from .ring import Ring

TAIL = 256  # newest tokens of a streamed layer that stay on the device


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
        """The ring's buffers are the owner's to resize. Raises NotEnoughMemoryError."""
        self._release()
        self._host.grow(slots)
        self._host.lock()

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        n, host, tail = k.shape[0], self._host, self._tail
        whole = self._ring.take(self._index)
        kept = start - host.filled  # tokens in the tail
        whole.copy(host.filled, tail, 0, kept)
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
        self.settle(int(source[-1]) + 1)
        index, first = source.cpu() - target, target
        keys, values = self._host.read(first, first + int(index[-1]) + 1)
        self._host.write(first, keys.index_select(1, index), values.index_select(1, index))
        self._host.filled = first + index.numel()
        self._ring.forget(self._index, first)

    def settle(self, length: int) -> None:
        """Bring the first ``length`` tokens to the host. Waits."""
        filled = self._host.filled
        if filled < length:
            part = slice(0, length - filled)
            self._host.write(filled, self._tail.keys[:, part], self._tail.values[:, part])
            self._host.filled = length
            self._tail.move(torch.arange(part.stop, self._tail.slots, device=self._tail.keys.device), 0)

    def lend(self, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        """Tokens [start, stop) to slots [at, at + stop - start) of ``into``."""
        whole = self._ring.taken(self._index)
        if whole is not None:
            into.copy(at, whole, start, stop)
            return
        filled = min(max(start, self._host.filled), stop)
        if start < filled and self._host.written is not None and into.keys.is_cuda:
            torch.cuda.current_stream(into.keys.device).wait_event(self._host.written)
        for first, keys, values in self._host.runs(start, filled):
            part = slice(at + first - start, at + first - start + keys.shape[1])
            send(into.keys[:, part], keys)
            send(into.values[:, part], values)
        if filled < stop:
            into.copy(at + filled - start, self._tail, filled - self._host.filled, stop - self._host.filled)

    def lend_chunks(self, into: LayerBuffers, chunks: Tensor, chunk_size: int, length: int) -> None:
        """As ``LayerBuffers.gather``, of the first ``length`` tokens. From the ring it costs what it costs in a full
        cache; at another time than its pass the host picks them out."""
        whole = self._ring.taken(self._index)
        if whole is not None:
            into.gather(whole, chunks, chunk_size)
            return
        keys, values = self.read(length)
        slots = (chunks.cpu()[:, :, None] * chunk_size + torch.arange(chunk_size)).flatten(1)
        for own, source in ((into.keys, keys), (into.values, values)):
            index = slots[:, :, None].expand(-1, -1, source.shape[2])
            own[:, : slots.shape[1]] = source.gather(1, index).to(own.device)

    def read(self, length: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values of tokens [start, length) in host memory."""
        self.settle(length)
        return self._host.read(start, length)

    def restore(self, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Places in host memory for that many tokens, all others forgotten."""
        self._release()
        self._host.one_segment()
        self._host.lock()
        self._host.filled = num_tokens
        self._ring.forget(self._index, 0)
        return self._host.read(0, num_tokens)

    def lock(self) -> None:
        self._host.lock()

    def check(self, length: int, heads: int, dim: int) -> None:
        tail = self._tail
        assert tail.keys.shape == tail.values.shape == (heads, tail.slots, dim)
        assert length - self._host.filled <= tail.slots
        for part in (tail.keys, tail.values, *self._host.read(0, min(length, self._host.filled))):
            assert bool(torch.isfinite(part).all())

    def _release(self) -> None:
        self.keys = self.values = self._tail.keys[:, :0]


class OffloadedCache(FullCache):
    """A full cache of which ``resident_layers`` lie on the device, spread evenly among the streamed ones, so that what
    is computed on them leaves the copy stream no gap."""

    capturable = False
    streams = True

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, max_tokens: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", slots: int = _STEP, resident_layers: int = 0,
                 ring_buffers: int = 2, tail: int = TAIL) -> None:
        """ring_buffers: layers of the whole context that the device has room for beside the resident ones.
        Raises NotEnoughMemoryError."""
        assert 0 <= resident_layers < num_layers and ring_buffers >= 1 and tail >= 1
        device, slots = torch.device(device), min(slots, max_tokens)
        hosts = [HostLayer(num_kv_heads, slots, head_dim, dtype, for_gpu=device.type == "cuda")
                 for _ in range(num_layers - resident_layers)]
        self._ring = Ring(hosts, ring_buffers, num_kv_heads, slots, head_dim, dtype, device)
        tails = [LayerBuffers(num_kv_heads, tail, head_dim, dtype, device) for _ in hosts]
        self._streamed = [StreamedLayer(self._ring, index, host, tail_)
                          for index, (host, tail_) in enumerate(zip(hosts, tails, strict=True))]
        waiting = iter(self._streamed)
        layers = [LayerBuffers(num_kv_heads, slots, head_dim, dtype, device)
                  if (i + 1) * resident_layers // num_layers > i * resident_layers // num_layers else next(waiting)
                  for i in range(num_layers)]
        super().__init__(num_layers, num_kv_heads, head_dim, max_tokens=max_tokens, dtype=dtype, device=device,
                         slots=slots, layers=layers)

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

    def _committed(self, added: int) -> None:
        self._ring.release()

    @torch.inference_mode()
    def lend(self, layer: int, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        place = self.layers[layer]
        if isinstance(place, StreamedLayer):
            place.lend(into, at, start, stop)
        else:
            super().lend(layer, into, at, start, stop)

    @torch.inference_mode()
    def lend_chunks(self, layer: int, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        place = self.layers[layer]
        if isinstance(place, StreamedLayer):
            place.lend_chunks(into, chunks, chunk_size, self.num_committed)
        else:
            super().lend_chunks(layer, into, chunks, chunk_size)

    @torch.inference_mode()
    def read(self, layer: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """See FullCache.read; of a streamed layer in host memory."""
        place = self.layers[layer]
        if not isinstance(place, StreamedLayer):
            return super().read(layer, start, stop)
        stop = self.num_committed if stop is None else stop
        assert 0 <= start <= stop <= self.num_committed
        return place.read(stop, start)

    def restore(self, num_tokens: int) -> Sequence[tuple[Tensor, Tensor]]:
        self.truncate(0)
        self.reserve(num_tokens)
        self._ring.start(0)
        self.num_committed = self.length = self._filled = num_tokens
        return [place.restore(num_tokens) if isinstance(place, StreamedLayer) else self.read(layer)
                for layer, place in enumerate(self.layers)]

    def check_integrity(self) -> None:
        assert 0 <= self.num_committed == self._filled <= self.length <= self.slots == self._ring.slots
        shape = (self.num_kv_heads, self.slots, self.head_dim)
        for place in self.layers:
            assert place.slots == self.slots
            if isinstance(place, StreamedLayer):
                place.check(self.length, self.num_kv_heads, self.head_dim)
            else:
                assert place.keys.shape == place.values.shape == shape
