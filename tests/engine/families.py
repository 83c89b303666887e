"""Random models of the two kinds of layers that a Llama lacks, windows and experts, small enough to load in a blink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from engine.tiny import write_model
from safetensors.torch import save_file

WINDOW, HIDDEN, WIDTH, EXPERTS = 100, 128, 128, 8
WINDOWS = {"architectures": ["Gemma3ForCausalLM"], "sliding_window": WINDOW, "head_dim": 32,
           "query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0,
           "rope_theta": 1e6, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
           "tie_word_embeddings": True}
MIXTURE = {"architectures": ["Qwen3MoeForCausalLM"], "head_dim": 32, "num_experts": EXPERTS, "num_experts_per_tok": 2,
           "moe_intermediate_size": WIDTH, "norm_topk_prob": True, "tie_word_embeddings": False}
# Gemma's own head_dim is wider than the heads that our kernels for GPUs are made for.
KINDS: dict[str, dict[str, Any]] = {"windows": WINDOWS, "wide-windows": {**WINDOWS, "head_dim": 256,
                                                                         "query_pre_attn_scalar": 256},
                                    "experts": MIXTURE}


def write_family(folder: Path, kind: str, *, layers: int = 3, seed: int = 0) -> Path:
    """Write one of ``KINDS``, with the tokenizer of ``write_model``; its weights are as large as that one's."""
    write_model(folder, layers=1, heads=1, seed=0)  # its tokenizer and its words
    asked = KINDS[kind]
    raw = json.loads((folder / "config.json").read_text()) | asked | {
        "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
    if "layer_types" in asked:
        raw["layer_types"] = asked["layer_types"][:layers]
    (folder / "config.json").write_text(json.dumps(raw))
    g, d = torch.Generator().manual_seed(seed), HIDDEN
    gemma, dim, vocabulary = kind != "experts", asked["head_dim"], raw["vocab_size"]

    def matrix(out: int, width: int, scale: float) -> torch.Tensor:
        return torch.randn(out, width, generator=g) * scale / width**0.5

    def norm(size: int) -> torch.Tensor:  # Gemma's are stored less one
        return torch.randn(size, generator=g) * 0.1 + (0.0 if gemma else 1.0)

    # Gemma multiplies a token's row by d ** 0.5.
    tensors = {"model.embed_tokens.weight": matrix(vocabulary, d, 4.0 / d**0.5 if gemma else 4.0),
               "model.norm.weight": norm(d)}
    if not raw["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(vocabulary, d, 4.0)
    for index in range(layers):
        at = f"model.layers.{index}"
        tensors |= {f"{at}.self_attn.{x}_proj.weight": matrix(heads * dim, d, 2.5)
                    for x, heads in (("q", 4), ("k", 2), ("v", 2))}
        tensors[f"{at}.self_attn.o_proj.weight"] = matrix(d, 4 * dim, 2.5)
        tensors |= {f"{at}.self_attn.{x}_norm.weight": norm(dim) for x in "qk"}
        names = ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if gemma else ()))
        tensors |= {f"{at}.{x}_layernorm.weight": norm(d) for x in names}
        mlps = [f"{at}.mlp"] if gemma else [f"{at}.mlp.experts.{number}" for number in range(EXPERTS)]
        inner = 2 * d if gemma else WIDTH
        for mlp in mlps:
            tensors |= {f"{mlp}.{x}_proj.weight": matrix(inner, d, 1.5) for x in ("gate", "up")}
            tensors[f"{mlp}.down_proj.weight"] = matrix(d, inner, 1.5)
        if not gemma:
            tensors[f"{at}.mlp.gate.weight"] = matrix(EXPERTS, d, 2.5)
    save_file(tensors, folder / "model.safetensors")
    return folder

