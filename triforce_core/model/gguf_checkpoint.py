"""A GGUF file as a model: its metadata as a ``config.json`` that ``parse_config`` judges, its tensors under the names
that the decoder asks for. Architectures: those of ``families``; others are refused by name.

Weights in few bits are read as groups, step * scale + offset, without loss: what our kernels multiply as it is. Where
there are none, they become the decoder's number type, some rows at a time. Layouts of blocks as in the format's own
description (ggml-common.h).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DamagedWeightsError, UnsupportedModelError
from ..gguf import GGUFFile, StoredTensor
from ..kernels import LEVELS, Grouped, join_grouped
from .config import ModelConfig, parse_config
from .families import BY_GGUF, FAMILIES, FILE_ELSEWHERE
from .rope import RopeConfig
from .weights import Form, Matrix, Part, Rows, WeightSource, and_more

_INSTEAD = "Take a model of one of these families, such as Llama 3, Mistral 7B, Qwen2.5 or Qwen3."
_SIZES = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count", "num_attention_heads":
    "attention.head_count", "intermediate_size": "feed_forward_length", "max_position_embeddings": "context_length",
}
# Switches that change the mathematics, as config.json has them; "": the decoder lacks it; 0 and 1 mean off.
_SWITCHES = {"expert_count": "num_experts", "logit_scale": "logits_scaling", "embedding_scale": "embedding_multiplier",
             "residual_scale": "residual_multiplier", "attention.scale": "attention_multiplier",
             "attn_logit_softcapping": "", "final_logit_softcapping": "", "attention.clamp_kqv": "",
             "attention.max_alibi_bias": ""}
_MULTIPLIERS = {"logits_scaling", "embedding_multiplier", "residual_multiplier", "attention_multiplier"}
_GEMMA_27B = 62  # layers: of its sizes the one that divides attention's scores by another number
ROPE_DIVISORS = "rope_freqs.weight"  # how llama.cpp stores Llama 3.1's rope: one divisor for each frequency


def gguf_config(file: GGUFFile) -> ModelConfig:
    """Raises UnsupportedModelError (named), DamagedWeightsError, ModelError."""
    name = file.get("general.architecture", str, "")
    if file.get("general.type", str, "model") not in ("model", ""):
        raise UnsupportedModelError(f"{file.path.name} is a {file.metadata['general.type']!r}, not a model",
                                    allowed="a GGUF file with the model itself")
    if name not in BY_GGUF:
        raise UnsupportedModelError(f"{file.path.name} has the architecture {name or 'unnamed'!r}",
                                    allowed=", ".join(BY_GGUF), remedy=FILE_ELSEWHERE)
    if not file.tensors:
        raise DamagedWeightsError(f"{file.path.name} holds no weights, only a vocabulary",
                                  remedy="Give the file that holds the model.")
    raw: dict[str, Any] = {theirs: _whole(file, f"{name}.{key}") for theirs, key in _SIZES.items()}
    raw |= _switches(file, name)
    heads = raw["num_attention_heads"]
    raw |= {
        "architectures": [BY_GGUF[name]],
        "num_key_value_heads": _whole(file, f"{name}.attention.head_count_kv", heads),
        "vocab_size": _vocabulary_rows(file, raw["hidden_size"]),
        "rms_norm_eps": file.get(f"{name}.attention.layer_norm_rms_epsilon", float, 1e-5),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id", int, -1),
        "eos_token_id": file.get("tokenizer.ggml.eos_token_id", int, -1),
    }
    raw |= _window(file, name)
    raw["head_dim"] = _head_dim(file, name, raw["hidden_size"] // heads)
    raw["rope_parameters"] = _rope(file, name, raw["head_dim"])
    if name == "gemma3" and raw["num_hidden_layers"] == _GEMMA_27B:
        raw["query_pre_attn_scalar"] = raw["hidden_size"] // heads
    elif name == "gemma3":
        raw["query_pre_attn_scalar"] = raw["head_dim"]
    config = parse_config(raw)
    config = replace(config, norm_offset=0.0, qkv_bias="blk.0.attn_q.bias" in file.tensors)
    return replace(config, rope=_with_divisors(file, config.rope, config.head_dim))


def _switches(file: GGUFFile, name: str) -> dict[str, Any]:
    """Return what changes the mathematics. Raises UnsupportedModelError."""
    given = {key: file.metadata[f"{name}.{key}"] for key in _SWITCHES
             if file.metadata.get(f"{name}.{key}") not in (None, 0, 1)}
    family = FAMILIES[BY_GGUF[name]]
    known = {"num_experts"} if family.mixes else _MULTIPLIERS if "attention_multiplier" in family.defaults else set()
    refused = [f"{key} {value}" for key, value in given.items() if _SWITCHES[key] not in known]
    if refused:
        raise UnsupportedModelError(f"{file.path.name} uses {' and '.join(refused)}, which is not supported",
                                    remedy=FILE_ELSEWHERE)
    found = {_SWITCHES[key]: value for key, value in given.items()}
    return found if not family.mixes else found | {
        "norm_topk_prob": True, "num_experts_per_tok": _whole(file, f"{name}.expert_used_count"),
        "moe_intermediate_size": _whole(file, f"{name}.expert_feed_forward_length")}


def _window(file: GGUFFile, name: str) -> dict[str, Any]:
    window, architecture = file.get(f"{name}.attention.sliding_window", int, 0), BY_GGUF[name]
    if not window or FAMILIES[architecture].window == "asked":
        return {"sliding_window": None}
    found: dict[str, Any] = {"sliding_window": window, "architectures": [
        {"LlamaForCausalLM": "MistralForCausalLM", "Olmo2ForCausalLM": "Olmo3ForCausalLM"}.get(
            architecture, architecture)]}
    near = file.get(f"{name}.rope.freq_base_swa", float, 0.0)
    pattern = file.metadata.get(f"{name}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        found["layer_types"] = ["sliding_attention" if one else "full_attention" for one in pattern]
    return found | ({"rope_local_base_freq": near} if near else {}) | (
        {"sliding_window_pattern": pattern} if isinstance(pattern, int) else {})


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
    """Return the width of a head. Raises UnsupportedModelError unless keys and values have it."""
    widths = {key: _whole(file, f"{name}.{key}", usual) for key in ("attention.key_length", "attention.value_length")}
    key = widths["attention.key_length"]
    turned = widths["rope.dimension_count"] = _whole(file, f"{name}.rope.dimension_count", key)
    if widths["attention.value_length"] != key or turned > key or (
            turned < key and FAMILIES[BY_GGUF[name]].paired):
        said = ", ".join(f"{part} {width}" for part, width in widths.items())
        raise UnsupportedModelError(f"{file.path.name} has heads of unequal widths ({said}), which is not supported",
                                    remedy=_INSTEAD)
    return key


def _rope(file: GGUFFile, name: str, head_dim: int) -> dict[str, Any]:
    """Return the ``rope_parameters`` of a config.json."""
    at = f"{name}.rope."
    found: dict[str, Any] = {"rope_theta": file.get(at + "freq_base", float, 10000.0)}
    turned = _whole(file, at + "dimension_count", head_dim)
    if turned < head_dim:
        found["partial_rotary_factor"] = turned / head_dim
    factors = {f"{ours}_factor": _numbers(file, file.tensors[stored]) for ours, stored in
               (("short", "rope_factors_short.weight"), ("long", "rope_factors_long.weight")) if stored in file.tensors}
    if factors:
        attention = file.get(at + "scaling.attn_factor", float, 0.0)
        return found | factors | ({"attention_factor": attention} if attention else {}) | {
            "rope_type": "longrope", "original_max_position_embeddings":
            _whole(file, at + "scaling.original_context_length", 4096)}
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
    scale, heat = file.get(at + "scaling.yarn_log_multiplier", float, 0.0), f"{name}.attention.temperature_scale"
    found |= {"mscale": 1.0, "mscale_all_dim": scale} if scale else {}
    found |= {"llama_4_scaling_beta": file.get(heat, float, 0.0)} if heat in file.metadata else {}
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
    return replace(rope, divisors=tuple(_numbers(file, stored)))


def _numbers(file: GGUFFile, stored: StoredTensor) -> list[float]:
    """Return what frequencies are divided by. Raises DamagedWeightsError."""
    values: list[float] = file.raw(stored).view("<f4").flatten().tolist() if stored.kind.name == "F32" else []
    if not values or not all(0 < value < 1e9 for value in values):
        raise DamagedWeightsError(f"{file.path.name} holds numbers of a rope that cannot divide")
    return values


_AT_ONCE = 1 << 24  # weights dequantised together: 64 MiB of fp32, and a few times that in between
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"(?<=\.experts)\.(\d+)(?=\.)")
# Computed from the metadata, or for other programs.
_DERIVED = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd|rope_factors_(long|short)\.weight")


def stored_name(name: str, norms: str = "before") -> str:
    """Hugging Face's name of a tensor -> GGUF's. norms: as in ``ModelConfig``."""
    stem, _, kind = _EXPERT.sub("", name).rpartition(".")
    layer = _LAYER.fullmatch(stem)
    if layer and norms != "before" and layer[2] == "post_attention_layernorm":
        return f"blk.{layer[1]}.post_attention_norm.{kind}"
    return f"blk.{layer[1]}.{_NAMES[layer[2]]}.{kind}" if layer else f"{_NAMES[stem]}.{kind}"


class GGUFWeights(WeightSource):
    """See ``weights.WeightSource``."""

    def __init__(self, file: GGUFFile, config: ModelConfig, dtype: torch.dtype, *, keeps_groups: bool = False) -> None:
        """dtype: of matrices that are not kept as they are stored. keeps_groups: the kernels have products with weights
        in groups."""
        self._file, self._head_dim, self._dtype, self._keeps_groups = file, config.head_dim, dtype, keeps_groups
        self._norms, self._permuted = config.norms, FAMILIES[config.architecture].paired
        self._asked = {ROPE_DIVISORS}

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """Return a matrix in the decoder's type, others in fp32. Raises DamagedWeightsError naming file and tensor."""
        found = self._find(name, shape)
        rows = (0, self._file.rows(found))
        if part is not None and part.axis == 0 and len(shape) > 1:
            rows, part = (part.start, part.stop), None
        dtype = self._dtype if len(shape) > 1 else torch.float32
        numbers = torch.empty(rows[1] - rows[0], math.prod(shape) // self._file.rows(found), dtype=dtype)
        for at, raw in self._blocks(found, *rows):
            numbers[at : at + len(raw)] = dequantise(raw, found.kind.name)
        whole = self._in_order(name, numbers if len(shape) > 1 else numbers.flatten())
        return whole if part is None else part.of(whole)

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        return Matrix(self.tensor(name, shape, part))

    def grouped(self, name: str, shape: tuple[int, int]) -> Grouped | None:
        if not self._keeps_groups or self._stored(name) not in self._file.tensors:
            return None
        found = self._find(name, shape)
        if found.kind.name not in FORMS:
            return None
        parts = [read_groups(raw, found.kind.name) for _, raw in self._blocks(found, 0, shape[0])]
        return join_grouped(parts).in_order(lambda rows: self._in_order(name, rows))

    def rows(self, name: str, shape: tuple[int, int]) -> Rows | None:
        if not self._keeps_groups:
            return None
        found = self._find(name, shape)
        return StoredRows(self._file.raw(found), found.kind.name, self._dtype) if found.kind.name in FORMS else None

    def ignore(self, name: str) -> None:
        self._asked.add(self._stored(name))

    def finish(self) -> None:
        """Raises DamagedWeightsError if a tensor was never asked for (a different architecture)."""
        extra = [name for name in self._file.tensors if name not in self._asked and not _DERIVED.match(name)]
        if extra:
            raise DamagedWeightsError(f"{self._file.path.name} holds {extra[0]}{and_more(extra)}, which its "
                                      "architecture does not call for", remedy="Take another file of this model.")

    def _stored(self, name: str) -> str:
        return stored_name(name, self._norms)

    def _find(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        stored = self._stored(name)
        self._asked.add(stored)
        found = self._file.tensors.get(stored)
        if found is None:
            raise DamagedWeightsError(f"{self._file.path.name} holds no tensor {stored}",
                                      remedy="Fetch the file again.")
        expert = _EXPERT.search(name)
        if expert is not None and len(found.shape) == 3 and int(expert[1]) < found.shape[0]:  # one of the stacked
            size = found.nbytes // found.shape[0]
            found = replace(found, shape=found.shape[1:], nbytes=size, offset=found.offset + int(expert[1]) * size)
        if found.shape != shape:
            raise DamagedWeightsError(f"{found.path.name}: {stored} has shape {list(found.shape)}",
                                      allowed=f"{list(shape)} by its metadata", remedy="Fetch the file again.")
        return found

    def _blocks(self, found: StoredTensor, first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield rows [first, last), some at a time: the number of the first one, from ``first`` on, and their bytes."""
        step = max(1, _AT_ONCE // (math.prod(found.shape) // self._file.rows(found)))
        for start in range(first, last, step):
            yield start - first, self._file.raw(found, start, min(step, last - start))

    def _in_order(self, name: str, rows: Tensor) -> Tensor:
        """Return rows of q and k as the decoder rotates them. rows: those of whole heads."""
        if not self._permuted or not name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")):
            return rows
        heads = rows.shape[0] // self._head_dim
        pairs = rows.view(heads, self._head_dim // 2, 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A table in a mapped file, of which rows are unpacked when they are asked for: 0.05 ms for one of Gemma's."""

    raw: np.ndarray
    kind: str
    dtype: torch.dtype

    def __call__(self, numbers: Tensor) -> Tensor:
        return dequantise(self.raw[numbers.numpy()], self.kind).to(self.dtype)


def dequantise(raw: np.ndarray, kind: str) -> Tensor:
    """uint8 [rows, bytes of a row] -> fp32 or the plain type itself, [rows, weights of a row]."""
    plain = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}.get(kind)
    if plain is not None:
        return torch.from_numpy(np.array(raw)).view(plain)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    with np.errstate(all="ignore"):  # scales of hostile files
        return torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]))  # half the time of the groups' numbers


FORMS = {"Q8_0": Form(8, 32, False), "Q4_0": Form(4, 32, False), "Q4_1": Form(4, 32, True),
         "Q5_0": Form(5, 32, False), "Q5_1": Form(5, 32, True), "Q2_K": Form(4, 16, True, 16),
         "Q3_K": Form(4, 16, False, 16), "Q4_K": Form(4, 32, True, 8), "Q5_K": Form(5, 32, True, 8),
         "Q6_K": Form(6, 16, False, 16), "IQ4_NL": Form(4, 32, False, 1, True),
         "IQ4_XS": Form(4, 32, False, 8, True)}
_IQ4 = np.array(LEVELS, np.int8)
# Steps, scale, offset, subscale, suboffset, as in ``Grouped`` and as far as there are some: [blocks, ...]
_Parts = tuple[np.ndarray, ...]


def read_groups(raw: np.ndarray, kind: str) -> Grouped:
    """uint8 [rows, bytes of a row] of a type in FORMS -> the weight."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    with np.errstate(all="ignore"):  # scales of hostile files
        parts = _READERS[kind](raw.reshape(-1, nbytes))
    form = FORMS[kind]
    steps, scale, *more = (torch.from_numpy(np.ascontiguousarray(part)).view(len(raw), -1) for part in parts)
    offset = more.pop(0) if form.offsets else None
    subscale, suboffset = (*more, None, None)[:2]
    return Grouped(form.bits, steps.view(torch.int8), scale, offset, subscale, suboffset, form.uneven)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """fp32 [blocks, 1]"""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray, width: int) -> np.ndarray:
    """[blocks, bytes] -> of each ``width`` bytes the lower halves, then the upper ones."""
    runs = np.ascontiguousarray(packed).reshape(-1, width)
    halves = np.empty((len(runs), 2, width), np.uint8)
    np.bitwise_and(runs, 15, out=halves[:, 0])
    np.right_shift(runs, 4, out=halves[:, 1])
    return halves.reshape(len(packed), -1)


def _plain_blocks(blocks: np.ndarray, bits: int, offsets: bool) -> _Parts:
    """Read Q4_0 to Q8_0: a scale, an offset if there are some, a fifth bit for each of 32 steps if they have one, steps
    around the middle unless there are offsets."""
    at = 4 if offsets else 2
    scales = (_half(blocks, 0), *((_half(blocks, 2),) if offsets else ()))
    if bits == 8:
        return np.ascontiguousarray(blocks[:, at:]).view(np.int8), *scales
    steps = _nibbles(blocks[:, at + 4 * (bits == 5) :], 16)
    if bits == 5:
        steps |= np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little") << 4
    return steps if offsets else steps.astype(np.int8) - 2 ** (bits - 1), *scales


def _pairs_of_bits(packed: np.ndarray) -> np.ndarray:
    """[blocks, bytes] -> of each 32 bytes the lowest two bits, then the next two, ..."""
    runs = packed.reshape(len(packed), -1, 1, 32)
    return (runs >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3).reshape(len(packed), -1)


def _q2_k(blocks: np.ndarray) -> _Parts:
    scales = blocks[:, :16]
    return (_pairs_of_bits(blocks[:, 16:80]), _half(blocks, 80), -_half(blocks, 82), (scales & 15).astype(np.int8),
            (scales >> 4).astype(np.int8))


def _q3_k(blocks: np.ndarray) -> _Parts:
    third = blocks[:, :32].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    steps = (_pairs_of_bits(blocks[:, 32:96]) | third.reshape(len(blocks), -1) << 2).astype(np.int8) - 4
    low = _nibbles(blocks[:, 96:104], 8)
    high = blocks[:, 104:108].reshape(-1, 1, 4) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1) & 3
    return steps, _half(blocks, 108), (low | high.reshape(len(blocks), -1) << 4).astype(np.int8) - 32


def _iq4_nl(blocks: np.ndarray) -> _Parts:
    return _IQ4[_nibbles(blocks[:, 2:], 16)], _half(blocks, 0)


def _iq4_xs(blocks: np.ndarray) -> _Parts:
    low = (blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(len(blocks), -1)
    high = (blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(blocks), -1)
    return _IQ4[_nibbles(blocks[:, 8:], 16)], _half(blocks, 0), (low | high << 4).astype(np.int8) - 32


def _scales_of_k(blocks: np.ndarray) -> _Parts:
    """Return the scales of Q4_K and Q5_K: the block's two, and eight subscales and suboffsets of six bits each."""
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    low, high, rest = packed[:, 0], packed[:, 1], packed[:, 2]
    subscale = np.concatenate((low & 63, rest & 15 | low >> 2 & 48), 1)
    suboffset = np.concatenate((high & 63, rest >> 4 | high >> 2 & 48), 1)
    return _half(blocks, 0), -_half(blocks, 2), subscale.astype(np.int8), suboffset.astype(np.int8)


def _q4_k(blocks: np.ndarray) -> _Parts:
    return (_nibbles(blocks[:, 16:], 32), *_scales_of_k(blocks))


def _q5_k(blocks: np.ndarray) -> _Parts:
    fifth = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    return (_nibbles(blocks[:, 48:], 32) | fifth.reshape(len(blocks), -1) << 4, *_scales_of_k(blocks))


def _q6_k(blocks: np.ndarray) -> _Parts:
    low = _nibbles(blocks[:, :128], 64)
    steps = (low | _pairs_of_bits(blocks[:, 128:192]) << 4).astype(np.int8) - 32
    return steps, _half(blocks, 208), np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)


_READERS: dict[str, Callable[[np.ndarray], _Parts]] = {
    **{kind: partial(_plain_blocks, bits=FORMS[kind].bits, offsets=FORMS[kind].offsets)
       for kind in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")},
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs}
