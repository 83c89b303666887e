"""Tells an engine that hangs from one that is slow. Pure but for the clock that it is given.

Three signs, the surest first. Its process sends no heartbeat (``EngineStatus.silent_seconds``): it is stopped, or sits
in compiled code and holds the interpreter's lock, which no pass does. It was told to stop and no step ends. Nobody told
it anything and no step ends: for that it is given far longer, for a step may be long.

A healthy engine hears a stop at the end of the step that it is in: a chunk of a document, a round, a part of the
weights. How long a step takes is the machine's affair: 512 tokens take an 8B model 0.02 s on a GPU and 40 s on a CPU.
So an engine is waited for as long as its own steps took, and while its process computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HUNG_AFTER = 20.0  # seconds without a word in which nothing was computed either, and no step had taken a third of that
STEPS = 3.0  # times the longest step so far, for one that computes nothing ...
LIMIT = 10.0  # ... and for one that does, ...
LEAST_LIMIT, FIRST_LIMIT = 120.0, 900.0  # ... at least this long, and so long where no step was ever seen to end
UNASKED = 20.0  # times all this where nobody asked for a stop
SILENT_LIMIT = 120  # seconds without a heartbeat: reading the libraries from a slow disk takes less
WORKING = 0.05  # seconds of a core per second: a process that waits uses next to none


class Watchdog:
    """``began`` and ``heard`` are called by the thread that works, ``hung`` by the one that watches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()  # the end of the last step
        self._doing = ""
        self._longest: dict[str, float] = {}  # step so far, of each thing that it does
        self._seen: tuple[float, float] | None = None  # when the process was last looked at, what it had computed
        self._idle_since = 0.0

    def began(self, doing: str) -> None:
        """The engine was told to do something: steps of the same name take about as long."""
        self._doing, self._last = doing, self._clock()

    def heard(self) -> None:
        """It said something: a step has ended."""
        now = self._clock()
        self._longest[self._doing] = max(self._longest.get(self._doing, 0.0), now - self._last)
        self._last = now

    def hung(self, stop_asked: float | None, cpu_seconds: float) -> bool:
        """stop_asked: when, by the clock; None: nobody did, but it was told to do something. cpu_seconds: what the
        engine's process has computed in its life; 0: not known. To be asked again and again: the first time tells
        nothing."""
        patience = UNASKED if stop_asked is None else 1.0
        stop_asked = self._last if stop_asked is None else stop_asked
        now, since = self._clock(), max(stop_asked, self._last)
        before, self._seen = self._seen, (now, cpu_seconds)
        if before is None or before[0] < stop_asked:  # the first look: what it computes is not known yet
            self._idle_since = since
            return False
        working = cpu_seconds - before[1] > WORKING * (now - before[0])
        self._idle_since = now if working else max(self._idle_since, since)
        longest = self._longest.get(self._doing, 0.0)
        limit = max(LEAST_LIMIT, LIMIT * longest) if longest else FIRST_LIMIT
        idle = max(HUNG_AFTER, STEPS * longest)
        return now - self._idle_since > patience * idle or now - since > patience * limit
