"""Sizes of published decoders, which ``grow`` gives to the built-in pair. Standard library only: --help names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder: hidden D, MLP width f', layers, query heads, KV heads, head_dim h'."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


SHAPES = {
    "llama2-7b": Shape(4096, 11008, 32, 32, 32, 128),
    "llama3-8b": Shape(4096, 14336, 32, 32, 8, 128),
    "llama3-1b": Shape(2048, 8192, 16, 32, 8, 64),  # Llama 3.2 1B
    "qwen3-4b": Shape(2560, 9728, 36, 32, 8, 128),
    "llama-68m": Shape(768, 3072, 2, 12, 12, 64),
}
DRAFT = "llama-68m"  # every grown target's
TARGETS = tuple(name for name in SHAPES if name != DRAFT)
