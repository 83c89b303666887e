"""Limits that a process sets on itself before it touches what may be hostile."""

from __future__ import annotations

import contextlib
import signal
from math import ceil
from pathlib import Path

_SLACK = 5.0  # seconds beyond the parent's clock


def restrict(memory_bytes: int, cpu_seconds: int) -> None:
    """Limit memory and computing; no files written, no processes, no core dump. Where the system knows such limits (not
    on Windows; there the parent's clock is the only one)."""
    with contextlib.suppress(OSError):  # only on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out: this process before any other
    try:
        import resource
    except ImportError:
        return
    for kind, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),  # no processes of its own
    ):
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):
            continue  # a lower limit is already in force


def sign_of_life(seconds: float) -> None:
    """To be called before each piece of work: without another one in time, the system ends this process, also when
    the parent, which would have done so sooner, is gone."""
    if hasattr(signal, "alarm"):
        signal.alarm(ceil(seconds + _SLACK))


def rest() -> None:
    """Nothing is being worked on: no sign of life is due."""
    if hasattr(signal, "alarm"):
        signal.alarm(0)
