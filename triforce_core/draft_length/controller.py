"""How many tokens to draft in the next round: as many as bring the most tokens per second.

A round that asks for g tokens brings 1 + S(1) + ... + S(g) of them, S(i) being the chance that its first i are right
(with one rate a for all positions: (1 - a^(g+1)) / (1 - a), arXiv 2211.17192, equation 1), and costs its drafts and one
full pass. Both are measured: times by medians, a by counts that fade. Where the best draft brings less than
plain decoding would in its time, none is made, and seldom one is tried again.

Where a tier says how sure it is of its tokens, a draft is as long as the next step still pays: while the chance that
all before is right, times what a step brings, is more than the best length for all rounds alike earns in the step's
time.

Whether a token is drafted is decided before it is, from rounds that are over and from the tokens before it: what knew
the token itself would change the text's distribution. Where chance decides the text depends on the lengths; clocks are
then left alone, so that a seed fixes the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil
from operator import mul
from statistics import median

from ..speculation.drafter import KeepGoing
from .acceptance import Acceptance
from .calibration import Calibration, ErrorRates, survival
from .costs import Costs, Drift

_SLACK = 2.5  # tokens of plain decoding whose time drafts may have lost, in all, before none are made
_SURE = 1.1  # times plain decoding's rate: drafts that promise so much are made whatever was lost
_TRYING = 0.02  # of the time of plain decoding that tries may take while drafting does not pay
_SHORTEST_REST, _LONGEST_REST = 4, 100  # rounds between tries
_SOFTENED = 6.0  # tests that old knowledge counts for when something is tried again
_CONVINCED = 3  # tries in a row that must gain
_RECENT = 9
_NEARLY = 0.9  # of the best rate: how far runs reach is known that roughly
_CHEAP = 1.5  # times a pass of one row, for the widest
_BEYOND = 1.5  # times the best length for all rounds alike, that a draft may reach where it is sure
_FARTHER, _PROVEN = 2, 6  # times what one of so many rounds has held
# An answer may be so far behind plain decoding, as a share of that one's time for so many tokens or, once it has more,
# for its own; and drafted tokens that are all right with such odds count as written already.
_BEHIND, _SHORT, _CERTAIN = 0.05, 20, 0.97
_DRAFTING = 0.3  # of a full pass that the longest draft must take, or there is nothing to save
# Of a full pass: a step between quotations that takes less may always follow, as a forced run may come. One that takes
# more must pay for itself (on an H200, llama3-8b at 30,000 tokens, drafts made six such steps in the place of one).
_DEAR = 0.45


@dataclass(frozen=True, slots=True)
class Selection:
    """Of one round. gamma2 0: it drafts nothing. observed: what its full pass attends shall choose for the next.
    most: tokens at which its draft is cut off, guided ones and a last block's included; None: nowhere. keep_going:
    asked after each of the drafter's steps; None: gamma2 alone decides."""

    gamma2: int
    observed: bool = True
    most: int | None = None
    keep_going: KeepGoing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may be chosen from. has_intermediate: a middle tier reviews chains of gamma1. may_rest: a round may draft
    nothing. most: see ``Selection``."""

    gamma1: int
    gamma2s: tuple[int, ...]
    has_intermediate: bool
    may_rest: bool
    most: int | None = None

    @property
    def settled(self) -> bool:
        """Nothing is left to choose."""
        return len(self.gamma2s) == 1 and not self.may_rest


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """What a round did. guided: of each drafted token. confidence: of each token that was not forced, where it was
    asked for. Milliseconds of drafting, of the full pass, and of all else."""

    choice: Selection
    guided: Sequence[bool]
    num_tested: int
    num_accepted: int
    steps: int
    draft_ms: float
    verify_ms: float
    other_ms: float
    confidence: Sequence[float] = ()


def can_pay(costs: Costs, candidates: Candidates) -> bool:
    """Whether drafts of some length bring clearly more than plain decoding if next to all of their tokens are right and
    the tier below is never refused. Where not, no try needs to be made: each takes several tokens' time."""
    per_step = candidates.gamma1 + 1 if candidates.has_intermediate else 1
    return any(sum(_CERTAIN**i for i in range(length + 1)) * costs.plain
               > _SURE * (ceil(length / per_step) * costs.step + costs.verify.at(length + 1) + costs.choose)
               for length in candidates.gamma2s)


# large: what is known of an answer so far; each number is one of the rules above
class Controller:
    """For one answer, or several of one kind in a row."""

    def __init__(self, costs: Costs, candidates: Candidates, acceptance: Acceptance, *, clocks: bool,
                 calibration: Calibration | None = None) -> None:
        """clocks: whether times measured on the way may change the choice. calibration: None where no tier says how
        sure it is."""
        self.acceptance, self.calibration = acceptance, calibration
        self._costs, self._candidates, self._clocks = costs, candidates, clocks
        self._drafting, self._verifying = Drift(), Drift()
        self._others: dict[bool, deque[float]] = {drafts: deque(maxlen=_RECENT) for drafts in (False, True)}
        self._lost = 0.0  # milliseconds that drafts took longer than plain decoding, what others gained taken off
        self._resting = False
        self._rested = self._pause = self._gains = 0
        self._held: deque[int] = deque(maxlen=_PROVEN)  # accepted tokens of their drafts
        self._written, self._ahead = 0, 0.0  # of this answer: tokens, and milliseconds before plain decoding

    def begin(self) -> None:
        """Another answer of the same kind."""
        self._written, self._ahead = 0, 0.0

    def next(self) -> Selection:
        """Of the next round."""
        if self._resting and not self._gains and self._rested + 1 < self._pause:
            return Selection(0, False, self._candidates.most)  # figures would only keep the device waiting
        best, rate = self._draft()
        if not self._candidates.may_rest:
            return best
        plain = self._plain()
        gain = rate * plain
        if self._resting and self._gains >= _CONVINCED and gain >= 1.0:
            self._resting, self._lost = False, 0.0
        if not self._resting and gain >= (1.0 if self._lost <= _SLACK * plain else _SURE):
            return best
        if not self._resting:
            self._resting = True
            self._rest(best, rate, plain)
        if self._gains or self._rested >= self._pause:
            return best
        return Selection(0, self._rested + 1 >= self._pause, best.most)

    def why(self) -> str:
        """What it would do next and from what figures, in plain words."""
        best, _ = self._draft()
        drafting = self._drafting_ms
        figures = (f"a full pass over one token takes {self._plain():.1f} ms, a drafted token {drafting:.1f} ms, "
                   f"and {self.acceptance.share:.0%} of the drafted tokens were accepted lately")
        if self._resting:
            return f"nothing is drafted now, but for a try now and then: {figures}"
        if best.keep_going is not None:
            return f"drafts go on as long as another token pays: {figures}"
        return f"the next draft would have {best.gamma2} tokens: {figures}"

    def _rest(self, best: Selection, rate: float, plain: float) -> None:
        """Until the next try, which will have cost no more than its share of the time by then."""
        drafted, rows, _ = self._expected(best.gamma2)
        waste = self._milliseconds(drafted, rows) * (1.0 - rate * plain)
        rounds = ceil(max(waste, self._lost - _SLACK * plain) / (_TRYING * plain))
        self._pause = min(_LONGEST_REST, max(_SHORTEST_REST, rounds))
        self._rested = self._gains = 0
        self.acceptance.soften(_SOFTENED)

    def _draft(self) -> tuple[Selection, float]:
        """What to draft, if anything is, and tokens per millisecond with the best length for all rounds alike."""
        best, rate = self._best()
        if self.calibration is not None:
            best = self._patient(best, rate, self.calibration.error_rates)
        return best, rate

    def _patient(self, choice: Selection, rate: float, error_rates: ErrorRates) -> Selection:
        """For as long as another step pays. rate: what is earned otherwise."""
        step, verify = self._costs.step * self._drafting.factor, self._costs.verify
        tokens, slowness, longest = self._per_step, self._verifying.factor, max(self._candidates.gamma2s)
        per_row = step / tokens + (verify.at(1 + longest) - verify.at(1)) * slowness / longest
        quoting = self._guides and step < _DEAR * self._plain()
        if quoting or longest * per_row < _DRAFTING * self._plain():
            return choice
        known = self.acceptance
        brings = sum(known.share**i * min(1.0, tokens - i + 1) for i in range(1, ceil(tokens) + 1))
        each = 1.0 + known.run_odds * known.run_length

        # What a short answer has lost it seldom wins back: a draft goes on for as long as the answer can bear that all
        # of it is refused but for what is next to certain. Of twenty answers of 10 to 80 tokens (llama3-8b's shape,
        # 30,000 tokens, temperature 0.6) none was slower than plain decoding by 5 %; with twice the risk, tokens
        # certain from 0.9 on and steps reckoned from tokens, two were.
        bearable = self._ahead + _BEHIND * self._plain() * max(_SHORT, self._written)

        def can_bear(confidence: Sequence[float], rows: float, steps: int) -> bool:
            each = (survival(error_rates, [sure]) for sure in confidence)
            certain = sum(chance >= _CERTAIN for chance in accumulate(each, mul))
            spent = steps * step + verify.at(rows) * slowness + self._other(True, self._costs.choose)
            return spent <= bearable + (certain + 1) * self._plain()

        def keep_going(confidence: Sequence[float], num_drafted: int, steps: int, under_way: int) -> bool:
            if not can_bear(confidence, 1 + num_drafted + tokens * (under_way + 1), steps + under_way + 1):
                return False
            ahead = tokens * under_way
            rows = num_drafted + 1 + ahead * each
            wider = (verify.at(rows + tokens * each) - verify.at(rows)) * slowness
            return survival(error_rates, confidence) * known.share**ahead * brings * each > rate * (step + wider)

        # Confidence alone promises too much: what was never seen to hold may take as long as a full pass, if in vain.
        reach = min(_BEYOND * choice.gamma2, max([self._plain() / per_row, *(_FARTHER * held for held in self._held)]))
        gamma2 = min(longest, max(min(self._candidates.gamma2s), int(reach)))
        return replace(choice, gamma2=gamma2, keep_going=keep_going)

    def learn(self, seen: RoundSeen) -> None:
        """After each round."""
        plain = self._plain()
        self._written += seen.num_accepted + 1
        if seen.choice.gamma2 == 0:
            self._rested += 1
            self._lost = max(0.0, self._lost - _TRYING * plain)
        else:
            self.acceptance.learn(seen.choice.gamma2, seen.guided, seen.num_tested, seen.num_accepted, seen.steps)
            loss = self._spent(seen) - (seen.num_accepted + 1) * plain
            self._ahead -= loss
            self._held.append(seen.num_accepted)
            if self.calibration is not None and seen.confidence:
                own = [i for i, given in enumerate(seen.guided) if not given]
                self.calibration.learn(seen.confidence, sum(i < seen.num_tested for i in own),
                                      sum(i < seen.num_accepted for i in own))
            self._lost = max(0.0, self._lost + loss)
            if self._resting:
                self._gains = self._gains + 1 if loss < 0 else 0
                if not self._gains:
                    best, rate = self._best()
                    self._rest(best, rate, plain)
        if self._clocks:
            self._time(seen)

    def _spent(self, seen: RoundSeen) -> float:
        """Milliseconds that such a round usually takes: what disturbed this one was not its length's fault."""
        drafting = seen.steps * self._costs.step * self._drafting.factor
        verifying = self._costs.verify.at(len(seen.guided) + 1) * self._verifying.factor
        return drafting + verifying + self._other(True, self._costs.choose)

    def _time(self, seen: RoundSeen) -> None:
        drafts = seen.choice.gamma2 > 0
        rows = len(seen.guided) + 1
        self._verifying.note(seen.verify_ms, self._costs.verify.at(rows) if drafts else self._costs.plain)
        if drafts and seen.steps:
            self._drafting.note(seen.draft_ms / seen.steps, self._costs.step)
        self._others[drafts].append(seen.other_ms)

    def _best(self) -> tuple[Selection, float]:
        """The lengths with the most tokens per millisecond, and how many those are."""
        rates = {Selection(gamma2, most=self._candidates.most): self._rate(gamma2)
                 for gamma2 in self._candidates.gamma2s}
        best = max(rates, key=rates.__getitem__)
        if self._guides and self._rows_are_cheap:
            # How runs end drafts is known roughly; one that is longer costs little, and may hold the rest of an answer.
            best = max((choice for choice, rate in rates.items() if rate >= _NEARLY * rates[best]),
                       key=lambda choice: choice.gamma2)
        return best, rates[best]

    @property
    def _guides(self) -> bool:
        """Whether most of the tokens are the document's."""
        return self.acceptance.run_odds * self.acceptance.run_length > 1.0

    @property
    def _rows_are_cheap(self) -> bool:
        verify = self._costs.verify
        return verify.at(1 + max(self._candidates.gamma2s)) < _CHEAP * verify.at(1)

    def _rate(self, gamma2: int) -> float:
        drafted, rows, brought = self._expected(gamma2)
        return brought / self._milliseconds(drafted, rows)

    def _expected(self, gamma2: int) -> tuple[float, float, float]:
        """Of a round: tokens drafted that are not forced, rows of the full pass, tokens brought.

        Behind each token that is not forced, the verdict's own as well, the document may force a run: it is right
        whoever wrote that token, takes its rows, counts as drafted, and so often ends the draft."""
        known = self.acceptance
        longest = gamma2 + known.overshoot
        odds, run = known.run_odds, known.run_length
        each, a = 1.0 + odds * run, known.share
        drafted = right = 0.0
        keep_going = 1.0
        for number in range(1, ceil(longest) + 1):
            keep_going *= 1.0 - odds * min(1.0, run / max(1.0, gamma2 - number + 1))
            share = keep_going * min(1.0, longest - number + 1)
            drafted += share
            right += share * a**number
        return drafted, self._rows((1.0 + drafted) * each), (1.0 + right) * each

    def _rows(self, rows: float) -> float:
        """Of a full pass that is to verify so many."""
        most = self._candidates.most
        return rows if most is None else min(rows, most + 1)

    def _milliseconds(self, drafted: float, rows: float) -> float:
        """Of a round. drafted: tokens that are not forced."""
        verifying = self._costs.verify.at(rows) * self._verifying.factor
        return drafted * self._drafting_ms + verifying + self._other(True, self._costs.choose)

    @property
    def _drafting_ms(self) -> float:
        """Of drafting a token that is not forced."""
        return self._costs.step * self._drafting.factor / self._per_step

    @property
    def _per_step(self) -> float:
        """Drafted tokens of one of the drafter's steps."""
        if not self._candidates.has_intermediate:
            return 1.0
        hoped = self.acceptance.expected_prior.below
        return self.acceptance.per_step or sum(hoped**i for i in range(self._candidates.gamma1 + 1))

    def _plain(self) -> float:
        """Milliseconds of a token without drafts."""
        return self._costs.plain * self._verifying.factor + self._other(False, 0.0)

    def _other(self, drafts: bool, known: float) -> float:
        return median(self._others[drafts]) if self._others[drafts] else known
