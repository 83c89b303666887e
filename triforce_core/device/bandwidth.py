"""Measure what a memory moves: the bound of what a pass over weights and cache could reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch


def copy_rate(nbytes: int, repeats: int = 8) -> float:
    """Bytes per second of a copy of ``nbytes`` within the current GPU, read plus written: the median. Takes twice
    nbytes of its memory, which torch keeps until it is asked to give it back. ``nbytes``: far beyond the GPU's
    cache."""
    source = torch.randint(0, 255, (nbytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * nbytes / timed(lambda: target.copy_(source), repeats)


def host_copy_rate(nbytes: int = 1 << 27, repeats: int = 6) -> float:
    """The same of the host's memory, with torch's threads: the best of ``repeats``, as other programs only slow it."""
    source = torch.ones(nbytes, dtype=torch.uint8)
    target = torch.zeros_like(source)  # written once, so that its pages are there

    def once() -> float:
        start = time.perf_counter()
        target.copy_(source)
        return time.perf_counter() - start

    return 2 * nbytes / min(once() for _ in range(repeats))


def timed(call: Callable[[], object], repeats: int) -> float:
    """Seconds of one call on the GPU: the median of ``repeats``, after two to warm up."""
    for _ in range(2):
        call()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, stop in marks:
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(stop) for start, stop in marks) / 1e3
