"""config.json: what is read, what is refused and by what name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.tiny import tiny_config
from triforce_core.errors import ModelError, UnsupportedModelError
from triforce_core.model import parse_config


def test_sizes_and_ids() -> None:
    config = parse_config(tiny_config(num_key_value_heads=2, eos_token_id=[2, 5], bos_token_id=1))
    assert (config.head_dim, config.group_size) == (8, 2)
    assert config.eos_token_ids == (2, 5) and config.bos_token_id == 1
    assert config.kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2


@pytest.mark.parametrize(("changes", "named"), [
    ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
    ({"architectures": None, "model_type": "gemma"}, "gemma"),
    ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ({"num_local_experts": 8}, "mixture of experts"),
    ({"attention_bias": True}, "attention_bias"),
    ({"mlp_bias": True}, "mlp_bias"),
    ({"quantization_config": {"quant_method": "hqq"}}, "hqq"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "'dynamic'"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "each kind of layer"),
])
def test_unsupported_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        parse_config(tiny_config(**changes))


@pytest.mark.parametrize(("changes", "named"), [
    ({"hidden_size": None}, "hidden_size"),
    ({"hidden_size": "32"}, "hidden_size"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"num_attention_heads": True}, "num_attention_heads"),
    ({"num_key_value_heads": 3}, "not a multiple"),
    ({"head_dim": 7}, "head_dim"),
    ({"rms_norm_eps": -1}, "rms_norm_eps"),
    ({"rope_theta": "big"}, "rope_theta"),
    ({"rope_scaling": "linear"}, "rope_scaling"),
    ({"rope_scaling": {"type": "linear"}}, "factor"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
    ({"partial_rotary_factor": "half"}, "partial_rotary_factor"),
    ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
    ({"rope_scaling": {"type": "longrope", "factor": 4.0}}, "longrope's factors"),
    ({"no_rope_layers": [1]}, "no_rope_layers"),
    ({"architectures": "LlamaForCausalLM", "vocab_size": 1.5}, "vocab_size"),
])
def test_malformed_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        parse_config(tiny_config(**changes))


def test_model_type_stands_in_for_architectures() -> None:
    raw = tiny_config(model_type="qwen2")
    del raw["architectures"]
    assert parse_config(raw).qkv_bias


def test_a_published_config_leaves_its_familys_defaults_out() -> None:
    """As Gemma 3 4B's: only what differs from them, and that inside."""
    gemma = parse_config({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106],
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                        "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})
    assert gemma.windows == (*(1024, 1024, 1024, 1024, 1024, 0) * 5, *(1024,) * 4)
    assert (gemma.rope.theta, gemma.rope.factor) == (1e6, 8.0) and gemma.eos_token_ids == (1, 106)
    assert [(rope.kind, rope.theta) for rope in gemma.other_ropes] == [("default", 1e4)]
    assert (gemma.vocab_size, gemma.num_heads, gemma.num_kv_heads, gemma.head_dim) == (262208, 8, 4, 256)
    assert gemma.tied_embeddings and gemma.score_scale == 1.0 and gemma.kv_bytes_per_token(2) == 5 * 4 * 256 * 2 * 2


def test_layers_that_attend_a_window() -> None:
    mistral = parse_config(tiny_config(architectures=["MistralForCausalLM"], sliding_window=128))
    assert mistral.windows == (128, 128) and mistral.kv_bytes_per_token(2) == mistral.whole_layers == 0
    free = parse_config(tiny_config(architectures=["MistralForCausalLM"], sliding_window=None))
    assert free.windows == ()
    unused = parse_config(tiny_config(architectures=["Qwen2ForCausalLM"], sliding_window=128, use_sliding_window=False))
    assert unused.windows == ()
    used = parse_config(tiny_config(architectures=["Qwen2ForCausalLM"], sliding_window=128, use_sliding_window=True,
                                     max_window_layers=1))
    assert used.windows == (0, 128) and used.whole_layers == 1
    longer = parse_config(tiny_config(architectures=["MistralForCausalLM"], sliding_window=512))
    assert longer.windows == ()  # no context reaches beyond it
