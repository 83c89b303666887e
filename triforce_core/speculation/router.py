"""Two drafters for one reviewer: each round goes to the one that promises more tokens for its time.

A long copy out of the document needs no model at all; where text is new, it is worth nothing (SuffixDecoding, arXiv
2411.04975, section 4, falls back on a draft model likewise). What the copies would have brought is known in every
round, also those in which the other drafter wrote: a guess costs nothing until somebody tests it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sampling import Sampler
from .acceptance_estimator import PRICE
from .draft import Draft
from .drafter import Drafter, DraftStats, KeepGoing
from .prompt_lookup import PromptLookupDrafter

_FADING = 0.8  # of what ``first`` has brought, with every round since
# Rounds of copies after which ``first`` is tried again, unless they bring more than it could. Without that one bad
# round was its last where copies were right half the time: 1.3 and 2.4x in two books of five, 2.7 and 3.3x with it.
_UNHEARD = 8


# large: what ``first`` last brought, with what, how long ago, and where it is writing
class Router(Drafter):
    """``first``, or copies alone. Which of them depends on earlier rounds only, never on a clock: all ranks agree."""

    def __init__(self, first: Drafter, copies: PromptLookupDrafter, most: int, price: float,
                 lengths: Sequence[int] = (), *, coupled_only: bool = False) -> None:
        """most: tokens of a copy. price: of a token by ``first``, in passes of the reviewer. lengths: of copies, where
        not all are equally good (a captured pass has one width); the longest that fits is taken. coupled_only: no
        copies where chance decides."""
        self.first, self.copies, self.tier = first, copies, first.tier
        self._most, self._price, self._lengths = most, price, sorted(lengths)
        self._coupled_only = coupled_only
        self._only_copies = self._silent = False
        self._brought = self._drafted = 0.0  # tokens per round of ``first``, fading; 0: it has not written yet
        self._age = 0  # rounds since ``first`` wrote
        self._wrote: tuple[int, int] | None = None  # of ``first``'s draft: where it begins, how many tokens it has

    def begin(self, num_draft_tokens: int) -> int:
        """0: ``first`` rests, a copy that is proven is made all the same."""
        self._only_copies = not num_draft_tokens
        return num_draft_tokens or self._most

    @property
    def tells_confidence(self) -> bool:  # type: ignore[override]
        return self.first.tells_confidence

    @property
    def runs_on_graphs(self) -> bool:  # type: ignore[override]
        return self.first.runs_on_graphs

    def configure(self, keep_going: KeepGoing | None) -> None:
        self.first.configure(keep_going)

    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:
        self.first.prepare(context, num_draft_tokens, samplers)

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        # What a quotation leaves open is short, and the other knows it too.
        self._silent = sampler.masks is not None or (self._coupled_only and not sampler.coupled)
        if self._silent:
            return Draft() if self._only_copies else self.first.propose(context, num_draft_tokens, sampler)
        copy = self._fitting(self.copies.propose(context, self._most, sampler))
        rate, count = self.copies.proven_odds(context), len(copy.token_ids)
        hoped = sum(rate**i for i in range(count + 1))
        if self._only_copies:
            others = 1 + count * PRICE  # plain decoding's, in the time that the copy's rows take
        else:
            brought, drafted = self._brought or num_draft_tokens + 1, self._drafted or num_draft_tokens
            others = brought / (1 + self._price * drafted)
            if self._age >= _UNHEARD and hoped * self._price < 1:  # one bad round of its own must not be the last
                others = hoped
        if count and hoped > others:
            self._wrote = None
            return Draft(copy.token_ids, copy.probs, copy.sources, copy.proposed_by(self.copies.tier))
        if self._only_copies:
            return Draft()
        draft = self.first.propose(context, num_draft_tokens, sampler)
        self._wrote = len(context), len(draft.token_ids)
        return draft

    def _fitting(self, copy: Draft) -> Draft:
        if not self._lengths:
            return copy
        return copy.first(max((length for length in self._lengths if length <= len(copy.token_ids)), default=0))

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self._age += 1
        if self._wrote is not None:
            start, drafted = self._wrote
            kept = _FADING**self._age
            self._brought = _faded(self._brought, len(context) - start, kept)
            self._drafted = _faded(self._drafted, drafted, kept)
            self._wrote, self._age = None, 0
        self.first.settle(context, committed=committed)
        if not self._silent:
            self.copies.settle(context, committed=committed)

    def reset(self) -> None:
        self._brought, self._drafted, self._age, self._wrote = 0.0, 0.0, 0, None
        self.first.reset()
        self.copies.reset()

    def stats(self) -> DraftStats:
        return self.first.stats() + self.copies.stats()


def _faded(known: float, new: float, kept: float) -> float:
    return kept * known + (1 - kept) * new if known else new
