"""Queue work on a device beside the host's, hand results over meanwhile, and time stages where they run.

On a GPU stages are timed by events in its stream, read later: the host's clock would time launches, not work, or make
the host wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from types import TracebackType

import torch
from torch import Tensor


class SideStream:
    """``with beside:`` queues what follows behind all that was queued so far, in the way of nothing that comes later.

    ``join`` before anything reads what was made there. Without a GPU it is done at once, in order."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._entered: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._entered = torch.cuda.stream(self._stream)
            self._entered.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(kind, error, trace)

    def join(self) -> None:
        """Let what is queued from now on wait for it; the host does not."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host's on the device. Neither waits for the other: from memory that is not pinned a copy would wait
    for all that the device has to do."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def later(values: Tensor) -> Callable[[], Tensor]:
    """A copy on the host, once the device has come to it: only that is waited for, nothing that is queued behind."""
    if not values.is_cuda:
        kept = values.clone()
        return lambda: kept
    copy = torch.empty_like(values, device="cpu", pin_memory=True)
    copy.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def waited() -> Tensor:
        copied.synchronize()
        return copy

    return waited


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
        """Return the time as ``perf_counter`` has it. The first call waits for all that the device was given until
        then: ask where it is idle."""
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


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, torch's operations take one thread meanwhile.

    For many small ones in a row: each waits for its slowest thread, which another program may keep from its core for
    some milliseconds. Copying the chosen chunks took 65 to 335 ms with two threads where it takes 5 to 18 with one (two
    cores of Zen 4, both busy; at rest 5 either way)."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
