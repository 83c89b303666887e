"""How drafts fared lately: counts that fade. No clocks: the same rounds leave the same counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_FADING = 0.97  # of what is known, with every round: texts change
_TRUST = 20.0  # tests that what is known of nearer positions counts for
_PRIOR_WEIGHT = 10.0  # tests that the prior counts for at first; that fades, too
_LASTING = 1.0  # what of it stays
_BUCKETS = 7  # positions 1, 2-3, 4-7, ... 64 and beyond


@dataclass(frozen=True, slots=True)
class Prior:
    """What is assumed before anything was seen. right: the share of drafted tokens that is accepted; below: the share
    that a middle tier accepts of the tier below it; runs: of forced tokens, for each drafted one, and how long."""

    right: float
    below: float = 0.5
    runs: float = 0.0
    run_length: float = 0.0


@dataclass(slots=True)
class Acceptance:
    """Of tokens that were really drafted (forced ones are always right): tested and accepted by position."""

    expected_prior: Prior
    tested: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    accepted: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    below_tested: float = 0.0  # what a middle tier tested of the tier below
    below_accepted: float = 0.0
    open: float = 0.0  # drafted tokens behind which a run of forced ones might have come
    runs: float = 0.0  # that came
    guided: float = 0.0  # tokens of such runs
    drafted: float = 0.0  # those that were not forced
    steps: float = 0.0  # of the drafter
    beyond: float = 0.0  # drafted tokens beyond those that were asked for
    rounds: float = 0.0

    def __post_init__(self) -> None:
        self.tested[0], self.accepted[0] = _PRIOR_WEIGHT, _PRIOR_WEIGHT * self.expected_prior.right
        self.below_tested, self.below_accepted = _PRIOR_WEIGHT, _PRIOR_WEIGHT * self.expected_prior.below
        self.open, self.runs = _PRIOR_WEIGHT, _PRIOR_WEIGHT * self.expected_prior.runs
        self.guided = self.runs * self.expected_prior.run_length

    def fade(self, kept: float = _FADING) -> None:
        self.tested = [count * kept for count in self.tested]
        self.accepted = [count * kept for count in self.accepted]
        for name in ("below_tested", "below_accepted", "open", "runs", "guided", "drafted", "steps", "beyond",
                     "rounds"):
            setattr(self, name, getattr(self, name) * kept)

    def soften(self, most: float) -> None:
        """Keep no more of what was tested at the first position than ``most`` tests: a new try shall count."""
        if self.tested[0] > most:
            self.fade(most / self.tested[0])

    def learn(self, asked: int, guided: Sequence[bool], num_tested: int, num_accepted: int, steps: int) -> None:
        """One round's draft. guided: of each of its tokens; num_tested, num_accepted: of all, from the first."""
        self.fade()
        own = 0
        for i, given in enumerate(guided):
            own += not given
            if not given and i < num_tested:
                bucket = _bucket(own)
                self.tested[bucket] += 1
                self.accepted[bucket] += i < num_accepted
            self.runs += given and i > 0 and not guided[i - 1]
            self.guided += given and own > 0
        self.drafted += own
        self.open += own
        self.steps += steps
        self.beyond += max(0, own - asked)
        self.rounds += 1

    def soften_below(self, most: float) -> None:
        """The same of what a middle tier tested."""
        if self.below_tested > most:
            self.below_accepted *= most / self.below_tested
            self.below_tested = most

    def learn_below(self, tested: int, accepted: int) -> None:
        self.below_tested += tested
        self.below_accepted += accepted

    @property
    def share(self) -> float:
        """Of all that was tested lately, at whatever position."""
        return _rate(sum(self.accepted), sum(self.tested), self.expected_prior.right)

    @property
    def below(self) -> float:
        """The share that a middle tier accepts of the tier below it."""
        return _rate(self.below_accepted, self.below_tested, self.expected_prior.below)

    @property
    def per_step(self) -> float | None:
        """Drafted tokens of one step; None before the first."""
        return self.drafted / self.steps if self.steps else None

    @property
    def overshoot(self) -> float:
        """Drafted tokens beyond those asked for, of a round."""
        return self.beyond / self.rounds if self.rounds else 0.0

    @property
    def run_odds(self) -> float:
        """The chance that the document forces what follows a drafted token."""
        return _rate(self.runs, self.open, self.expected_prior.runs)

    @property
    def run_length(self) -> float:
        """Tokens that it then forces."""
        return self.guided / self.runs if self.runs else 0.0

    def survivals(self, longest: int) -> list[float]:
        """For each position up to ``longest`` the chance that a draft is right up to there.

        Little known positions lean on the nearer ones, the first on hope."""
        rates, known, trust = [], self.expected_prior.right, _LASTING
        for tested, accepted in zip(self.tested, self.accepted, strict=True):
            known, trust = _rate(accepted, tested, known, trust), _TRUST
            rates.append(known)
        chances, right = [], 1.0
        for position in range(1, longest + 1):
            right *= rates[_bucket(position)]
            chances.append(right)
        return chances


def _rate(happened: float, tried: float, hope: float, trust: float = _LASTING) -> float:
    return (happened + hope * trust) / (tried + trust)


def _bucket(position: int) -> int:
    return min(_BUCKETS, position.bit_length()) - 1
