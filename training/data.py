"""Tokenises the corpus once: `python -m training.data --corpus DIR --tokenizer FILE --out DIR`.

Writes text.npy and sentences.npy (books and prose, with the token span of every sentence) and questions.pkl (paragraphs
with their questions). Each paragraph is also kept in a few variants in which names and numbers are exchanged, in the
paragraph and its questions alike, so that answers must be looked up and cannot be remembered.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import pickle
import re
from pathlib import Path
from random import Random

import numpy as np

from training.paragraphs import Asked, Paragraph, Variant
from training.questions import FUNCTION_WORDS
from training.text import Encoded, Encoder, gold_sentences, normalise, read_records

LONGEST_CONTEXT = 3000
LONGEST_ANSWER = 120
_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b")
_NUMBER = re.compile(r"\b\d{2,}\b")
_encoder: Encoder


def start_worker(tokenizer: str) -> None:
    """One encoder a process."""
    global _encoder
    _encoder = Encoder(tokenizer)


def encode_text(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and sentences of a piece of a book."""
    encoded = _encoder.lines(text)
    return encoded.ids, encoded.sentences


def cut_text(text: str, size: int = 200_000) -> list[str]:
    """Pieces of about `size` characters, cut at line ends."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = len(text) if start + size >= len(text) else text.rfind("\n", start, start + size) + 1
        end = end if end > start else min(len(text), start + size)
        parts.append(text[start:end].rstrip("\n") + "\n")
        start = end
    return parts


def find_asked(encoded: Encoded, context: str, record: dict) -> Asked | None:
    """Where the answer of a record stands in its encoded context."""
    start = record["answer_start"]
    if context[start : start + len(record["answer"])] != record["answer"]:
        return None
    span = gold_sentences(encoded, start, len(record["answer"]))
    if span is None:
        return None
    answer = record["answer"].strip()
    short = len(answer) < LONGEST_ANSWER and len(answer) < 0.8 * 4 * (span[1] - span[0])
    return Asked(record["question"].strip(), *span, answer if short else None)


def exchange(text: str, mapping: dict[str, str]) -> str:
    """The text with names and numbers exchanged."""
    return re.sub(r"\b\w+\b", lambda found: mapping.get(found.group(), found.group()), text)


def variant_records(context: str, records: list[dict], names: list[str], chance: Random) -> tuple[str, list[dict]]:
    """A copy of a paragraph and its questions with other names and numbers."""
    mapping: dict[str, str] = {}
    for word in dict.fromkeys(_NAME.findall(context)):
        if word.lower() not in FUNCTION_WORDS and chance.random() < 0.6:
            mapping[word] = chance.choice(names)
    for word in dict.fromkeys(_NUMBER.findall(context)):
        if chance.random() < 0.6:
            tail = "".join(chance.choice("0123456789") for _ in range(max(1, len(word) - 2)))
            head = chance.choice("123456789") if len(word) == 2 else word[:2]
            mapping[word] = head + tail
    changed: list[dict] = []
    for record in records:
        start, length = record["answer_start"], len(record["answer"])
        before, answer = context[:start], context[start : start + length]
        changed.append(
            {
                "question": exchange(record["question"], mapping),
                "answer": exchange(answer, mapping),
                "answer_start": len(exchange(before, mapping)),
            }
        )
    return exchange(context, mapping), changed


def encode_paragraph(task: tuple[str, list[dict], list[str], int, int]) -> Paragraph:
    """All variants of one paragraph."""
    context, records, names, count, seed = task
    chance = Random(seed)
    article = records[0].get("title") or records[0]["doc_id"].rsplit(":", 1)[0]
    variants: list[Variant] = []
    for number in range(count):
        text, asked = (context, records) if number == 0 else variant_records(context, records, names, chance)
        encoded = _encoder.lines(text)
        found = (find_asked(encoded, text, record) for record in asked)
        variants.append(Variant(encoded.ids, encoded.sentences, tuple(one for one in found if one)))
    return Paragraph(article, tuple(variants))


def usable(record: dict) -> bool:
    """Extractive questions on contexts of moderate length."""
    return record["type"] == "extractive" and len(record["context"]) < LONGEST_CONTEXT


def question_tasks(records: list[dict], variants: int, seed: int) -> list[tuple[str, list[dict], list[str], int, int]]:
    """Records by paragraph, ready for `encode_paragraph`."""
    by_context: dict[str, list[dict]] = {}
    for record in records:
        if usable(record):
            by_context.setdefault(record["context"], []).append(record)
    pool = [word for context in by_context for word in _NAME.findall(context) if word.lower() not in FUNCTION_WORDS]
    names = Random(0).sample(pool, min(20_000, len(pool)))
    return [(context, asked, names, variants, seed + i) for i, (context, asked) in enumerate(by_context.items())]


def prepare(corpus: Path, tokenizer: Path, out: Path, variants: int, limit: int | None, seed: int = 0) -> None:
    """Tokenises everything; `limit` keeps it small for a trial."""
    out.mkdir(parents=True, exist_ok=True)
    chunk = 4000 if limit is None else 8
    with mp.Pool(os.cpu_count(), start_worker, (str(tokenizer),)) as pool:
        texts: list[str] = []
        for name in ("books", "prose"):
            for record in read_records(corpus / f"{name}-train.jsonl.zst")[:limit]:
                text = normalise(f"{record.get('title') or ''}\n\n{record['text']}\n\n")
                texts += cut_text(text if limit is None else text[:60_000])
        ids: list[np.ndarray] = []
        sentences: list[np.ndarray] = []
        total = 0
        for part, spans in pool.imap(encode_text, texts, chunksize=4):
            ids.append(part)
            sentences.append(spans + total)
            total += len(part)
        np.save(out / "text.npy", np.concatenate(ids))
        np.save(out / "sentences.npy", np.concatenate(sentences))
        for name in ("qa-train", "qa-dev"):
            records = read_records(corpus / f"{name}.jsonl.zst")
            records = records if limit is None or name == "qa-dev" else records[:: max(1, len(records) // (limit * 40))]
            tasks = question_tasks(records, variants if name == "qa-train" else 1, seed)
            paragraphs = pool.map(encode_paragraph, tasks, chunksize=min(32, chunk))
            with (out / f"{name}.pkl").open("wb") as file:
                pickle.dump(paragraphs, file)
            questions = sum(len(paragraph.variants[0].asked) for paragraph in paragraphs)
            print(f"{name}: {len(paragraphs)} paragraphs, {questions} questions", flush=True)
    print(f"text: {total / 1e6:.1f} M tokens, {sum(map(len, sentences))} sentences", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path("assets/builtin/tokenizer.model"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="another one makes other variants")
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    options = parser.parse_args()
    prepare(options.corpus, options.tokenizer, options.out, options.variants, options.limit, options.seed)


if __name__ == "__main__":
    main()
