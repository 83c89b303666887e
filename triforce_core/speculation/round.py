"""The one round, used at every level: a draft, one pass of a model over it, a verdict.

A round with an empty draft *is* plain decoding, so the autoregressive baseline is this code with drafting off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from torch import Tensor

from ..events import TierCount
from ..sampling import Sampler, chances
from .drafter import Draft, Drafter, Verdict
from .verifier import Verifier, verify


class CachedModel(Protocol):
    """Name what a round needs of a model with one cache (``model_drafter.ModelOnCache`` is the real one)."""

    @property
    def room(self) -> int:
        """Return how many tokens can still be staged."""
        ...

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        """Return [len(draft) + 1, V] after ``context`` and each drafted token; stage whatever it had not seen.

        parents: see ``Draft``."""
        ...

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        """Keep the staged tokens before context position ``length``, and of a draft behind that ``path``."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """Hold what one round did. probs: of ``verdict.token_ids``, as a draft for the tier above needs them.

    chances: each one's probability and the likeliest tokens with theirs, if they were asked for."""

    draft: Draft
    verdict: Verdict
    probs: list[Tensor | None]
    verify_milliseconds: float
    chances: list[tuple[float, list[tuple[int, float]]]] = field(default_factory=list)

    @property
    def sources(self) -> list[str]:
        """Return who wrote each emitted token."""
        return [*(self.draft.sources[node] for node in self.verdict.path), self.verdict.own]

    def counts(self, proposers: Sequence[str]) -> list[TierCount]:
        """Return tested and accepted tokens by tier; proposers: each drafted token's, in order."""
        totals: dict[str, list[int]] = {}
        for i, node in enumerate([*self.verdict.path, *self.verdict.refused[:1]]):
            count = totals.setdefault(proposers[node], [0, 0])
            count[0] += 1
            count[1] += i < self.verdict.num_accepted
        return [TierCount(tier, tested, accepted) for tier, (tested, accepted) in totals.items()]


def speculate(model: CachedModel, drafter: Drafter, context: Sequence[int], num_draft_tokens: int, sampler: Sampler,
              most: int | None = None, alternatives: int = 0, verify: Verifier = verify,
              overlap: Callable[[], None] | None = None) -> Round:
    """Draft after ``context``, verify with one pass of ``model``. Stages and keeps; the caller commits and settles.

    most: tokens of one path of a draft, if that is limited (drafters may overshoot). verify: a tier that only drafts
    may have its own, and drafts that are trees need one that knows them. overlap: called once the pass is under way,
    before its verdict is waited for."""
    draft = drafter.propose(context, num_draft_tokens, sampler) if num_draft_tokens > 0 else Draft()
    if most is not None:
        draft = draft.first(most)
    draft = draft.within(model.room - 1)
    started = perf_counter()
    logits = model.logits(context, draft.token_ids, draft.parents)
    if overlap is not None:
        overlap()
    verdict, probs = verify(draft, logits, context, sampler)
    rows = [0, *(node + 1 for node in verdict.path)]  # the one that each emitted token was decided by
    asked = chances(logits[rows], verdict.token_ids, alternatives) if alternatives else []
    # The verdict's own last token has not been through the model: the next pass begins with it.
    model.keep(len(context), verdict.path)
    return Round(draft, verdict, probs, (perf_counter() - started) * 1e3, asked)
