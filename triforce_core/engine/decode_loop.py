"""The rounds of one answer: draft, one full pass, verdict, commit, choose. The only place that emits tokens.

A real answer and the warm-up before it run these same rounds, so that nothing is met for the first time in an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from ..events import RankCount, TierCount
from ..kv_cache.full import FullCache
from ..model import Llama
from ..sampling import Sampler
from ..speculation.draft_length import Selection
from ..speculation.model_drafter import QUOTE, ModelOnCache
from ..speculation.round import Round, speculate
from .attention_report import AttentionReport
from .pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Step:
    """One round. tokens: those that the answer has room for; tiers: what was tested and accepted, the drafter's own
    first; passes, ranks: see ``DraftStats``; shares: of the pages, where the round measured them; streamed: bytes from
    host memory. began: when, by ``perf_counter``."""

    done: Round
    tokens: list[int]
    stopped: bool
    tiers: list[TierCount]
    passes: dict[str, int]
    ranks: tuple[RankCount, ...]
    shares: tuple[float, ...] | None
    milliseconds: dict[str, float]
    streamed: int
    began: float


class DecodeLoop:
    """``context`` grows with every round; all but its last token is in ``full``."""

    def __init__(self, target: Llama, full: ModelOnCache[FullCache], pipeline: Pipeline,
                 attended: AttentionReport, sampler: Sampler, context: list[int], max_context: int) -> None:
        self._target, self._full, self._pipeline = target, full, pipeline
        self._attended, self._sampler = attended, sampler
        self.context, self._max_context = context, max_context

    def step(self, choice: Selection, left: int, shares: tuple[float, ...] | None = None) -> Step:
        """Run one round. left: tokens that the answer may still have. shares: known before it and not yet shown."""
        full, pipeline, sampler, context = self._full, self._pipeline, self._sampler, self.context
        began, streamed = perf_counter(), full.cache.streamed_bytes
        wanted = pipeline.begin(choice)
        full.observer = observer = pipeline.next_observer
        # A draft beyond the answer's limit is verified whole, as its pass may be captured in that width only.
        most = min(self._invariant_limit(), self._max_context - len(context) - 1)
        done = speculate(full, pipeline.drafter, context, min(wanted, left - 1, most), sampler,
                         most=most if choice.most is None else min(most, choice.most),
                         alternatives=sampler.params.alternatives, verify=pipeline.parts.verify,
                         overlap=partial(pipeline.overlap, self._attended.see) if observer is not None else None)
        tokens, stopped = _cut(done.verdict.token_ids, sampler.stop, left)
        context.extend(tokens)
        full.keep(min(len(context), full.length))
        full.commit()
        pipeline.settle(context)
        chose = pipeline.milliseconds()
        streamed = full.cache.streamed_bytes - streamed
        stats = pipeline.drafter.stats()
        spent = {**stats.milliseconds, "verify": done.verify_milliseconds, **chose}
        return Step(done, tokens, stopped, [*_tested(done, pipeline.drafter.tier), *stats.counts], dict(stats.passes),
                    stats.ranks, self._attended.add_seen() or shares, spent, streamed, began)

    def _invariant_limit(self) -> int:
        """Drafted tokens up to which a verification rounds as plain decoding would, where that is known."""
        rows = self._target.batch_invariant_rows(self._full.cache)
        return sys.maxsize if rows is None else rows - (len(self.context) - self._full.length)


def _tested(done: Round, tier: str) -> list[TierCount]:
    """Count what the full cache tested, by who drafted it; forced quotation counts apart, it is always right."""
    proposers = zip(done.draft.proposed_by(tier), done.draft.sources, strict=True)
    return done.counts([QUOTE if source == QUOTE else proposer for proposer, source in proposers])


def _cut(tokens: Sequence[int], stop: frozenset[int], left: int) -> tuple[list[int], bool]:
    """Return which of a round's tokens belong to the answer, and whether a stop token ends it there."""
    for count, token in enumerate(tokens[:left], start=1):
        if token in stop:
            return list(tokens[:count]), True
    return list(tokens[:left]), False
