"""Measures a target: right sentences on unseen questions at several lengths, and loss on unseen books.

`python -m training.evaluate --corpus DIR` prints a table and one line of JSON. Questions are the extractive ones of
qa-dev with answers under 120 characters and contexts under 3,000; a document is shuffled up to a length in tokens,
cut into pages between paragraphs; all questions about its paragraphs are asked, each alone. The sentence counts as
right when its first 40 characters stand in the answer. Decoding is greedy: free; held to verbatim quotations; and so
held with a prior over sentences, their BM25. "words" is the sentence that BM25 alone would pick, for comparison.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F

from training.decode import Verbatim, answer, prefill
from training.model import Llama
from training.quantise import load_model
from training.text import Encoder, gold_sentences, normalise, read_records
from triforce_core.assets import BUILTIN_FOLDER


@dataclass(frozen=True)
class Question:
    """A question with the sentences that answer it."""

    text: str
    gold: str
    answer: str
    source: str


@dataclass(frozen=True)
class Unit:
    """An encoded paragraph with its questions."""

    ids: list[int]
    sentences: np.ndarray
    questions: list[Question]


def load_units(path: Path, encoder: Encoder) -> list[Unit]:
    """All paragraphs that are asked about."""
    by_context: dict[str, list[dict]] = {}
    for record in read_records(path):
        if record["type"] == "extractive" and len(record["answer"]) < 120 and len(record["context"]) < 3000:
            by_context.setdefault(record["context"], []).append(record)
    units = []
    for context, records in by_context.items():
        encoded = encoder.lines(context)
        questions = []
        for record in records:
            span = gold_sentences(encoded, record["answer_start"], len(record["answer"]))
            if span:
                gold = encoder.decode(encoded.ids[slice(*span)].tolist())
                questions.append(Question(record["question"].strip(), gold, record["answer"], record["source"]))
        if questions:
            units.append(Unit(encoded.ids.tolist(), encoded.sentences, questions))
    return units


def build_document(
    units: list[Unit], length: int, encoder: Encoder, page: int
) -> tuple[list[int], np.ndarray, list[Unit]]:
    """Paragraphs taken from the end of the list until the document is full; pages of about `page` tokens."""
    ids, spans, used, number, since = [encoder.doc], [], [], 0, page
    while units:
        unit = units[-1]
        if len(ids) + len(unit.ids) > length - 8:
            break
        if page and since >= page:
            number, since = number + 1, 0
            ids += encoder.page_mark(str(number))
        spans.append(unit.sentences + len(ids))
        ids += unit.ids
        since += len(unit.ids)
        used.append(units.pop())
    return [*ids, encoder.end_doc], np.concatenate(spans) if spans else np.empty((0, 2), np.int64), used


# large: one evaluation, in order
def ask_all(
    model: Llama, units: list[Unit], encoder: Encoder, length: int, wanted: int, page: int, group: int, examples: int,
    prior: float,
) -> dict:  # fmt: skip
    """Counts for one length: free, verbatim, and verbatim with the prior."""
    left = list(units)
    Random(length).shuffle(left)
    device = model.model.norm.weight.device
    stops = (encoder.newline, encoder.user, encoder.end)
    counts: Counter = Counter()
    started = time.time()
    while left and counts["n"] < wanted:
        ids, spans, used = build_document(left, length, encoder, page)
        if not used:
            left.pop()
            continue
        cache, _ = prefill(model, torch.tensor(ids, device=device))
        questions = [question for unit in used for question in unit.questions]
        Random(2).shuffle(questions)
        questions = questions[: max(1, wanted - counts["n"])]
        verbatim = Verbatim(ids, spans, encoder)
        leaning = verbatim.with_prior(prior)
        for start in range(0, len(questions), group):
            part = questions[start : start + group]
            words = [normalise(question.text) for question in part]
            prompts = [encoder.question(text) for text in words]
            opened = [[*prompt, encoder.open_quote] for prompt in prompts]
            free = answer(model, cache, prompts, stops)
            held = answer(model, cache, opened, stops, verbatim, words)
            leant = answer(model, cache, opened, stops, leaning, words)
            best = [verbatim.scores(text).argmax() for text in words]
            picked = [encoder.decode(ids[slice(*spans[place])]) for place in best]
            for question, first, second, third, by_words in zip(part, free, held, leant, picked, strict=True):
                counts["n"] += 1
                counts[f"n {question.source}"] += 1
                counts["words"] += question.gold[:40].lower() in by_words.lower()
                for name, out in (("free", first), ("verbatim", second), ("prior", third)):
                    text = encoder.decode(out).lower()
                    right = question.gold[:40].lower() in text
                    counts[name] += right
                    counts[f"{name} answer"] += question.answer.lower() in text
                    counts[f"{name} short"] += question.answer.lower() in text.rpartition("”")[2]
                    if name == "prior":
                        counts[f"v {question.source}"] += right
                if counts["shown"] < examples:
                    counts["shown"] += 1
                    print(
                        f"    Q {question.text}\n      gold {question.gold[:90]} [{question.answer}]"
                        f"\n      free {encoder.decode(first)[:160]}\n      held {encoder.decode(second)[:160]}"
                        f"\n      with the prior {encoder.decode(third)[:160]}"
                    )
    total = max(1, counts["n"])
    shares = ("free", "verbatim", "prior", "words", "free answer", "verbatim answer", "prior answer", "prior short")
    result = {name: round(counts[name] / total, 3) for name in shares}
    sources = {key[2:]: f"{counts['v ' + key[2:]]}/{counts[key]}" for key in counts if key.startswith("n ")}
    return {
        "length": length,
        "n": counts["n"],
        **result,
        "by source": sources,
        "seconds": round(time.time() - started, 1),
    }


@torch.no_grad()
def book_loss(model: Llama, corpus: Path, encoder: Encoder, length: int, books: int) -> dict:
    """Nats a token and a byte in the middle of unseen books."""
    device = model.model.norm.weight.device
    nats = tokens = octets = 0.0
    for record in read_records(corpus / "books-dev.jsonl.zst")[:books]:
        text = normalise(record["text"])
        middle = text.find("\n", len(text) // 2) + 1
        ids = [encoder.doc, *encoder.lines(text[middle : middle + 8 * length]).ids.tolist()][:length]
        inputs = torch.tensor(ids, device=device)
        _, x = prefill(model, inputs)
        for start in range(0, length - 1, 4096):
            end = min(start + 4096, length - 1)
            scores = model.logits(x[start:end]).float()
            nats += float(F.cross_entropy(scores, inputs[start + 1 : end + 1], reduction="sum"))
        tokens += length - 1
        octets += len(encoder.pieces.decode(ids[1:]).encode())
    return {"length": length, "per token": round(nats / tokens, 3), "per byte": round(nats / octets, 3)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=BUILTIN_FOLDER / "target", help="int8 folder or checkpoint")
    parser.add_argument("--tokenizer", type=Path, default=BUILTIN_FOLDER / "tokenizer.model")
    parser.add_argument("--split", default="qa-dev", help="qa-train shows what was learnt by heart")
    parser.add_argument("--lengths", type=int, nargs="*", default=[2048, 8192, 30000])
    parser.add_argument("--questions", type=int, default=240, help="at each length")
    parser.add_argument("--page", type=int, default=400, help="tokens to a page; 0 for no pages")
    parser.add_argument("--books", type=int, default=8)
    parser.add_argument("--book-lengths", type=int, nargs="*", default=[2048, 16384])
    parser.add_argument("--group", type=int, default=32, help="questions answered side by side")
    parser.add_argument("--examples", type=int, default=0)
    stated = json.loads((BUILTIN_FOLDER / "prompt.json").read_text())
    parser.add_argument("--prior", type=float, default=stated["quote_prior"], help="nats for a point of BM25")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, encoder = load_model(options.model).to(device), Encoder(options.tokenizer)
    units = load_units(options.corpus / f"{options.split}.jsonl.zst", encoder)
    asked = []
    print("tokens  questions  free   verbatim  with prior  words alone  answer in it (with prior)")
    for length in options.lengths:
        row = ask_all(
            model, units, encoder, length, options.questions, options.page, options.group, options.examples,
            options.prior,
        )  # fmt: skip
        asked.append(row)
        print(
            f"{length:6d}  {row['n']:9d}  {row['free']:.3f}  {row['verbatim']:.3f}     {row['prior']:.3f}"
            f"       {row['words']:.3f}        {row['prior answer']:.3f}",
            flush=True,
        )
    books = [book_loss(model, options.corpus, encoder, n, options.books) for n in options.book_lengths if options.books]
    for row in books:
        print(f"books at {row['length']} tokens: {row['per token']} nats a token, {row['per byte']} a byte", flush=True)
    print(
        json.dumps(
            {
                "model": str(options.model),
                "device": device.type,
                "page": options.page,
                "prior": options.prior,
                "questions": asked,
                "books": books,
            }
        )
    )


if __name__ == "__main__":
    main()
