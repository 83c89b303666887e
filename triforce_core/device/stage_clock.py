"""How long each stage of a loop takes where it runs.

On a GPU by events in its stream, read later: the host's clock would time launches, not work, or make the host wait.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import torch


class StageClock:
    """Marks split time into stages: from each mark to the next, or from ``start``."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._moments: list[tuple[str, float | torch.cuda.Event]] = []  # "" starts a stretch

    def start(self) -> None:
        """Begin a stage: what passed since the last mark belongs to none."""
        self.mark("")

    def mark(self, stage: str) -> None:
        """``stage`` ends here."""
        if not self._on_gpu:
            self._moments.append((stage, perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._moments.append((stage, event))

    def clear(self) -> None:
        """Forget the marks; waits for nothing."""
        self._moments.clear()

    def read(self) -> dict[str, float]:
        """Milliseconds per stage since the last ``read``; waits for the device to reach the last mark."""
        moments, self._moments = self._moments, []
        spent: dict[str, float] = {}
        for (_, before), (stage, now) in pairwise(moments):
            if stage:
                spent[stage] = spent.get(stage, 0.0) + _between(before, now)
        return spent


class Moment:
    """When the device comes to this point, on the host's clock; without a GPU that is now."""

    def __init__(self, device: torch.device) -> None:
        self._now = perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()

    def when(self) -> float:
        """As ``perf_counter`` has it. The first call waits for all that the device was given until then: ask where it
        is idle."""
        if self._event is not None:
            idle = torch.cuda.Event(enable_timing=True)
            idle.record()
            idle.synchronize()
            self._now = perf_counter() - self._event.elapsed_time(idle) / 1e3
            self._event = None
        return self._now


def _between(before: float | torch.cuda.Event, now: float | torch.cuda.Event) -> float:
    if isinstance(before, float) or isinstance(now, float):
        assert isinstance(before, float) and isinstance(now, float)
        return (now - before) * 1e3
    now.synchronize()
    return before.elapsed_time(now)
