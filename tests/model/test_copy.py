"""A model's copy with weights in few bits: near it, and of one piece with it otherwise."""

from __future__ import annotations

import pytest
import torch
from model.tiny import VOCAB, tiny_llama

from triforce_core.kernels import WEIGHT_KINDS, Dense
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama

SHAPE = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}


def logits(model: Llama) -> torch.Tensor:
    cache = FullCache(2, 2, 32, max_tokens=64, dtype=torch.float32)
    return model.forward(torch.randint(VOCAB, (20,), generator=torch.Generator().manual_seed(0)), cache, logits_rows=20)


@pytest.mark.parametrize("tied", [True, False])
def test_a_copy_is_near_its_model_and_leaves_it_alone(tied: bool) -> None:
    model = tiny_llama(tie_word_embeddings=tied, **SHAPE)
    before = logits(model)
    spread = {}
    for kind in WEIGHT_KINDS:
        copy = model.quantized(kind)
        spread[kind] = float((logits(copy) - before).norm() / before.norm())
        assert copy.weights.embedding is model.weights.embedding and copy.rope is model.rope
        assert copy.config == model.config
        for own, other in zip(model.layers, copy.layers, strict=True):
            assert other.input_norm is own.input_norm
            assert isinstance(own.down, Dense) and other.down is not own.down
    assert torch.equal(logits(model), before)
    assert 0 < 2 * spread["int8"] < spread["int4"] < 1  # random weights pass every error on


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_its_size_is_known_before(kind: str) -> None:
    model = tiny_llama(**SHAPE)
    weights = 2 * (128 * 256 + 128 * 128 + 3 * 128 * 256)  # q, k, v and o; gate, up and down
    head = 128 * VOCAB
    assert model.quantized_bytes(kind) == int(weights * (1.0 if kind == "int8" else 0.53125)) + head


def test_cpus_and_float32_have_no_use_for_one() -> None:
    assert not any(tiny_llama(**SHAPE).can_quantize(kind) for kind in WEIGHT_KINDS)


def test_fewer_layers_are_a_model_of_their_own_on_the_same_weights():
    model = tiny_llama(num_hidden_layers=4)
    small = model.with_layers([model.layers[i] for i in (0, 2, 3)])
    assert small.config.num_layers == 3 and model.config.num_layers == 4 == len(model.layers)
    assert [layer is model.layers[i] for i, layer in zip((0, 2, 3), small.layers, strict=True)] == [True] * 3
    same, fewer = (FullCache(m.config.num_layers, m.config.num_kv_heads, m.config.head_dim, max_tokens=16,
                             dtype=m.dtype) for m in (model, small))
    ids = torch.arange(5)
    assert not torch.allclose(model.forward(ids, same, logits_rows=1), small.forward(ids, fewer, logits_rows=1))
