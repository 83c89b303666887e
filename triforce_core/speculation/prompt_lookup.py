"""A drafter without a model: what followed the last time these words stood there (Max-Gram, arXiv 2312.11462,
section 3.3; as a suffix automaton it looks nothing up, it follows along), alone or beside another drafter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import floor, log
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..kv_cache import shared_prefix
from ..sampling import Sampler
from .drafter import Draft, Drafter, DraftStats, KeepGoing
from .model_drafter import MAX_GUIDED, QUOTE

NGRAM = "n-gram"
MOST_COPIED = 16  # tokens of one draft
_WIDEST = 6  # matches of 2^(this - 1) tokens and more are one kind
PRICE = 0.1  # of testing one token more, in passes of the tier above
_ASSUMED, _WEIGHT = 0.5, 2.0  # acceptance before anything was tested, and the tests that it counts for
_DOUBT = 4.0  # refusals that might have come besides
_FADING = 0.97  # of what is known, with every test: texts change
_RETRY = 0.995  # of it, with every draft that was not made: about one try in thirty
_FADING_ROUND = 0.8  # of what the other drafter of a ``Router`` has brought, with every round since
# Rounds of copies after which that one is tried again, unless they bring more than it could. Without that one bad round
# was its last where copies were right half the time: 1.3 and 2.4x in two books of five, 2.7 and 3.3x with it.
_UNHEARD = 8


class Match(NamedTuple):
    """Hold the longest suffix of what was read that stands in the text. end: behind its earliest occurrence."""

    state: int
    length: int
    end: int


class _Undo(NamedTuple):
    """Hold one token's changes of older states. moved: (state, where its step led); relinked: likewise of a link."""

    num_states: int
    last: int
    moved: list[tuple[int, int | None]]
    relinked: tuple[int, int] | None


class SuffixAutomaton:
    """Know every substring of a growing text, and where it first stood (Blumer et al., 1985; Crochemore, 1986).

    A state stands for substrings that occur at the same places; its link leads to the longest suffix of theirs that
    occurs elsewhere too. Extending by a token costs O(1) amortised, and so does following a text along. The tokens of
    the start are kept for good; what is added later may be taken back."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._longest = [0]
        self._end = [0]
        self._last = 0
        self._undo: list[_Undo] = []  # of the newest tokens; the first len(text) - len(_undo) stay
        for token in token_ids:
            self._add(token)

    def extend(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            num_states, last = len(self._next), self._last
            moved: list[tuple[int, int | None]] = []
            relinked = self._add(token, moved)
            self._undo.append(_Undo(num_states, last, moved, relinked))

    def truncate(self, length: int) -> None:
        """Take back tokens from ``length`` on, but none of those from the start."""
        while len(self.text) > length and self._undo:
            token, undo = self.text.pop(), self._undo.pop()
            if undo.relinked is not None:
                state, link = undo.relinked
                self._link[state] = link
            for state, led in reversed(undo.moved):
                if led is None:
                    del self._next[state][token]
                else:
                    self._next[state][token] = led
            for states in (self._next, self._link, self._longest, self._end):
                del states[undo.num_states :]  # type: ignore[attr-defined]
            self._last = undo.last

    @property
    def match(self) -> Match:
        """Return the longest suffix of the text that also occurs earlier in it."""
        state = max(0, self._link[self._last])
        return Match(state, self._longest[state], self._end[state])

    def advance(self, match: Match, token: int) -> Match:
        """Return the match after one more token of what is read; the text does not grow. Valid until it does."""
        state, length = match.state, match.length
        while state > 0 and token not in self._next[state]:
            state = self._link[state]
            length = self._longest[state]
        state = self._next[state].get(token, -1)
        return Match(state, length + 1, self._end[state]) if state > 0 else Match(0, 0, 0)

    def _add(self, token: int, moved: list[tuple[int, int | None]] | None = None) -> tuple[int, int] | None:
        """Add one token; fill in ``moved`` and return ``relinked``, see ``_Undo``."""
        following, links = self._next, self._link
        self.text.append(token)
        new, state = len(following), self._last
        self._append({}, 0, self._longest[state] + 1, len(self.text))
        self._last = new
        while state >= 0 and token not in following[state]:
            following[state][token] = new
            if moved is not None:
                moved.append((state, None))
            state = links[state]
        if state < 0:
            return None
        known = following[state][token]
        if self._longest[state] + 1 == self._longest[known]:
            links[new] = known
            return None
        # The shorter substrings of that state now occur here as well, the longer do not: they part.
        parted = len(following)
        self._append(dict(following[known]), links[known], self._longest[state] + 1, self._end[known])
        while state >= 0 and following[state].get(token) == known:
            following[state][token] = parted
            if moved is not None:
                moved.append((state, known))
            state = links[state]
        relinked = known, links[known]
        links[known] = links[new] = parted
        return relinked

    def _append(self, following: dict[int, int], link: int, longest: int, end: int) -> None:
        self._next.append(following)
        self._link.append(link)
        self._longest.append(longest)
        self._end.append(end)


class TextIndex:
    """Know a document and the conversation about it. The document's part is built once, when a guess is first wanted
    (no answer that quotes wants one); questions come and go behind it."""

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
        """Agree with a context that only goes on, in as many steps as there are new tokens."""
        if not self._is_built:
            self._behind += context[len(self._document) + len(self._behind) :]
            return
        self._automaton.extend(context[len(self._automaton.text) :])

    def guess(self, context: Sequence[int], most: int) -> tuple[int, list[int]]:
        """Return up to ``most`` tokens after ``context``, whose last ones may be drafted and need not be known.

        Before them the kind of guess: 0 by the last token alone, k by a match of 2^(k - 1) tokens or more."""
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


def _bigrams(token_ids: Sequence[int]) -> dict[int, int]:
    """Return for each token what most often follows it; of several the smallest number."""
    ids = np.asarray(token_ids, dtype=np.int64)
    if len(ids) < 2:
        return {}
    base = int(ids.max()) + 1
    pairs, counts = np.unique(ids[:-1] * base + ids[1:], return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // base))
    firsts, where = np.unique((pairs // base)[order], return_index=True)
    return dict(zip(firsts.tolist(), (pairs % base)[order][where].tolist(), strict=True))


class AcceptanceEstimator:
    """Measure the acceptance of several kinds of guesses, each known by a number, the more promising the higher.

    A draft is as long as its last token still pays for being tested: not past the position where a^i falls below the
    price, a being the acceptance (Cascade Speculative Drafting, arXiv 2312.11462, section 3.2). A kind that never pays
    is left alone, and tried again seldom. Counts only: the same run decides the same."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, float]] = {}  # tested, accepted

    def reset(self) -> None:
        self._known.clear()

    def rate(self, kind: int) -> float:
        """Return the share of tested tokens that is accepted, as far as is known.

        A new kind is taken for at least as good as the one before it."""
        if kind not in self._known:
            below = max((known for known in self._known if known < kind), default=None)
            return _ASSUMED if below is None else max(_ASSUMED, self.rate(below))
        tested, accepted = self._known[kind]
        return (accepted + _ASSUMED * _WEIGHT) / (tested + _WEIGHT)

    def proven_rate(self, kind: int) -> float:
        """Return ``rate`` as far as it is proven: 0 for what was never tested, and a few tests prove little.

        A new kind is as good as the one before it."""
        known = max((other for other in self._known if other <= kind), default=None)
        if known is None:
            return 0.0
        tested, accepted = self._known[known]
        return accepted / (tested + _DOUBT)

    def length(self, kind: int, most: int) -> int:
        """Return how many tokens are worth drafting, at most ``most``."""
        rate = self.rate(kind)
        if rate < PRICE:
            tested, accepted = self._known[kind]
            self._known[kind] = tested * _RETRY, accepted * _RETRY
            return 0
        return min(most, floor(log(PRICE) / log(rate)))

    def review(self, kind: int, guess: Sequence[int], start: int, context: Sequence[int]) -> None:
        """Learn from a guess at what ``context`` has from ``start`` on.

        A verdict may end before the guess begins, or an answer within it: of what lies behind nothing is known."""
        accepted = shared_prefix(guess, context[start:])
        self.learn(kind, max(0, min(len(guess), accepted + 1, len(context) - start)), accepted)

    def learn(self, kind: int, tested: int, accepted: int) -> None:
        """Count a draft's tokens, ``tested`` up to the first refusal and with it."""
        if tested:
            before = self._known.get(kind, (0.0, 0.0))
            self._known[kind] = before[0] * _FADING + tested, before[1] * _FADING + accepted


class PromptLookupDrafter(Drafter):
    """Copy what followed the longest suffix of the context that occurred before. Its tokens are not drawn: one-hot.

    Each drafter measures what its own reviewer accepts; several may share one index."""

    tier = NGRAM

    def __init__(self, index: TextIndex, most: int = MOST_COPIED) -> None:
        self._index, self._most = index, most
        self.estimator = AcceptanceEstimator()
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

    def rate(self, context: Sequence[int], *, proven: bool) -> float:
        """Return the share of its tokens that it expects to be accepted after ``context``."""
        kind, guess = self._index.guess(context, 1)
        rate = self.estimator.proven_rate if proven else self.estimator.rate
        return rate(kind) if guess else 0.0

    def _guess(self, context: Sequence[int], most: int, sampler: Sampler) -> list[int]:
        kind, guess = self._index.guess(context, min(most, self._most))
        del guess[self.estimator.length(kind, len(guess)) :]
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
            self.estimator.review(kind, guess, start, context)
        if committed:
            self._index.grow(context)

    def reset(self) -> None:
        """Forget what was measured; what the index knows is its owner's business."""
        self.estimator.reset()
        self._open = None

    def stats(self) -> DraftStats:
        spent, self._seconds = self._seconds * 1e3, 0.0
        return DraftStats(milliseconds={NGRAM: spent})


class Router(Drafter):
    """Give each round to ``first`` or to copies alone, whichever promises more tokens for its time.

    A long copy out of the document needs no model at all; where text is new, it is worth nothing (SuffixDecoding, arXiv
    2411.04975, section 4, falls back on a draft model likewise). Copies are known for what they would have brought in
    every round: a guess costs nothing until it is tested. All depends on earlier rounds, never on a clock: all ranks
    agree."""

    def __init__(self, first: Drafter, copies: PromptLookupDrafter, most: int, price: float,
                 lengths: Sequence[int] = (), *, coupled_only: bool = False) -> None:
        """most: tokens of a copy. price: of a token by ``first``, in passes of the reviewer. lengths: of copies, where
        not all are equally good (a captured pass has one width); the longest that fits is taken. coupled_only: no
        copies where chance decides."""
        self.first, self.copies, self.tier = first, copies, first.tier
        self._most, self._price, self._lengths = most, price, sorted(lengths)
        self._coupled_only = coupled_only
        self.gives_confidence, self.runs_on_graphs = first.gives_confidence, first.runs_on_graphs
        self._first_rests = self._copies_rest = False
        self._forget()

    def _forget(self) -> None:
        self._brought = self._drafted = 0.0  # tokens per round of ``first``, fading; 0: it has not written yet
        self._age = 0  # rounds since ``first`` wrote
        self._open: tuple[int, int] | None = None  # of ``first``'s draft: where it begins, how many tokens it has

    def begin(self, num_draft_tokens: int) -> int:
        """Return how many tokens to ask for. 0 given: ``first`` rests, a copy that is proven is made all the same."""
        self._first_rests = not num_draft_tokens
        return num_draft_tokens or self._most

    def configure(self, keep_going: KeepGoing | None) -> None:
        self.first.configure(keep_going)

    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:
        self.first.prepare(context, num_draft_tokens, samplers)

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        # A quotation leaves little open, and the other knows it too.
        self._copies_rest = sampler.masks is not None or (self._coupled_only and not sampler.coupled)
        if self._copies_rest:
            return Draft() if self._first_rests else self.first.propose(context, num_draft_tokens, sampler)
        copy = self._fitting(self.copies.propose(context, self._most, sampler))
        rate, count = self.copies.rate(context, proven=True), len(copy.token_ids)
        expected = sum(rate**i for i in range(count + 1))
        if self._first_rests:
            others = 1 + count * PRICE  # plain decoding's, in the time that the copy's rows take
        else:
            brought, drafted = self._brought or num_draft_tokens + 1, self._drafted or num_draft_tokens
            others = brought / (1 + self._price * drafted)
            if self._age >= _UNHEARD and expected * self._price < 1:  # one bad round of its own must not be the last
                others = expected
        if count and expected > others:
            self._open = None
            return Draft(copy.token_ids, copy.probs, copy.sources, copy.proposed_by(self.copies.tier))
        if self._first_rests:
            return Draft()
        draft = self.first.propose(context, num_draft_tokens, sampler)
        self._open = len(context), len(draft.token_ids)
        return draft

    def _fitting(self, copy: Draft) -> Draft:
        if not self._lengths:
            return copy
        return copy.first(max((length for length in self._lengths if length <= len(copy.token_ids)), default=0))

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self._age += 1
        if self._open is not None:
            start, drafted = self._open
            kept = _FADING_ROUND**self._age
            self._brought = _faded(self._brought, len(context) - start, kept)
            self._drafted = _faded(self._drafted, drafted, kept)
            self._open, self._age = None, 0
        self.first.settle(context, committed=committed)
        if not self._copies_rest:
            self.copies.settle(context, committed=committed)

    def reset(self) -> None:
        self._forget()
        self.first.reset()
        self.copies.reset()

    def stats(self) -> DraftStats:
        return self.first.stats() + self.copies.stats()


def _faded(known: float, new: float, kept: float) -> float:
    return kept * known + (1 - kept) * new if known else new
