"""The costs of passes on this machine with one model: a profile, kept from one start to the next.

One JSON file of figures. Whatever is wrong with it, it is measured anew, and ``trouble`` says why. Knows no model: its
caller names the machine, the model and the tiers in words that change when a measurement would.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..events import DraftPromise
from .draft_length import Costs

_VERSION = 1  # raise it when older measurements mean something else
_NEVER = "not measured on this machine yet"
_NEAR = 0.15  # of a context's length: so much longer or shorter, passes cost the same but for noise


@dataclass(frozen=True, slots=True)
class Subject:
    """Name all of the machine that makes its passes quicker or slower, and the models' files."""

    machine: Mapping[str, str]
    model: str
    draft: str


class Profile:
    """Keep the measurements of one subject in ``folder`` (None: for as long as this object lives)."""

    def __init__(self, folder: Path | None, subject: Subject) -> None:
        name = sha256(f"{subject.model}\n{subject.draft}".encode()).hexdigest()[:24]
        self._path = None if folder is None else folder / f"{name}.json"
        self._subject = subject
        self._clear()
        self._read()

    def _clear(self) -> None:
        # place: where keys and values lie; tiers: which ones, with what they attend.
        self._full: dict[str, dict[int, Costs]] = {}  # by place and tokens of context; without a step
        self._steps: dict[str, dict[int, float]] = {}  # by tiers and gamma1
        self.promise: DraftPromise | None = None  # of the draft model, where there is one
        self.measured = ""  # when last, "2026-11-21 06:40"; empty: never
        self.trouble = ""  # why nothing is known: what was kept could not be used, or nothing could be measured

    def lengths(self) -> tuple[int, ...]:
        """Return the tokens of context at which costs were measured, wherever keys and values lay."""
        return tuple(sorted({tokens for known in self._full.values() for tokens in known}))

    def in_words(self) -> str:
        """Return what the draft model promised, and when and at which lengths of context was measured, in a line fit to
        show."""
        tried = f"the draft model was {self.promise.words}; " if self.promise is not None else ""
        if not self.measured:
            return tried + (f"{self.trouble}; {_NEVER}" if self.trouble else _NEVER)
        tokens = [f"{length:,}" for length in self.lengths()]
        listed = " and ".join(filter(None, [", ".join(tokens[:-1]), tokens[-1]]))
        return f"{tried}measured {self.measured} at {listed} tokens"

    def forget(self) -> None:
        """Forget what passes cost, and the file; not what the draft model promised."""
        promise = self.promise
        self._clear()
        self.promise = promise
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def costs(self, place: str, tiers: str, context: int, gamma1: int) -> Costs | None:
        """Return what was measured at about this context, or between two lengths; a step with chains of gamma1."""
        step = self._steps.get(tiers, {}).get(gamma1)
        full = _about(self._full.get(place, {}), context)
        return None if full is None or step is None else replace(full, step=step)

    def keep_costs(self, place: str, tiers: str, context: int, gamma1: int, costs: Costs) -> None:
        """Keep costs in the place of what was measured near there."""
        known = self._full.setdefault(place, {})
        for tokens in [tokens for tokens in known if abs(tokens - context) <= _NEAR * context]:
            del known[tokens]
        rows, times = zip(*costs.verify, strict=True)
        plain, *verify = _undisturbed([costs.plain, *times])
        known[context] = Costs(plain, tuple(zip(rows, verify, strict=True)), 0.0, costs.choose)
        self._steps.setdefault(tiers, {})[gamma1] = costs.step
        self.measured = _now()

    def keep_promise(self, promise: DraftPromise) -> None:
        """Keep what the draft model promises, as of now."""
        self.promise = replace(promise, measured=_now())
        self.write()

    def write(self) -> None:
        """Write it whole or not at all. Where it cannot be written (a full disk), it is measured again next time."""
        if self._path is None:
            return
        full = {place: {tokens: asdict(one) for tokens, one in sorted(known.items())}
                for place, known in self._full.items()}
        content = {"version": _VERSION, **asdict(self._subject), "measured": self.measured, "full": full,
                   "steps": self._steps, "promise": None if self.promise is None else asdict(self.promise)}
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(partial, self._path)
        with suppress(OSError):  # what could not be finished
            partial.unlink(missing_ok=True)

    def _read(self) -> None:
        if self._path is None or not self._path.exists():
            return
        subject = self._subject
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            machine = found["machine"]
            if found["version"] != _VERSION:
                self.trouble = "what was measured before was kept by another version of this program"
            elif machine != dict(subject.machine):
                changed = (name for name in {*subject.machine, *machine}
                           if subject.machine.get(name) != machine.get(name))
                self.trouble = f"what was measured before is of another machine ({', '.join(sorted(changed))})"
            elif (found["model"], found["draft"]) != (subject.model, subject.draft):
                self.trouble = "what was measured before is of another model"
            else:
                full = {place: {int(tokens): _costs(one) for tokens, one in known.items()}
                        for place, known in found["full"].items()}
                self._steps = {tiers: {int(gamma1): _time(time) for gamma1, time in known.items()}
                               for tiers, known in found["steps"].items()}
                self.promise = _promise(found.get("promise"))
                self._full, self.measured = full, str(found["measured"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
            self._clear()
            self.trouble = "what was measured before cannot be read"


def _now() -> str:
    return datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _promise(found: Mapping[str, Any] | None) -> DraftPromise | None:
    """Raise as ``_costs`` does."""
    if found is None:
        return None
    accepted, gain = (_time(found[name], 0.0) for name in ("accepted", "gain"))
    return DraftPromise(min(1.0, accepted), _time(found["plain"]), _time(found["step"]), gain, str(found["measured"]))


def _undisturbed(times: Sequence[float]) -> list[float]:
    """Return the times of ever larger pieces of work, none longer than that of a larger one: it was disturbed."""
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
    one, other, share = known[below], known[above], (context - below) / (above - below)

    def mix(mine: float, its: float) -> float:  # attention takes time in proportion to the context
        return mine + (its - mine) * share

    verify = tuple((rows, mix(time, other.verifying(rows))) for rows, time in one.verify)
    return Costs(mix(one.plain, other.plain), verify, 0.0, mix(one.choose, other.choose))


def _costs(found: Mapping[str, Any]) -> Costs:
    """Raise ValueError, KeyError, TypeError, AttributeError or AssertionError unless every figure is one."""
    verify = tuple((int(rows), _time(time)) for rows, time in found["verify"])
    return Costs(_time(found["plain"]), verify, 0.0, _time(found["choose"], 0.0))


def _time(value: Any, least: float = 1e-6) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e9:
        raise ValueError(value)
    return float(value)
