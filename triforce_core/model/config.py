"""Read a checkpoint's ``config.json`` into one frozen value: the only place that knows Hugging Face's spellings.

Accepted: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM (2 and 2.5), Qwen3ForCausalLM with a dense SwiGLU
MLP. Everything that would change the mathematics and is not implemented is refused by name: a model that runs
*almost* right would be worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..device.shard import Shard
from ..errors import ConfigError, ModelError, ModelNotFoundError, UnsupportedModelError
from .hf_quantised import read_scheme
from .rope import RopeConfig, read_rope

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_BY_MODEL_TYPE = dict(zip(("llama", "mistral", "qwen2", "qwen3"), ARCHITECTURES, strict=True))
_DEFAULT_POSITIONS = dict(zip(ARCHITECTURES, (2048, 131072, 32768, 32768), strict=True))  # as transformers


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and constants of a decoder. Sizes are tokens, features or heads; ``rope`` holds the rotary kind."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    max_context: int  # tokens that the checkpoint was trained (or extended) for
    rope: RopeConfig = field(default_factory=RopeConfig)
    sliding_window: int | None = None  # attention reaches no further: longer contexts are refused
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def group_size(self) -> int:
        """Return the query heads per KV head (1: multi-head attention)."""
        return self.num_heads // self.num_kv_heads

    @property
    def num_parameters(self) -> int:
        """Count the weights of the decoder, norms and biases left out (they are a rounding error)."""
        heads = self.num_heads * 2 + self.num_kv_heads * 2
        layer = self.hidden_size * (heads * self.head_dim + 3 * self.intermediate_size)
        return layer * self.num_layers + self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)

    @property
    def matrix_weights(self) -> int:
        """Count the weights that a pass of one row multiplies: the embedding table's only if it is the head too."""
        return self.num_parameters - (0 if self.tied_embeddings else self.vocab_size * self.hidden_size)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Return the bytes of keys and values that one token of context costs."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes

    def prefill_flops(self, tokens: int, reach: int | None = None) -> float:
        """Count operations of reading ``tokens``: products with every weight but the head, causal attention. Of the
        last layer only queries, keys and values. reach: tokens that attention reaches back at most, None for all."""
        keys_values = self.hidden_size * 2 * self.num_kv_heads * self.head_dim
        queries = self.hidden_size * self.num_heads * self.head_dim
        layer = keys_values + 2 * queries + 3 * self.hidden_size * self.intermediate_size
        products = 2 * tokens * ((self.num_layers - 1) * layer + keys_values + queries)
        near = tokens if reach is None else min(tokens, reach)
        attended = near**2 / 2 + (tokens - near) * near
        return products + (self.num_layers - 1) * 4 * attended * self.num_heads * self.head_dim

    @property
    def longest_context(self) -> int:
        """Return the tokens up to which attention is what the model was trained with: a sliding window would differ."""
        return min(self.max_context, self.sliding_window or self.max_context)


def read_config(folder: Path) -> ModelConfig:
    """Read ``config.json`` of a checkpoint folder. Raises ModelNotFoundError, ModelError, UnsupportedModelError."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFoundError(f"No config.json in {folder}", remedy="Give the folder of a Hugging Face checkpoint.")
    return parse_config(read_raw(path))


def read_raw(path: Path) -> dict[str, Any]:
    """Return a config.json as it is. Raises ModelError."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}", remedy="Fetch the checkpoint again.") from error
    if not isinstance(raw, dict):
        raise ModelError(f"{path} holds no JSON object")
    return raw


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """A ``config.json`` dictionary -> ModelConfig. Raises ModelError (malformed), UnsupportedModelError (named)."""
    architecture = _architecture(raw)
    _refuse_unsupported(raw, architecture)
    read_scheme(raw)  # one that is not known is refused
    hidden = _size(raw, "hidden_size")
    heads = _size(raw, "num_attention_heads")
    kv_heads = _size(raw, "num_key_value_heads", heads)
    head_dim = _size(raw, "head_dim", hidden // heads)
    if heads % kv_heads:
        raise ModelError(f"config.json: {heads} attention heads are not a multiple of {kv_heads} KV heads",
                         remedy="Fetch the checkpoint again.")
    if head_dim % 2:
        raise ModelError(f"config.json: head_dim is {head_dim}", allowed="an even number")
    max_context = _size(raw, "max_position_embeddings", _DEFAULT_POSITIONS[architecture])
    rope = read_rope(raw, head_dim, max_context)
    return ModelConfig(
        architecture=architecture,
        vocab_size=_size(raw, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(raw, "intermediate_size"),
        num_layers=_size(raw, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM",
        qk_norm=architecture == "Qwen3ForCausalLM",
        max_context=max(max_context, rope.extended_context),
        rope=rope,
        sliding_window=_sliding_window(raw, architecture),
        bos_token_id=raw.get("bos_token_id") if isinstance(raw.get("bos_token_id"), int) else None,
        eos_token_ids=_token_ids(raw.get("eos_token_id")),
    )


def local_config(config: ModelConfig, shard: Shard) -> ModelConfig:
    """Return the decoder that one rank runs: fewer heads and MLP features. Raises ConfigError if they cannot be shared
    out."""
    if shard.world == 1 or not shard.splits_layers:
        return config
    world = shard.world
    if config.num_kv_heads % world or config.intermediate_size % world:
        allowed = [str(n) for n in range(1, config.num_kv_heads + 1)
                   if config.num_kv_heads % n == 0 and config.intermediate_size % n == 0]
        raise ConfigError(f"gpus is {world}, and this model has {config.num_kv_heads} KV heads and "
                          f"{config.intermediate_size} MLP features to share out", allowed=", ".join(allowed))
    return replace(config, num_heads=config.num_heads // world, num_kv_heads=config.num_kv_heads // world,
                   intermediate_size=config.intermediate_size // world)


def _architecture(raw: Mapping[str, Any]) -> str:
    given = raw.get("architectures") or [None]
    name = given[0] if isinstance(given, list) else given
    if name is None and raw.get("model_type") in _BY_MODEL_TYPE:
        return _BY_MODEL_TYPE[raw["model_type"]]
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The architecture {name or raw.get('model_type') or 'of this config.json'} is not supported",
            allowed=", ".join(ARCHITECTURES),
        )
    return str(name)


def _refuse_unsupported(raw: Mapping[str, Any], architecture: str) -> None:
    """Raise UnsupportedModelError for every switch that changes the mathematics and is not implemented."""
    refused: list[str] = []
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        refused.append(f"hidden_act {raw['hidden_act']!r}")
    if raw.get("num_local_experts") or raw.get("num_experts") or raw.get("moe_intermediate_size"):
        refused.append("a mixture of experts")
    if raw.get("attention_bias") and architecture != "Qwen2ForCausalLM":
        refused.append("attention_bias (a bias on the output projection too)")
    if raw.get("mlp_bias"):
        refused.append("mlp_bias")
    if _number(raw, "partial_rotary_factor", 1.0) != 1.0:
        refused.append(f"partial_rotary_factor {raw['partial_rotary_factor']}")
    if raw.get("attn_logit_softcapping") or raw.get("final_logit_softcapping"):
        refused.append("logit soft-capping")
    if refused:
        raise UnsupportedModelError(f"This {architecture} uses {' and '.join(refused)}, which is not supported")


def _sliding_window(raw: Mapping[str, Any], architecture: str) -> int | None:
    """Return the reach of attention, or None for all."""
    window = raw.get("sliding_window")
    if architecture.startswith("Qwen") and not raw.get("use_sliding_window", False):
        return None
    if architecture == "LlamaForCausalLM" or window is None:
        return None
    if not isinstance(window, int) or window < 1:
        raise ModelError(f"config.json: sliding_window is {window!r}", allowed="a whole number or null")
    kinds = raw.get("layer_types")
    if isinstance(kinds, list) and kinds and all(kind == "full_attention" for kind in kinds):
        return None
    return window


def _size(raw: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = raw.get(name)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json: {name} is {value!r}", allowed="a whole number above 0")
    return value


def _number(raw: Mapping[str, Any], name: str, default: float) -> float:
    value = default if raw.get(name) is None else raw[name]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise ModelError(f"config.json: {name} is {value!r}", allowed="a number above 0")
    return float(value)


def _token_ids(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, int) and not isinstance(item, bool))
