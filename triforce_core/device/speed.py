"""How fast plain decoding would be, from shapes and the bandwidth of the memory: modelled, not measured.

Each token reads every matrix and all keys and values once, and reaches ``_REACHED`` of what a copy within the memory
moves.
"""

from __future__ import annotations

from ..events import MemoryPlan
from .memory_plan import Weights

_REACHED = 0.9  # two 7B and 8B shapes on an H200 reach 0.85 to 0.97 of its copy rate (docs/measurements.md)
_LINK = 20e9  # bytes per second to a GPU from host memory, where nobody measured: PCIe 4.0 x16 in practice


def modelled_rate(weights: Weights, plan: MemoryPlan, tokens: int, rate: float, link: float = _LINK) -> float:
    """Tokens per second with ``tokens`` of context. rate, link: bytes per second of the memory that the model lies in,
    and from host memory to the GPU."""
    cached = plan.kv_per_token * tokens
    away = cached * (plan.num_layers - plan.resident_layers) // plan.num_layers
    return 1.0 / ((weights.read_by_pass() + cached - away) / (rate * _REACHED) + away / link)
