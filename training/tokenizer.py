"""Trains the sentencepiece tokenizer: `python -m training.tokenizer --corpus DIR [DIR ...] --out FILE`."""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import sentencepiece as spm

from training.text import USER_PIECES, normalise, read_records

VOCABULARY = 24_576


def sample_lines(folders: Sequence[Path], share: float, seed: int = 0) -> Iterator[str]:
    """A share of the paragraphs of the training files, each after one space, as documents are encoded."""
    chance = random.Random(seed)
    for path in sorted(path for folder in folders for path in folder.glob("*-train.jsonl.zst")):
        for record in read_records(path):
            text = record.get("text") or record["context"] + "\n" + record["question"]
            for line in text.split("\n"):
                if len(line) > 20 and chance.random() < share:
                    yield " " + normalise(line).strip()[:2000]


def train_tokenizer(folders: Sequence[Path], out: Path, vocabulary: int, share: float) -> None:
    """Byte-pair pieces with byte fallback; digits stand alone and no piece crosses a space."""
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=sample_lines(folders, share),
        model_writer=written,
        model_type="bpe",
        vocab_size=vocabulary,
        byte_fallback=True,
        character_coverage=0.9999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        split_by_whitespace=True,
        split_digits=True,
        user_defined_symbols=list(USER_PIECES),
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        max_sentence_length=4096,
        num_threads=2,
        minloglevel=2,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(written.getvalue())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="folders with *-train.jsonl.zst")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="pieces")
    parser.add_argument("--share", type=float, default=0.06, help="share of the paragraphs to learn pieces from")
    options = parser.parse_args()
    train_tokenizer(options.corpus, options.out, options.vocabulary, options.share)
    print(f"{options.out}: {spm.SentencePieceProcessor(model_file=str(options.out)).get_piece_size()} pieces")


if __name__ == "__main__":
    main()
