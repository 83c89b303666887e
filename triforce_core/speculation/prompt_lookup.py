"""A drafter without a model: what followed the last time these words stood there (Max-Gram, arXiv 2312.11462,
section 3.3; as a suffix automaton it looks nothing up, it follows along)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from time import perf_counter

import numpy as np

from ..kv_cache import shared_prefix
from ..sampling import Sampler
from .acceptance_estimator import AcceptanceEstimator, fared
from .draft import Draft
from .drafter import Drafter, DraftStats
from .model_drafter import MAX_GUIDED, QUOTE
from .suffix_automaton import SuffixAutomaton

NGRAM = "n-gram"
MOST_COPIED = 16  # tokens of one draft
_WIDEST = 6  # matches of 2^(this - 1) tokens and more are one kind


class TextIndex:
    """A document and the conversation about it. The document's part is built once, when a guess is first wanted (no
    answer that quotes wants one); questions come and go behind it."""

    def __init__(self, document: Sequence[int]) -> None:
        self._document, self._behind = document, list[int]()  # what was to be known before anything was built

    @cached_property
    def _automaton(self) -> SuffixAutomaton:
        built = SuffixAutomaton(self._document)
        built.extend(self._behind)
        return built

    @cached_property
    def _bigrams(self) -> dict[int, int]:
        return _bigrams(self._document)

    @property
    def _is_built(self) -> bool:
        return "_automaton" in vars(self)

    def agree(self, context: Sequence[int]) -> None:
        """Know ``context``, which begins with the document, and nothing else."""
        if not self._is_built:
            end = len(self._document)
            assert list(context[:end]) == list(self._document), "the context must begin with the document"
            self._behind = list(context[end:])
            return
        text, same = self._automaton.text, len(self._document)  # in every context, and too long to be compared
        same += shared_prefix(text[same:], context[same:])
        self._automaton.truncate(same)
        assert len(text) == same, "the context must begin with the document"
        self._automaton.extend(context[len(text) :])

    def grow(self, context: Sequence[int]) -> None:
        """``agree`` with a context that only goes on: as many steps as there are new tokens."""
        if not self._is_built:
            self._behind += context[len(self._document) + len(self._behind) :]
            return
        self._automaton.extend(context[len(self._automaton.text) :])

    def guess(self, context: Sequence[int], most: int) -> tuple[int, list[int]]:
        """Up to ``most`` tokens after ``context``, whose last ones may be drafted and need not be known.

        -> before them the kind of guess: 0 by the last token alone, k by a match of 2^(k - 1) tokens or more."""
        match = self._automaton.match
        for token in context[len(self._automaton.text) :]:
            match = self._automaton.advance(match, token)
        if match.length < 2:
            guess = self._chain(context[-1], most) if context else []
            if guess or not match.length:
                return 0, guess
        guess = list(context[match.end : match.end + most])
        while len(guess) < most:  # the copy has come to where it began: text that goes in circles goes on so
            guess.append(guess[len(guess) - (len(context) - match.end)])
        return min(_WIDEST, match.length.bit_length()), guess

    def _chain(self, token: int, most: int) -> list[int]:
        chain: list[int] = []
        while len(chain) < most and token in self._bigrams:
            token = self._bigrams[token]
            chain.append(token)
        return chain


class PromptLookupDrafter(Drafter):
    """Copies what followed the longest suffix of the context that occurred before. Its tokens are not drawn: one-hot.

    Each drafter measures what its own reviewer accepts; several may share one index."""

    tier = NGRAM

    def __init__(self, index: TextIndex, most: int = MOST_COPIED) -> None:
        self._index, self._most = index, most
        self._estimator = AcceptanceEstimator()
        self._open: tuple[int, int, list[int]] | None = None  # of the last guess: where it begins, its kind, itself
        self._seconds = 0.0

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        started = perf_counter()
        tokens: list[int] = []
        sources: list[str] = []
        grown = context
        self._open = None
        while len(tokens) < num_draft_tokens and not (tokens and tokens[-1] in sampler.stop):
            run, origin = sampler.guided(grown, MAX_GUIDED), QUOTE
            if not run and self._open is None:
                run, origin = self._guess(grown, num_draft_tokens - len(tokens), sampler), NGRAM
            tokens += run
            sources += [origin] * len(run)
            # Without masks nothing is forced, and one guess is all: no need to copy a long context once more.
            if not run or sampler.masks is None:
                break
            grown = [*grown, *run]
        self._seconds += perf_counter() - started
        return Draft(tokens, [None] * len(tokens), sources)

    def odds(self, context: Sequence[int]) -> float:
        """The share of its tokens that it expects to be accepted after ``context``."""
        kind, guess = self._index.guess(context, 1)
        return self._estimator.rate(kind) if guess else 0.0

    def proven_odds(self, context: Sequence[int]) -> float:
        """``odds`` as far as they are proven."""
        kind, guess = self._index.guess(context, 1)
        return self._estimator.surely(kind) if guess else 0.0

    def _guess(self, context: Sequence[int], most: int, sampler: Sampler) -> list[int]:
        kind, guess = self._index.guess(context, min(most, self._most))
        del guess[self._estimator.length(kind, len(guess)) :]
        del guess[sampler.num_allowed(context, guess) :]
        ends = [i for i, token in enumerate(guess, start=1) if token in sampler.stop]
        del guess[ends[0] if ends else len(guess) :]
        if guess:
            self._open = len(context), kind, guess
        return guess

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        if self._open is not None:
            start, kind, guess = self._open
            self._open = None
            self._estimator.learn(kind, *fared(guess, start, context))
        if committed:
            self._index.grow(context)

    def reset(self) -> None:
        """What was measured is forgotten; what the index knows is its owner's business."""
        self._estimator.reset()
        self._open = None

    def stats(self) -> DraftStats:
        spent, self._seconds = self._seconds * 1e3, 0.0
        return DraftStats(milliseconds={NGRAM: spent})


def _bigrams(token_ids: Sequence[int]) -> dict[int, int]:
    """For each token what most often follows it; of several the smallest number."""
    ids = np.asarray(token_ids, dtype=np.int64)
    if len(ids) < 2:
        return {}
    base = int(ids.max()) + 1
    pairs, counts = np.unique(ids[:-1] * base + ids[1:], return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // base))
    firsts, where = np.unique((pairs // base)[order], return_index=True)
    return dict(zip(firsts.tolist(), (pairs % base)[order][where].tolist(), strict=True))
