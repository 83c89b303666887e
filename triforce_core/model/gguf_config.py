"""Translate what a GGUF file says of its decoder into the words of a ``config.json``: ``parse_config`` judges both.

Architectures: llama (Mistral's too), qwen2, qwen3. Others are refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DamagedWeightsError, UnsupportedModelError
from ..gguf import GGUFFile
from .config import ModelConfig, parse_config
from .rope import RopeConfig

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                  "qwen3": "Qwen3ForCausalLM"}
_INSTEAD = "Take a model of one of these families, such as Llama 3, Mistral 7B, Qwen2.5 or Qwen3 (the dense ones)."
_SIZES = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count", "num_attention_heads":
    "attention.head_count", "intermediate_size": "feed_forward_length", "max_position_embeddings": "context_length",
}
# Switches that change the mathematics and that the decoder does not have; 0 and 1 mean off.
_REFUSED = ("expert_count", "logit_scale", "embedding_scale", "residual_scale", "attention.scale",
            "attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv", "attention.max_alibi_bias")
ROPE_DIVISORS = "rope_freqs.weight"  # how llama.cpp stores Llama 3.1's rope: one divisor for each frequency


def gguf_config(file: GGUFFile) -> ModelConfig:
    """Raises UnsupportedModelError (named), DamagedWeightsError, ModelError."""
    name = file.get("general.architecture", str, "")
    if file.get("general.type", str, "model") not in ("model", ""):
        raise UnsupportedModelError(f"{file.path.name} is a {file.metadata['general.type']!r}, not a model",
                                    allowed="a GGUF file with the model itself")
    if name not in _ARCHITECTURES:
        raise UnsupportedModelError(f"{file.path.name} has the architecture {name or 'unnamed'!r}",
                                    allowed=", ".join(_ARCHITECTURES), remedy=_INSTEAD)
    if not file.tensors:
        raise DamagedWeightsError(f"{file.path.name} holds no weights, only a vocabulary",
                                  remedy="Give the file that holds the model.")
    refused = [f"{key} {file.metadata[f'{name}.{key}']}" for key in _REFUSED
               if file.metadata.get(f"{name}.{key}") not in (None, 0, 1)]
    if refused:
        raise UnsupportedModelError(f"{file.path.name} uses {' and '.join(refused)}, which is not supported",
                                    remedy=_INSTEAD)
    raw: dict[str, Any] = {theirs: _whole(file, f"{name}.{key}") for theirs, key in _SIZES.items()}
    heads = raw["num_attention_heads"]
    raw |= {
        "architectures": [_ARCHITECTURES[name]],
        "num_key_value_heads": _whole(file, f"{name}.attention.head_count_kv", heads),
        "vocab_size": _vocabulary_rows(file, raw["hidden_size"]),
        "rms_norm_eps": file.get(f"{name}.attention.layer_norm_rms_epsilon", float, 1e-5),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id", int, -1),
        "eos_token_id": file.get("tokenizer.ggml.eos_token_id", int, -1),
        "rope_parameters": _rope(file, name),
    }
    window = file.get(f"{name}.attention.sliding_window", int, 0)
    if window and not name.startswith("qwen"):
        raw |= {"architectures": ["MistralForCausalLM"], "sliding_window": window}
    raw["head_dim"] = _head_dim(file, name, raw["hidden_size"] // heads)
    config = parse_config(raw)
    config = replace(config, qkv_bias="blk.0.attn_q.bias" in file.tensors)
    return replace(config, rope=_with_divisors(file, config.rope, config.head_dim))


def permuted(file: GGUFFile) -> bool:
    """Return whether rows of q and k stand in llama.cpp's order: neighbours are rotated together, not halves."""
    return file.get("general.architecture", str, "") in ("llama", "mistral")


def _whole(file: GGUFFile, key: str, default: int | None = None) -> int:
    value = file.metadata.get(key, default)
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]  # one number for each layer
    if isinstance(value, list):
        raise UnsupportedModelError(f"{file.path.name}: {key} differs from layer to layer, which is not supported",
                                    remedy=_INSTEAD)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise DamagedWeightsError(f"{file.path.name}: {key} is {str(value)[:40]}", allowed="a whole number above 0",
                                  remedy="Fetch the file again.")
    return value


def _vocabulary_rows(file: GGUFFile, hidden: int) -> int:
    found = file.tensors.get("token_embd.weight")
    if found is None or len(found.shape) != 2 or found.shape[1] != hidden:
        shape = "no" if found is None else f"of shape {list(found.shape)} a"
        raise DamagedWeightsError(f"{file.path.name} holds {shape} token_embd.weight", allowed=f"[pieces, {hidden}]")
    return found.shape[0]


def _head_dim(file: GGUFFile, name: str, usual: int) -> int:
    """Keys, values and the rotated part must be as wide as each other."""
    widths = {key: _whole(file, f"{name}.{key}", usual) for key in ("attention.key_length", "attention.value_length")}
    key = widths["attention.key_length"]
    widths["rope.dimension_count"] = _whole(file, f"{name}.rope.dimension_count", key)
    if set(widths.values()) != {key}:
        said = ", ".join(f"{part} {width}" for part, width in widths.items())
        raise UnsupportedModelError(f"{file.path.name} has heads of unequal widths ({said}), which is not supported",
                                    remedy=_INSTEAD)
    return key


def _rope(file: GGUFFile, name: str) -> dict[str, Any]:
    """As ``rope_parameters`` of a config.json."""
    at = f"{name}.rope."
    found: dict[str, Any] = {"rope_theta": file.get(at + "freq_base", float, 10000.0)}
    kind = file.get(at + "scaling.type", str, "none")
    factor = file.get(at + "scaling.factor", float, 0.0)
    if at + "scale_linear" in file.metadata and at + "scaling.type" not in file.metadata:  # before scaling had kinds
        kind, factor = "linear", file.get(at + "scale_linear", float, 1.0)
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return found
    found |= {"rope_type": kind, "factor": factor or 1.0}
    if kind != "yarn":
        return found
    original = file.get(at + "scaling.original_context_length", int, 0)
    found |= {"original_max_position_embeddings": original} if original else {}
    for ours, key in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow"),
                      ("attention_factor", "attn_factor")):
        value = file.get(f"{at}scaling.{key}", float, 0.0)
        if value:
            found[ours] = value * (1 + 0.1 * np.log(factor)) if ours == "attention_factor" else value
    return found


def _with_divisors(file: GGUFFile, rope: RopeConfig, head_dim: int) -> RopeConfig:
    stored = file.tensors.get(ROPE_DIVISORS)
    if stored is None:
        return rope
    if stored.shape != (head_dim // 2,) or stored.kind.name != "F32":
        raise DamagedWeightsError(f"{file.path.name}: {ROPE_DIVISORS} is {list(stored.shape)} of {stored.kind.name}",
                                  allowed=f"[{head_dim // 2}] of F32")
    values = file.raw(stored).view("<f4")[0].tolist()
    if not all(0 < value < 1e9 for value in values):
        raise DamagedWeightsError(f"{file.path.name}: {ROPE_DIVISORS} holds numbers that cannot divide")
    return replace(rope, divisors=tuple(values))
