"""The part of a full cache that matters now: chunks chosen per layer and KV head, in contiguous buffers of their own.

TriForce (arXiv 2404.11912, 4.1) with two changes: a window of the newest tokens is always held, and the choice may
follow the attention mass of the last full verification (as in Vegas, arXiv 2602.07223) instead of chunk means.
Keys are the full cache's, rotated at absolute positions; order within the buffer does not matter to attention.
Comparisons and small models may have them closed up instead: a model sees no distance longer than the cache then.

Slots: [chunk 0 | selected chunks | newest tokens, exactly | staged]. The full cache is the truth: what its outer rounds
commit is copied over by ``sync``; this cache's own staged tokens never outlive that.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..kernels import heaviest
from .buffers import LayerBuffers
from .full import FullCache
from .staging import StagingCache
from .streaming import turn


class ChosenChunks:
    """Which ``budget`` tokens of ``full`` matter now, be they copied or pointed at: chunk 0, the chunks with the most
    mass, and at least ``recent`` of the newest."""

    full: FullCache
    budget: int
    chunk_size: int
    recent: int
    length: int

    @property
    def num_chunks(self) -> int:
        """Whole chunks in the full cache's committed tokens."""
        return self.full.num_committed // self.chunk_size

    def _division(self) -> tuple[int, int]:
        """Where the run of newest tokens begins (it has recent to recent + chunk_size - 1), and how many chunks beside
        chunk 0 the budget leaves."""
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


class FollowingCache(StagingCache):
    """Commits nothing of its own: what the full cache has committed is what it goes by."""

    full: FullCache

    @property
    def room(self) -> int:
        return self.full.max_tokens - self.length

    @abstractmethod
    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""

    def commit(self) -> None:
        """The full cache commits, this one follows: see ``sync``."""
        self.sync()

    def _committed(self, added: int) -> None:
        raise AssertionError("sync replaces the common commit")


# large: the selection, its sizes and where it lies
class RetrievalCache(ChosenChunks, FollowingCache):
    """``budget`` tokens of ``full`` per layer and KV head, at the last selection; then those committed since."""

    chooses_ahead = False  # chunks are copied: the newest tokens must be known

    def __init__(self, full: FullCache, *, budget: int, chunk_size: int = 8, recent: int = 64, slack: int = 64,
                 frequencies: Tensor | None = None) -> None:
        """recent: newest tokens held at least, within the budget. slack: room for staged tokens and those committed
        since the last selection, before buffers grow. Holds what ``full`` has committed already.
        frequencies: radians per position, fp32 [D / 2] (``Llama.rope.frequencies``): chunks have positions inside the
        cache, side by side in the order of the text. None: they keep their own."""
        assert chunk_size >= 1 and recent >= 0 and slack >= 1
        assert budget >= recent + 2 * chunk_size, (budget, recent, chunk_size)
        super().__init__(full.num_layers, full.num_kv_heads, full.head_dim, slots=budget + slack, dtype=full.dtype,
                         device=full.device)
        self.full, self.budget, self.chunk_size, self.recent, self.slack = full, budget, chunk_size, recent, slack
        self._frequencies = None if frequencies is None else frequencies.to(self.device)
        self._selected = 0  # slots of selected chunks (chunk 0 included)
        self._tail_start = 0  # context position of the first token after them
        self._mark = full.mark
        self._behind = False  # what the full cache did since is counted, but not looked at yet
        self.selection: Tensor | None = None  # int64 [layers, H, k] chunk numbers, or None: everything is held
        self._coming: list[Tensor] = []  # of a selection layer by layer: [H, k] each
        self.sync()

    def choose(self, mass: Tensor) -> None:
        """Never called: see ``chooses_ahead``."""
        raise NotImplementedError

    def sync(self) -> None:
        """Be level with the full cache: drop staged tokens, copy the keys and values it has committed since.

        Without a selection (also after the full cache was cut back into what was selected), everything is held while it
        fits the budget; otherwise the newest tokens and chunk 0, until the next ``select``."""
        target, held = self.full.num_committed, self._tail_start + self._filled - self._selected
        lowest = self.full.lowest_since(self._mark)
        self._mark, self._behind = self.full.mark, False
        self.num_committed = self.length = held
        if lowest is not None and lowest < held:
            self.truncate(0 if lowest < self._tail_start else lowest)
        if self.selection is None and target > self.budget:
            self._choose(None)
            return
        with torch.inference_mode():
            self._make_room(target - self.num_committed)
            self._copy_tail(self.num_committed, target)
        self.num_committed = self.length = target
        self._filled = self._selected + target - self._tail_start

    def commit(self) -> None:
        """Only counted: nothing is copied before something is staged. An answer may go on for long without drafts, and
        copying for thirty layers took a twentieth of each of its rounds (a small model on two CPU cores)."""
        self.num_committed = self.length = self.full.num_committed
        self._behind = True

    def select(self, mass: Tensor) -> None:
        """Hold the chunks with the most ``mass`` [layers, H, chunks] (fewer chunks than there are: the rest count
        nothing), chunk 0 and the newest tokens; be level with the full cache. Drops staged tokens."""
        assert mass.shape[:2] == (self.num_layers, self.num_kv_heads), mass.shape
        self._choose(mass)

    @torch.inference_mode()
    def select_layer(self, layer: int, mass: Tensor) -> None:
        """``select`` of one layer's chunks by mass [H, chunks], in the midst of a pass of the full cache, which has
        that layer at hand then: call it for every layer of the pass, in order. Before the last, nothing is held."""
        if self.full.num_committed <= self.budget:  # ``sync`` holds it all
            return
        if layer == 0:
            self.truncate(0)
            self._mark, self._behind, self._coming = self.full.mark, False, []
        tail_start, wanted = self._division()
        self._coming.append(self._best(mass, wanted, tail_start))
        self._take(layer, self._coming[layer], tail_start)
        if layer == self.num_layers - 1:
            self._holds(torch.stack(self._coming), tail_start)

    @torch.inference_mode()
    def _choose(self, mass: Tensor | None) -> None:
        self._mark, self._behind = self.full.mark, False
        if self.full.num_committed <= self.budget:
            self._hold_all()
            return
        tail_start, wanted = self._division()
        if mass is None:  # nothing known yet: a plain recent window
            tail_start -= wanted * self.chunk_size
            chunks = torch.zeros(self.num_layers, self.num_kv_heads, 1, dtype=torch.int64, device=self.device)
        else:
            chunks = self._best(mass, wanted, tail_start)
        for layer in range(self.num_layers):
            self._take(layer, chunks[layer], tail_start)
        self._holds(chunks, tail_start)

    def _best(self, mass: Tensor, wanted: int, tail_start: int) -> Tensor:
        """mass [..., H, chunks] -> int64 [..., H, wanted + 1]: chunk 0, then the heaviest before the tail."""
        chosen = self._heaviest(mass, wanted, tail_start)
        if self._frequencies is not None:
            chosen = chosen.sort(-1).values
        return torch.cat((chosen.new_zeros(*chosen.shape[:-1], 1), chosen), -1)

    def _take(self, layer: int, chunks: Tensor, tail_start: int) -> None:
        """One layer's chunks [H, k] and the tail behind them."""
        buffers, selected, total = self.layers[layer], chunks.shape[-1] * self.chunk_size, self.full.num_committed
        needed = selected + total - tail_start + self.slack
        if buffers.slots < needed or buffers.slots > self.budget + self.slack:
            buffers.resize(max(needed, self.budget + self.slack), 0)
        self._take_chunks(layer, buffers, chunks, tail_start)
        self.full.lend(layer, buffers, selected, tail_start, total)

    def _take_chunks(self, layer: int, buffers: LayerBuffers, chunks: Tensor, tail_start: int) -> None:
        self.full.lend_chunks(layer, buffers, chunks, self.chunk_size)
        if self._frequencies is not None:
            self._close_up(buffers, chunks, tail_start)

    def _close_up(self, buffers: LayerBuffers, chunks: Tensor, tail_start: int) -> None:
        """Attention sees differences of positions only, so the newest stay where they are in the text and the chunks
        move up to them, each time from the full cache's keys: rounding never adds up."""
        assert self._frequencies is not None
        held, steps = chunks.shape[-1] * self.chunk_size, torch.arange(self.chunk_size, device=self.device)
        own = (chunks[:, :, None] * self.chunk_size + steps).flatten(1)  # [H, held]
        moved = torch.arange(tail_start - held, tail_start, device=self.device) - own
        buffers.keys[:, :held] = turn(buffers.keys[:, :held].float(), moved[:, :, None] * self._frequencies)

    def _holds(self, chunks: Tensor, tail_start: int) -> None:
        self.selection, self._selected, self._tail_start = chunks, chunks.shape[-1] * self.chunk_size, tail_start
        self.num_committed = self.length = self.full.num_committed
        self._filled = self._selected + self.num_committed - tail_start

    def _hold_all(self) -> None:
        self.selection, self._selected, self._tail_start = None, 0, 0
        total = self.full.num_committed
        self.num_committed = self.length = self._filled = 0
        self._make_room(total)
        self._copy_tail(0, total)
        self.num_committed = self.length = self._filled = total

    def _copy_tail(self, start: int, stop: int) -> None:
        """Tokens [start, stop) of the full cache to their slots behind the selection."""
        at = self._selected + start - self._tail_start
        for layer, buffers in enumerate(self.layers):
            self.full.lend(layer, buffers, at, start, stop)

    def _make_room(self, n: int) -> None:
        if self._behind:
            self.sync()
        needed = self._filled + self.num_staged + n
        if needed > self.slots:
            for buffers in self.layers:
                buffers.resize(needed + self.slack, self._filled + self.num_staged)

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
