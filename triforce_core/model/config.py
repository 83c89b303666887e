"""Read a checkpoint's ``config.json`` into one frozen value: the only place that knows Hugging Face's spellings.

What a family has beyond a Llama's decoder is data (``families``). Everything that would change the mathematics and is
not implemented is refused by name: a model that runs *almost* right would be worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..device.shard import Shard
from ..errors import ConfigError, ModelError, ModelNotFoundError, UnsupportedModelError
from .families import FAMILIES, FOLDER_ELSEWHERE, Family, architecture_of, whole_config
from .hf_quantised import read_scheme
from .rope import NO_ROPE, RopeConfig, read_rope


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of ``count`` MLPs of ``width``, of which each token goes through ``used``. normalised: see
    ``mixture``."""

    count: int
    used: int
    width: int
    normalised: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and constants of a decoder. Sizes are tokens, features or heads; ``rope`` holds the rotary kind.

    qk_norm: over each "head" of queries and keys, or their "whole" width. norms: "before" attention and MLP, "after"
    them, or "around"; norm_offset: what their weights, as stored, lack. fused: q, k and v are stored as one matrix, and
    gate and up. embedding_scale: of a token's row. logit_scale: of logits. score_scale: of attention's scores, beside
    1 / sqrt(head_dim). other_ropes, rope_of: of each layer the rope that it turns by, 0 being ``rope``; (): all do."""

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
    qk_norm: Literal["", "head", "whole"]
    max_context: int  # tokens that the checkpoint was trained (or extended) for
    rope: RopeConfig = field(default_factory=RopeConfig)
    windows: tuple[int, ...] = ()  # tokens that attention reaches back in each layer, 0: all; (): all in all
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    norms: Literal["before", "after", "around"] = "before"
    norm_offset: float = 0.0
    fused: bool = False
    activation: Literal["silu", "gelu"] = "silu"
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    score_scale: float = 1.0
    other_ropes: tuple[RopeConfig, ...] = ()
    rope_of: tuple[int, ...] = ()
    experts: Experts | None = None  # in the place of each MLP

    @property
    def group_size(self) -> int:
        """Return the query heads per KV head (1: multi-head attention)."""
        return self.num_heads // self.num_kv_heads

    @property
    def num_parameters(self) -> int:
        """Count the weights of the decoder, norms and biases left out (they are a rounding error)."""
        heads, e = self.num_heads * 2 + self.num_kv_heads * 2, self.experts
        inner = 3 * self.intermediate_size if e is None else e.count * (3 * e.width + 1)
        layer = self.hidden_size * (heads * self.head_dim + inner)
        return layer * self.num_layers + self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)

    @property
    def matrix_weights(self) -> int:
        """Count the weights that a pass of one row multiplies: the embedding table's only if it is the head too."""
        table = 0 if self.tied_embeddings else self.vocab_size * self.hidden_size
        return self.num_parameters - table - self.idle_weights

    @property
    def idle_weights(self) -> int:
        """Count the weights of experts that a token does not go through."""
        e = self.experts
        return 0 if e is None else self.num_layers * self.hidden_size * 3 * e.width * (e.count - e.used)

    @property
    def whole_layers(self) -> int:
        """Count the layers that attend all tokens."""
        return self.num_layers - sum(map(bool, self.windows))

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Return the bytes of keys and values that one token of context costs."""
        return 2 * self.whole_layers * self.num_kv_heads * self.head_dim * dtype_bytes

    def prefill_flops(self, tokens: int, reach: int | None = None) -> float:
        """Count operations of reading ``tokens``: products with every weight but the head, causal attention. Of the
        last layer only queries, keys and values. reach: tokens that attention reaches back at most, None for all."""
        keys_values = self.hidden_size * 2 * self.num_kv_heads * self.head_dim
        queries = self.hidden_size * self.num_heads * self.head_dim
        inner = self.intermediate_size if self.experts is None else self.experts.used * self.experts.width
        layer = keys_values + 2 * queries + 3 * self.hidden_size * inner
        products = 2 * tokens * ((self.num_layers - 1) * layer + keys_values + queries)
        attended = 0.0
        for window in (self.windows or (0,) * self.num_layers)[:-1]:
            near = min(tokens, reach or tokens, window or tokens)
            attended += near**2 / 2 + (tokens - near) * near
        return products + 4 * attended * self.num_heads * self.head_dim


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
    architecture = architecture_of(raw)
    family, raw = FAMILIES[architecture], whole_config(raw, architecture)
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
    max_context = _size(raw, "max_position_embeddings")
    rope = read_rope(_rope_of(raw, "full_attention") if family.window_rope else raw, head_dim, max_context)
    config = ModelConfig(
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
        qkv_bias=family.bias,
        qk_norm=family.qk_norm,
        max_context=max(max_context, rope.extended_context),
        rope=rope,
        windows=_windows(raw, family, max_context),
        bos_token_id=raw.get("bos_token_id") if isinstance(raw.get("bos_token_id"), int) else None,
        eos_token_ids=_token_ids(raw.get("eos_token_id")),
        norms=family.norms, norm_offset=family.norm_offset, fused=family.fused, activation=family.activation,
        experts=_experts(raw) if family.mixes else None,
    )
    if config.windows and family.window_rope:
        near = read_rope(_rope_of(raw, "sliding_attention"), head_dim, max_context)
        config = replace(config, other_ropes=(near,), rope_of=tuple(int(window > 0) for window in config.windows))
    return _with_turns(_with_multipliers(config, raw, family), raw)


def _rope_of(raw: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the same, with the rope of one kind of layers. Where config.json does not tell them apart, windows turn by
    a plain one."""
    given, near = raw.get("rope_parameters"), kind == "sliding_attention"
    theta = {"rope_theta": raw.get("rope_local_base_freq", raw.get("rope_theta"))} if near else {}
    if isinstance(given, Mapping) and given and given.keys() <= {"full_attention", "sliding_attention"}:
        return {**raw, **theta, "rope_parameters": given.get(kind), "rope_scaling": None}
    return {**raw, **theta, "rope_parameters": None, "rope_scaling": None} if near else raw


def _with_multipliers(config: ModelConfig, raw: Mapping[str, Any], family: Family) -> ModelConfig:
    """Granite's four, and Gemma's two. What each block adds to the stream comes m times in Granite; here the stream is
    1 / m of that, which norms do not see but for their eps."""
    residual = _number(raw, "residual_multiplier", 1.0)
    scores = 1.0
    if "attention_multiplier" in raw:
        scores = _number(raw, "attention_multiplier", 1.0) * config.head_dim**0.5
    elif "query_pre_attn_scalar" in raw:
        scores = (config.head_dim / _number(raw, "query_pre_attn_scalar", 1.0)) ** 0.5
    usual = config.hidden_size**0.5 if family.scaled_embedding else 1.0
    return replace(config, embedding_scale=_number(raw, "embedding_multiplier", usual) / residual,
                   rms_norm_eps=config.rms_norm_eps / residual**2, logit_scale=1 / _number(raw, "logits_scaling", 1.0),
                   score_scale=scores)


def _experts(raw: Mapping[str, Any]) -> Experts:
    """Raises UnsupportedModelError where some layers have none."""
    if raw.get("mlp_only_layers") or _size(raw, "decoder_sparse_step", 1) != 1:
        raise UnsupportedModelError("This mixture of experts has layers without experts, which is not supported",
                                    remedy=FOLDER_ELSEWHERE)
    count = _size(raw, "num_experts", raw.get("num_local_experts"))
    used = _size(raw, "num_experts_per_tok")
    if used > count:
        raise ModelError(f"config.json: num_experts_per_tok is {used}", allowed=f"up to {count}")
    return Experts(count, used, _size(raw, "moe_intermediate_size"), bool(raw.get("norm_topk_prob", False)))


def _with_turns(config: ModelConfig, raw: Mapping[str, Any]) -> ModelConfig:
    """With the layers that turn by no rope."""
    interval, turns = raw.get("no_rope_layer_interval"), raw.get("no_rope_layers")
    if turns is None and interval:
        turns = [(layer + 1) % _size(raw, "no_rope_layer_interval") for layer in range(config.num_layers)]
    if not turns:
        return config
    if not isinstance(turns, list) or len(turns) != config.num_layers:
        raise ModelError(f"config.json: no_rope_layers is {str(turns)[:40]}", allowed="a number for each layer")
    return replace(config, other_ropes=(NO_ROPE,), rope_of=tuple(0 if turn else 1 for turn in turns))


def local_config(config: ModelConfig, shard: Shard) -> ModelConfig:
    """Return the decoder that one rank runs: fewer heads and MLP features. Raises ConfigError if they cannot be shared
    out."""
    if shard.world == 1 or not shard.splits_layers:
        return config
    world = shard.world
    if config.fused or config.qk_norm == "whole":
        raise ConfigError(f"gpus is {world}, and this model's queries, keys and values are in one piece", allowed="1")
    inner = config.experts.width if config.experts else config.intermediate_size
    if config.num_kv_heads % world or inner % world:
        allowed = [str(n) for n in range(1, config.num_kv_heads + 1)
                   if config.num_kv_heads % n == 0 and inner % n == 0]
        raise ConfigError(f"gpus is {world}, and this model has {config.num_kv_heads} KV heads and "
                          f"{inner} MLP features to share out", allowed=", ".join(allowed))
    return replace(config, num_heads=config.num_heads // world, num_kv_heads=config.num_kv_heads // world,
                   intermediate_size=config.intermediate_size // world,
                   experts=replace(config.experts, width=inner // world) if config.experts else None)


def _refuse_unsupported(raw: Mapping[str, Any], architecture: str) -> None:
    """Raise UnsupportedModelError for every switch that changes the mathematics and is not implemented."""
    refused: list[str] = []
    allowed = {"silu": ("silu", "swish"), "gelu": ("gelu_pytorch_tanh",)}[FAMILIES[architecture].activation]
    activation = raw.get("hidden_activation") or raw.get("hidden_act", allowed[0])
    if activation not in allowed:
        refused.append(f"hidden_act {activation!r}")
    if not FAMILIES[architecture].mixes and (
            raw.get("num_local_experts") or raw.get("num_experts") or raw.get("moe_intermediate_size")):
        refused.append("a mixture of experts")
    if raw.get("attention_bias") and not FAMILIES[architecture].bias:
        refused.append("attention_bias (a bias on the output projection too)")
    if raw.get("mlp_bias"):
        refused.append("mlp_bias")
    if raw.get("use_bidirectional_attention"):
        refused.append("attention to what comes later")
    if raw.get("attn_logit_softcapping") or raw.get("final_logit_softcapping"):
        refused.append("logit soft-capping")
    if refused:
        raise UnsupportedModelError(f"This {architecture} uses {' and '.join(refused)}, which is not supported")


def _windows(raw: Mapping[str, Any], family: Family, max_context: int) -> tuple[int, ...]:
    """Return the reach of attention in each layer, 0 for all; () where none has one."""
    window, layers = raw.get("sliding_window"), _size(raw, "num_hidden_layers")
    if family.window == "" or window is None or (family.window == "asked" and not raw.get("use_sliding_window")):
        return ()
    if not isinstance(window, int) or window < 1:
        raise ModelError(f"config.json: sliding_window is {window!r}", allowed="a whole number or null")
    kinds = raw.get("layer_types")
    if not isinstance(kinds, list):
        each = raw.get("sliding_window_pattern") or family.window
        first = _size(raw, "max_window_layers") if family.window == "asked" else 0
        kinds = ["sliding_attention" if layer >= first and not (isinstance(each, int) and (layer + 1) % each == 0)
                 else "full_attention" for layer in range(layers)]
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise UnsupportedModelError(f"config.json: layer_types are {str(kinds)[:60]}, which is not supported",
                                    allowed="full_attention and sliding_attention, one for each layer")
    ends = window < max_context or family.window_rope
    found = tuple(window if kind == "sliding_attention" and ends else 0 for kind in kinds)
    return found if any(found) else ()


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
