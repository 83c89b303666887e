"""The rounds of one answer: draft, one full pass, verdict, commit, choose. The only place that emits tokens.

A real answer and the warm-up before it run these same rounds, so that nothing is met for the first time in an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from ..draft_length.controller import Choice
from ..drafters.model import ModelOnCache
from ..model import Llama
from ..research.accumulated_mass import AccumulatedMass
from ..sampling import Sampler
from ..speculation.drafter import Drafter
from ..speculation.round import Round, speculate
from .attention_report import AttendedMap, AttentionMass
from .build import Hierarchy


@dataclass(frozen=True, slots=True)
class Step:
    """One round. tokens: those that the answer has room for; shares: of the pages, where the round measured them;
    streamed: bytes from host memory. began: when, by ``perf_counter``."""

    done: Round
    tokens: list[int]
    stopped: bool
    shares: tuple[float, ...] | None
    milliseconds: dict[str, float]
    streamed: int
    began: float


class DecodeLoop:
    """``context`` grows with every round; all but its last token is in ``full``."""

    def __init__(self, target: Llama, full: ModelOnCache, drafter: Drafter, hierarchy: Hierarchy | None,
                 observer: AttentionMass | AccumulatedMass, attended: AttendedMap, sampler: Sampler,
                 context: list[int], max_context: int) -> None:
        """hierarchy: of the drafter; None: plain decoding. observer: of full passes that choose the drafts' chunks."""
        self._target, self._full, self._drafter, self._hierarchy = target, full, drafter, hierarchy
        self._observer, self._attended, self._sampler = observer, attended, sampler
        self.context, self._max_context = context, max_context

    def step(self, choice: Choice, left: int, shares: tuple[float, ...] | None = None) -> Step:
        """One round. left: tokens that the answer may still have. shares: known before it and not yet told."""
        full, hierarchy, sampler, context = self._full, self._hierarchy, self._sampler, self.context
        began, streamed = perf_counter(), full.cache.streamed_bytes  # type: ignore[attr-defined]
        wanted = hierarchy.begin(choice) if hierarchy is not None else 0
        measured = hierarchy is not None and hierarchy.measures_next_round
        full.observer = self._observer if measured else None
        # A draft beyond the answer's limit is verified whole, as its pass may be captured in that width only.
        most = min(self._alike(), self._max_context - len(context) - 1)
        done = speculate(full, self._drafter, context, min(wanted, left - 1, most), sampler,
                         most=most if choice.most is None else min(most, choice.most),
                         alternatives=sampler.params.alternatives,
                         meanwhile=partial(hierarchy.meanwhile, self._attended.see) if hierarchy and measured else None)
        tokens, stopped = _cut(done.verdict.token_ids, sampler.stop, left)
        context.extend(tokens)
        full.keep(min(len(context), full.length))
        full.commit()
        self._drafter.settle(context, committed=True)
        chose = {}
        if hierarchy is not None:
            hierarchy.after_round()
            chose = hierarchy.milliseconds()
        streamed = full.cache.streamed_bytes - streamed  # type: ignore[attr-defined]
        spent = {**self._drafter.milliseconds(), "verify": done.verify_milliseconds, **chose}
        return Step(done, tokens, stopped, self._attended.add_seen() or shares, spent, streamed, began)

    def _alike(self) -> int:
        """Drafted tokens up to which a verification rounds as plain decoding would, where that is known."""
        rows = self._target.alike_rows(self._full.length)
        return sys.maxsize if rows is None else rows - (len(self.context) - self._full.length)


def _cut(tokens: Sequence[int], stop: frozenset[int], left: int) -> tuple[list[int], bool]:
    """What of a round's tokens belongs to the answer, and whether a stop token ends it there."""
    for count, token in enumerate(tokens[:left], start=1):
        if token in stop:
            return list(tokens[:count]), True
    return list(tokens[:left]), False
