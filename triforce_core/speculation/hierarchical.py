"""A drafter made of rounds: TriForce's middle tier (arXiv 2404.11912, section 4.2 and algorithm 1).

The target's weights over a *part* of the full cache verify what the drafter below writes; the tokens of those
rounds, with the distributions they were drawn from, are the draft for the full cache. Because a lossless round
emits tokens distributed exactly as its model, nothing special is needed to stay lossless (the published code
takes the refused tokens' replacements from p instead of the residual and is not).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..events import TierCount
from ..sampling import Sampler
from .drafter import Draft, Drafter, DraftStats
from .model_drafter import ModelOnCache, SteppingDrafter
from .round import speculate
from .verifier import Verifier, verify_tokens


class HierarchicalDrafter(SteppingDrafter):
    """Run rounds of ``drafter`` verified by ``model`` until enough tokens are gathered.

    A few more than asked for, as the last block may overshoot. The model's cache follows the full one."""

    def __init__(self, model: ModelOnCache, drafter: Drafter, gamma1: int, *, tier: str = "retrieval",
                 verify: Verifier = verify_tokens) -> None:
        """verify: what it hands up must have the probabilities that it says."""
        self.model, self.drafter, self.gamma1, self.tier, self._verify = model, drafter, gamma1, tier, verify
        self._tested: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._passes, self._seconds = 0, 0.0

    def step(self, grown: list[int], sampler: Sampler) -> Draft:
        done = speculate(self.model, self.drafter, grown, self.gamma1, sampler, verify=self._verify,
                         alternatives=int(self.keep_going is not None))
        self._seconds += done.verify_milliseconds / 1e3
        self._passes += 1
        for count in done.counts(done.draft.proposed_by(self.drafter.tier)):
            self._tested[count.tier] += count.tested
            self._accepted[count.tier] += count.accepted
        grown.extend(done.verdict.token_ids)
        self.drafter.settle(grown, committed=False)
        # What the tier below wrote and this one let stand keeps its writer's name; the rest is this tier's.
        sources = [*(done.draft.sources[node] for node in done.verdict.path), self.tier]
        return Draft(done.verdict.token_ids, done.probs, sources,
                     confidence=[likeliest[0][1] for _, likeliest in done.chances])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        # What this tier staged was computed over a part of the cache; the full pass has the true keys and values, so
        # none of it is kept: the cache catches up from there.
        self.model.keep(self.model.cache.num_committed + self.model.skipped)
        if committed:
            self.model.commit()
        self.drafter.settle(context, committed=committed)

    def reset(self) -> None:
        self.model.reset()
        self.drafter.reset()

    def stats(self) -> DraftStats:
        counts = tuple(TierCount(tier, tested, self._accepted[tier]) for tier, tested in self._tested.items())
        mine = DraftStats(counts, {self.tier: self._seconds * 1e3}, {self.tier: self._passes})
        self._tested.clear()
        self._accepted.clear()
        self._passes, self._seconds = 0, 0.0
        return mine + self.drafter.stats()
