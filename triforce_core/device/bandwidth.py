"""Measure what a memory moves, and model from it how fast plain decoding would be."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from ..events import MemoryPlan
from .memory_plan import Weights

# Plain decoding reads every matrix and all keys and values once a token, and reaches so much of what a copy moves: two
# 7B and 8B shapes on an H200 reach 0.85 to 0.97 of its copy rate (docs/measurements.md).
_REACHED = 0.9
_LINK = 20e9  # bytes per second to a GPU from host memory, where nobody measured: PCIe 4.0 x16 in practice


def copy_rate(nbytes: int, repeats: int = 8) -> float:
    """Bytes per second of a copy of ``nbytes`` within the current GPU, read plus written: the median. Takes twice
    nbytes of its memory, which torch keeps until it is asked to give it back. ``nbytes``: far beyond the GPU's
    cache."""
    source = torch.randint(0, 255, (nbytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * nbytes / timed(lambda: target.copy_(source), repeats)


def host_copy_rate(nbytes: int = 1 << 27, repeats: int = 6) -> float:
    """Return the same for the host's memory, with torch's threads: the best of ``repeats``, as other programs only
    slow it."""
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


def modelled_rate(weights: Weights, plan: MemoryPlan, tokens: int, rate: float, link: float = _LINK) -> float:
    """Return the tokens per second of plain decoding, modelled, with ``tokens`` of context. rate, link: bytes per
    second of the memory that the model lies in, and from host memory to the GPU."""
    cached = plan.kv_per_token * tokens
    away = cached * (plan.num_layers - plan.resident_layers) // plan.num_layers
    return 1.0 / ((weights.read_by_pass() + cached - away) / (rate * _REACHED) + away / link)
