"""How drafts fared lately: counts that fade. No clocks: the same rounds leave the same counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_FADING = 0.95  # of what is known, with every round: texts change
_TRUST = 3.0  # tests that what is known of nearer positions counts for
_HOPE_BELOW = 0.5  # of the tier that a middle tier reviews, before anything was tested
_BUCKETS = 7  # positions 1, 2-3, 4-7, ... 64 and beyond


@dataclass(slots=True)
class Acceptance:
    """Of tokens that were really drafted (forced ones are always right): tested and accepted by position.

    hope: the share accepted that is assumed before anything was tested."""

    hope: float
    tested: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    accepted: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    below_tested: float = 0.0  # what a middle tier tested of the tier below
    below_accepted: float = 0.0
    forced: float = 0.0  # tokens of drafts that the document forced
    drafted: float = 0.0  # the others
    steps: float = 0.0  # of the drafter
    beyond: float = 0.0  # drafted tokens beyond those that were asked for
    rounds: float = 0.0

    def fade(self, kept: float = _FADING) -> None:
        self.tested = [count * kept for count in self.tested]
        self.accepted = [count * kept for count in self.accepted]
        for name in ("below_tested", "below_accepted", "forced", "drafted", "steps", "beyond", "rounds"):
            setattr(self, name, getattr(self, name) * kept)

    def soften(self, most: float) -> None:
        """Keep no more of what was tested at the first position than ``most`` tests: a new try shall count."""
        if self.tested[0] > most:
            self.fade(most / self.tested[0])

    def learn(self, asked: int, forced: Sequence[bool], num_tested: int, num_accepted: int, steps: int) -> None:
        """One round's draft. forced: of each of its tokens; num_tested, num_accepted: of all, from the first."""
        self.fade()
        own = 0
        for i, given in enumerate(forced):
            own += not given
            if not given and i < num_tested:
                bucket = _bucket(own)
                self.tested[bucket] += 1
                self.accepted[bucket] += i < num_accepted
        self.forced += len(forced) - own
        self.drafted += own
        self.steps += steps
        self.beyond += max(0, len(forced) - asked)
        self.rounds += 1

    def learn_below(self, tested: int, accepted: int) -> None:
        self.below_tested += tested
        self.below_accepted += accepted

    @property
    def share(self) -> float:
        """Of all that was tested lately, at whatever position; hope where nothing was."""
        tested = sum(self.tested)
        return sum(self.accepted) / tested if tested else self.hope

    @property
    def below(self) -> float:
        """The share that a middle tier accepts of the tier below it."""
        return (self.below_accepted + _HOPE_BELOW * _TRUST) / (self.below_tested + _TRUST)

    @property
    def per_step(self) -> float | None:
        """Drafted tokens of one step; None before the first."""
        return self.drafted / self.steps if self.steps else None

    @property
    def overshoot(self) -> float:
        """Drafted tokens beyond those asked for, of a round."""
        return self.beyond / self.rounds if self.rounds else 0.0

    @property
    def forced_per_drafted(self) -> float:
        return self.forced / self.drafted if self.drafted else 0.0

    def survivals(self, longest: int) -> list[float]:
        """For each position up to ``longest`` the chance that a draft is right up to there.

        Little known positions lean on the nearer ones, the first on hope."""
        rates, known = [], self.hope
        for tested, accepted in zip(self.tested, self.accepted, strict=True):
            known = (accepted + known * _TRUST) / (tested + _TRUST)
            rates.append(known)
        chances, right = [], 1.0
        for position in range(1, longest + 1):
            right *= rates[_bucket(position)]
            chances.append(right)
        return chances


def _bucket(position: int) -> int:
    return min(_BUCKETS, position.bit_length()) - 1
