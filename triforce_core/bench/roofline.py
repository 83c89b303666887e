"""Bytes that this machine moves, measured, and that a token of plain decoding must move, counted from the shapes.

Plain decoding reads the weights and the cache once for every token, whatever the code does, so bytes over bandwidth is
the least time of a token (Williams et al., roofline, CACM 2009). Where the cache lies in host memory, what was streamed
(the engine counts it) has to pass the link to the GPU in that time too; the longer of the two times counts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model import ModelConfig


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Measured GB/s. A copy counts bytes read plus bytes written; host_to_device is None where there is no GPU."""

    copy: float
    host_to_device: float | None = None
    how: str = ""


def measure_bandwidth(device: str, mebibytes: int = 0) -> Bandwidth:
    """Measure on "cpu" or "cuda". mebibytes: of each copied buffer (0: enough to be far beyond any cache)."""
    import torch

    if device == "cpu":
        source = torch.ones((mebibytes or 256) * 2**18)  # fp32
        target = torch.zeros_like(source)
        seconds = []
        for _ in range(8):
            started = perf_counter()
            target.copy_(source)
            seconds.append(perf_counter() - started)
        return Bandwidth(2 * source.nbytes / median(seconds[1:]) / 1e9,
                         how=f"a plain copy in memory by {torch.get_num_threads()} threads, read plus written")
    from ..device.bandwidth import copy_rate, timed

    size = (mebibytes or 512) * 2**20
    host = torch.ones(size // 4, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    link = host.numel() / timed(lambda: there.copy_(host, non_blocking=True), 8) / 1e9
    found = Bandwidth(copy_rate(size, 12) / 1e9, link, "a device-to-device copy, read plus written")
    torch.cuda.empty_cache()
    return found


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of a token of plain decoding: bytes_per_weight as products of few rows read them; norms and activations
    are a rounding error. gpus share all of it evenly, each with a bandwidth of its own."""

    shape: ModelConfig
    bytes_per_weight: float
    kv_bytes_per_token: int
    gpus: int = 1

    def plain_bytes(self, context: float) -> float:
        return self.shape.matrix_weights * self.bytes_per_weight + context * self.kv_bytes_per_token

    def least_seconds(self, context: float, bandwidth: Bandwidth, streamed: float = 0.0) -> float:
        """Return the least time of a token. streamed: bytes that come through the link for it."""
        seconds = self.plain_bytes(context) / (bandwidth.copy * 1e9 * self.gpus)
        if not (streamed and bandwidth.host_to_device):
            return seconds
        return max(seconds, streamed / (bandwidth.host_to_device * 1e9))
