"""Passes of few rows as captured graphs: one launch instead of a thousand.

At batch 1 a GPU finishes most of a pass's thousand small kernels before the host has issued the next. A captured pass
is issued at once. What changes between passes is data in fixed places: token ids, rotary positions, the slots to
write and the filled length. What is baked in is the key: rows, rows of logits, what is observed; and the buffers of one
cache: if they move (growth), its graphs are dropped.

What is known to come is captured beforehand (``prepare``); any other key when it has come often enough to be worth
a stop, as many occur once. Knows no model: the pass is a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import AttentionObserver
from ..kv_cache.base import KVView
from ..kv_cache.staging import StagingCache
from .rope import RotaryTable


class StagesKV(Protocol):
    """What a pass needs of a cache (see KVCache.stage)."""

    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView: ...


# (token_ids, cos, sin, cache, logits_rows, observer) -> logits
RunPass = Callable[[Tensor, Tensor, Tensor, StagesKV, int, AttentionObserver | None], Tensor]
# Widths of passes that nobody observes. Between them a pass is filled up with tokens that none of its rows sees: what
# a quotation forces has any width, and a pass as usual takes four times as long as a captured one.
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_WORTH_CAPTURING = 4  # passes of one key: capturing costs about what three passes as usual cost more

Result = TypeVar("Result")


class Capture(Protocol):
    """Runs a function once in a way that can be repeated: -> (repeat, what it returned; overwritten by each repeat)."""

    def __call__(self, once: Callable[[], Result]) -> tuple[Callable[[], None], Result]: ...


@dataclass(frozen=True, slots=True)
class Outputs:
    """logits [rows, V]; queries [layers, n, query_heads, D] and mass [layers, H, chunks] of an observed pass."""

    logits: Tensor
    queries: Tensor | None
    mass: Tensor | None


class DeviceSlots:
    """A cache as a pass sees it that nothing on the host is told: slots [n] and length int32 [1] lie on the device."""

    def __init__(self, cache: StagingCache, slots: Tensor, length: Tensor) -> None:
        self._layers, self._indices = cache.layers, cache.indices  # not the cache: it owns what holds this
        self.slots, self._length = slots, length

    def view(self, layer: int) -> KVView:
        """The layer with what is, or will be, at ``slots``."""
        buffers = self._layers[layer]
        return KVView(buffers.keys, buffers.values, self._length, index=self._indices[layer])

    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        view = self.view(layer)
        for own, new in ((view.keys, k), (view.values, v)):
            own.index_copy_(1, self.slots, new.transpose(0, 1).to(own.dtype))
        return view


class _Place(DeviceSlots):
    """A pass's inputs in fixed memory, and its cache."""

    def __init__(self, n: int, cache: StagingCache) -> None:
        device = cache.layers[0].keys.device
        self._numbers = torch.zeros(2 * n + 1, dtype=torch.int64, device=device)  # positions, slots, length
        self.token_ids = torch.zeros(n, dtype=torch.int64, device=device)
        self.positions = self._numbers[:n]
        super().__init__(cache, self._numbers[n : 2 * n], torch.zeros(1, dtype=torch.int32, device=device))

    def fill(self, token_ids: Tensor, positions: Tensor, slot: int) -> None:
        n = token_ids.shape[0]
        self.token_ids.copy_(token_ids)
        self._numbers.copy_(torch.cat((positions, torch.arange(slot, slot + n + 1))))

    def begin(self) -> None:
        """First thing in the pass."""
        self._length.copy_(self._numbers[-1:])


class _Recorder:
    """Observes a captured pass in the place of the real observer."""

    def __init__(self, mass_rows: int, chunk_size: int) -> None:
        self.mass_rows, self.chunk_size = mass_rows, chunk_size
        self.queries: list[Tensor] = []
        self.mass: list[Tensor] = []

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        self.queries.append(queries)
        if mass is not None:
            self.mass.append(mass)


@dataclass(slots=True)
class _Captured:
    place: _Place
    repeat: Callable[[], None]
    outputs: Outputs


_Key = tuple[int, int, int, int]  # n, logits_rows, mass_rows (-1: not observed), chunk_size


@dataclass(slots=True)
class _Book:
    """One cache's graphs."""

    addresses: tuple[int, ...]
    capture: Capture
    seen: Counter[_Key] = field(default_factory=Counter)
    captured: dict[_Key, _Captured] = field(default_factory=dict)


class PassGraphs:
    """The captured passes of one model over each of its caches."""

    def __init__(self, rope: RotaryTable, max_rows: int, capture: Callable[[], Capture] | None = None) -> None:
        """max_rows: wider passes are never captured. capture: tests have their own, for machines without a GPU."""
        self._rope, self._max_rows = rope, max_rows
        self._new_capture = capture or CudaCapture
        self._books: WeakKeyDictionary[StagingCache, _Book] = WeakKeyDictionary()

    def forward(self, run: RunPass, token_ids: Tensor, positions: Tensor, cache: StagingCache, logits_rows: int,
                observer: AttentionObserver | None) -> Tensor | None:
        """A chain that ``cache.begin`` has announced: logits, or None: nothing done, run it as usual.

        run: the model's pass, always the same. positions: int64 [n], ascending, on the host."""
        n = token_ids.shape[0]
        if n > self._max_rows:
            return None
        wide = next((width for width in _WIDTHS if width >= n), n) if observer is None else n
        if n < wide <= min(self._max_rows, cache.room):
            cache.begin(wide)  # buffers that must grow for them do it now
            cache.begin(n)
            token_ids = F.pad(token_ids, (0, wide - n))
            positions = torch.cat((positions, positions[-1] + torch.arange(1, wide - n + 1)))
        first, asked = 0, logits_rows
        if observer is None:
            first, logits_rows = n - asked, token_ids.shape[0]
        book = self._book(cache, int(positions[-1]))
        key = _key(token_ids.shape[0], logits_rows, observer)
        book.seen[key] += 1
        if key not in book.captured and book.seen[key] < _WORTH_CAPTURING:
            return None
        captured = book.captured.get(key) or self._capture(run, book, key, cache, token_ids, positions)
        captured.place.fill(token_ids, positions, cache.next_slot)
        captured.repeat()
        cache.staged_elsewhere()
        if observer is not None:
            _show(observer, captured.outputs)
        rows = captured.outputs.logits[first : first + asked]
        return rows.clone()  # the next pass writes over it

    def prepare(self, run: RunPass, cache: StagingCache, n: int, logits_rows: int,
                observer: AttentionObserver | None) -> None:
        """Capture a pass of n rows now, if it is not: no answer shall wait for it. Leaves noise in unfilled slots."""
        cache.begin(n)
        positions = cache.positions(n)
        book, key = self._book(cache, int(positions[-1])), _key(n, logits_rows, observer)
        if n <= self._max_rows and key not in book.captured:
            token_ids = torch.zeros(n, dtype=torch.int64, device=cache.device)
            self._capture(run, book, key, cache, token_ids, positions)

    def _book(self, cache: StagingCache, highest: int) -> _Book:
        """The cache's graphs; new ones where buffers have moved."""
        addresses = (self._rope.reserve(highest), *cache.addresses)
        book = self._books.get(cache)
        if book is None or book.addresses != addresses:
            book = self._books[cache] = _Book(addresses, self._new_capture())
        return book

    def _capture(self, run: RunPass, book: _Book, key: _Key, cache: StagingCache, token_ids: Tensor,
                 positions: Tensor) -> _Captured:
        place = _Place(key[0], cache)
        place.fill(token_ids, positions, cache.next_slot)
        book.captured[key] = _Captured(place, *book.capture(lambda: self._once(run, place, key)))
        return book.captured[key]

    def _once(self, run: RunPass, place: _Place, key: _Key) -> Outputs:
        _, logits_rows, mass_rows, chunk_size = key
        place.begin()
        cos, sin = self._rope.take(place.positions)
        recorder = _Recorder(mass_rows, chunk_size) if mass_rows >= 0 else None
        logits = run(place.token_ids, cos, sin, place, logits_rows, recorder)
        if recorder is None or not recorder.queries:
            return Outputs(logits, None, None)
        return Outputs(logits, torch.stack(recorder.queries), torch.stack(recorder.mass) if recorder.mass else None)


def _key(n: int, logits_rows: int, observer: AttentionObserver | None) -> _Key:
    return n, logits_rows, observer.mass_rows if observer else -1, observer.chunk_size if observer else 1


def _show(observer: AttentionObserver, outputs: Outputs) -> None:
    """Copies, as they may be kept."""
    if outputs.queries is None:
        return
    queries = outputs.queries.clone()
    mass = None if outputs.mass is None else outputs.mass.clone()
    for layer, asked in enumerate(queries):
        observer.see(layer, asked, None if mass is None else mass[layer])


class CudaCapture:
    """A ``Capture`` by CUDA graphs; all of them share one pool of memory for what lies between."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, once: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            once()  # compiles kernels and sets libraries up: neither may happen during capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may go on using the device meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = once()
        self._pool = self._pool or graph.pool()
        return graph.replay, outputs
