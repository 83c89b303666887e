"""The whole context: exactly, or in 8 or 4 bits. What the verifying target attends, and what a saved reading stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ..errors import ContextTooLongError
from ..kernels import KV_BITS, from_rows, row_bytes, to_rows, write_rows
from .base import KVCache, LayerBuffers
from .window import layers_of

STEP = 1024  # slots: buffers grow by this, or by a sixteenth if that is more


class FullCache(KVCache):
    """Slot i holds token i. Buffers grow by copying, one layer at a time, up to ``max_tokens``.

    Unfilled slots cost attention time (products run over whole buffers), so growth is by small steps;
    ``reserve`` makes it one step where the length is known."""

    kind = "same"  # its numbers are in the type of products

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, max_tokens: int, dtype: torch.dtype,
                 device: torch.device | str = "cpu", slots: int = STEP, windows: Sequence[int] = (),
                 layers: Iterable[LayerBuffers] | None = None) -> None:
        """max_tokens: the longest context; slots: initial size; windows: tokens that each layer attends, see
        ``window.layers_of``; layers: those that attend all, that large, where they are not ordinary ones.
        Raises NotEnoughMemoryError."""
        at, slots = torch.device(device), min(slots, max_tokens)
        layers = layers or (LayerBuffers(num_kv_heads, slots, head_dim, dtype, at)
                            for _ in range(num_layers - sum(map(bool, windows))))
        super().__init__(num_layers, num_kv_heads, head_dim, slots=slots, dtype=dtype, device=device,
                         layers=layers_of(windows, layers, num_kv_heads, head_dim, dtype=dtype, device=at))
        self.max_tokens = max_tokens
        self._truncations: list[int] = []  # lengths, oldest first

    @property
    def resident_layers(self) -> int:
        """Return the number of layers that lie on the device."""
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
        return self.max_tokens - self.length

    def make_room(self, n: int) -> None:
        needed = self.length + n
        if needed > self.slots:
            self.reserve(max(needed, min(self.max_tokens, needed + max(STEP, needed // 16))))

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        self.cut_windows(length)
        if length < self.num_committed:
            self._truncations.append(length)
        self.length = length
        self.num_committed = self._filled = min(length, self.num_committed)

    def keep_place(self) -> None:
        """Be able to cut the context back to here from however far on."""
        for layer in self.layers:
            layer.mark(self.num_committed)

    @property
    def mark(self) -> int:
        """Return the present moment, for ``lowest_since``."""
        return len(self._truncations)

    def lowest_since(self, mark: int) -> int | None:
        """Return the shortest length that committed tokens were cut to since ``mark`` was read; None: they were not.
        What a follower copied of later tokens is no longer true then, however long the cache is by now."""
        return min(self._truncations[mark:], default=None)

    def read(self, layer: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Return committed keys and values of tokens [start, stop) as they are held, where they are held: views
        [H, stop - start, D] (or of rows of bytes), valid until the next begin."""
        stop = self.num_committed if stop is None else stop
        assert 0 <= start <= stop <= self.num_committed
        return self.layers[layer].read(start, stop)

    def restore(self, num_tokens: int) -> Sequence[tuple[Tensor, Tensor]]:
        """Forget everything and hold ``num_tokens`` committed tokens, whose keys and values the caller now writes into
        the returned views, one pair per layer, as ``read`` gives them. Raises as ``reserve``."""
        self.truncate(0)
        self.reserve(num_tokens)
        self.num_committed = self.length = self._filled = num_tokens
        return [layer.restore(num_tokens) for layer in self.layers]


class RowsBuffers(LayerBuffers):
    """keys and values int8 [H, C, W], never turned. Unfilled slots are zero bytes, which stand for zeros."""

    __slots__ = ("_room", "bits", "dim")

    def __init__(self, heads: int, slots: int, dim: int, bits: int, device: torch.device,
                 room: list[Tensor] | None = None) -> None:
        """bits: of a number. room: what layers of a cache on a GPU share, so that each one's numbers can stand in the
        same memory [2, H, C, D] while a wide pass attends them: [] at first. Raises NotEnoughMemoryError."""
        super().__init__(heads, slots, row_bytes(dim, bits), torch.int8, device)
        self.dim, self.bits, self._room = dim, bits, room

    @property
    def room(self) -> Callable[[], tuple[Tensor, Tensor]] | None:
        return None if self._room is None else self._take_room

    def _take_room(self) -> tuple[Tensor, Tensor]:
        """Return buffers [H, C, D], which hold anything until they are written."""
        assert self._room is not None
        shape = (2, *self.keys.shape[:2], self.dim)
        if not self._room or self._room[0].shape != shape:
            self._room.clear()
            self._room.append(torch.empty(shape, dtype=torch.bfloat16, device=self.keys.device))
        keys, values = self._room[0]
        return keys, values

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

    def lend_chunks(self, into: LayerBuffers, chunks: Tensor, chunk_size: int) -> None:
        heads, size = chunks.shape[0], chunks.shape[1] * chunk_size
        gathered = RowsBuffers(heads, size, self.dim, self.bits, self.keys.device)
        super().lend_chunks(gathered, chunks, chunk_size)
        gathered.lend(into, 0, 0, size)


class RowsCache(FullCache):
    """A ``FullCache`` of rows of bytes (``kernels.kv_rows``), in half the memory of bfloat16 or less than a third.
    ``dtype`` is that of the model and of what it lends, not of what it holds.

    Tokens are rounded when they are staged, so whoever attends this cache, for one token or for many, sees the same
    numbers: speculation gives the words that plain decoding over this same cache would."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, kind: str, max_tokens: int,
                 dtype: torch.dtype, device: torch.device | str = "cpu", slots: int = STEP,
                 windows: Sequence[int] = ()) -> None:
        """kind: "int8" or "int4". See FullCache. Raises NotEnoughMemoryError."""
        self.kind, self._bits = kind, KV_BITS[kind]
        at = torch.device(device)
        room: list[Tensor] | None = [] if at.type == "cuda" else None
        layers: list[LayerBuffers] = [
            RowsBuffers(num_kv_heads, min(slots, max_tokens), head_dim, self._bits, at, room)
            for _ in range(num_layers - sum(map(bool, windows)))]
        super().__init__(num_layers, num_kv_heads, head_dim, max_tokens=max_tokens, dtype=dtype, device=device,
                         windows=windows, layers=layers)

    @property
    def nbytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * row_bytes(self.head_dim, self._bits) * self.slots
