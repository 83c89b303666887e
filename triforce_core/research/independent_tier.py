"""Intermediate tiers that follow no full cache: what they compute themselves is all they have."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.pipeline import Pipeline
from ..engine.plan import Plan
from ..speculation.hierarchical import HierarchicalDrafter


class IndependentTier(HierarchicalDrafter):
    """Keep what it has staged as far as it is right, and read the rest."""

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.model.agree(context)
        if committed:
            self.model.commit()
            self.model.keep_up(context)
        self.drafter.settle(context, committed=committed)


class StreamingPipeline(Pipeline):
    """Have the intermediate verifier attend sinks and the newest tokens."""

    def start(self, context: list[int], *, marks: bool = True) -> None:
        assert self.parts.reviewer is not None
        self.parts.reviewer.start(context, self.plan.sinks, newest(self.plan))
        super().start(context, marks=marks)


def newest(plan: Plan) -> int:
    """Return the tokens of a streaming intermediate cache beside its sinks."""
    return max(1, plan.budget - plan.sinks)
