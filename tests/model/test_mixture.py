"""Experts: which are read, what a row gets beside others, and how ranks share them out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from tests.model.test_families import logits
from tests.model.test_parity import CONFIGS, SMALL, write_checkpoint
from triforce_core.device.shard import Shard
from triforce_core.errors import UnsupportedModelError
from triforce_core.kernels import REFERENCE, compiled
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import load_model, parse_config, read_config
from triforce_core.model.mixture import Mixture


def test_only_chosen_experts_are_read() -> None:
    read: list[int] = []

    def expert(number: int, width: int) -> object:
        def linear(x: Tensor) -> Tensor:
            read.append(number)
            return torch.ones(len(x), width)
        return linear

    router = torch.eye(4)
    mixture = Mixture(router, tuple(expert(i, 6) for i in range(4)), tuple(expert(i, 4) for i in range(4)), 2, True)
    mixture(torch.tensor([[0.0, 9.0, 8.0, 1.0], [0.0, 7.0, 9.0, 2.0]]), REFERENCE.swiglu)
    assert set(read) == {1, 2}


@pytest.mark.skipif(compiled().library is None, reason="our own kernels give each row the same bits")
def test_a_row_is_the_same_alone_and_among_others(tmp_path: Path) -> None:
    write_checkpoint(Qwen3MoeConfig(**{**SMALL, "hidden_size": 64}, head_dim=16, num_experts=8, num_experts_per_tok=2,
                                    moe_intermediate_size=32), tmp_path)
    model = load_model(tmp_path, dtype=torch.bfloat16)
    c, text = model.config, torch.randint(0, 64, (60,), generator=torch.Generator().manual_seed(0))
    rows = []
    for size in (1, 12):
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=64, dtype=model.dtype)
        found = []
        for piece in text.split(size):
            found.append(model.forward(piece, cache, logits_rows=len(piece)))
            cache.commit()
        rows.append(torch.cat(found))
    assert torch.equal(*rows)


def test_ranks_share_each_expert_out(tmp_path: Path) -> None:
    write_checkpoint(CONFIGS["qwen3-moe"], tmp_path)
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    whole = load_model(tmp_path)
    parts = [load_model(tmp_path, shard=Shard(rank, 2)) for rank in range(2)]
    given = [model.layers[0].experts(x, REFERENCE.swiglu) for model in (whole, *parts) if model.layers[0].experts]
    torch.testing.assert_close(given[1] + given[2], given[0])


@pytest.mark.parametrize("changes", [{"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}])
def test_layers_without_experts_are_refused(changes: dict[str, object], tmp_path: Path) -> None:
    raw = {**CONFIGS["qwen3-moe"].to_dict(), "architectures": ["Qwen3MoeForCausalLM"], **changes}
    with pytest.raises(UnsupportedModelError, match=r"without experts.*vLLM"):
        parse_config(raw)


def test_what_a_token_does_not_go_through_is_not_counted(tmp_path: Path) -> None:
    write_checkpoint(CONFIGS["qwen3-moe"], tmp_path)
    c = read_config(tmp_path)
    assert c.idle_weights == 2 * 48 * 3 * 32 * 4 and c.matrix_weights == c.num_parameters - c.idle_weights - 64 * 48
    assert torch.isfinite(logits(load_model(tmp_path, rounding="int8"))).all()
