"""Check what must hold of any checkpoint that a CPU keeps in groups of few bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from model.tiny import VOCAB, tiny_config, tiny_tensors
from safetensors.torch import save_file

from triforce_core.device.shard import ALONE
from triforce_core.engine.loading import _weights
from triforce_core.kernels import compiled, native
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, load_model

needs_library = pytest.mark.skipif(compiled().library is None, reason=f"kernels: {compiled().summary}")
BF16 = torch.bfloat16


def plain_folder(folder: Path, **settings: Any) -> Path:
    """A small checkpoint whose sizes all types of blocks divide."""
    raw = tiny_config(**{"hidden_size": 256, "intermediate_size": 512, "head_dim": 32, "num_attention_heads": 8,
                         "num_key_value_heads": 4, "vocab_size": VOCAB, **settings})
    folder.mkdir(parents=True)
    save_file(tiny_tensors(raw), str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def check_model(place: Path, in_groups: bool = True) -> Llama:
    """The logits of the unpacked one, verification that is decoding, and the planner's bytes."""
    ids = torch.randint(VOCAB, (40,), generator=torch.Generator().manual_seed(0))
    kept, whole = load_model(place, dtype=BF16), load_model(place, dtype=torch.float32)
    assert kept.in_groups == in_groups and not whole.in_groups
    assert kept._native is not None

    def logits(model: Llama, widths: int) -> torch.Tensor:
        c = model.config
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=80, dtype=model.dtype)
        return torch.cat([model.forward(part, cache, logits_rows=len(part)) for part in ids.split(widths)])

    alone = logits(kept, 1)
    assert torch.equal(logits(kept, 40), alone)
    expected = logits(whole, 40)
    assert float((alone - expected).norm() / expected.norm()) < 0.05
    check_bytes(place, kept)
    return kept


def check_bytes(place: Path, kept: Llama) -> None:
    counted = _weights(place, BF16, torch.device("cpu"), ALONE)
    linears = [getattr(layer, name) for layer in kept.layers for name in ("qkv", "output", "gate_up", "down")]
    assert held(*linears) == pytest.approx(counted.matrices * (counted.few_bits or 2), rel=0.01)
    read = held(*linears, kept.weights.head)
    assert read == pytest.approx(counted.read_by_pass(), rel=0.01)
    table = kept.weights.embedding
    assert isinstance(table, torch.Tensor) != counted.rows_on_disk
    assert read + (table.nbytes if isinstance(table, torch.Tensor) else 0) == pytest.approx(counted.nbytes, rel=0.01)


def held(*linears: Any) -> int:
    """Bytes of these products' weights."""
    assert all(isinstance(linear, native.NativeLinear) for linear in linears)
    return sum(part.nbytes for linear in linears for part in linear._held if part is not None)
