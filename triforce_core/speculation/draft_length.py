"""The length of the next round's draft: as many tokens as bring the most tokens per millisecond.

A round that asks for g tokens brings 1 + a + ... + a^g of them (arXiv 2211.17192, equation 1), a being the share that
was accepted lately, and costs its drafts and one full pass, which were measured. Where a tier says how sure it is of
its tokens (the greatest probability of its distribution; AdaEDL, arXiv 2410.18351) a draft goes on as long as its next
step pays: while the chance that all before is right, times what a step brings, is more than rounds earn in its time.
Where the best draft brings less than plain decoding in its time none is made, but for a try now and then.

Whether a token is drafted is decided before it is, from rounds that are over and from the tokens before it: what knew
the token itself would change the text's distribution. Where chance decides the text depends on the lengths; clocks are
then left alone, so that a seed fixes the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil
from operator import mul
from statistics import median

from .drafter import KeepGoing

_KEPT = 0.97  # of what is known, with every round: texts change
_EDGES = (0.3, 0.5, 0.7, 0.9, 0.98)  # of how sure a tier is
_TRUST, _TRIED = 8.0, 6.0  # tests that an assumption counts for; that all before count for when drafts are tried again
_SLACK, _SURE = 2.5, 1.1  # tokens of plain decoding lost, after which drafts must promise so many times its rate
_TRYING, _RESTS, _CONVINCED = 0.02, (4, 100), 3  # share of time for tries; rounds between two; gains that end a rest
_RECENT, _PLAIN_EVERY = 5, 16  # rounds whose times are compared; drafts after which one round drafts nothing for that
_BEHIND, _SHORT, _CERTAIN = 0.05, 20, 0.97  # share of an answer's time, of so many tokens at least, that may be lost
_BEYOND, _FARTHER = 1.5, 2.0  # times the best length, and what drafts have held lately, that a sure draft may reach
# In passes of one row: the most that the widest pass and a step may take for quotations to be drafted whole.
_CHEAP_ROWS, _CHEAP_STEP = 1.5, 0.5


@dataclass(frozen=True, slots=True)
class Costs:
    """Hold milliseconds. plain: of a round that drafts nothing and is not observed. verify: (rows, milliseconds) of the
    full pass over a draft, with its verdict, ascending. step: of the drafter's smallest one (the small model's
    chain and the middle tier's pass over it; without a middle tier one pass; without a model one token). choose: of all
    that a round does beside, whatever its length."""

    plain: float
    verify: tuple[tuple[int, float], ...]
    step: float
    choose: float = 0.0

    def __post_init__(self) -> None:
        rows = [rows for rows, _ in self.verify]
        assert rows and rows == sorted(set(rows)), rows

    def verifying(self, rows: float) -> float:
        """Return the milliseconds of so many rows, linear between what was measured, and beyond, never falling."""
        if len(self.verify) == 1 or rows <= self.verify[0][0]:
            return self.verify[0][1]
        (low, before), (high, after) = next((pair for pair in pairwise(self.verify) if rows <= pair[1][0]),
                                            self.verify[-2:])
        return before + max(0.0, after - before) * (rows - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Selection:
    """Hold the choice for one round. gamma2 0: it drafts nothing. observed: what its full pass attends shall choose for
    the next. most: tokens at which its draft is cut off, guided ones and a last block's included; None: nowhere.
    keep_going: asked after each of the drafter's steps; None: gamma2 alone decides."""

    gamma2: int
    observed: bool = True
    most: int | None = None
    keep_going: KeepGoing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Hold what may be chosen from. may_rest: a round may draft nothing. most: see ``Selection``."""

    gamma2s: tuple[int, ...]
    may_rest: bool
    most: int | None = None

    @property
    def settled(self) -> bool:
        """Return whether nothing is left to choose."""
        return len(self.gamma2s) == 1 and not self.may_rest


@dataclass(frozen=True, slots=True)
class Prior:
    """Hold what is assumed before anything was seen. right: the share of drafted tokens that is accepted. per_step:
    tokens that a step drafts. forced: tokens that the document forces behind each of them. errors: the share that is
    refused, by how sure their tier was, least sure first; empty: it does not say."""

    right: float
    per_step: float = 1.0
    forced: float = 0.0
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """Hold what a round did. guided: of each drafted token, whether the document forced it. confidence: of each of the
    others, where it was asked for. milliseconds: of the whole round."""

    choice: Selection
    guided: Sequence[bool]
    num_tested: int
    num_accepted: int
    steps: int
    milliseconds: float
    confidence: Sequence[float] = ()


class Mean:
    """Hold a mean that fades."""

    def __init__(self, assumed: float, weight: float) -> None:
        self.total, self.weight = assumed * weight, weight

    @property
    def value(self) -> float:
        return self.total / self.weight

    def add(self, total: float, weight: float) -> None:
        self.total, self.weight = _KEPT * self.total + total, _KEPT * self.weight + weight

    def soften(self, most: float) -> None:
        """Keep no more weight than ``most``."""
        kept = min(1.0, most / self.weight)
        self.total, self.weight = kept * self.total, kept * self.weight


def best_gain(costs: Costs, lengths: Sequence[int], per_step: float, right: float) -> float:
    """Return times plain decoding's tokens per second, with drafts of the best length. per_step: tokens that a step
    writes at most. right: the share of tokens that is accepted."""
    return max(sum(right**i for i in range(length + 1)) * costs.plain
               / (ceil(length / per_step) * costs.step + costs.verifying(length + 1) + costs.choose)
               for length in lengths)


def can_pay(costs: Costs, candidates: Candidates, per_step: float, right: float | None = None) -> bool:
    """Return whether drafts of some length bring more than plain decoding; clearly more, if next to all tokens are
    right, where it is not known which share is (right: None). Where not, no try is made: each takes several tokens'
    time."""
    least = _SURE if right is None else 1.0
    return best_gain(costs, candidates.gamma2s, per_step, _CERTAIN if right is None else right) > least


class Controller:
    """Choose for one answer, or for several of one kind in a row."""

    def __init__(self, costs: Costs, candidates: Candidates, prior: Prior, *, clocks: bool,
                 compares: bool = False) -> None:
        """clocks: whether times measured on the way may change the choice. compares: whether they decide only if it
        drafts at all; now and then a round drafts nothing then, and so do the first two."""
        self._costs, self._candidates, self._prior, self._clocks = costs, candidates, prior, clocks
        self.right = Mean(prior.right, 10.0)  # tokens that were really drafted: forced ones always are
        self._per_step, self._forced = Mean(prior.per_step, 3.0), Mean(prior.forced, 10.0)
        self._tests = [(0.0, 0.0)] * len(prior.errors)  # by how sure their tier was: tested, refused
        self._held = [0]  # accepted tokens of the last drafts
        self._slow = {False: 1.0, True: 1.0}  # times what was measured that rounds take now, without drafts and with
        self._took: dict[bool, deque[float]] = {drafts: deque(maxlen=_RECENT) for drafts in (False, True)}
        self._compares, self._drafted = compares and candidates.may_rest, _PLAIN_EVERY
        self._lost = 0.0  # milliseconds that drafts took longer than plain decoding, what others gained taken off
        self._rest = self._rested = self._gains = 0  # rounds of the rest (0: none), of them over; tries that gained
        self.begin()

    def begin(self) -> None:
        """Begin another answer of the same kind."""
        self._written, self._ahead = 0, 0.0  # tokens, and milliseconds before plain decoding

    def next(self) -> Selection:
        """Choose for the next round."""
        most = self._candidates.most
        if self._compares and (self._drafted >= _PLAIN_EVERY or len(self._took[False]) < 2):
            return Selection(0, False, most)
        if self._rest and not self._gains and self._rested + 1 < self._rest:
            return Selection(0, False, most)  # figures would only keep the device waiting
        length, rate = self._best()
        gain = rate * self._plain * self._advantage
        if self._rest and self._gains >= _CONVINCED and gain >= 1.0:
            self._rest, self._lost = 0, 0.0
        if self._candidates.may_rest and not self._rest and gain < self._least_gain:
            self._begin_rest()
        if self._rest and not self._gains and self._rested < self._rest:
            return Selection(0, self._rested + 1 >= self._rest, most)  # what the next try attends is chosen before it
        longest, costs = max(self._candidates.gamma2s), self._costs
        rows = costs.verifying(longest + 1) / costs.verifying(1)
        if self._forced.value > 1.0 and rows < _CHEAP_ROWS and costs.step < _CHEAP_STEP * costs.plain:
            return Selection(longest, True, most)  # how far a quotation reaches is known roughly
        return Selection(length, True, most) if not self._tests else self._patient(length, rate)

    def why(self) -> str:
        """Return what it would do next and from what figures, in plain words."""
        drafting = self._costs.step * self._slow[True] / self._per_step.value
        figures = (f"a full pass over one token takes {self._plain:.1f} ms, a drafted token {drafting:.1f} ms, "
                   f"and {self.right.value:.0%} of the drafted tokens were accepted lately")
        if self._rest:
            return f"nothing is drafted now, but for a try now and then: {figures}"
        if self._tests:
            return f"drafts go on as long as another token pays: {figures}"
        return f"the next draft would have {self._best()[0]} tokens: {figures}"

    def learn(self, seen: RoundSeen) -> None:
        """Learn from a round that is over."""
        drafts, tokens = seen.choice.gamma2 > 0, seen.num_accepted + 1
        usual = self._time(seen.steps, len(seen.guided) + 1) if drafts else self._plain
        self._written += tokens
        self._drafted = self._drafted + 1 if drafts else 0
        self._took[drafts].append(seen.milliseconds / usual)
        if not drafts:
            self._rested += 1
            self._lost = max(0.0, self._lost - _TRYING * self._plain)
        else:
            self._count(seen)
            loss = usual - tokens * self._plain * self._advantage  # not by what disturbed this round
            self._ahead -= loss
            self._lost = max(0.0, self._lost + loss)
            if self._rest:
                self._gains = self._gains + 1 if loss < 0 else 0
                if not self._gains:
                    self._begin_rest()
        if self._clocks:  # one stop tells little
            now = min(2.0, max(0.5, seen.milliseconds / usual)) * self._slow[drafts]
            self._slow[drafts] += 0.2 * (now - self._slow[drafts])

    def _count(self, seen: RoundSeen) -> None:
        own = [i for i, given in enumerate(seen.guided) if not given]
        tested, accepted = sum(i < seen.num_tested for i in own), sum(i < seen.num_accepted for i in own)
        self.right.add(accepted, tested)
        self._per_step.add(len(own), seen.steps)
        self._forced.add(len(seen.guided) - len(own), len(own) + 1)
        self._held = [*self._held[-5:], seen.num_accepted]
        self._tests = [(_KEPT * tests, _KEPT * refused) for tests, refused in self._tests]
        for number, sure in enumerate(seen.confidence[:tested] if self._tests else ()):
            row = bisect_right(_EDGES, sure)
            tests, refused = self._tests[row]
            self._tests[row] = tests + 1, refused + (number >= accepted)

    def _begin_rest(self) -> None:
        """Rest until the next try, which will have cost no more than its share of the time by then."""
        waste = max(self._lost / self._plain - _SLACK, 0.5)
        self._rest = min(_RESTS[1], max(_RESTS[0], ceil(waste / _TRYING)))
        self._rested = self._gains = 0
        self.right.soften(_TRIED)

    @property
    def _plain(self) -> float:
        """Return the milliseconds of a token without drafts."""
        return self._costs.plain * self._slow[False]

    @property
    def _advantage(self) -> float:
        """Return how much dearer, by what was measured before, plain rounds are now than those that draft. Medians: one
        stop tells nothing, and all that runs beside slows both."""
        plain, drafts = self._took[False], self._took[True]
        return median(plain) / median(drafts) if self._compares and plain and drafts else 1.0

    @property
    def _least_gain(self) -> float:
        return 1.0 if self._lost <= _SLACK * self._plain else _SURE

    @property
    def _errors(self) -> list[float]:
        """Return the share that is refused, by how sure their tier was; what is seldom tested moves with all."""
        expected = sum(error * tests for error, (tests, _) in zip(self._prior.errors, self._tests, strict=True))
        level = (sum(refused for _, refused in self._tests) + 0.5) / (expected + 0.5)
        return [min(1.0, (refused + _TRUST * level * error) / (tests + _TRUST))
                for error, (tests, refused) in zip(self._prior.errors, self._tests, strict=True)]

    def _best(self) -> tuple[int, float]:
        """Return the length for all rounds alike with the most tokens per millisecond, and how many those are."""
        rates = {length: self._rate(length) for length in self._candidates.gamma2s}
        best = max(rates, key=rates.__getitem__)
        return best, rates[best]

    def _rate(self, length: int) -> float:
        each, a = 1.0 + self._forced.value, self.right.value
        own = length / each  # tokens that the document does not force
        tokens = sum(a**i * min(1.0, own - i + 1) for i in range(ceil(own) + 1))
        return tokens * each / self._time(own / self._per_step.value, length + each)

    def _time(self, steps: float, rows: float) -> float:
        """Return the milliseconds of a round that drafts."""
        if self._candidates.most is not None:
            rows = min(rows, self._candidates.most + 1)
        return (steps * self._costs.step + self._costs.verifying(rows) + self._costs.choose) * self._slow[True]

    def _patient(self, length: int, rate: float) -> Selection:
        """Choose drafts that go on for as long as another step pays. rate: what is earned otherwise."""
        tokens, each, a = self._per_step.value, 1.0 + self._forced.value, self.right.value
        brings = each * sum(a**i * min(1.0, tokens - i + 1) for i in range(1, ceil(tokens) + 1))
        errors, step, verifying = self._errors, self._costs.step, self._costs.verifying
        # What a short answer has lost it seldom wins back: a draft goes on for as long as the answer can bear that all
        # of it is refused but for what is next to certain.
        bearable = self._ahead + _BEHIND * self._plain * max(_SHORT, self._written)

        def keep_going(confidence: Sequence[float], num_drafted: int, steps: int, under_way: int) -> bool:
            each_right = (1.0 - errors[bisect_right(_EDGES, sure)] for sure in confidence)
            right = list(accumulate(each_right, mul, initial=1.0))
            rows = 1 + num_drafted + tokens * under_way * each
            certain = sum(chance >= _CERTAIN for chance in right)  # the round's own token is one
            if self._time(steps + under_way + 1, rows + tokens) > bearable + certain * self._plain:
                return False
            added = (step + verifying(rows + tokens * each) - verifying(rows)) * self._slow[True]
            return right[-1] * a ** (tokens * under_way) * brings > rate * added

        # Confidence alone promises too much: what was never seen to hold may take as long as a full pass, if in vain.
        per_row = self._time(1.0 / (tokens * each), 2.0) - self._time(0.0, 1.0)
        reach = max(_BEYOND * length, self._plain / per_row, _FARTHER * max(self._held))
        gamma2s = self._candidates.gamma2s
        return Selection(min(max(gamma2s), max(min(gamma2s), int(reach))), True, self._candidates.most, keep_going)
