"""Sizes of published decoders, which ``grow`` gives to the built-in pair. Standard library only: --help names them."""

from __future__ import annotations

SIZES = {  # hidden size, MLP width, layers, query heads, KV heads, head_dim
    "llama2-7b": (4096, 11008, 32, 32, 32, 128),
    "llama3-8b": (4096, 14336, 32, 32, 8, 128),
    "llama3-1b": (2048, 8192, 16, 32, 8, 64),  # Llama 3.2 1B
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128),
    "llama-68m": (768, 3072, 2, 12, 12, 64),
}
DRAFT = "llama-68m"  # every grown target's
TARGETS = tuple(name for name in SIZES if name != DRAFT)
