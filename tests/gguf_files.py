"""GGUF files for tests, from Hugging Face folders: of every type, whole or split."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, RopeScalingType
from gguf.quants import quantize
from safetensors.torch import load_file

from training.gguf_export import add_sentencepiece, add_weight, finish, in_their_order, writer
from triforce_core.gguf.types import BY_NUMBER
from triforce_core.model.families import FAMILIES
from triforce_core.model.gguf_checkpoint import stored_name

KINDS = [kind.name for kind in BY_NUMBER.values()]
# Bytes of a block that hold an fp16 scale; the package cannot quantise to these, so their blocks are made up.
_SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,),
           "IQ4_XS": (0,)}
_STEPS = {"Q2_K": 1, "Q3_K": 50, "Q4_K": 100, "Q5_K": 200, "Q6_K": 1500, "IQ4_NL": 60, "IQ4_XS": 1000}


def in_kind(values: np.ndarray, kind: str) -> np.ndarray:
    """Rows of bytes in ``kind``: values rounded to it, or (``_SCALES``) blocks of chance with as large numbers."""
    if kind not in _SCALES:
        return quantize(values, GGMLQuantizationType[kind])
    about = next(item for item in BY_NUMBER.values() if item.name == kind)
    rows, blocks = values.shape[0], values.shape[1] // about.weights
    chance = np.random.default_rng(values.size)
    data = chance.integers(0, 256, (rows, blocks, about.nbytes), dtype=np.uint8)
    scale = np.float16(values.std() / _STEPS[kind])
    for at in _SCALES[kind]:
        data[:, :, at : at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return data.reshape(rows, -1)


def write_gguf(folder: Path, path: Path, kind: str = "F32", **options: Any) -> Path:
    """A checkpoint folder as a GGUF file with matrices in ``kind`` (F32 where they do not fit its blocks), and with the
    folder's tokenizer where it is sentencepiece. options: of ``GGUFWriter``."""
    raw = json.loads((folder / "config.json").read_text())
    out = writer(path, raw, **options)
    add_family(out, raw)
    if (folder / "tokenizer.model").is_file():
        texts = [(folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else None
                 for name in ("chat_template.jinja", "prompt.json")]
        add_sentencepiece(out, folder / "tokenizer.model", *texts)
    add_tensors(out, raw, folder, kind)
    finish(out)
    return path


def add_family(out: GGUFWriter, raw: dict[str, Any]) -> None:
    """Add what files of the families say beside a Llama's, as llama.cpp's converter writes it."""
    for name, add in (("attention_multiplier", out.add_attention_scale),
                      ("embedding_multiplier", out.add_embedding_scale),
                      ("residual_multiplier", out.add_residual_scale), ("logits_scaling", out.add_logit_scale)):
        if name in raw:
            add(raw[name])
    if "num_local_experts" in raw:
        out.add_expert_count(raw["num_local_experts"])
        out.add_expert_used_count(raw["num_experts_per_tok"])
        out.add_expert_feed_forward_length(raw["moe_intermediate_size"])
    rope = raw.get("rope_parameters") or {}
    if "sliding_attention" in rope:
        out.add_sliding_window(raw["sliding_window"])
        if raw["architectures"] != ["Gemma3ForCausalLM"]:  # whose pattern llama.cpp knows
            out.add_sliding_window_pattern([kind == "sliding_attention" for kind in raw["layer_types"]])
        near, rope = rope["sliding_attention"], rope["full_attention"]
        out.add_key_value(f"{out.arch}.rope.freq_base_swa", near["rope_theta"], GGUFValueType.FLOAT32)
        out.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] != "default":
            out.add_rope_scaling_type(RopeScalingType(rope["rope_type"]))
            out.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if "partial_rotary_factor" in rope:
        dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
        out.add_rope_dimension_count(int(dim * rope["partial_rotary_factor"]))
    if rope.get("rope_type") == "longrope":
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for which in ("long", "short"):
            out.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    if "llama_4_scaling_beta" in rope:
        out.add_rope_scaling_type(RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        out.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def add_tensors(out: GGUFWriter, raw: dict[str, Any], folder: Path, kind: str) -> None:
    width = next(item.weights for item in BY_NUMBER.values() if item.name == kind)
    stacked: dict[str, dict[int, np.ndarray]] = {}
    for name, tensor in load_file(str(folder / "model.safetensors")).items():
        values = in_their_order(raw, name, tensor).float().numpy()
        if name.endswith("norm.weight"):
            values = values + FAMILIES[raw["architectures"][0]].norm_offset
        fits = tensor.dim() == 2 and tensor.shape[1] % width == 0 and kind != "F32"
        if fits and kind != "F16":
            values = in_kind(values, kind)
        expert = re.search(r"\.experts\.(\d+)\.", name)
        if expert is not None:
            stacked.setdefault(stored_name(name), {})[int(expert[1])] = values
            if len(stacked[stored_name(name)]) == raw["num_local_experts"]:
                whole = np.stack([one for _, one in sorted(stacked[stored_name(name)].items())])
                out.add_tensor(stored_name(name), whole, raw_dtype=GGMLQuantizationType[kind] if fits else None)
            continue
        add_weight(out, name, values, kind if fits else "F32", FAMILIES[raw["architectures"][0]].norms)
