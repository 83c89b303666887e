"""The part of a full cache that matters now: chunks chosen per layer and KV head, copied together or attended where
they lie.

TriForce (arXiv 2404.11912, 4.1) with two changes: a window of the newest tokens is always held, and the choice may
follow the attention mass of the last full verification (as in Vegas, arXiv 2602.07223) instead of chunk means.
Keys are the full cache's, rotated at absolute positions; order within the buffer does not matter to attention.
The full cache is the truth: what a follower staged itself never outlives the next ``sync``.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..kernels import heaviest
from .base import ChunkIndex, KVCache, LayerBuffers
from .full import FullCache
from .streaming import turn


class FollowingCache(KVCache):
    """Commits nothing of its own: what the full cache has committed is what it goes by."""

    full: FullCache

    @property
    def room(self) -> int:
        return self.full.max_tokens - self.length

    def reachable(self, length: int) -> int:
        """Layers that attend windows are the full cache's, which cuts them."""
        return length

    def cut_windows(self, length: int) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""

    def commit(self) -> None:
        """Follow the full cache, which commits: see ``sync``."""
        self.sync()


class ChosenChunks:
    """Choose the ``budget`` tokens of ``full`` that matter now, to be copied or pointed at: chunk 0, the chunks with
    the most mass, and at least ``recent`` of the newest."""

    full: FullCache
    budget: int
    chunk_size: int
    recent: int

    chosen: list[int]  # layers of which chunks are chosen; those that attend windows are all there

    def _set_sizes(self, full: FullCache, budget: int, chunk_size: int, recent: int) -> None:
        self.chosen = [index for index, layer in enumerate(full.layers) if not layer.window]
        assert chunk_size >= 1 and recent >= 0
        assert budget >= recent + 2 * chunk_size, (budget, recent, chunk_size)
        self.full, self.budget, self.chunk_size, self.recent = full, budget, chunk_size, recent

    @property
    def num_chunks(self) -> int:
        """Return the number of whole chunks in the full cache's committed tokens."""
        return self.full.num_committed // self.chunk_size

    def _division(self) -> tuple[int, int]:
        """Return where the run of newest tokens begins (it has recent to recent + chunk_size - 1), and how many chunks
        beside chunk 0 the budget leaves."""
        total, size = self.full.num_committed, self.chunk_size
        newest = (total - self.recent) // size * size
        return newest, (self.budget - (total - newest)) // size - 1

    def _heaviest(self, mass: Tensor, wanted: int, newest: int) -> Tensor:
        """mass [..., H, chunks] -> int64 [..., H, wanted], in no order: of those before the newest, chunk 0 aside."""
        candidates = newest // self.chunk_size
        scores = mass[..., 1:candidates].to(self.full.device)
        if scores.shape[-1] < wanted:
            scores = torch.nn.functional.pad(scores, (0, min(wanted, candidates - 1) - scores.shape[-1]))
        return heaviest(scores, wanted) + 1


class RetrievalCache(ChosenChunks, FollowingCache):
    """``budget`` tokens of ``full`` per layer and KV head, copied at the last selection; then those committed since.

    Slots: [chunk 0 | selected chunks | newest tokens, exactly | staged]."""

    chooses_ahead = False  # chunks are copied: the newest tokens must be known

    def __init__(self, full: FullCache, *, budget: int, chunk_size: int = 8, recent: int = 64, slack: int = 64,
                 frequencies: Tensor | None = None) -> None:
        """recent: newest tokens held at least, within the budget. slack: room for staged tokens and those committed
        since the last selection, before buffers grow. Holds what ``full`` has committed already.
        frequencies: radians per position, fp32 [layers, D / 2] (``Llama.frequencies``): chunks have positions inside
        the cache, side by side in the order of the text, so that a model sees no distance longer than the cache. None:
        they keep their own."""
        assert slack >= 1
        self._set_sizes(full, budget, chunk_size, recent)
        layers = [whole if whole.window else LayerBuffers(full.num_kv_heads, budget + slack, full.head_dim, full.dtype,
                                                          full.device) for whole in full.layers]
        super().__init__(full.num_layers, full.num_kv_heads, full.head_dim, slots=budget + slack, dtype=full.dtype,
                         device=full.device, layers=layers)
        self.slack = slack
        self._frequencies = None if frequencies is None else frequencies.to(self.device).expand(full.num_layers, -1)
        self._selected = 0  # slots of selected chunks (chunk 0 included)
        self._tail_start = 0  # context position of the first token after them
        self._mark = full.mark
        self._behind = False  # what the full cache did since is counted, but not looked at yet
        self.selection: Tensor | None = None  # int64 [chosen, H, k] chunk numbers, or None: everything is held
        self._coming: list[Tensor] = []  # of a selection layer by layer: [H, k] each
        self.sync()

    def choose(self, mass: Tensor) -> None:
        """Never called: see ``chooses_ahead``."""
        raise NotImplementedError

    def sync(self) -> None:
        """Be level with the full cache: drop staged tokens, copy the keys and values it has committed since.

        Without a selection (also after the full cache was cut back into what was selected), everything is held while it
        fits the budget; otherwise the newest tokens and chunk 0, until the next ``select``."""
        held = self._tail_start + self._filled - self._selected
        lowest = self.full.lowest_since(self._mark)
        self._mark, self._behind = self.full.mark, False
        self.num_committed = self.length = held
        if lowest is not None and lowest < held:
            self.truncate(0 if lowest < self._tail_start else lowest)
        if self.selection is None and self.full.num_committed > self.budget:
            self._choose(None)
        else:
            self._catch_up()

    def commit(self) -> None:
        """Count only: nothing is copied before something is staged. An answer may go on for long without drafts, and
        copying for thirty layers took a twentieth of each of its rounds (a small model on two CPU cores)."""
        self.num_committed = self.length = self.full.num_committed
        self._behind = True

    def select(self, mass: Tensor) -> None:
        """Hold the chunks with the most ``mass`` [chosen layers, H, chunks] (fewer chunks than there are: the rest
        count nothing), chunk 0 and the newest tokens; be level with the full cache. Drops staged tokens."""
        assert mass.shape[:2] == (len(self.chosen), self.num_kv_heads), mass.shape
        self._choose(mass)

    @torch.inference_mode()
    def select_layer(self, layer: int, mass: Tensor) -> None:
        """``select`` one layer's chunks by mass [H, chunks], in the midst of a pass of the full cache, which has
        that layer at hand then: call it for every layer of the pass, in order. Before the last, nothing is held."""
        if self.full.num_committed <= self.budget:  # ``sync`` holds it all
            return
        if layer == self.chosen[0]:
            self.truncate(0)
            self._mark, self._behind, self._coming = self.full.mark, False, []
        tail_start, wanted = self._division()
        self._coming.append(self._best(mass, wanted, tail_start))
        self._take(layer, self._coming[-1], tail_start)
        if layer == self.chosen[-1]:
            self._holds(torch.stack(self._coming), tail_start)

    @torch.inference_mode()
    def _choose(self, mass: Tensor | None) -> None:
        self._mark, self._behind = self.full.mark, False
        if self.full.num_committed <= self.budget:
            self.truncate(0)
            self._catch_up()
            return
        tail_start, wanted = self._division()
        if mass is None:  # nothing known yet: a plain recent window
            tail_start -= wanted * self.chunk_size
            chunks = torch.zeros(len(self.chosen), self.num_kv_heads, 1, dtype=torch.int64, device=self.device)
        else:
            chunks = self._best(mass, wanted, tail_start)
        for layer, own in zip(self.chosen, chunks, strict=True):
            self._take(layer, own, tail_start)
        self._holds(chunks, tail_start)

    def _best(self, mass: Tensor, wanted: int, tail_start: int) -> Tensor:
        """mass [..., H, chunks] -> int64 [..., H, wanted + 1]: chunk 0, then the heaviest before the tail."""
        chosen = self._heaviest(mass, wanted, tail_start)
        if self._frequencies is not None:
            chosen = chosen.sort(-1).values
        return torch.cat((chosen.new_zeros(*chosen.shape[:-1], 1), chosen), -1)

    def _take(self, layer: int, chunks: Tensor, tail_start: int) -> None:
        """Hold one layer's chunks [H, k] and the tail behind them."""
        buffers, selected, total = self.layers[layer], chunks.shape[-1] * self.chunk_size, self.full.num_committed
        needed = selected + total - tail_start + self.slack
        if buffers.slots < needed or buffers.slots > self.budget + self.slack:
            buffers.resize(max(needed, self.budget + self.slack), 0)
        self._take_chunks(layer, chunks, tail_start)
        self.full.layers[layer].lend(buffers, selected, tail_start, total)

    def _take_chunks(self, layer: int, chunks: Tensor, tail_start: int) -> None:
        """Copy chunks [H, k]. With frequencies they are closed up: attention sees differences of positions only, so the
        newest stay where they are in the text and the chunks move up to them, each time from the full cache's keys:
        rounding never adds up."""
        buffers = self.layers[layer]
        self.full.layers[layer].lend_chunks(buffers, chunks, self.chunk_size)
        if self._frequencies is None:
            return
        held, steps = chunks.shape[-1] * self.chunk_size, torch.arange(self.chunk_size, device=self.device)
        own = (chunks[:, :, None] * self.chunk_size + steps).flatten(1)  # [H, held]
        moved = torch.arange(tail_start - held, tail_start, device=self.device) - own
        buffers.keys[:, :held] = turn(buffers.keys[:, :held].float(), moved[:, :, None] * self._frequencies[layer])

    def _holds(self, chunks: Tensor, tail_start: int) -> None:
        self.selection, self._selected, self._tail_start = chunks, chunks.shape[-1] * self.chunk_size, tail_start
        self.num_committed = self.length = self.full.num_committed
        self._filled = self._selected + self.num_committed - tail_start

    @torch.inference_mode()
    def _catch_up(self) -> None:
        """Copy what the full cache has committed behind what is held."""
        start, stop = self.num_committed, self.full.num_committed
        self.make_room(stop - start)
        for buffers, whole in zip(self.layers, self.full.layers, strict=True):
            whole.lend(buffers, self._selected + start - self._tail_start, start, stop)
        self.num_committed = self.length = stop
        self._filled = self._selected + stop - self._tail_start

    def make_room(self, n: int) -> None:
        if self._behind:
            self.sync()
        needed = self.next_slot + n
        if needed > self.slots:
            for buffers in self.layers:
                buffers.resize(needed + self.slack, self.next_slot)

    def truncate(self, length: int) -> None:
        """Raises ValueError if ``length`` cuts into the selection; select again (or reset) after such a cut."""
        assert 0 <= length <= self.length, (length, self.length)
        if length == 0:
            self.selection, self._selected, self._tail_start = None, 0, 0
        elif length < self._tail_start:
            raise ValueError(f"tokens after {self._tail_start} are held whole; {length} needs a new selection")
        self.length = length
        self.num_committed = min(self.num_committed, length)
        self._filled = min(self._filled, self._selected + self.num_committed - self._tail_start)

    def check_integrity(self) -> None:
        super().check_integrity()
        held = self._selected + self.num_committed - self._tail_start
        assert self._behind or self._filled == held
        assert self.num_committed <= self.full.num_committed


class CrossModelCache(RetrievalCache):
    """Let a small model attend what a larger one says matters (cross-model retrieval: SpecExtend, arXiv 2505.20776):
    both read the same tokens, so a chunk that the larger one attends is the same chunk here. A part of ``full``, and
    the way into it: what is committed here is committed there too.

    Until chunks are chosen, and when more is committed than half of its slack, it holds chunk 0 and the newest tokens:
    a long text may be read through it, and the other half stays free for drafts, so that buffers, which captured passes
    read, keep their place."""

    @property
    def marked(self) -> bool:
        """Return whether chunks are held that mass has chosen."""
        return self._selected > self.chunk_size

    @torch.inference_mode()
    def choose(self, mass: Tensor) -> None:
        """Hold the chunks with the most ``mass`` [chosen layers, H, chunks] in the place of as many ``marked`` ones.

        The newest tokens, and staged ones behind them, stay where they are: this may run while a draft is verified."""
        assert self.marked
        self.selection = self._best(mass, self._selected // self.chunk_size - 1, self._tail_start)
        for layer, own in zip(self.chosen, self.selection, strict=True):
            self._take_chunks(layer, own, self._tail_start)

    @torch.inference_mode()
    def commit(self) -> None:
        n = self.num_staged
        if n:
            self.full.begin(n)
            for whole, own in zip(self.full.layers, self.layers, strict=True):
                own.lend(whole, self.full.next_slot, self._filled, self._filled + n)
            self.full.staged_elsewhere()
            self.full.commit()
        if self._filled + n > self.budget + self.slack // 2:
            self.truncate(0)
        self.sync()


class SharedBufferCache(FollowingCache):
    """Share the full cache's buffers and committed tokens; kinds differ in what of it they attend. Staged tokens are
    written behind the committed ones, at their own absolute slots, so that newest and staged tokens are one run. The
    full cache stages nothing while this one does, and its next pass writes over what was staged here."""

    def __init__(self, full: FullCache) -> None:
        super().__init__(full.num_layers, full.num_kv_heads, full.head_dim, slots=0, dtype=full.dtype,
                         device=full.device, layers=full.layers)
        self.full = full

    def make_room(self, n: int) -> None:
        assert self.full.num_staged == 0 and self.full.num_committed == self.num_committed
        self.full.make_room(self.num_staged + n)

    def sync(self) -> None:
        self.num_committed = self.length = self._filled = self.full.num_committed

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        self.length = length
        self.num_committed = self._filled = min(length, self.num_committed)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._filled == self.num_committed <= self.full.num_committed


class IndexedRetrievalCache(ChosenChunks, SharedBufferCache):
    """``budget`` tokens of ``full`` as ``RetrievalCache`` chooses them, attended where they lie: a selection is an
    index, nothing is copied. For devices whose attention follows an index at memory speed."""

    chooses_ahead = True

    def __init__(self, full: FullCache, *, budget: int, chunk_size: int = 8, recent: int = 64) -> None:
        """recent: newest tokens attended at least, within the budget. Follows what ``full`` has committed already."""
        super().__init__(full)
        self._set_sizes(full, budget, chunk_size, recent)
        with torch.inference_mode(False):
            self._chunks = torch.zeros(full.num_layers, full.num_kv_heads, budget // chunk_size, dtype=torch.int32,
                                       device=full.device)
            self._bounds = torch.zeros(2, dtype=torch.int32, device=full.device)
        self.indices = [ChunkIndex(chunks, self._bounds, chunk_size) for chunks in self._chunks]
        self._held = 0  # chunks per KV head, chunk 0 included
        self._newest = 0  # context position of the first token of the run
        self._mark = full.mark
        self.sync()

    @property
    def selection(self) -> Tensor | None:
        """Return int32 [layers, H, k] chunk numbers, or None: everything is attended."""
        return self._chunks[:, :, : self._held] if self._held else None

    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped.

        Without a selection (also after the full cache was cut back into what was selected), everything is attended
        while it fits the budget; otherwise the newest tokens and chunk 0, until the next ``select``."""
        lowest = self.full.lowest_since(self._mark)
        self._mark = self.full.mark
        super().sync()
        if lowest is not None and lowest < self._newest:
            self._point(0, 0)
        if not self._held and self.num_committed > self.budget:
            self._choose(None)

    def select(self, mass: Tensor) -> None:
        """Attend the chunks with the most ``mass`` [layers, H, chunks] (fewer chunks than there are: the rest count
        nothing), chunk 0 and the newest tokens; be level with the full cache. Waits for nothing on the device."""
        self.choose(mass)
        self._mark = self.full.mark
        super().sync()

    def choose(self, mass: Tensor) -> None:
        """``select`` while tokens are staged, which stay so, and in the full cache too: what is committed of them is
        attended with the newest. Without a ``sync`` in between the full cache must not be cut."""
        assert mass.shape[:2] == (self.num_layers, self.num_kv_heads), mass.shape
        self._choose(mass)

    @torch.inference_mode()
    def _choose(self, mass: Tensor | None) -> None:
        if self.full.num_committed <= self.budget:
            self._point(0, 0)
            return
        newest, wanted = self._division()
        if mass is None:  # nothing known yet: a plain recent window
            newest -= wanted * self.chunk_size
            wanted = 0
        else:
            self._chunks[:, :, 1 : wanted + 1] = self._heaviest(mass, wanted, newest)
        self._point(wanted + 1, newest)

    def _point(self, held: int, newest: int) -> None:
        self._held, self._newest = held, newest
        # Filled one by one: a launch carries its number along, a copy from the host would wait for the device.
        self._bounds[0].fill_(held)
        self._bounds[1].fill_(newest)

    def truncate(self, length: int) -> None:
        """Raises ValueError if ``length`` cuts into the selection; select again (or reset) after such a cut."""
        assert 0 <= length <= self.length, (length, self.length)
        if length == 0:
            self._point(0, 0)
        elif length < self._newest:
            raise ValueError(f"tokens after {self._newest} are attended whole; {length} needs a new selection")
        super().truncate(length)

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._bounds.tolist() == [self._held, self._newest]
        assert bool((self._chunks[:, :, :1] == 0).all())
        assert bool((self._chunks[:, :, : self._held].long() * self.chunk_size < max(1, self._newest)).all())
