"""A grown model as a GGUF file is the grown model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import write_model

from training.gguf_export import KINDS, export_grown, named_shapes
from triforce_core.gguf import open_gguf
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, load_model, read_config
from triforce_core.model.grown import Shape, grow, grown_config

SHAPE = Shape(128, 160, 3, 4, 2, 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("small") / "target", layers=2, heads=2, seed=5)


def logits(model: Llama) -> torch.Tensor:
    """fp32 [8, V] of a passage of 60 tokens."""
    c, ids = model.config, torch.randint(3, 8192, (60,), generator=torch.Generator().manual_seed(1))
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=60, dtype=model.dtype)
    return model.forward(ids, cache, logits_rows=8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_those_of_the_grown_model(folder: Path, tmp_path: Path, kind: str) -> None:
    """In bfloat16 to the last bit; rounded further, near it."""
    path = tmp_path / f"grown-{kind}.gguf"
    export_grown(folder, SHAPE, path, kind)
    config = grown_config(read_config(folder), SHAPE)
    assert {stored.kind.name for stored in open_gguf(path).tensors.values()} == {"F32", kind}
    assert {tensor.shape for tensor in open_gguf(path).tensors.values()} == {size for _, size in named_shapes(config)}
    # A grown model's numbers are bfloat16 ones, whatever it computes in.
    expected, found = logits(grow(folder, SHAPE, dtype=torch.bfloat16)), logits(load_model(path, dtype=torch.bfloat16))
    if kind == "BF16":
        assert torch.equal(found, expected)
    off = float((found - expected).norm() / expected.norm())
    assert off < {"BF16": 1e-6, "F16": 0.02, "Q8_0": 0.15, "Q4_0": 1.1}[kind]  # unlike ones: 1.4
