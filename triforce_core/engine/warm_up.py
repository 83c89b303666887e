"""All that answers run, run once before one: no answer waits for a capture, a kernel or a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..config import SamplingParams
from ..draft_length.controller import Selection
from ..draft_length.selector import DraftLengthSelector
from ..quotes.matcher import QuoteConstraint
from ..sampling import Sampler
from .pipeline import Pipeline
from .warm_up_passes import questions

if TYPE_CHECKING:  # which imports this file
    from .session import Session

# The newest prompt tokens, always read again in a pass of their own: their attention chooses the first chunks,
# and a question asked twice from the same cache takes the same passes.
OBSERVED = 16
# Every kind of choice that takes other kernels or other captured rounds: what the values are does not matter.
_GREEDY, _DRAWN = SamplingParams(alternatives=1), SamplingParams(temperature=0.6, alternatives=1)
_FILTERED = replace(_DRAWN, top_p=0.9)
_KINDS = ((_GREEDY, "rejection"), (_DRAWN, "rejection"), (_FILTERED, "rejection"), (_DRAWN, "coupled"),
          (_FILTERED, "coupled"))


class WarmUp:
    """What a session runs before an answer may wait for it, and takes back."""

    room = 64  # tokens behind a context that it writes

    def __init__(self) -> None:
        self._warmed: Pipeline | None = None  # whose rounds have been run

    def steps(self, session: Session, pipeline: Pipeline, selector: DraftLengthSelector | None,
              constraint: QuoteConstraint | None, context: list[int],
              cancelled: Callable[[], bool]) -> list[Callable[[], object]]:
        """To be called in order. constraint: of answers held to the document's words, where there are such."""
        target, full, observer = session.loaded.target, session.full, pipeline.observer.shown
        captures = target.graphs is not None
        steps: list[Callable[[], object]] = []
        if constraint is not None:
            steps.append(partial(_index_quotations, constraint))
        if captures:
            steps += [partial(target.prepare, full.cache, 1),
                      partial(target.prepare, full.cache, OBSERVED, observer, logits_rows=1)]
        if not pipeline.drafts:
            return steps
        # Where a pass streams its cache it takes about as long as compiling does.
        first = self._warmed is not pipeline and not full.cache.streams
        if captures and first:
            steps += questions(full, session.loaded.info.max_context - len(context))
        steps.append(partial(session.begin_behind, pipeline, context))
        helds = (False,) if constraint is None else (True, False)
        if captures:
            kinds = [session.throwaway_sampler(params, verifier, held=False) for params, verifier in _KINDS]
            steps += pipeline.preparations(context, kinds, quoting=constraint is not None)
            if first:
                steps += [partial(_try_rounds, session, pipeline, context,
                                  session.throwaway_sampler(params, verifier, held=held))
                          for held in helds for params, verifier in _KINDS]
        if selector is not None:
            steps += [partial(selector.measure, context, observer,
                              session.throwaway_sampler(params, "rejection", held=held), cancelled)
                      for held in helds for params in (_GREEDY, _DRAWN)]
        return [*steps, partial(setattr, self, "_warmed", pipeline)]


def _index_quotations(constraint: QuoteConstraint) -> None:
    """What quotations are looked up in is made when it is first asked for."""
    for token in constraint.opening:
        constraint.initial().advance(token).prior()


def _try_rounds(session: Session, pipeline: Pipeline, context: list[int], sampler: Sampler) -> None:
    """Run rounds as an answer does, and take them back: libraries load much when they are first used."""
    before, lengths = session.full.length, pipeline.plan.lengths
    loop = session.loop(pipeline, session.report(), sampler, list(context))
    for length in (lengths.longest, 0):
        loop.step(Selection(max(lengths.gamma1s), length), WarmUp.room)
    pipeline.forget()
    session.full.truncate(before)
    session.begin_behind(pipeline, context)
