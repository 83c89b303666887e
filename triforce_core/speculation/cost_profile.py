"""What passes cost on this machine with one model: a profile, kept from one start to the next.

One JSON file of figures. Whatever is wrong with it, it is measured anew, and ``trouble`` says why. Knows no model: who
asks names the machine, the model and the tiers in words that change when a measurement would.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from .draft_length import Costs

_VERSION = 1  # raise it when older measurements mean something else
_NEVER = "not measured on this machine yet"
_NEAR = 0.15  # of a context's length: so much longer or shorter, passes cost the same but for noise


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose measurements: all of the machine that makes its passes quicker or slower, and the models' files."""

    machine: Mapping[str, str]
    model: str
    draft: str


@dataclass
class _Kept:
    """The file's content. place: where keys and values lie; tiers: which ones, with what they attend."""

    full: dict[str, dict[int, Costs]] = field(default_factory=dict)  # by place and tokens of context; without a step
    steps: dict[str, dict[int, float]] = field(default_factory=dict)  # by tiers and gamma1
    measured: str = ""  # when


class Profile:
    """Of one subject, in ``folder`` (None: for as long as this object lives)."""

    def __init__(self, folder: Path | None, subject: Subject) -> None:
        name = sha256(f"{subject.model}\n{subject.draft}".encode()).hexdigest()[:24]
        self._path = None if folder is None else folder / f"{name}.json"
        self._subject, self._kept = subject, _Kept()
        self.trouble = ""  # why nothing is known: what was kept could not be used, or nothing could be measured
        self._read()

    @property
    def measured(self) -> str:
        """When costs were measured last, "2026-11-21 06:40"; empty: never."""
        return self._kept.measured

    def lengths(self) -> tuple[int, ...]:
        """Tokens of context at which costs were measured, wherever keys and values lay."""
        return tuple(sorted({tokens for known in self._kept.full.values() for tokens in known}))

    def in_words(self) -> str:
        """When and at which lengths of context was measured, in a line fit to show."""
        if not self.measured:
            return f"{self.trouble}; {_NEVER}" if self.trouble else _NEVER
        tokens = [f"{length:,}" for length in self.lengths()]
        listed = " and ".join(filter(None, [", ".join(tokens[:-1]), tokens[-1]]))
        return f"measured {self.measured} at {listed} tokens"

    def forget(self) -> None:
        """All of it, the file too."""
        self._kept, self.trouble = _Kept(), ""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def costs(self, place: str, tiers: str, context: int, gamma1: int) -> Costs | None:
        """Measured at about this context, or between two lengths where it was; a step with chains of gamma1."""
        step = self._kept.steps.get(tiers, {}).get(gamma1)
        full = _about(self._kept.full.get(place, {}), context)
        return None if full is None or step is None else replace(full, step=step)

    def keep_costs(self, place: str, tiers: str, context: int, gamma1: int, costs: Costs) -> None:
        """In the place of what was measured near there."""
        known = self._kept.full.setdefault(place, {})
        for tokens in [tokens for tokens in known if abs(tokens - context) <= _NEAR * context]:
            del known[tokens]
        rows, times = zip(*costs.verify, strict=True)
        plain, *verify = _undisturbed([costs.plain, *times])
        known[context] = Costs(plain, tuple(zip(rows, verify, strict=True)), 0.0, costs.choose)
        self._kept.steps.setdefault(tiers, {})[gamma1] = costs.step
        self._kept.measured = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M")

    def write(self) -> None:
        """Whole or not at all. Where it cannot be written (a full disk), it is measured again next time."""
        if self._path is None:
            return
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self._content(), file, indent=1)
            os.replace(partial, self._path)
        with suppress(OSError):  # what could not be finished
            partial.unlink(missing_ok=True)

    def _content(self) -> dict[str, Any]:
        kept = self._kept
        return {
            "version": _VERSION, "machine": dict(self._subject.machine), "model": self._subject.model,
            "draft": self._subject.draft, "measured": kept.measured,
            "full": {place: {str(tokens): {"plain": one.plain, "verify": one.verify, "choose": one.choose}
                             for tokens, one in sorted(known.items())} for place, known in kept.full.items()},
            "steps": {tiers: {str(gamma1): time for gamma1, time in known.items()}
                      for tiers, known in kept.steps.items()},
        }

    def _read(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["version"] != _VERSION:
                self.trouble = "what was measured before was kept by another version of this program"
            elif found["machine"] != dict(self._subject.machine):
                changed = self._what_changed(found["machine"])
                self.trouble = f"what was measured before is of another machine ({changed})"
            elif (found["model"], found["draft"]) != (self._subject.model, self._subject.draft):
                self.trouble = "what was measured before is of another model"
            else:
                self._kept = _kept(found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
            self.trouble = "what was measured before cannot be read"

    def _what_changed(self, machine: Mapping[str, str]) -> str:
        now = self._subject.machine
        return ", ".join(sorted(name for name in {*now, *machine} if now.get(name) != machine.get(name)))


def _undisturbed(times: Sequence[float]) -> list[float]:
    """Of ever larger pieces of work. None is quicker than a smaller one, so what seems so was not disturbed, and the
    smaller one was."""
    settled: list[float] = []
    for time in reversed(times):
        settled.append(min(time, settled[-1]) if settled else time)
    return settled[::-1]


def _about(known: Mapping[int, Costs], context: int) -> Costs | None:
    nearest = min(known, key=lambda tokens: abs(tokens - context), default=None)
    if nearest is None or abs(nearest - context) <= _NEAR * context:
        return None if nearest is None else known[nearest]
    below = max((tokens for tokens in known if tokens < context), default=None)
    above = min((tokens for tokens in known if tokens > context), default=None)
    if below is None or above is None:
        return None
    return between(known[below], known[above], (context - below) / (above - below))


def between(one: Costs, other: Costs, share: float) -> Costs:
    """At ``share`` of the way: attention takes time in proportion to the context."""
    verify = tuple((rows, _mix(time, other.verifying(rows), share)) for rows, time in one.verify)
    return Costs(_mix(one.plain, other.plain, share), verify, 0.0, _mix(one.choose, other.choose, share))


def _mix(one: float, other: float, share: float) -> float:
    return one + (other - one) * share


def _kept(found: Mapping[str, Any]) -> _Kept:
    """Raises ValueError, KeyError, TypeError, AttributeError or AssertionError unless every figure is one."""
    return _Kept(
        {place: {int(tokens): Costs(_time(one["plain"]), _curve(one["verify"]), 0.0, _time(one["choose"], 0.0))
                 for tokens, one in known.items()} for place, known in found["full"].items()},
        {tiers: {int(gamma1): _time(time) for gamma1, time in known.items()}
         for tiers, known in found["steps"].items()},
        str(found["measured"]))


def _curve(found: Sequence[Any]) -> tuple[tuple[int, float], ...]:
    return tuple((int(rows), _time(time)) for rows, time in found)


def _time(value: Any, least: float = 1e-6) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e9:
        raise ValueError(value)
    return float(value)

