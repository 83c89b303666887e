"""The built-in pair as GGUF files: `python -m training.gguf_export OUT` writes OUT/builtin-target-Q8_0.gguf and its
draft model; with `--grow SHAPE` OUT/SHAPE-Q8_0.gguf, the target in that shape, for comparisons.

Q8_0 keeps every integer: the built-in weights are int8 with one scale for each row, and every block of a row is given
that scale, rounded to fp16 (by one part in 2,048 at most). The other types round each weight; of a grown model, Q8_0
too. `triforce.prompt` holds prompt.json; llama.cpp does not look at it.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from safetensors.torch import load_file

from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.bench.grow import SHAPES
from triforce_core.bench.rows import TARGETS
from triforce_core.gguf.types import BY_NUMBER
from triforce_core.model import ModelConfig, read_config
from triforce_core.model.families import FAMILIES
from triforce_core.model.gguf_checkpoint import stored_name
from triforce_core.model.grown import GrownWeights, Shape, grown_config, published_names
from triforce_core.tokenizer.gguf_vocabulary import PROMPT_KEY

KINDS = ("Q8_0", "F16", "BF16", "Q4_0")


def writer(path: Path, raw: Mapping[str, Any], **options: Any) -> GGUFWriter:
    """A file with what a config.json says, without tensors and vocabulary. options: of ``GGUFWriter``."""
    out = GGUFWriter(path, FAMILIES[raw["architectures"][0]].gguf[0], **options)
    out.add_context_length(raw["max_position_embeddings"])
    out.add_embedding_length(raw["hidden_size"])
    out.add_block_count(raw["num_hidden_layers"])
    out.add_feed_forward_length(raw["intermediate_size"])
    out.add_head_count(raw["num_attention_heads"])
    out.add_head_count_kv(raw.get("num_key_value_heads") or raw["num_attention_heads"])
    out.add_layer_norm_rms_eps(raw["rms_norm_eps"])
    out.add_vocab_size(raw["vocab_size"])
    dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    for add in (out.add_key_length, out.add_value_length, out.add_rope_dimension_count):
        add(dim)
    rope = raw.get("rope_parameters") or {}
    out.add_rope_freq_base(float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))))
    return out


def add_weight(out: GGUFWriter, name: str, data: np.ndarray, kind: str, norms: str = "before") -> None:
    """name: Hugging Face's. data: fp32 (rounded to ``kind``), or uint8 rows that are in ``kind`` already. norms: as in
    ``Family``."""
    data = data if data.dtype == np.uint8 else rounded(data, kind)
    out.add_tensor(stored_name(name, norms), data, raw_dtype=_raw(kind))


def rounded(data: np.ndarray, kind: str) -> np.ndarray:
    """fp32 -> as ``kind`` is stored: numbers, or uint8 rows."""
    stored = data if kind == "F32" else quantize(data, GGMLQuantizationType[kind])
    return stored.view(np.float16) if kind == "F16" else stored


def _raw(kind: str) -> GGMLQuantizationType | None:
    return None if kind in ("F32", "F16") else GGMLQuantizationType[kind]


def permuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of q or k as llama.cpp rotates them: neighbours together, not halves."""
    halves = rows.view(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape).contiguous()


def add_weights(out: GGUFWriter, raw: Mapping[str, Any], tensors: Iterable[tuple[str, torch.Tensor]],
                kind: str) -> None:
    """Norms and biases stay fp32."""
    for name, tensor in tensors:
        tensor = in_their_order(raw, name, tensor)
        add_weight(out, name, tensor.float().numpy(), kind if tensor.dim() > 1 else "F32")


def in_their_order(raw: Mapping[str, Any], name: str, tensor: torch.Tensor) -> torch.Tensor:
    which = re.search(r"\.(q|k)_proj\.", name)
    if which is None or not FAMILIES[raw["architectures"][0]].paired:
        return tensor
    heads = raw["num_attention_heads"]
    return permuted(tensor, heads if which[1] == "q" else raw.get("num_key_value_heads") or heads)


def add_sentencepiece(out: GGUFWriter, model_file: Path, template: str | None, prompt: str | None) -> None:
    """The vocabulary, the chat template and our own prompt.json."""
    pieces = spm.SentencePieceProcessor(model_file=str(model_file))
    count = pieces.get_piece_size()
    user = set(_user_defined(model_file))
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list([pieces.id_to_piece(i) for i in range(count)])
    out.add_token_scores([pieces.get_score(i) for i in range(count)])
    out.add_token_types([_type(pieces, i, user) for i in range(count)])
    out.add_bos_token_id(pieces.bos_id())
    out.add_eos_token_id(pieces.eos_id())
    out.add_unk_token_id(pieces.unk_id())
    out.add_add_bos_token(False)
    out.add_add_space_prefix(pieces.id_to_piece(pieces.encode("a")[0]).startswith("▁"))
    out.add_remove_extra_whitespaces(pieces.encode("a  b") == pieces.encode("a b"))
    if template is not None:
        out.add_chat_template(template)
    if prompt is not None:
        out.add_string(PROMPT_KEY, prompt)


def _user_defined(model_file: Path) -> list[int]:
    from triforce_core.tokenizer.vocabulary import _user_defined as found

    return found(model_file.read_bytes())


def _type(pieces: spm.SentencePieceProcessor, number: int, user: set[int]) -> TokenType:
    if pieces.is_unknown(number):
        return TokenType.UNKNOWN
    if pieces.is_control(number):
        return TokenType.CONTROL
    if pieces.is_byte(number):
        return TokenType.BYTE
    if number in user:
        return TokenType.USER_DEFINED
    return TokenType.UNUSED if pieces.is_unused(number) else TokenType.NORMAL


def as_blocks(data: torch.Tensor, scale: torch.Tensor) -> np.ndarray:
    """int8 [out, in] and one scale for each row -> Q8_0: uint8 [out, in / 32 * 34]."""
    half = scale.to(torch.float16)
    rows, width = data.shape
    kind = BY_NUMBER[GGMLQuantizationType.Q8_0]
    blocks = np.empty((rows, width // kind.weights, kind.nbytes), np.uint8)
    blocks[:, :, :2] = half.numpy().view(np.uint8).reshape(rows, 1, 2)
    blocks[:, :, 2:] = data.numpy().view(np.uint8).reshape(rows, -1, kind.weights)
    return blocks.reshape(rows, -1)


def export(folder: Path, path: Path, kind: str) -> None:
    """One of the built-in models."""
    raw, stored = json.loads((folder / "config.json").read_text()), load_file(str(folder / "model.safetensors"))
    out = writer(path, raw)
    _add_builtin_words(out, f"TriForce built-in {folder.name}")
    for name, data in stored.items():
        scale = stored.get(f"{name}.scale")
        if name.endswith(".scale"):
            continue
        if scale is None:
            add_weights(out, raw, [(name, data)], kind)
        elif kind == "Q8_0":
            ordered = in_their_order(raw, name, data), in_their_order(raw, name, scale)
            add_weight(out, name, as_blocks(*ordered), kind)
        else:
            add_weights(out, raw, [(name, data.float() * scale[:, None])], kind)
    finish(out)


def _add_builtin_words(out: GGUFWriter, name: str) -> None:
    out.add_name(name)
    template, prompt = ((BUILTIN_FOLDER / name).read_text(encoding="utf-8")
                        for name in ("chat_template.jinja", "prompt.json"))
    add_sentencepiece(out, BUILTIN_FOLDER / "tokenizer.model", template, prompt)


def export_grown(folder: Path, shape: Shape, path: Path, kind: str) -> None:
    """A model in a larger shape, see ``model.grown``. It may fill the memory: one matrix at a time is made, rounded to
    bfloat16 as a grown model is, then to ``kind``, and written."""
    raw, small = json.loads((folder / "config.json").read_text()), read_config(folder)
    config = grown_config(small, shape)
    raw |= published_names(config)
    weights = GrownWeights(folder, small, config, torch.device("cpu"), torch.bfloat16, 0)

    tensors = [(name, size, kind if len(size) > 1 else "F32") for name, size in named_shapes(config)]
    out = writer(path, raw)
    _add_builtin_words(out, f"TriForce built-in, grown to {path.stem}")
    for name, size, own in tensors:
        row = rounded(np.zeros((1, size[-1]), np.float32), own)
        out.add_tensor_info(stored_name(name), (*size[:-1], row.shape[1]), row.dtype, row.nbytes * math.prod(size[:-1]),
                            _raw(own))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    for name, size, own in tensors:
        data = weights.matrix(name, (size[0], size[1])).data if len(size) > 1 else weights.tensor(name, size)
        out.write_tensor_data(rounded(in_their_order(raw, name, data).float().numpy(), own))
    out.close()


def named_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a Llama without biases whose head is its own: Hugging Face's names."""
    d, f, keys = config.hidden_size, config.intermediate_size, config.num_kv_heads * config.head_dim
    asked = config.num_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, d)
    for index in range(config.num_layers):
        at = f"model.layers.{index}"
        yield f"{at}.input_layernorm.weight", (d,)
        for name, outputs, inputs in (("q", asked, d), ("k", keys, d), ("v", keys, d), ("o", d, asked)):
            yield f"{at}.self_attn.{name}_proj.weight", (outputs, inputs)
        yield f"{at}.post_attention_layernorm.weight", (d,)
        for name, outputs, inputs in (("gate", f, d), ("up", f, d), ("down", d, f)):
            yield f"{at}.mlp.{name}_proj.weight", (outputs, inputs)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (config.vocab_size, d)


def finish(out: GGUFWriter) -> None:
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=KINDS, default=KINDS[0])
    parser.add_argument("--grow", choices=TARGETS, metavar="SHAPE",
                        help=f"the target alone, in the size of {', '.join(TARGETS)}")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for role in ("target",) if given.grow else ("target", "draft"):
        path = given.out / f"{given.grow or f'builtin-{role}'}-{given.type}.gguf"
        if given.grow:
            export_grown(BUILTIN_FOLDER / role, SHAPES[given.grow], path, given.type)
        else:
            export(BUILTIN_FOLDER / role, path, given.type)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
