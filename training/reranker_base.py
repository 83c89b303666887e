"""The encoder that the reranker begins as: all-MiniLM-L6-v2 with the word pieces that English text needs most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertModel

from training.text import each_record

PIECES, POSITIONS = 8192, 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
EVERY = {"prose-train": 5, "books-train": 8, "qa-train": 2}  # record of these files is counted
LONGEST_TEXT, AT_ONCE = 60_000, 64  # characters; texts
LATIN, FREQUENT = 0x250, 20  # the end of the Latin letters; times that another letter must occur


def texts(corpus: Path, limit: int | None) -> Iterator[str]:
    """What pieces are counted in."""
    for name, every in EVERY.items():
        for record in islice(each_record(corpus / f"{name}.jsonl.zst"), 0, limit and limit * every, every):
            yield record["text"][:LONGEST_TEXT] if "text" in record else f"{record['question']} {record['context']}"


def frequent_pieces(folder: Path, corpus: Path, limit: int | None) -> list[str]:
    """PIECES of the vocabulary in FOLDER/tokenizer.json: letters, so that every word can be spelt, then the most
    frequent. Prints how much of the text they are."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    counts: Counter[str] = Counter()
    counted = texts(corpus, limit)
    while some := list(islice(counted, AT_ONCE)):
        for text in tokenizer.encode_batch(some, add_special_tokens=False):
            counts.update(text.tokens)
    numbers = tokenizer.get_vocab()
    letters = [piece for piece in sorted(numbers, key=numbers.__getitem__)
               if len(piece.removeprefix("##")) == 1 and (ord(piece[-1]) < LATIN or counts[piece] > FREQUENT)]
    words = [piece for piece, _ in counts.most_common() if not piece.startswith("[")]
    kept = list(dict.fromkeys([*SPECIAL, *letters, *words]))[:PIECES]
    share = sum(counts[piece] for piece in kept) / counts.total()
    print(f"{len(kept)} pieces of {len(numbers)}, {100 * share:.1f} % of the text", flush=True)
    return kept


def base_encoder(folder: Path, pieces: list[str]) -> BertModel:
    """The model of a Hugging Face folder, fp32, that knows these of its pieces, and as many positions as are read."""
    net = BertModel.from_pretrained(folder, add_pooling_layer=False, attention_probs_dropout_prob=0.0,
                                    dtype=torch.float32)
    numbers = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    rows = torch.tensor([numbers[piece] for piece in pieces])
    embeddings = net.embeddings
    embeddings.word_embeddings = _embedding(embeddings.word_embeddings.weight[rows], padding=0)
    embeddings.position_embeddings = _embedding(embeddings.position_embeddings.weight[:POSITIONS])
    return net


def _embedding(weights: Tensor, padding: int | None = None) -> nn.Embedding:
    return nn.Embedding.from_pretrained(weights.detach().clone(), freeze=False, padding_idx=padding)
