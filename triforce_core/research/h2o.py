"""H2O (arXiv 2306.14048): the tokens that all queries so far attended most, and as many of the newest; what has been
evicted never comes back. What a question asks for late was not attended early.

The published code takes softmax probabilities summed over queries, per head; here a KV head sums over its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..engine.loading import Loaded
from ..engine.pipeline import AttentionMass, ChosenCache, Pipeline, PipelineParts
from ..engine.plan import Plan
from ..engine.prefill import OBSERVED, prefill
from ..events import PrefillProgress
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval import RetrievalCache
from ..speculation.model_drafter import ModelOnCache

# Queries counted of one pass, its newest; of a wider pass the others are left out. Probabilities that a fused attention
# never shows are computed once more, heads x tokens fp32 numbers a row: in 2 GiB at most; short passes whole.
_MOST_ROWS, _LEAST_ROWS = 512, 64
_NUMBERS = 2**29


class AccumulatedMass(AttentionMass):
    """Sum the attention that every token has had from all queries since the first; hand each pass to ``shown`` too.

    Two small untruths: within one pass a token's attention by the pass's own later tokens is not counted (mass covers
    what was committed before), and that by drafted tokens is, also if they are refused later."""

    def __init__(self, shown: AttentionMass, heads: int, tokens: int) -> None:
        """heads: query heads of a layer; tokens: about how long the context is."""
        super().__init__(1, max(_LEAST_ROWS, min(_MOST_ROWS, _NUMBERS // (heads * tokens))))
        self.shown = shown
        self._sums: dict[int, Tensor] = {}  # fp32 [H, at least the tokens committed] per layer; never written again
        self._kept: tuple[int, dict[int, Tensor]] = (0, {})

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        assert mass is not None
        size = self.shown.chunk_size
        chunks = mass.shape[1] // size
        self.shown.see(layer, queries, mass[:, : chunks * size].unflatten(1, (chunks, size)).sum(-1))
        before = self._sums.get(layer, mass[:, :0])
        longer, shorter = (mass, before) if mass.shape[1] >= before.shape[1] else (before, mass)
        self._sums[layer] = longer.clone()
        self._sums[layer][:, : shorter.shape[1]] += shorter

    @property
    def latest(self) -> Tensor | None:
        return self.shown.latest

    @property
    def sums(self) -> Tensor:
        """Return fp32 [layers, H, tokens]."""
        return torch.stack([self._sums[layer] for layer in sorted(self._sums)])

    def keep(self, length: int) -> None:
        """Remember now, when just the first ``length`` tokens of the context have asked."""
        self._kept = length, dict(self._sums)

    def rewind(self, length: int) -> int:
        """Go back to what was kept if that is no longer than ``length``, else to nothing; return its length.

        From there on, tokens must be read again."""
        if self._kept[0] > length:
            self._kept = 0, {}
        self._sums = dict(self._kept[1])
        return self._kept[0]


class HeavyHitterCache(RetrievalCache):
    """Keep ``budget`` tokens of ``full`` per layer and KV head: token 0, the heaviest, the ``recent`` newest.

    A selection like retrieval's, of single tokens instead of chunks, so the same buffers serve. With ``frequencies`` it
    is Streaming-H2O: the same tokens at positions inside the cache."""

    def __init__(self, full: FullCache, *, budget: int, recent: int, frequencies: Tensor | None = None) -> None:
        self._alive: Tensor | None = None  # bool [layers, H, n]: not evicted, of the first n tokens
        super().__init__(full, budget=budget, chunk_size=1, recent=recent, frequencies=frequencies)

    def select(self, mass: Tensor) -> None:
        """Keep the heaviest by accumulated ``mass`` [layers, H, tokens] of what was kept or is new; the first time, and
        after ``truncate(0)``, of everything."""
        if self._alive is not None:
            mass = mass.clone()
            known = min(self._alive.shape[-1], mass.shape[-1])
            mass[..., :known].masked_fill_(~self._alive[..., :known], -1.0)
        super().select(mass)
        if self.selection is not None:
            shape = (self.num_layers, self.num_kv_heads, self._tail_start)
            self._alive = torch.zeros(shape, dtype=torch.bool, device=self.device).scatter_(-1, self.selection, True)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if length == 0:
            self._alive = None


class AccumulatingPipeline(Pipeline):
    """Choose tokens by what all queries since the first attended, so observe every pass."""

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, accumulated: AccumulatedMass,
                 parts: PipelineParts) -> None:
        super().__init__(loaded, full, plan, accumulated.shown, parts)
        self._accumulated = accumulated

    @property
    def pass_observer(self) -> AttentionMass:
        return self._accumulated

    @property
    def next_observer(self) -> AttentionMass:
        return self._accumulated

    def reads_from(self, length: int) -> int:
        return self._accumulated.rewind(length)

    def read(self, context: Sequence[int], shared: int, chunk: int,
             cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        full, wanted = self.full, context[: len(context) - 1]
        last = max(full.length, len(wanted) - OBSERVED)
        # Every context begins with the document without its tail: what that attended is good for all of them.
        kept = max(0, min(last, shared - 1 - OBSERVED))
        full.observer = self._accumulated
        for stop in (kept, last):
            yield from prefill(full, wanted[full.length : stop], chunk, cancelled, len(wanted))
            if full.length == kept:
                self._accumulated.keep(kept)
        if full.length == last and not cancelled():
            yield from prefill(full, wanted[last:], OBSERVED, cancelled)

    def _select(self, part: ChosenCache, scores: Tensor | None, chosen_now: bool) -> None:
        super()._select(part, self._accumulated.sums, chosen_now)
