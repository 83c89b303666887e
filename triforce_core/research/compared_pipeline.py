"""The pipeline of a comparison: what else may choose the chunks than the newest pass's attention, or attend others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from ..engine.loading import Loaded
from ..engine.pipeline import AttentionMass, ChosenCache, Pipeline, PipelineParts
from ..engine.plan import Plan
from ..engine.prefill import OBSERVED, prefill
from ..events import PrefillProgress
from ..kv_cache.full import FullCache
from ..speculation.model_drafter import ModelOnCache
from .accumulated_mass import AccumulatedMass
from .chunk_means import ChunkMeans, LastQueries


class StreamingPipeline(Pipeline):
    """The intermediate verifier attends sinks and the newest tokens."""

    def start(self, context: list[int], *, marks: bool = True) -> None:
        assert self.parts.reviewer is not None
        self.parts.reviewer.start(context, self.plan.sinks, newest(self.plan))
        super().start(context, marks=marks)


def newest(plan: Plan) -> int:
    """Tokens of a streaming intermediate cache beside its sinks."""
    return max(1, plan.budget - plan.sinks)


class AccumulatingPipeline(Pipeline):
    """Tokens are chosen by what all queries since the first attended (H2O), so every pass is observed."""

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


class MeansPipeline(Pipeline):
    """Chunks are chosen by the last query against the means of their keys."""

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, observer: LastQueries,
                 parts: PipelineParts) -> None:
        super().__init__(loaded, full, plan, observer, parts)
        self._queries, self._means = observer, ChunkMeans(full.cache, plan.chunk_size)

    def overlap(self, told: Callable[[Tensor], None]) -> None:
        """Chooses nothing ahead: means are of what is committed."""
        if self.observer.latest is not None:
            told(self.observer.latest)

    def _scores(self) -> Tensor | None:
        if self.observer.latest is None:
            return None
        self._means.update()
        return self.target.kernels.look_ahead(self._means.score(self._queries.latest_queries))
