"""The built-in pair as plain Hugging Face folders: `python -m training.export OUT` makes OUT/target and OUT/draft.

Weights are fp32 (int8 * scale). The tokenizer becomes a `tokenizer.json` that gives the ids of `tokenizer.model`, with
one exception: the literal texts `<s>`, `</s>` and `<unk>` are control tokens for Hugging Face and plain text for
sentencepiece.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import sentencepiece as spm
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from training.quantise import load_folder
from training.text import DOC, END_DOC, PAGE, USER, USER_PIECES
from triforce_core.assets import BUILTIN_FOLDER

SPACE = "▁"


def merges_of(pieces: spm.SentencePieceProcessor) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, the piece learnt first first."""
    ids = {
        pieces.id_to_piece(i): i
        for i in range(pieces.get_piece_size())
        if not (pieces.is_control(i) or pieces.is_unknown(i) or pieces.is_byte(i))
        and pieces.id_to_piece(i) not in USER_PIECES
    }
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece, number in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                found.append((-pieces.get_score(number), ids[left], ids[right], (left, right)))
    return [pair for *_, pair in sorted(found)]


def build_tokenizer(model_file: Path) -> Tokenizer:
    """The sentencepiece model as a `tokenizers` one."""
    pieces = spm.SentencePieceProcessor(model_file=str(model_file))
    vocabulary = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    tokenizer = Tokenizer(BPE(vocabulary, merges_of(pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SPACE), "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    marks = [piece for piece in USER_PIECES if piece.startswith("<")]
    tokenizer.add_special_tokens(
        [AddedToken(p, normalized=False, special=True) for p in ("<unk>", "<s>", "</s>", *marks)]
    )
    tokenizer.add_tokens([AddedToken(p, normalized=False) for p in USER_PIECES if p not in marks])
    return tokenizer


def write_tokenizer(builtin: Path, folder: Path, longest: int) -> None:
    """`tokenizer.json`, its settings, the chat template, and our `prompt.json` (transformers does not look at it)."""
    build_tokenizer(builtin / "tokenizer.model").save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "additional_special_tokens": [DOC, END_DOC, PAGE, USER, "<assistant>"],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    for name in ("chat_template.jinja", "generation_config.json", "prompt.json"):
        shutil.copy(builtin / name, folder / name)


def export(builtin: Path, out: Path, names: tuple[str, ...] = ("target", "draft")) -> None:
    """One folder for each model."""
    for name in names:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        shape, state = load_folder(builtin / name)
        save_file(state, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(shape.to_config(), indent=2) + "\n")
        write_tokenizer(builtin, folder, shape.max_positions)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--builtin", type=Path, default=BUILTIN_FOLDER)
    options = parser.parse_args()
    export(options.builtin, options.out)
    print(f"{options.out}/target and {options.out}/draft")


if __name__ == "__main__":
    main()
