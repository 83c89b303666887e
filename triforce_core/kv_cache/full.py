"""The whole context, exactly: what the verifying target attends, and what a saved reading stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..errors import ContextTooLongError
from .buffers import LayerBuffers
from .staging import StagingCache

_STEP = 1024  # slots: buffers grow by this, or by a sixteenth if that is more


class FullCache(StagingCache):
    """Slot i holds token i. Buffers grow by copying, one layer at a time, up to ``max_tokens``.

    Unfilled slots cost attention time (products run over whole buffers), so growth is by small steps;
    ``reserve`` makes it one step where the length is known."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, max_tokens: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", slots: int = _STEP,
                 layers: list[LayerBuffers] | None = None) -> None:
        """max_tokens: the longest context; slots: initial size; layers: that large, where they are not ordinary ones.
        Raises NotEnoughMemoryError."""
        super().__init__(num_layers, num_kv_heads, head_dim, slots=min(slots, max_tokens), dtype=dtype, device=device,
                         layers=layers)
        self.max_tokens = max_tokens
        self._truncations: list[int] = []  # lengths, oldest first

    kind = "same"  # its numbers are in the type of products

    @property
    def resident_layers(self) -> int:
        """Layers that lie on the device."""
        return self.num_layers

    def prepare(self) -> Iterator[float]:
        """Do what may take seconds before the first pass can run at speed, in steps that yield the share done."""
        return iter(())

    def reserve(self, tokens: int) -> None:
        """Grow to at least ``tokens`` slots at once. Raises ContextTooLongError, NotEnoughMemoryError."""
        if tokens > self.max_tokens:
            raise ContextTooLongError(f"The context would grow to {tokens} tokens", allowed=f"up to {self.max_tokens}",
                                      remedy="Choose fewer pages, or start a new conversation.")
        before = self.slots
        if tokens > before:
            with torch.inference_mode():
                for buffers in self.layers:
                    buffers.resize(tokens, before)  # also what a shared-buffer cache has staged behind the filled slots

    @property
    def room(self) -> int:
        """Tokens that can still be staged: up to ``max_tokens``."""
        return self.max_tokens - self.length

    def make_room(self, n: int) -> None:
        """Slots for n more tokens behind the staged ones. Raises as ``reserve``."""
        needed = self.length + n
        if needed <= self.slots:
            return
        self.reserve(max(needed, min(self.max_tokens, needed + max(_STEP, needed // 16))))

    _make_room = make_room

    def _committed(self, added: int) -> None:
        pass

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        if length < self.num_committed:
            self._truncations.append(length)
        self.length = length
        self.num_committed = self._filled = min(length, self.num_committed)

    @property
    def mark(self) -> int:
        """For ``lowest_since``: now."""
        return len(self._truncations)

    def lowest_since(self, mark: int) -> int | None:
        """The shortest length that committed tokens were cut to since ``mark`` was read, or None if never: what a
        follower copied of later tokens is no longer true then, however long the cache is by now."""
        return min(self._truncations[mark:], default=None)

    def read(self, layer: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Committed keys and values of tokens [start, stop) as they are held: views [H, stop - start, D] (or W, see
        ``full_rows``), valid until the next begin."""
        stop = self.num_committed if stop is None else stop
        assert 0 <= start <= stop <= self.num_committed
        return self.layers[layer].keys[:, start:stop], self.layers[layer].values[:, start:stop]

    def numbers(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """``read`` in the type of the model: [H, stop - start, D], views or copies."""
        return self.read(layer, start, stop)

    def lend(self, layer: int, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        """Copy tokens [start, stop) to slots [at, at + stop - start) of ``into``, on this cache's device."""
        into.copy(at, self.layers[layer], start, stop)

    def lend_chunks(self, layer: int, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        """Copy chunks of committed tokens to the first slots of ``into``, on this cache's device: see
        ``LayerBuffers.gather``. Cheap at any time here; where layers stream by, between a layer's attention and the
        next ``stage`` (an observer's moment)."""
        into.gather(self.layers[layer], chunks, chunk_size)

    def restore(self, num_tokens: int) -> Sequence[tuple[Tensor, Tensor]]:
        """Forget everything and hold ``num_tokens`` committed tokens, whose keys and values the caller now writes into
        the returned views, one pair per layer, as ``read`` gives them. Raises as ``reserve``."""
        self.truncate(0)
        self.reserve(num_tokens)
        self.num_committed = self.length = self._filled = num_tokens
        return [self.read(layer) for layer in range(self.num_layers)]
