"""Our decoder against ``transformers`` on checkpoints that transformers itself wrote: full prefill, chunked prefill,
step-by-step decoding, fp32, for every family and feature that ``parse_config`` accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    Ministral3Config,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

from tests.model.tiny import VOCAB
from triforce_core.kernels import REFERENCE
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Checkpoint, Llama, load_model, read_config

SMALL = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MHA = {"num_key_value_heads": 4}
LENGTH = 96
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 32, "short_factor": [1.0, 1.1, 1.2, 1.4, 1.9, 2.5],
            "long_factor": [1.0, 1.3, 2.0, 4.0, 6.0, 8.0]}

CONFIGS: dict[str, PretrainedConfig] = {
    "llama2": LlamaConfig(**{**SMALL, **MHA}),
    "llama-gqa-tied": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama-head-dim": LlamaConfig(**SMALL, head_dim=24),
    "lwm-large-theta": LlamaConfig(**{**SMALL, **MHA}, rope_theta=50_000_000.0),
    "llama3-rope": LlamaConfig(**SMALL, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}),
    "linear": LlamaConfig(**SMALL, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "yarn": LlamaConfig(**{**SMALL, **MHA}, rope_parameters=YARN),
    "yarn-attention-factor": LlamaConfig(**SMALL, rope_parameters={
        **YARN, "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}),
    "mistral": MistralConfig(**SMALL, sliding_window=None),
    "mistral-window": MistralConfig(**SMALL, sliding_window=24),
    "qwen2-bias": Qwen2Config(**SMALL),
    "qwen2-bias-tied": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen3-qk-norm": Qwen3Config(**SMALL, head_dim=16),
    "qwen3-tied-yarn": Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True, rope_parameters=YARN),
}
# Later families: config class, and what differs from SMALL.
FAMILIES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "smollm3": (SmolLM3Config, {"num_hidden_layers": 4}),
    "granite": (GraniteConfig, {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
                                "attention_multiplier": 0.0625}),
    "olmo2": (Olmo2Config, {}),
    "olmo3": (Olmo3Config, {"num_hidden_layers": 4, "sliding_window": 24, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": YARN}}),
    "gemma3": (Gemma3TextConfig, {"num_hidden_layers": 6, "head_dim": 16, "sliding_window": 24,
                                  "query_pre_attn_scalar": 16}),
    "qwen3-moe": (Qwen3MoeConfig, {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 32, "norm_topk_prob": True}),
    "phi3": (Phi3Config, {"sliding_window": None}),
    "phi4-mini": (Phi3Config, {"hidden_size": 64, "sliding_window": None, "original_max_position_embeddings": 32,
                               "rope_parameters": LONGROPE}),
    "ministral3": (Ministral3Config, {"head_dim": 12, "sliding_window": None, "rope_parameters": {
        **YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}}),
}
CONFIGS |= {name: kind(**{**SMALL, **more}) for name, (kind, more) in FAMILIES.items()}
CONFIGS["qwen3-moe-raw"] = Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=32,
                                          norm_topk_prob=False)
CONFIGS["gemma3-27b"] = Gemma3TextConfig(**SMALL, head_dim=16, query_pre_attn_scalar=24, sliding_window=24)


def write_checkpoint(config: PretrainedConfig, folder: Path, **save: Any) -> torch.nn.Module:
    """A random model whose norms and biases are not the ones and zeros they start as."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embed" not in name:
                parameter.mul_(6)
    model.save_pretrained(folder, **save)
    return model


@torch.no_grad()
def expected_logits(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens[None]).logits[0]


def new_cache(model: Llama) -> FullCache:
    c = model.config
    return FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=256, dtype=model.dtype, slots=16,
                     windows=c.windows)


def logits_in_pieces(model: Llama, tokens: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    cache, rows = new_cache(model), []
    for piece in tokens.split(sizes):
        rows.append(model.forward(piece, cache, logits_rows=len(piece)))
        cache.commit()
    return torch.cat(rows)


def assert_parity(ours: Llama, theirs: torch.nn.Module) -> None:
    tokens = torch.randint(VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1))
    expected = expected_logits(theirs, tokens)
    assert expected.std() > 0.1
    for sizes in ([LENGTH], [40, 31, 25], [60] + [1] * 36):
        found = logits_in_pieces(ours, tokens, sizes)
        assert (found - expected).abs().max() < 1e-4, sizes
    cache = new_cache(ours)
    assert ours.forward(tokens[:-1], cache, logits_rows=0).shape == (0, VOCAB)
    assert (ours.forward(tokens[-1:], cache, logits_rows=1) - expected[-1:]).abs().max() < 1e-4
    cache.keep([])
    assert (ours.forward(tokens, cache, logits_rows=3) - expected[-3:]).abs().max() < 1e-4


@pytest.mark.parametrize("name", CONFIGS)
def test_parity(name: str, tmp_path: Path) -> None:
    theirs = write_checkpoint(CONFIGS[name], tmp_path)
    assert_parity(load_model(tmp_path), theirs)
    assert_parity(Llama(read_config(tmp_path), Checkpoint(tmp_path), kernels=REFERENCE), theirs)


@pytest.mark.parametrize("name", ["llama3-rope", "linear", "yarn", "lwm-large-theta", "qwen2-bias"])
def test_old_spelling_of_rope(name: str, tmp_path: Path) -> None:
    """transformers 4 wrote ``rope_theta`` and ``rope_scaling`` (with "type" or "rope_type") at the top."""
    theirs = write_checkpoint(CONFIGS[name], tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    rope = raw.pop("rope_parameters")
    raw["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    raw["rope_scaling"] = None if kind == "default" else {**rope, "rope_type" if kind == "llama3" else "type": kind}
    path.write_text(json.dumps(raw))
    assert_parity(load_model(tmp_path), theirs)


def test_yarn_llama_2_style(tmp_path: Path) -> None:
    """NousResearch/Yarn-Llama-2-7b-128k ships its own modelling code; transformers cannot run its config unchanged.

    Compared with the same weights under the modern config of the same YaRN (defaults of that code: beta 32 and 1,
    attention temperature 0.1 ln(factor) + 1)."""
    theirs = write_checkpoint(CONFIGS["yarn"], tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    del raw["rope_parameters"]
    raw["rope_scaling"] = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "finetuned": True}
    raw["auto_map"] = {"AutoModelForCausalLM": "modeling_llama_together_yarn.LlamaForCausalLM"}
    raw["max_position_embeddings"] = 256
    path.write_text(json.dumps(raw))
    ours = load_model(tmp_path)
    assert ours.config.max_context == 256
    assert_parity(ours, theirs)


@pytest.mark.parametrize("form", ["bin", "bin-shards", "safetensors-shards"])
def test_forms_of_weights(form: str, tmp_path: Path) -> None:
    theirs = write_checkpoint(CONFIGS["llama-gqa-tied"], tmp_path, **({} if form.startswith("bin")
                                                                    else {"max_shard_size": "60KB"}))
    if form.startswith("bin"):  # transformers no longer writes these; the layout is its old one
        (tmp_path / "model.safetensors").unlink()
        state = {name: tensor.clone() for name, tensor in theirs.state_dict().items() if name != "lm_head.weight"}
        if form == "bin":
            torch.save(state, tmp_path / "pytorch_model.bin")
        else:
            where = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(state)}
            for file in set(where.values()):
                torch.save({name: state[name] for name in state if where[name] == file}, tmp_path / file)
            (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    else:
        assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_parity(load_model(tmp_path), theirs)


def test_bfloat16_stays_close(tmp_path: Path) -> None:
    """Another dtype is another rounding, not another model."""
    theirs = write_checkpoint(CONFIGS["llama-gqa-tied"], tmp_path)
    tokens = torch.randint(VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1))
    expected = expected_logits(theirs, tokens)
    found = logits_in_pieces(load_model(tmp_path, dtype=torch.bfloat16), tokens, [50, 9, 9, 9] + [1] * 19)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()
