"""Device buffers through which the layers of an offloaded cache pass in turn, pass after pass, always in one order.

A copy stream fills the next buffers while the computation reads one; it waits for nothing but a buffer that is still
being read. That also runs on between passes: while tokens are sampled and drafted, the next pass's first layers come
in. On a CPU, copies happen at once and in place; the order of things is the same.

Decoding keeps the link busy this way: a layer takes far longer to come in than to be attended, so two buffers are
enough; more of them bring in more while tokens are drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from .buffers import LayerBuffers
from .host import HostLayer, send


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
    """Buffers for ``layers`` (host side), in the order in which passes ask for them."""

    def __init__(self, layers: Sequence[HostLayer], num_buffers: int, heads: int, slots: int, dim: int,
                 dtype: torch.dtype, device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        assert layers and num_buffers >= 1
        self._layers, self._num_buffers = layers, num_buffers
        self._shape, self._dtype, self._device = (heads, dim), dtype, device
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
        """Empty buffers of ``slots`` slots. Raises NotEnoughMemoryError."""
        for lane in (self._up, self._down):
            if lane is not None:
                lane.synchronize()
        self._spaces, self._taken = [], None
        heads, dim = self._shape
        self._spaces = [_Space(LayerBuffers(heads, slots, dim, self._dtype, self._device))
                        for _ in range(self._num_buffers)]
        for space in self._spaces:
            for lane in (self._up, self._down):
                if lane is not None:  # memory given back while a copy is under way waits for it
                    space.buffers.keys.record_stream(lane)
                    space.buffers.values.record_stream(lane)
        if self._up is not None:  # zeros first
            self._up.wait_stream(torch.cuda.current_stream(self._device))

    def start(self, length: int) -> None:
        """A pass begins behind ``length`` tokens: what was held of later ones is void; the first layers come in."""
        self.release()
        for layer in self._layers:
            layer.filled = min(layer.filled, length)
        for space in self._spaces:
            space.valid = min(space.valid, length)
        for index in range(min(self._num_buffers, len(self._layers))):
            if self._space_of(index) is None:
                self._load(self._last_needed(index), index)

    def take(self, index: int) -> LayerBuffers:
        """Buffers with all that layer ``index`` has in host memory, for the computation to read, and to write behind
        that, until ``release`` or the next ``take``."""
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
        """The buffers last taken, if they are this layer's and not released."""
        return self._taken.buffers if self._taken is not None and self._taken.layer == index else None

    def release(self) -> None:
        """Bring in whose turn is next: all that reads the buffers taken has been queued."""
        space, self._taken = self._taken, None
        if space is None:
            return
        assert space.layer is not None
        if self._up is not None:
            space.read = torch.cuda.current_stream(self._device).record_event()
        coming = (space.layer + self._num_buffers) % len(self._layers)
        if self._space_of(coming) is None:
            self._load(space, coming)

    def download(self, index: int, start: int, stop: int) -> None:
        """Tokens [start, stop) of the buffers taken to their layer in host memory, beside the computation."""
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
        layer.filled = stop
        space.valid = stop

    def forget(self, index: int, start: int) -> None:
        """Tokens of this layer from ``start`` on have changed in host memory."""
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
        """When layer ``index`` is wanted out of turn: an empty space, or the one whose layer is furthest ahead."""
        return max(self._spaces, key=lambda space: len(self._layers) if space.layer is None
                   else (space.layer - index) % len(self._layers))


def _on(lane: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if lane is None else torch.cuda.stream(lane)
