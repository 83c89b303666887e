"""What the machine can move, measured, and what a pass must move, counted: how far decoding is from the best there is.

Plain decoding reads the weights and the cache once for every token, whatever the code does, so bytes over bandwidth is
the least time of a token (Williams et al., roofline, CACM 2009). Where the cache lies in host memory, what was streamed
(the engine counts it) has to pass the link to the GPU in that time too; the longer of the two times counts. Bytes are
counted from the model's shapes, products' matrices and KV only: norms, activations and the embedding's one row are a
rounding error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from ..kernels import HEAD_KIND, WEIGHT_KINDS, bytes_per_weight
from ..model import ModelConfig

_MATRIX = 8192  # side of the product whose rate counts as the GPU's


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Measured. copy and host_to_device: GB/s; a copy counts bytes read plus bytes written.

    matrix: TFLOP/s of a large bf16 product. None: this machine has no GPU."""

    copy: float
    host_to_device: float | None = None
    matrix: float | None = None
    how: str = ""


def measure_bandwidth(device: str, mebibytes: int = 0) -> Bandwidth:
    """On "cpu" or "cuda". mebibytes: of each copied buffer (0: enough to be far beyond any cache)."""
    import torch

    if device == "cpu":
        source = torch.ones((mebibytes or 256) * 2**18)  # fp32
        target = torch.zeros_like(source)
        seconds = _median_seconds(lambda: target.copy_(source), 7)
        return Bandwidth(2 * source.nbytes / seconds / 1e9,
                         how=f"a plain copy in memory by {torch.get_num_threads()} threads, read plus written")
    from .kernels import copy_bandwidth

    gibibytes = (mebibytes or 512) / 1024
    found = Bandwidth(copy_bandwidth(gibibytes), _host_to_device(gibibytes / 4), _matrix_rate(),
                      "a device-to-device copy, read plus written")
    torch.cuda.empty_cache()
    return found


def _host_to_device(gibibytes: float) -> float:
    import torch

    from ..device.bandwidth import timed

    host = torch.ones(int(gibibytes * 2**30), dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    return host.numel() / timed(lambda: there.copy_(host, non_blocking=True), 8) / 1e9


def _matrix_rate() -> float:
    """On random numbers: zeros would be faster than any model's weights."""
    import torch

    from ..device.bandwidth import timed

    a, b = (torch.randn(_MATRIX, _MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * _MATRIX**3 / timed(lambda: a @ b, 10) / 1e12


def _median_seconds(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return median(times)


def rounded_weights(shape: ModelConfig, kind: str) -> float:
    """Bytes of all products' matrices, rounded to ``kind``."""
    head = shape.vocab_size * shape.hidden_size
    return (shape.matrix_weights - head) * bytes_per_weight(kind) + head * bytes_per_weight(HEAD_KIND)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What passes of one model move and multiply. bytes_per_weight: as the products of few rows read them.

    gpus: that share all of it evenly, each with a bandwidth of its own. draft: the small model's."""

    shape: ModelConfig
    bytes_per_weight: float
    kv_bytes_per_token: int
    gpus: int = 1
    draft: Traffic | None = None

    def seconds(self, nbytes: float, bandwidth: Bandwidth) -> float:
        """The least in which ``nbytes`` can be moved."""
        return nbytes / (bandwidth.copy * 1e9 * self.gpus)

    def plain_bytes(self, context: float) -> float:
        """Of one token of plain decoding: weights and KV, once."""
        return self.shape.matrix_weights * self.bytes_per_weight + context * self.kv_bytes_per_token

    def inner_bytes(self, settings: Mapping[str, int | str]) -> float | None:
        """Of one inner step: the middle tier's weights and its budget of KV. None: these settings have no middle tier,
        or an oracle that reads more.

        The small model's bytes are left out: the share reached is a little better than said."""
        if settings.get("middle_cache", "none") in ("none", "top-k"):
            return None
        weights, kind = self.shape.matrix_weights * self.bytes_per_weight, str(settings.get("retrieval_weights"))
        if kind in WEIGHT_KINDS:
            weights = rounded_weights(self.shape, kind)
        return weights + int(settings["budget"]) * self.kv_bytes_per_token

    def costs(self, settings: Mapping[str, int | str], context: float, bandwidth: Bandwidth) -> dict[str, float]:
        """The least seconds of a pass of each tier that drafts with a model."""
        inner, middle = self.inner_bytes(settings), str(settings.get("middle_cache", "none"))
        found = {middle: self.seconds(self.plain_bytes(context) if inner is None else inner, bandwidth)}
        window = int(settings.get("window", 0)) * (2 if settings.get("draft_cache") == "cross" else 1)
        if settings.get("self_skip"):  # about every second layer
            found["draft"] = self.seconds(self.plain_bytes(window) / 2, bandwidth)
        elif self.draft is not None:
            found["draft"] = self.draft.seconds(self.draft.plain_bytes(window), bandwidth)
        return found

    def prefill_flops(self, tokens: int) -> float:
        """Of reading ``tokens``."""
        return self.shape.prefill_flops(tokens)
