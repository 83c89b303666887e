"""Passes of few rows as captured graphs: one launch instead of a thousand.

At batch 1 a GPU finishes most of a pass's thousand small kernels before the host has issued the next. A captured pass
is issued at once. What changes between passes is data in fixed places: token ids, rotary positions, the slots to
write and the filled length. What is baked in is the key: rows, rows of logits, what is observed; and the buffers of one
cache: if they move (growth), its graphs are dropped.

Capturing takes as long as several passes, so an answer never waits for it: what is known to come is captured
beforehand (``prepare``); any other key is counted, runs as usual, and is captured between answers (``capture_wanted``)
once it has come often, as many occur once. Knows no model: the pass is a function.
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

from ..device.streams import sent
from ..kernels import AttentionObserver
from ..kv_cache.base import KVCache, KVView
from .rope import RotaryTable


class StagesKV(Protocol):
    """Name what a pass needs of a cache (see KVCache.stage)."""

    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView: ...


# (token_ids, cos, sin, cache, logits_rows, observer) -> logits
RunPass = Callable[[Tensor, Tensor, Tensor, StagesKV, int, AttentionObserver | None], Tensor]
# Widths of passes that nobody observes. Between them a pass is filled up with tokens that none of its rows sees: what
# a quotation forces has any width, and a pass as usual takes four times as long as a captured one.
CAPTURED_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_COLUMNS = 64  # staged tokens that a mask covers come in multiples of these, where they are more than a pass's own
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
    """Show a cache to a pass of which the host learns nothing: slots [n] and length int32 [1] lie on the device.

    mask: see ``KVView.staged_mask``; its columns are the last slots before ``length``, whichever rows are there."""

    def __init__(self, cache: KVCache, slots: Tensor, length: Tensor, mask: Tensor | None = None) -> None:
        self._layers, self._indices = cache.layers, cache.indices  # not the cache: it owns what holds this
        self.slots, self._length, self._mask = slots, length, mask

    @classmethod
    def behind(cls, cache: KVCache, n: int, mask: Tensor | None) -> DeviceSlots:
        """Return the next n slots of a cache, which hears afterwards that they are ``staged_elsewhere``."""
        numbers = sent(torch.arange(cache.next_slot, cache.next_slot + n + 1), cache.device)
        return cls(cache, numbers[:n], numbers[n:].to(torch.int32), mask)

    @property
    def in_rows(self) -> bool:
        """Return whether keys and values are rows of bytes."""
        return self._layers[0].keys.dtype == torch.int8

    def view(self, layer: int) -> KVView:
        """The layer with what is, or will be, at ``slots``."""
        buffers = self._layers[layer]
        return KVView(buffers.keys, buffers.values, self._length, self._mask, self._indices[layer])

    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        self._layers[layer].put(self.slots, k, v)
        return self.view(layer)


class _Place(DeviceSlots):
    """A pass's inputs in fixed memory, and its cache."""

    def __init__(self, n: int, cache: KVCache, mask: Tensor | None = None) -> None:
        device = cache.layers[0].keys.device
        self._numbers = torch.zeros(2 * n + 1, dtype=torch.int64, device=device)  # positions, slots, length
        self.token_ids = torch.zeros(n, dtype=torch.int64, device=device)
        self.positions = self._numbers[:n]
        super().__init__(cache, self._numbers[n : 2 * n], torch.zeros(1, dtype=torch.int32, device=device), mask)

    def fill(self, token_ids: Tensor, positions: Tensor, slot: int) -> None:
        n = token_ids.shape[0]
        self.token_ids.copy_(token_ids)
        self._number(torch.cat((positions, torch.arange(slot, slot + n + 1))))

    def _number(self, numbers: Tensor) -> None:
        self._numbers.copy_(sent(numbers, self._numbers.device))

    def begin(self) -> None:
        """First thing in the pass."""
        self._length.copy_(self._numbers[-1:])


class _TreePlace(_Place):
    """With a mask bool [rows, columns]. A tree's rows are the last ones, its slots the first: what is filled up with
    stands before them among the rows, so that the last rows are always the tree's, and behind them in the cache."""

    def __init__(self, n: int, columns: int, cache: KVCache) -> None:
        self.mask = torch.zeros(n, columns, dtype=torch.bool, device=cache.layers[0].keys.device)
        super().__init__(n, cache, self.mask)

    def fill_tree(self, token_ids: Tensor, positions: Tensor, slot: int, mask: Tensor) -> None:
        """mask [n, m], n up to the rows that there are, m up to the columns less the rows filled up with."""
        n, (rows, columns) = token_ids.shape[0], self.mask.shape
        spare = rows - n
        first = columns - spare - mask.shape[1]
        self.token_ids[spare:].copy_(token_ids)
        own, others = torch.arange(slot, slot + n), torch.arange(slot + n, slot + rows + 1)
        self._number(torch.cat((positions[:1].expand(spare), positions, others[:-1], own, others[-1:])))
        self.mask.zero_()
        self.mask[:, :first] = True
        self.mask[spare:, first : first + mask.shape[1]] = mask
        self.mask[:spare, first] = True  # a row that sees nothing would leave NaN in its slot


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


# n, logits_rows, mass_rows (-1: not observed), chunk_size, columns of the mask (0: a chain)
_Key = tuple[int, int, int, int, int]


@dataclass(slots=True)
class _Book:
    """One cache's graphs. masses: by shape; passes of all widths write theirs to one place, as it is copied before the
    next. Over 250,000 tokens of llama3-8b it takes 32 MB, and forty widths may be captured."""

    addresses: tuple[int, ...]
    capture: Capture
    masses: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    wanted: Counter[_Key] = field(default_factory=Counter)  # passes that came and were not captured
    captured: dict[_Key, _Captured] = field(default_factory=dict)


class PassGraphs:
    """The captured passes of one model over each of its caches."""

    def __init__(self, rope: RotaryTable, max_rows: int, capture: Callable[[], Capture] | None = None) -> None:
        """max_rows: wider passes are never captured. capture: tests have their own, for machines without a GPU."""
        self._rope, self._max_rows = rope, max_rows
        self._new_capture = capture or CudaCapture
        self._books: WeakKeyDictionary[KVCache, _Book] = WeakKeyDictionary()

    def forward(self, token_ids: Tensor, positions: Tensor, cache: KVCache, logits_rows: int,
                observer: AttentionObserver | None) -> Tensor | None:
        """A chain that ``cache.begin`` has announced: logits, or None: nothing done, run it as usual. Where it is not
        captured in its own width, but trees in one it fits in are, it is a tree of a single branch.

        positions: int64 [n], ascending, on the host."""
        n = token_ids.shape[0]
        if n > self._max_rows:
            return None
        wide = next((width for width in CAPTURED_WIDTHS if width >= n), n) if observer is None else n
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
        if key not in book.captured and _tree_key(n, n, observer) in book.captured:
            mask = torch.ones(n, n, dtype=torch.bool, device=cache.device).tril()
            return self.forward_tree(token_ids[:n], positions[:n], cache, mask, asked, observer)
        captured = book.captured.get(key)
        if captured is None:
            book.wanted[key] += 1
            return None
        captured.place.fill(token_ids, positions, cache.next_slot)
        captured.repeat()
        cache.staged_elsewhere()
        if observer is not None:
            _show(observer, captured.outputs)
        rows = captured.outputs.logits[first : first + asked]
        return rows.clone()  # the next pass writes over it

    def forward_tree(self, token_ids: Tensor, positions: Tensor, cache: KVCache, mask: Tensor, logits_rows: int,
                     observer: AttentionObserver | None) -> Tensor | None:
        """As ``forward``, of a tree that ``cache.begin`` has announced with ``mask`` [n, m], which lies on the device.

        Every pass is filled up, observed ones too, and so a tree that lacks a few tokens needs no graph of its own."""
        n, m = mask.shape
        key = _tree_key(n, m, observer)
        if key is None or key[0] > min(self._max_rows, cache.room) or key[4] > cache.next_slot + key[0]:
            return None
        rows = key[0]
        cache.begin(rows)  # buffers that must grow for them do it now
        cache.begin(n, mask)
        book = self._book(cache, int(positions.max()))
        captured = book.captured.get(key)
        if captured is None:
            book.wanted[key] += 1
            return None
        assert isinstance(captured.place, _TreePlace)
        captured.place.fill_tree(token_ids, positions, cache.next_slot, mask)
        captured.repeat()
        cache.staged_elsewhere()
        if observer is not None:
            _show(observer, captured.outputs, n)
        return captured.outputs.logits[rows - logits_rows :].clone()

    def prepare(self, run: RunPass, cache: KVCache, n: int, logits_rows: int, observer: AttentionObserver | None, *,
                tree: bool = False) -> None:
        """Capture a pass of n rows now, if it is not: no answer shall wait for it. Leaves noise in unfilled slots.
        tree: one of n tokens, whatever its shape."""
        if not tree:
            cache.begin(n)  # buffers that must grow for it do it now, also where it is too wide to be captured
        key = _tree_key(n, n, observer) if tree else _key(n, logits_rows, observer)
        if key is not None and key[0] <= min(self._max_rows, cache.room):
            self._capture(run, cache, key)

    def capture_wanted(self, run: RunPass, cache: KVCache) -> int:
        """Capture what has come often enough to be worth it; how many passes that were. Nothing may be staged."""
        book = self._books.get(cache)
        keys = [key for key, times in book.wanted.items() if times >= _WORTH_CAPTURING] if book is not None else []
        keys = [key for key in keys if key[0] <= cache.room and key[4] <= cache.next_slot + key[0]]
        for key in keys:
            self._capture(run, cache, key)
        return len(keys)

    def _book(self, cache: KVCache, highest: int) -> _Book:
        """Return the cache's graphs; new ones where buffers have moved."""
        addresses = (self._rope.reserve(highest), *cache.addresses)
        book = self._books.get(cache)
        if book is None or book.addresses != addresses:
            book = self._books[cache] = _Book(addresses, self._new_capture())
        return book

    def _capture(self, run: RunPass, cache: KVCache, key: _Key) -> None:
        rows, columns = key[0], key[4]
        cache.begin(rows)
        positions = cache.positions(rows)
        book = self._book(cache, int(positions[-1]))
        book.wanted.pop(key, None)
        if key in book.captured:
            return
        token_ids = torch.zeros(rows, dtype=torch.int64, device=cache.device)
        place: _Place
        if columns:
            mask = torch.ones(rows, columns, dtype=torch.bool, device=cache.device).tril(columns - rows)
            place = branching = _TreePlace(rows, columns, cache)
            branching.fill_tree(token_ids, positions, cache.next_slot, mask)
        else:
            place = _Place(rows, cache)
            place.fill(token_ids, positions, cache.next_slot)
        book.captured[key] = _Captured(place, *book.capture(lambda: self._once(run, place, key, book.masses)))

    def _once(self, run: RunPass, place: _Place, key: _Key, masses: dict[tuple[int, ...], Tensor]) -> Outputs:
        _, logits_rows, mass_rows, chunk_size, _ = key
        place.begin()
        cos, sin = self._rope.take(place.positions)
        recorder = _Recorder(mass_rows, chunk_size) if mass_rows >= 0 else None
        logits = run(place.token_ids, cos, sin, place, logits_rows, recorder)
        if recorder is None or not recorder.queries:
            return Outputs(logits, None, None)
        mass = None
        if recorder.mass:
            shape = (len(recorder.mass), *recorder.mass[0].shape)
            if shape not in masses:  # before anything is recorded: a capture runs the pass once as usual
                masses[shape] = torch.stack(recorder.mass)
            mass = torch.stack(recorder.mass, out=masses[shape])
        return Outputs(logits, torch.stack(recorder.queries), mass)


def _key(n: int, logits_rows: int, observer: AttentionObserver | None) -> _Key:
    return n, logits_rows, observer.mass_rows if observer else -1, observer.chunk_size if observer else 1, 0


def _tree_key(n: int, m: int, observer: AttentionObserver | None) -> _Key | None:
    """None: wider than any pass that is captured."""
    rows = next((width for width in CAPTURED_WIDTHS if width >= n), None)
    if rows is None:
        return None
    columns = rows if m == n else -(-(m + rows - n) // _COLUMNS) * _COLUMNS
    # Rows filled up with are none of those that attention is summed over.
    watched = (min(n, observer.mass_rows), observer.chunk_size) if observer else (-1, 1)
    return rows, rows, *watched, columns


def _show(observer: AttentionObserver, outputs: Outputs, rows: int | None = None) -> None:
    """Copies, as they may be kept. rows: of queries, the last so many; None: all."""
    if outputs.queries is None:
        return
    queries = outputs.queries[:, outputs.queries.shape[1] - rows :].clone() if rows else outputs.queries.clone()
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
