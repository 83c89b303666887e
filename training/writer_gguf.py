"""A trained writer, or its draft, as GGUF: `python -m training.writer_gguf --help`.

Vocabulary and chat template are those of SmolLM2-135M-Instruct's file. The writer's matrices become Q4_0, which they
were rounded to in training, its embedding Q5_0, which it had from the beginning; a draft becomes Q8_0. A writer is
split in two files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import quantize

from training.writer_model import GGUF_NAMES, from_gguf, load

POSITIONS, FILE_BYTES = 262_144, 62_000_000
OWN = ("general.name", "general.type", "general.architecture", "general.finetune", "general.basename",
       "general.size_label", "general.file_type", "general.quantization_version")


def copy_fields(base: gguf.GGUFReader, out: gguf.GGUFWriter) -> None:
    """What the base says of its vocabulary, its template and its licence."""
    for name, field in base.fields.items():
        if name.startswith(("tokenizer.", "general.")) and name not in OWN:
            kind = field.types[0]
            within = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            out.add_key_value(name, field.contents(), kind, sub_type=within)


def write(source: Path, base: Path, path: Path, name: str) -> None:
    """One model."""
    shape, weights = load(source, from_gguf(base)[1]["embedding"])
    reader, draft = gguf.GGUFReader(base), shape.hidden != 576
    kind = gguf.GGMLQuantizationType.Q8_0 if draft else gguf.GGMLQuantizationType.Q4_0
    out = gguf.GGUFWriter(path, "llama", split_max_size=0 if draft else FILE_BYTES)
    copy_fields(reader, out)
    out.add_name(name)
    out.add_quantization_version(2)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if draft else gguf.LlamaFileType.MOSTLY_Q4_0)
    out.add_context_length(POSITIONS)
    out.add_embedding_length(shape.hidden)
    out.add_block_count(shape.layers)
    out.add_feed_forward_length(shape.intermediate)
    out.add_head_count(shape.heads)
    out.add_head_count_kv(shape.kv_heads)
    out.add_layer_norm_rms_eps(shape.epsilon)
    out.add_vocab_size(shape.vocabulary)
    for add in (out.add_key_length, out.add_value_length, out.add_rope_dimension_count):
        add(shape.head)
    out.add_rope_freq_base(shape.theta)
    for number in range(shape.layers):
        for own, there in GGUF_NAMES.items():
            values = weights[f"{number}.{own}"].numpy().astype(np.float32)
            if own in ("q", "k"):  # llama.cpp turns neighbours together, not halves
                values = values.reshape(-1, 2, shape.head // 2, shape.hidden).swapaxes(1, 2).reshape(values.shape)
            add_tensor(out, f"blk.{number}.{there}.weight", values, kind)
    add_tensor(out, "output_norm.weight", weights["norm"].numpy().astype(np.float32), kind)
    add_tensor(out, "token_embd.weight", weights["embedding"].float().numpy(),
               kind if draft else gguf.GGMLQuantizationType.Q5_0)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def add_tensor(out: gguf.GGUFWriter, name: str, values: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    """Norms stay fp32."""
    if values.ndim == 1:
        out.add_tensor(name, values)
    else:
        out.add_tensor(name, quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--from", dest="source", type=Path, required=True, help="what training.writer wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    write(options.source, options.base, options.out, options.name)


if __name__ == "__main__":
    main()
