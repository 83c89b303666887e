"""A trained writer, or its draft, as GGUF: `python -m training.writer_gguf --help`.

Vocabulary and chat template are those of SmolLM2-135M-Instruct's file. The writer's matrices become Q4_0, which they
were rounded to in training, its embedding Q5_0, which it had from the beginning; a draft becomes Q8_0. A writer is
split in two files.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import gguf
import torch

from training.gguf_export import add_weights, finish, writer
from training.writer_model import Shape, config_of, from_gguf, load, published

FILE_BYTES = 62_000_000
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
    draft, raw = shape != replace(Shape(), theta=shape.theta), config_of(shape)
    out = writer(path, raw, split_max_size=0 if draft else FILE_BYTES)
    copy_fields(gguf.GGUFReader(base), out)
    out.add_name(name)
    out.add_quantization_version(2)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if draft else gguf.LlamaFileType.MOSTLY_Q4_0)
    embedding = "model.embed_tokens.weight"
    state = published(shape, weights)
    add_weights(out, raw, [one for one in state.items() if one[0] != embedding], "Q8_0" if draft else "Q4_0")
    add_weights(out, raw, [(embedding, state[embedding])], "Q8_0" if draft else "Q5_0")
    finish(out)


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
