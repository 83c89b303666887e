"""Documents with the questions that people asked about them: what word vectors and the sentence prior are fitted on.

Two sets: `natural` questions about whole documents, put as readers put them, and the written questions of `qa-train`,
whose paragraphs are joined to articles. A sentence is what it is in the application: same spelling, same breaks.
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from training.text import each_record
from triforce_core.documents.sentences import sentence_spans
from triforce_core.prompt.builder import ascii_typography

ARTICLE = "article"  # the kind of all questions of qa-train
LONGEST_TEXT = 400_000  # characters; of a longer book the stretch around its questions
LONGEST_ARTICLE = 6000  # sentences
NATURAL_TEXTS = ("prose-train", "books-train")


@dataclass(frozen=True)
class Query:
    """before: the question before it, or nothing. golds: the sentences that answer it, none where nothing does."""

    text: str
    before: str
    golds: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class AskedDocument:
    """lines: the number of the line on which each sentence stands, ascending."""

    name: str
    sentences: list[str]
    lines: list[int]
    queries: list[Query]

    def chance(self) -> Random:
        """Random numbers of its own, so that results do not depend on the order or the number of processes."""
        return Random(zlib.crc32(self.name.encode()))


def held_out(names: Iterable[str], every: int = 10) -> set[str]:
    """Every tenth document, for measuring."""
    return set(sorted(set(names))[::every])


def left_out(file: Path | None) -> frozenset[str]:
    """Ids of training documents that a test set holds too: `in_training_text` of each of its documents."""
    if file is None:
        return frozenset()
    return frozenset(name for record in json.loads(file.read_text()) for name in record.get("in_training_text") or ())


def letters(text: str) -> str:
    """What is compared of two spellings of a sentence."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def split(text: str) -> tuple[list[str], list[int], list[int]]:
    """(sentences, the line of each, where each starts) of a text in the model's spelling."""
    sentences: list[str] = []
    lines: list[int] = []
    starts: list[int] = []
    offset = 0
    for number, line in enumerate(text.split("\n")):
        stripped = line.strip()
        left = offset + len(line) - len(line.lstrip())
        for start, end in sentence_spans(stripped):
            sentences.append(stripped[start:end].strip())
            lines.append(number)
            starts.append(left + start)
        offset += len(line) + 1
    return sentences, lines, starts


class Places:
    """Where quoted sentences stand in a document. They are equal but for punctuation, or one holds the other."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._letters = [letters(sentence) for sentence in sentences]
        self._where: dict[str, list[int]] = defaultdict(list)
        for number, spelt in enumerate(self._letters):
            self._where[spelt].append(number)

    def exact(self, quoted: str) -> list[list[int]]:
        """For each sentence of a quotation all the places where it stands; none for one that stands nowhere."""
        parts = split(ascii_typography(quoted))[0]
        return [self._where[letters(part)] for part in parts if letters(part) in self._where]

    def of(self, quoted: str) -> tuple[int, ...]:
        """All of them, and where there are none, the sentences that hold it or that it holds."""
        found = [place for places in self.exact(quoted) for place in places]
        if not found:
            whole = letters(quoted)
            found = [number for number, spelt in enumerate(self._letters)
                     if len(spelt) > 12 and whole and (spelt in whole or whole in spelt)]
        return tuple(sorted(set(found)))


def read_lines(file: Path) -> list[dict]:
    """The records of a `.jsonl` file."""
    with file.open(encoding="utf8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def texts_of(corpus: Path, wanted: Collection[str]) -> dict[str, str]:
    """The texts of documents, in the model's spelling, by their ids."""
    return {record["id"]: ascii_typography(record["text"]) for name in NATURAL_TEXTS
            for record in each_record(corpus / f"{name}.jsonl.zst") if record["id"] in wanted}


def stretch(text: str, records: Sequence[dict]) -> str:
    """A text, or of a long one what lies around its questions, from the first on."""
    if len(text) <= LONGEST_TEXT:
        return text
    asked = [record["paragraph"] for record in records if record.get("paragraph") is not None] or [0]
    kept: list[str] = []
    size = 0
    for paragraph in text.split("\n\n")[max(0, min(asked) - 20) : max(asked) + 200]:
        size += len(paragraph) + 2
        if size > LONGEST_TEXT:
            break
        kept.append(paragraph)
    return "\n\n".join(kept)


def long_lines(texts: Iterable[str]) -> set[str]:
    """Lines of more than 150 characters: two texts that have one in common share a paragraph."""
    return {line.strip() for text in texts for line in text.split("\n") if len(line) > 150}


def article_of(record: dict) -> str:
    """The article, story or chapter of a paragraph. Search questions have none: forty heaps of paragraphs."""
    if record["source"] in ("squad-v1.1", "squadshifts-new-wiki"):
        return f"{record['source']}:{record['title']}"
    if record["source"] == "qed-natural-questions":
        return f"qed:{zlib.crc32(record['doc_id'].encode()) % 40}"
    return str(record["doc_id"].rsplit(":", 1)[0])


def article_documents(corpus: Path, without: Collection[str], limit: int | None) -> list[AskedDocument]:
    """The articles of `qa-train`, the paragraphs of each in one document, with every question that has its evidence.

    Paragraphs that hold a long line of a document left out are left out too: textbooks are in both sets."""
    shared = long_lines(texts_of(corpus, without).values())
    paragraphs: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for record in each_record(corpus / "qa-train.jsonl.zst"):
        start = record["answer_start"] if record["type"] == "extractive" else record.get("evidence_start")
        if start is not None:
            paragraphs[article_of(record)][record["context"]].append({**record, "at": start})
    documents = []
    for name, contexts in islice(paragraphs.items(), limit):
        text, asked = "", []
        for context, records in contexts.items():
            spelt = ascii_typography(context)
            if any(line.strip() in shared for line in spelt.split("\n")):
                continue
            asked += [(record, len(text) + len(ascii_typography(context[: record["at"]]))) for record in records]
            text += spelt + "\n"
        sentences, lines, starts = split(text)
        queries = [Query(record["question"], "", (bisect_right(starts, at) - 1,), ARTICLE)
                   for record, at in asked if starts and at >= starts[0]]
        if queries and 3 < len(sentences) < LONGEST_ARTICLE:
            documents.append(AskedDocument(name, sentences, lines, queries))
    return documents
