"""How the drafts of real answers fared, position by position, over many answers: counts that halve, no clocks.

``Acceptance`` knows the last rounds and fades with each; this is what is kept from one start to the next, and what a
plan may count on. Knows no texts and no tokens, only how many there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

POSITIONS = 64
RANKS = 8
_ROUNDS = 400.0  # at the first position, before older ones count for half
_KNOWN = 20.0  # tests after which a position's own share is believed


_NOW = "now"
Pace = tuple[float, float, float, float]  # milliseconds: see ``Seen.pace``


@dataclass(slots=True)
class Seen:
    """Of one kind of answer with one set of tiers. Positions are counted among really drafted tokens: forced ones are
    always right. ranks: of siblings in trees. pace: of each gamma1 that was used, milliseconds of drafting and those
    that measured costs had promised, then the same of all else in those rounds; ``_NOW``: of what was used last."""

    tested: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)
    accepted: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)
    below_tested: float = 0.0  # what a middle tier tested of the tier below
    below_accepted: float = 0.0
    ranks_tested: list[float] = field(default_factory=lambda: [0.0] * RANKS)
    ranks_accepted: list[float] = field(default_factory=lambda: [0.0] * RANKS)
    forced: float = 0.0
    drafted: float = 0.0
    pace: dict[str, list[float]] = field(default_factory=dict)

    def learn(self, forced: Sequence[bool], refused: bool) -> None:
        """One round. forced: of each accepted token; refused: whether the one behind them was tested in vain."""
        own = 0
        for given in forced:
            if not given:
                self._note(own, True)
                own += 1
        if refused:
            self._note(own, False)
        self.forced += len(forced) - own
        self.drafted += own + refused
        if self.tested[0] > _ROUNDS:
            self._halve()

    def learn_below(self, tested: int, accepted: int) -> None:
        self.below_tested += tested
        self.below_accepted += accepted

    def learn_rank(self, rank: int, tested: int, accepted: int) -> None:
        if rank < RANKS:
            self.ranks_tested[rank] += tested
            self.ranks_accepted[rank] += accepted

    def learn_pace(self, gamma1: int, pace: Pace) -> None:
        """Of an answer's rounds. Of earlier answers half counts."""
        for name in (str(gamma1), _NOW):
            before = self.pace.get(name, [0.0] * 4)
            self.pace[name] = [earlier / 2 + more for earlier, more in zip(before, pace, strict=True)]

    def strain(self, gamma1: int) -> float | None:
        """How much longer drafting takes than was measured, beside the other parts of the same rounds: what else a
        machine does slows both alike. None before it was seen."""
        return _strain(self.pace.get(str(gamma1)))

    @property
    def last_strain(self) -> float:
        """Of the lengths that were used lately, 1 before any were."""
        return _strain(self.pace.get(_NOW)) or 1.0

    @property
    def slowness(self) -> float:
        """How much longer full passes take lately than when they were measured."""
        _, _, actual, promised = self.pace.get(_NOW, (0.0, 0.0, 0.0, 0.0))
        return actual / promised if actual and promised else 1.0

    @property
    def total(self) -> float:
        """Drafted tokens that were tested."""
        return sum(self.tested)

    @property
    def share(self) -> float:
        """Of those, how many were right."""
        return sum(self.accepted) / self.total if self.total else 0.0

    @property
    def below(self) -> float | None:
        """The share that a middle tier accepts of the tier below it; None where too little is known."""
        return self.below_accepted / self.below_tested if self.below_tested >= _KNOWN else None

    @property
    def farthest(self) -> int:
        """The last position of which enough is known."""
        return max((i + 1 for i in range(POSITIONS) if self.tested[i] >= _KNOWN), default=0)

    def survivals(self, longest: int) -> list[float]:
        """For each position the chance that a draft is right up to there. Of positions that few drafts reached no more
        is hoped than of the worst known one."""
        chances, right, worst = [], 1.0, 1.0
        for i in range(longest):
            if i < POSITIONS and self.tested[i] >= _KNOWN:
                rate = self.accepted[i] / self.tested[i]
                worst = min(worst, rate)
            else:
                rate = worst if self.farthest else 0.0
            right *= rate
            chances.append(right)
        return chances

    def siblings(self, least: float) -> list[float] | None:
        """The share of families in which the sibling of each rank was the right one; None before ``least`` families
        were tested."""
        if self.ranks_tested[0] < least:
            return None
        # A rank that trees seldom had is worth no more than what was seen of it.
        return [accepted / self.ranks_tested[0] for accepted in self.ranks_accepted]

    def _note(self, position: int, right: bool) -> None:
        if position < POSITIONS:
            self.tested[position] += 1
            self.accepted[position] += right

    def _halve(self) -> None:
        for counts in (self.tested, self.accepted, self.ranks_tested, self.ranks_accepted):
            counts[:] = [count / 2 for count in counts]
        for name in ("below_tested", "below_accepted", "forced", "drafted"):
            setattr(self, name, getattr(self, name) / 2)


def _strain(pace: Sequence[float] | None) -> float | None:
    if pace is None or not all(pace):
        return None
    drafting, promised, rest, promised_rest = pace
    return drafting / promised * promised_rest / rest
