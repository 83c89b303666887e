"""Tokenises the data once: `python -m training.data --corpus DIR --corpus2 DIR --questions DIR --out DIR`.

Writes text.npy, sentences.npy and sources.json (books, prose, reports and reference works, with the token span of every
sentence and of every source), qa-train.pkl and qa-dev.pkl (paragraphs with their questions) and natural.pkl (documents
with the questions that people asked while reading them). Each of these is also kept in a few variants in which names
and numbers are exchanged, in text and questions alike, so that answers must be looked up and cannot be remembered.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import pickle
import re
from pathlib import Path
from random import Random

import numpy as np

from training.paragraphs import Asked, AskedText, Paragraph, Variant
from training.questions import FUNCTION_WORDS
from training.text import Encoded, Encoder, gold_sentences, normalise, read_records

LONGEST_CONTEXT = 3000
LONGEST_ANSWER = 120
_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b")
_NUMBER = re.compile(r"\b\d{2,}\b")
_COMMON = re.compile(r"\b[a-z]{3,}\b")
_encoder: Encoder


def start_worker(tokenizer: str) -> None:
    """One encoder a process."""
    global _encoder
    _encoder = Encoder(tokenizer)


def encode_text(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and sentences of a piece of a document."""
    encoded = _encoder.lines(normalise(text))
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


def other_names(text: str, names: list[str], chance: Random) -> dict[str, str]:
    """Which names and numbers of a text stand for which others; a word that is also written small is no name."""
    mapping: dict[str, str] = {}
    common = FUNCTION_WORDS | set(_COMMON.findall(text))
    for word in dict.fromkeys(_NAME.findall(text)):
        if word.lower() not in common and chance.random() < 0.6:
            mapping[word] = chance.choice(names)
    for word in dict.fromkeys(_NUMBER.findall(text)):
        if chance.random() < 0.6:
            tail = "".join(chance.choice("0123456789") for _ in range(max(1, len(word) - 2)))
            head = chance.choice("123456789") if len(word) == 2 else word[:2]
            mapping[word] = head + tail
    return mapping


def variant_records(context: str, records: list[dict], names: list[str], chance: Random) -> tuple[str, list[dict]]:
    """A copy of a paragraph and its questions with other names and numbers."""
    mapping = other_names(context, names, chance)
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


def encode_asked_text(task: tuple[str, list[dict], list[str], int, int]) -> list[AskedText]:
    """All variants of one document with the questions that people asked about it."""
    text, records, names, count, seed = task
    chance = Random(seed)
    by_paragraph: dict[int, list[dict]] = {}
    for record in records:
        by_paragraph.setdefault(record["paragraph"], []).append(record)
    found: list[AskedText] = []
    for number in range(count):
        mapping = other_names(text, names, chance) if number else {}
        ids: list[np.ndarray] = []
        sentences: list[np.ndarray] = []
        asked: list[Asked] = []
        size = 0
        for index, original in enumerate(text.split("\n\n")):
            paragraph = normalise(exchange(original, mapping))
            encoded = _encoder.lines(paragraph + "\n")
            for record in by_paragraph.get(index, ()):
                gold = normalise(exchange(record["gold"], mapping))
                at = paragraph.find(gold)
                span = gold_sentences(encoded, at, len(gold)) if at >= 0 else None
                if span:
                    question = normalise(exchange(record["question"], mapping)).strip()
                    asked.append(Asked(question, span[0] + size, span[1] + size, None))
            ids.append(encoded.ids)
            sentences.append(encoded.sentences + size)
            size += len(encoded.ids)
        found.append(AskedText(np.concatenate(ids), np.concatenate(sentences), tuple(asked)))
    return found


def asked_tasks(
    questions: Path, texts: dict[str, str], names: list[str], variants: int, seed: int
) -> list[tuple[str, list[dict], list[str], int, int]]:
    """Documents with the answerable questions that stand alone, ready for `encode_asked_text`."""
    by_document: dict[str, list[dict]] = {}
    for line in (questions / "questions-train.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["gold"] and not record.get("history") and record["doc_id"] in texts:
            by_document.setdefault(record["doc_id"], []).append(record)
    return [
        (texts[name], records, names, variants, seed + i)
        for i, (name, records) in enumerate(sorted(by_document.items()))
    ]


def read_texts(options: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Texts by source, and those of the first corpus by id; what a test set holds too is left out."""
    left_out: set[str] = set()
    if options.left_out:
        for document in json.loads(options.left_out.read_text()):
            left_out.update(document["in_training_text"])
    sources: dict[str, list[str]] = {}
    by_id: dict[str, str] = {}
    folders = ((options.corpus, ("books", "prose")), (options.corpus2, ("reports", "reference")))
    for folder, names in folders:
        for name in names if folder else ():
            for record in read_records(folder / f"{name}-train.jsonl.zst")[: options.limit]:
                if record["id"] in left_out:
                    continue
                text = record["text"] if options.limit is None else record["text"][:60_000]
                sources.setdefault(name, []).append(f"{record.get('title') or ''}\n\n{text}\n\n")
                if folder is options.corpus:
                    by_id[record["id"]] = text
    return sources, by_id


def prepare(options: argparse.Namespace) -> None:
    """Tokenises everything; `limit` keeps it small for a trial."""
    out, limit = options.out, options.limit
    out.mkdir(parents=True, exist_ok=True)
    sources, by_id = read_texts(options)
    with mp.Pool(os.cpu_count(), start_worker, (str(options.tokenizer),)) as pool:
        ids: list[np.ndarray] = []
        sentences: list[np.ndarray] = []
        places: dict[str, tuple[int, int]] = {}
        total = 0
        for name, texts in sources.items():
            first = total
            pieces = [piece for text in texts for piece in cut_text(text)]
            for part, spans in pool.imap(encode_text, pieces, chunksize=4):
                ids.append(part)
                sentences.append(spans + total)
                total += len(part)
            places[name] = (first, total)
            print(f"{name}: {(total - first) / 1e6:.1f} M tokens", flush=True)
        np.save(out / "text.npy", np.concatenate(ids))
        np.save(out / "sentences.npy", np.concatenate(sentences))
        (out / "sources.json").write_text(json.dumps(places))
        names: list[str] = []
        for name in ("qa-train", "qa-dev"):
            records = read_records(options.corpus / f"{name}.jsonl.zst")
            records = records if limit is None or name == "qa-dev" else records[:: max(1, len(records) // (limit * 40))]
            tasks = question_tasks(records, options.variants if name == "qa-train" else 1, options.seed)
            names = names or tasks[0][2]
            paragraphs = pool.map(encode_paragraph, tasks, chunksize=8)
            with (out / f"{name}.pkl").open("wb") as file:
                pickle.dump(paragraphs, file)
            questions = sum(len(paragraph.variants[0].asked) for paragraph in paragraphs)
            print(f"{name}: {len(paragraphs)} paragraphs, {questions} questions", flush=True)
        asked: list[AskedText] = []
        if options.questions:
            tasks = asked_tasks(options.questions, by_id, names, max(1, options.variants // 2), options.seed)
            asked = [text for found in pool.map(encode_asked_text, tasks, chunksize=1) for text in found if text.asked]
        with (out / "natural.pkl").open("wb") as file:
            pickle.dump(asked, file)
        print(f"natural: {len(asked)} documents, {sum(len(text.asked) for text in asked)} questions", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--corpus2", type=Path, help="folder with reports-train and reference-train")
    parser.add_argument("--questions", type=Path, help="folder with questions-train.jsonl, about documents of CORPUS")
    parser.add_argument("--left-out", type=Path, help="docs.json of a test set: documents that it holds too")
    parser.add_argument("--tokenizer", type=Path, default=Path("triforce_core/assets/builtin/tokenizer.model"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="another one makes other variants")
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    prepare(parser.parse_args())


if __name__ == "__main__":
    main()
