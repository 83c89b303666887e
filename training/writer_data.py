"""What the writer learns from, in one folder: `python -m training.writer_data --help`.

Documents that people asked about, cut into passages as the application cuts them, with their questions, the sentences
that answer and the answer in other words; articles of `qa-train` with theirs; requests for summaries with the stretch
they are about; and the tokens of all text. Every tenth document is held out.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import pickle
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from training.asked import Asked, Question
from training.encoder_data import FILES, Source, articles, sources, texts_of, word_pieces
from training.mpnet import load
from training.passages import BM25, Words, text_of
from training.question_sets import article_of, held_out, left_out, long_lines, read_lines
from training.text import each_record
from triforce_core.evidence.passages import path_text, units_of
from triforce_core.prompt.builder import ascii_typography

BY_WORDS, LONGEST = 100, 110  # passages in the order by words; pieces of a text that the encoder reads
SHORT, PARAGRAPH = {"squad-v1.1", "squadshifts-new-wiki", "qed-natural-questions", "fairytaleqa", "onestopqa"}, 1200
UNREAD = 16_384  # tokens of each book that nothing is trained on


_pieces: Tokenizer


def start(pieces: Sequence[str]) -> None:
    """One tokenizer a process."""
    global _pieces
    _pieces = word_pieces(pieces)


def read(text: str) -> np.ndarray:
    """A text in the encoder's pieces."""
    return np.array(_pieces.encode(text, add_special_tokens=False).ids[:LONGEST], np.uint16)


def document(source: Source, held: bool, most: int) -> Asked:
    """Cut a document and place its questions."""
    cut = units_of(source.title, source.sentences, source.lines, most)
    words = BM25([text_of(one, source.sentences) for one in cut], Words())
    where = {sentence: at for at, one in enumerate(cut) for sentence in one.sentences}
    found = Asked(source.name, source.title, held, source.sentences, source.lines,
                  [(one.path, one.sentences) for one in cut], [], [])
    spelt = {sentence: read(source.sentences[sentence]) for one in cut for sentence in one.sentences}
    found.pieces = [[read(path_text(one.path)), *(spelt[at] for at in one.sentences)] for one in cut]
    for one in source.asked:
        right = tuple(dict.fromkeys(where[gold] for gold in one.golds if gold in where))
        if one.golds and not right:
            continue
        scores = words.scores(f"{one.before} {one.text}")
        order = np.argsort(-scores, kind="stable")[:BY_WORDS]
        found.questions.append(Question(one.text, one.before, one.kind, one.source, ascii_typography(one.answer),
                                        one.golds, right, (order.astype(np.int32), scores[order])))
        found.asked.append((read(one.before), read(one.text)))
    return found


def summaries(shared: Path, unseen: Iterable[str]) -> list[dict]:
    """Requests for summaries with the paragraphs that they are about."""
    records = read_lines(shared / "qa-answers/summaries.jsonl")
    for record in records:
        record["name"], _, stretch = record["id"].rpartition("#")
        record["span"] = tuple(int(one) for one in stretch.split("-"))
    texts, unseen = texts_of(shared, {record["name"] for record in records}), set(unseen)
    found = []
    for record in records:
        if record["name"] in texts:
            title, text = texts[record["name"]]
            first, last = record["span"]
            found.append({"title": title, "held": record["name"] in unseen, "kind": record["type"],
                          "paragraphs": [one.strip() for one in text.split("\n\n")[first:last] if one.strip()],
                          "question": record["question"], "answer": ascii_typography(record["answer"]),
                          "evidence": [ascii_typography(one) for one in record["evidence"]]})
    return found


def short_answers(shared: Path, without: Collection[str], limit: int | None) -> list[dict]:
    """Articles and stories of qa-train with questions that a few words answer: their paragraphs, and for each question
    its paragraph and the words. Every tenth is held out; paragraphs that share a long line with documents left out are
    left out too."""
    lines = long_lines(text for _, text in texts_of(shared, without).values())
    found: dict[str, dict[str, Any]] = {}
    for record in each_record(shared / "corpus/qa-train.jsonl.zst"):
        answer, context = (ascii_typography(record[key]).strip() for key in ("answer", "context"))
        start = record["answer_start"] if record["type"] == "extractive" else record.get("evidence_start")
        if record["source"] not in SHORT or not answer or len(answer.split()) > 25 or start is None:
            continue
        if any(line.strip() in lines for line in context.split("\n")):
            continue
        context = around(context, len(ascii_typography(record["context"][:start])))
        one = found.setdefault(article_of(record), {"paragraphs": {}, "asked": []})
        at = one["paragraphs"].setdefault(context, len(one["paragraphs"]))
        one["asked"].append((at, record["question"], answer))
    unseen = held_out(found)
    return [{"held": name in unseen, "paragraphs": list(one["paragraphs"]), "asked": one["asked"]}
            for name, one in list(found.items())[:limit]]


def around(text: str, at: int) -> str:
    """The sentences around a place, of about PARAGRAPH characters."""
    if len(text) <= PARAGRAPH:
        return " ".join(text.split())
    first = max(text.rfind(". ", 0, max(0, at - PARAGRAPH // 3)) + 1, 0)
    last = text.find(". ", min(len(text), first + PARAGRAPH))
    return " ".join(text[first : last + 1 if last > 0 else len(text)].split())


def tokens_of(part: tuple[str, list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """(tokens of the texts in a row, where each ends), of a process of its own."""
    tokenizer = Tokenizer.from_file(part[0])
    rows = [np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.uint16) for text in part[1]]
    return np.concatenate(rows), np.cumsum([len(row) for row in rows])


def text_tokens(shared: Path, tokenizer: str, limit: int | None) -> list[tuple[str, list[str]]]:
    """The texts of all corpora in portions."""
    texts = [ascii_typography(record["text"]) for name in FILES
             for number, record in enumerate(each_record(shared / f"{name}.jsonl.zst")) if not limit or number < limit]
    parts: list[list[str]] = [[]]
    for text in texts:
        if sum(map(len, parts[-1])) > 2_000_000:
            parts.append([])
        parts[-1].append(text)
    return [(tokenizer, part) for part in parts]


def make(options: argparse.Namespace) -> None:
    """All steps."""
    asked = sources(options.shared, options.limit)
    unseen = held_out(one.name for one in asked)
    others = list(articles(options.shared, unseen, options.limit))
    work = [(one, one.name in unseen, 3) for one in asked]
    work += [(one, False, Random(zlib.crc32(one.name.encode())).choice((3, 2))) for one in others]
    work.sort(key=lambda one: -len(one[0].sentences) * (1 + len(one[0].asked)))
    texts = text_tokens(options.shared, str(options.tokenizer), options.limit)
    with mp.get_context("fork").Pool(options.workers, start, (load(options.encoder)[1],)) as pool:
        made = pool.starmap(document, work, chunksize=1)
        text = pool.map(tokens_of, texts, chunksize=1)
    options.out.mkdir(parents=True, exist_ok=True)
    np.save(options.out / "text.npy", np.concatenate([one for one, _ in text]))
    sizes = np.concatenate([np.diff(ends, prepend=0) for _, ends in text])
    np.save(options.out / "ends.npy", np.cumsum(sizes))
    dev = [ascii_typography(record["text"]) for record in each_record(options.shared / "corpus/books-dev.jsonl.zst")]
    start_at = [len(text) // 3 for text in dev]
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    unread = [tokenizer.encode(text[at : at + 100_000], add_special_tokens=False).ids[:UNREAD]
              for text, at in zip(dev, start_at, strict=True)]
    sizes_of = [len(tokenizer.decode(ids, skip_special_tokens=False).encode()) for ids in unread]
    np.savez(options.out / "unread.npz", ids=np.array(unread, np.uint16), bytes=np.array(sizes_of))
    without = left_out(options.shared / "qa-real/docs.json") | unseen
    short = short_answers(options.shared, without, options.limit)
    (options.out / "short.pkl").write_bytes(pickle.dumps(short))
    held = {"documents": made, "summaries": summaries(options.shared, unseen)}
    (options.out / "asked.pkl").write_bytes(pickle.dumps(held))
    print(f"{len(made)} documents, {sum(one.held for one in made)} held out, "
          f"{sum(len(one.questions) for one in made)} questions, {len(held['summaries'])} summaries, "
          f"{int(sizes.sum())} tokens of text", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder of corpora and sets of questions")
    parser.add_argument("--tokenizer", type=Path, required=True, help="SmolLM2's tokenizer.json")
    parser.add_argument("--encoder", type=Path, default=Path("triforce_core/assets/words/encoder.npz"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=mp.cpu_count())
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
