"""How drafts fared lately: counts that fade. No clocks: the same rounds leave the same counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_FADING = 0.97  # of what is known, with every round: texts change
_PRIOR_WEIGHT = 10.0  # tests that the prior counts for at first; that fades, too
_LASTING = 1.0  # what of it stays


@dataclass(frozen=True, slots=True)
class Prior:
    """What is assumed before anything was seen. right: the share of drafted tokens that is accepted; below: the share
    that a middle tier accepts of the tier below it, until its steps have shown how many tokens they write. runs: of
    forced tokens, for each drafted one, and how long."""

    right: float
    below: float = 0.5
    runs: float = 0.0
    run_length: float = 0.0


@dataclass(slots=True)
class Acceptance:
    """Of tokens that were really drafted (forced ones are always right): tested and accepted, at whatever position."""

    expected_prior: Prior
    tested: float = 0.0
    accepted: float = 0.0
    open: float = 0.0  # drafted tokens behind which a run of forced ones might have come
    runs: float = 0.0  # that came
    guided: float = 0.0  # tokens of such runs
    drafted: float = 0.0  # those that were not forced
    steps: float = 0.0  # of the drafter
    beyond: float = 0.0  # drafted tokens beyond those that were asked for
    rounds: float = 0.0

    def __post_init__(self) -> None:
        self.tested, self.accepted = _PRIOR_WEIGHT, _PRIOR_WEIGHT * self.expected_prior.right
        self.open, self.runs = _PRIOR_WEIGHT, _PRIOR_WEIGHT * self.expected_prior.runs
        self.guided = self.runs * self.expected_prior.run_length

    def fade(self, kept: float = _FADING) -> None:
        for name in ("tested", "accepted", "open", "runs", "guided", "drafted", "steps", "beyond", "rounds"):
            setattr(self, name, getattr(self, name) * kept)

    def soften(self, most: float) -> None:
        """Keep no more of what was tested than ``most`` tests: a new try shall count."""
        if self.tested > most:
            self.fade(most / self.tested)

    def learn(self, asked: int, guided: Sequence[bool], num_tested: int, num_accepted: int, steps: int) -> None:
        """One round's draft. guided: of each of its tokens; num_tested, num_accepted: of all, from the first."""
        self.fade()
        own = 0
        for i, given in enumerate(guided):
            own += not given
            if not given and i < num_tested:
                self.tested += 1
                self.accepted += i < num_accepted
            self.runs += given and i > 0 and not guided[i - 1]
            self.guided += given and own > 0
        self.drafted += own
        self.open += own
        self.steps += steps
        self.beyond += max(0, own - asked)
        self.rounds += 1

    @property
    def share(self) -> float:
        """That was accepted of all that was tested lately."""
        return _rate(self.accepted, self.tested, self.expected_prior.right)

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


def _rate(happened: float, tried: float, hope: float) -> float:
    return (happened + hope * _LASTING) / (tried + _LASTING)
