"""What the families' decoders have beyond a Llama's, as data: one line each, by Hugging Face's architecture and GGUF's.

What a published config.json leaves out is its family's default, as in ``transformers``. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import UnsupportedModelError

# Servers that run what has no line here; the page shows those that answer on this machine.
FOLDER_ELSEWHERE = "vLLM can run it here: start it, and it stands under Models."
FILE_ELSEWHERE = "llama.cpp or Ollama can run it here: start one, and it stands under Models."


@dataclass(frozen=True, slots=True)
class Family:
    """Describe a decoder. gguf: what its files call it, the first as it is written. paired: there, rows of q and k lie
    as neighbours are rotated, not halves. defaults: of config.json. bias: of q, k and v. qk_norm: over each "head" or
    the "whole" width. norms: "before" attention and MLP, "after" them, or "around". norm_offset: what a folder's norms
    lack to one. fused: one matrix holds q, k and v, and one gate and up. activation: of the gate.
    window: which layers attend a window where there is one: "" none, "all", "asked" those that config.json names, or
    all but each so-manieth. window_rope: those have a rope of their own. scaled_embedding: by sqrt(hidden_size).
    mixes: experts are in the place of the MLP."""

    gguf: tuple[str, ...]
    paired: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    bias: bool = False
    qk_norm: Literal["", "head", "whole"] = ""
    norms: Literal["before", "after", "around"] = "before"
    norm_offset: float = 0.0
    fused: bool = False
    activation: Literal["silu", "gelu"] = "silu"
    window: Literal["", "all", "asked"] | int = ""
    window_rope: bool = False
    scaled_embedding: bool = False
    mixes: bool = False


_QWEN = {"max_position_embeddings": 32768, "max_window_layers": 28}
FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(("llama",), paired=True, defaults={"max_position_embeddings": 2048}),
    "MistralForCausalLM": Family(("llama", "mistral"), paired=True, defaults={"max_position_embeddings": 131072},
                                 window="all"),
    "Ministral3ForCausalLM": Family(("mistral3",), paired=True, defaults={"max_position_embeddings": 262144},
                                    window="all"),
    "Qwen2ForCausalLM": Family(("qwen2", "qwen2vl"), defaults=_QWEN, bias=True, window="asked"),
    "Qwen3ForCausalLM": Family(("qwen3", "qwen3vl"), defaults=_QWEN, qk_norm="head", window="asked"),
    "Qwen3MoeForCausalLM": Family(("qwen3moe", "qwen3vlmoe"), defaults=_QWEN, qk_norm="head", window="asked",
                                  mixes=True),
    "SmolLM3ForCausalLM": Family(("smollm3",), paired=True, window="asked", defaults={
        "max_position_embeddings": 32768, "rope_theta": 2e6, "tie_word_embeddings": True, "no_rope_layer_interval": 4}),
    "GraniteForCausalLM": Family(("granite",), paired=True, defaults={
        "max_position_embeddings": 2048, "attention_multiplier": 1.0}),
    "Olmo2ForCausalLM": Family(("olmo2",), qk_norm="whole", norms="after", defaults={
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5}),
    "Olmo3ForCausalLM": Family(("olmo2",), qk_norm="whole", norms="after", window=4, window_rope=True, defaults={
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "sliding_window": 4096}),
    "Gemma3ForCausalLM": Family(("gemma3",), qk_norm="head", norms="around", norm_offset=1.0, activation="gelu",
                                window=6, window_rope=True, scaled_embedding=True, defaults={
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 4096,
        "tie_word_embeddings": True, "query_pre_attn_scalar": 256}),
    "Phi3ForCausalLM": Family(("phi3",), fused=True, window="all", defaults={
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}),
}
# Models that see pictures too: the text's decoder. "": as its text_config says.
SEEING = {"Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
          "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
          "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM", "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
          "Mistral3ForConditionalGeneration": ""}
_BY_MODEL_TYPE = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                  "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
                  "ministral3": "Ministral3ForCausalLM", "smollm3": "SmolLM3ForCausalLM",
                  "granite": "GraniteForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM",
                  "phi3": "Phi3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "gemma3": "Gemma3ForCausalLM"}
BY_GGUF = {name: architecture for architecture, family in FAMILIES.items() for name in family.gguf}
BY_GGUF |= {"llama": "LlamaForCausalLM", "olmo2": "Olmo2ForCausalLM"}  # with a window the other one


def architecture_of(raw: Mapping[str, Any]) -> str:
    """Return which family's decoder a config.json describes. Raises UnsupportedModelError (named)."""
    given = raw.get("architectures") or [None]
    name = given[0] if isinstance(given, list) else given
    text = raw.get("text_config")
    found = SEEING.get(name, name) if isinstance(name, str) else None
    if not found:
        kind = (text if isinstance(text, Mapping) else raw).get("model_type")
        found = _BY_MODEL_TYPE.get(kind) if isinstance(kind, str) else None
    if found not in FAMILIES:
        raise UnsupportedModelError(
            f"The architecture {name or raw.get('model_type') or 'of this config.json'} is not supported",
            allowed=", ".join(FAMILIES), remedy=FOLDER_ELSEWHERE)
    return str(found)


def whole_config(raw: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return a config.json as one level: the family's defaults, then what stands beside the text's, then the text's."""
    text = raw.get("text_config")
    beside = raw if not isinstance(text, Mapping) else {
        name: raw[name] for name in ("quantization_config", "bos_token_id", "eos_token_id", "tie_word_embeddings")
        if raw.get(name) is not None}
    nested = text if isinstance(text, Mapping) else {}
    return {**FAMILIES[architecture].defaults, **beside,
            **{name: value for name, value in nested.items() if value is not None},
            **({"tie_word_embeddings": beside["tie_word_embeddings"]} if "tie_word_embeddings" in beside else {})}
