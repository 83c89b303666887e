"""Several drafters side by side in one block: the better one writes the early positions, the cheaper the later.

The horizontal cascade (Cascade Speculative Drafting, arXiv 2312.11462, section 3.2): a later position counts less, as
all before it must be accepted too. The paper fixes who writes how much in a matrix K; which drafter is the better one
changes with the text, so here it is measured. Its vertical cascade, drafters that each review the one below, is
``hierarchical`` over any drafter.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sampling import Sampler
from ..speculation.drafter import Draft, Drafter, DraftStats
from ..speculation.model_drafter import ModelOnCache
from ..speculation.prompt_lookup import MOST_COPIED, AcceptanceEstimator, PromptLookupDrafter, TextIndex
from ..speculation.verifier import Verifier, verify_tokens
from .independent_tier import IndependentTier


class HorizontalCascade(Drafter):
    """Let ``first`` write what is asked for and ``then``, the cheaper, go on with up to ``more`` tokens; where ``then``
    expects to be right more often than ``first`` was, it writes alone.

    Each token keeps the distribution that its writer drew it from, so a verifier need not know."""

    def __init__(self, first: Drafter, then: Drafter, more: int) -> None:
        self.first, self.then, self._more = first, then, more
        self.tier = first.tier
        self._estimator = AcceptanceEstimator()  # of the first one's tokens: how often it is right
        self._open: tuple[int, list[int]] | None = None  # where they begin, and they themselves

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        self._open = None
        early = Draft()
        # No other drafter knows before it drafts.
        expected = self.then.rate(context, proven=False) if isinstance(self.then, PromptLookupDrafter) else 0.0
        if expected > self._estimator.rate(0):
            late = self.then.propose(context, max(num_draft_tokens, self._more), sampler)
            if late.token_ids:
                return _side_by_side(early, self.first.tier, late, self.then.tier)
        early = self.first.propose(context, num_draft_tokens, sampler)
        if not early.token_ids or early.token_ids[-1] in sampler.stop:
            return early
        self._open = len(context), early.token_ids
        late = self.then.propose([*context, *early.token_ids], self._more, sampler)
        return _side_by_side(early, self.first.tier, late, self.then.tier)

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        if self._open is not None:
            start, guess = self._open
            self._open = None
            self._estimator.review(0, guess, start, context)
        self.first.settle(context, committed=committed)
        self.then.settle(context, committed=committed)

    def reset(self) -> None:
        self._estimator.reset()
        self._open = None
        self.first.reset()
        self.then.reset()

    def stats(self) -> DraftStats:
        return self.first.stats() + self.then.stats()


def with_ngrams(small: ModelOnCache | None, index: TextIndex, more: int,
                verify: Verifier = verify_tokens) -> Drafter:
    """Return n-grams alone, or reviewed by the small model in one pass, which goes on from there.

    Up to ``more`` that it has not seen follow its draft, or take its place."""
    if small is None:
        return PromptLookupDrafter(index)
    reviewed = IndependentTier(small, PromptLookupDrafter(index), MOST_COPIED, tier="draft", verify=verify)
    return HorizontalCascade(reviewed, PromptLookupDrafter(index), more) if more else reviewed


def _side_by_side(early: Draft, first: str, late: Draft, then: str) -> Draft:
    return Draft([*early.token_ids, *late.token_ids], [*early.probs, *late.probs], [*early.sources, *late.sources],
                 [*early.proposed_by(first), *late.proposed_by(then)])
