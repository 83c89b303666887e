"""Score answers about real documents: ``python -m triforce_core.bench.answers FOLDER``.

FOLDER holds ``docs.json``, ``questions.jsonl`` and ``docs/``: documents in their own formats, and questions with the
sentences that answer them. Letters and digits alone are compared, as readers keep or drop marks differently. An answer
is *right* when its first quotation holds one of the sentences or matches a key, *partly* right when it stands on the
same line as one; a summary is right when every key is found in its quotations together. A question that the document
does not answer is right when the answer says so. Beside the model stand BM25 over the same sentences and the sentence
prior alone.

With --support no question is asked: how well are sentences of free answers told apart? Nobody has judged answers in
free words here, so other sentences stand for them. Supported: sentences that answer a question whose other answers
stand elsewhere in the document, looked up with their own place covered. Unsupported: sentences of another document, and
ones whose second half comes from another document.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ..assets import BUILTIN_FOLDER
from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..documents import read_document
from ..documents.document import Document
from ..engine.answer import Quoting
from ..engine.engine import Engine
from ..errors import ConfigError, TriForceError
from ..events import DocumentOpened, Finished
from ..evidence.support import THRESHOLD, SupportFinder, support
from ..prompt.builder import DocumentPrompt, PromptBuilder, ascii_typography
from ..tokenizer import Tokenizer

_SYSTEMS = ("model", "prior", "bm25")
_SENTENCES = ("restated", "foreign", "half foreign")


@dataclass(frozen=True, slots=True)
class Asked:
    """One line of questions.jsonl. keys: regular expressions; accepted: sentences."""

    document: str
    kind: str
    question: str
    accepted: tuple[str, ...]
    keys: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """One system's answer: its quotations in order, and whether it said that the document has no answer."""

    quotations: tuple[str, ...]
    flagged: bool = False
    confidence: float | None = None


def load_questions(folder: Path) -> tuple[list[dict[str, Any]], list[Asked]]:
    """Return the documents' records and the questions. Raises ConfigError."""
    try:
        documents = json.loads((folder / "docs.json").read_text(encoding="utf-8"))
        lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        asked = [Asked(row["doc"], row["type"], row["question"], (*row["gold"], *row["also"]),
                       tuple(re.compile(key, re.IGNORECASE) for key in row["key"])) for row in map(json.loads, lines)]
    except (OSError, ValueError, KeyError, TypeError, re.error) as error:
        raise ConfigError(f"{folder} holds no questions that can be read ({type(error).__name__}: {error})",
                          allowed="a folder with docs.json, questions.jsonl and docs/") from error
    return documents, asked


def grade(asked: Asked, answered: Answered, lines: Sequence[str]) -> str:
    """Return "right", "partly", "wrong" or "flagged". lines: the document's, in letters."""
    if asked.kind == "unanswerable":
        return "right" if answered.flagged else "wrong"
    if answered.flagged:
        return "flagged"
    if asked.kind == "summary":
        found = [_matches(key, " ".join(answered.quotations)) for key in asked.keys]
        return "right" if all(found) else "partly" if any(found) else "wrong"
    said = answered.quotations[0] if answered.quotations else ""
    quoted = letters(said)
    accepted = [spelt for sentence in asked.accepted if (spelt := letters(sentence))]
    if any(one in quoted for one in accepted) or any(_matches(key, said) for key in asked.keys):
        return "right"
    if quoted and any(quoted in line and any(one in line for one in accepted) for line in lines):
        return "partly"
    return "wrong"


def letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _matches(key: re.Pattern[str], text: str) -> bool:
    return key.search(text) is not None or key.search(" ".join(ascii_typography(text).split())) is not None


def by_words(quoting: Quoting, prompt: DocumentPrompt, question: str) -> dict[str, Answered]:
    """Return the quotations of the sentence prior alone, and of BM25 over the same sentences."""
    answering = quoting.answering(prompt)
    plan = answering.plan(question)
    index = answering.index
    spans = plan.spans or plan.choices[:1]
    quoted = tuple(" ".join(index.sentences[first : last + 1]) for first, last in spans)
    best = int(np.argmax(index.bm25(question)))
    return {"prior": Answered(quoted, plan.answerable is False, plan.confidence),
            "bm25": Answered((index.sentences[best],))}


def by_model(engine: Engine, question: str) -> Answered:
    """Return the loaded model's answer, as the app asks it."""
    finished = next(event for event in engine.ask(question, (), SamplingParams(temperature=0.0), SpeculationConfig())
                    if isinstance(event, Finished))
    quotations = tuple(finished.text[quote.start : quote.end] for quote in finished.quotes) or (finished.text,)
    return Answered(quotations, finished.answerable is False, finished.confidence)


def _as_much_as_fits(engine: Engine, document: Document) -> Document:
    """Return the first pages, as many as the model holds, and say where some are left out."""
    fit = engine.measure(document)
    ends = list(accumulate(fit.page_tokens))
    pages = sum(end <= fit.max_tokens for end in ends)
    if pages == len(ends):
        return document
    print(f"{document.title}: pages 1-{pages} of {len(ends)} fit; questions about the others are asked all the same",
          file=sys.stderr)
    return document.select(1, pages)


def measure(folder: Path, config: EngineConfig, *, model: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """Yield one record for each question and system, document by document. only: a document's id."""
    documents, questions = load_questions(folder)
    engine = Engine(config) if model else None
    quoting = Quoting(PromptBuilder(Tokenizer(BUILTIN_FOLDER))) if engine is None else None
    if engine is not None:
        for _ in engine.load():
            pass
        quoting = engine.quoting()
    assert quoting is not None
    for record in documents:
        if only and record["id"] != only:
            continue
        document = read_document(folder / "docs" / record["file"])
        if engine is not None:
            document = _as_much_as_fits(engine, document)
            opened = next(step for step in engine.open_document(document) if isinstance(step, DocumentOpened))
            print(f"{record['id']}: {opened.tokens:,} tokens in {opened.seconds:.0f} s", file=sys.stderr, flush=True)
        prompt = quoting.builder.document(document)
        lines = [letters(line) for page in document.pages for line in page.text.split("\n")]
        for asked in questions:
            if asked.document != record["id"]:
                continue
            started = time.perf_counter()
            answers = by_words(quoting, prompt, asked.question)
            if engine is not None:
                answers["model"] = by_model(engine, asked.question)
            for system, answered in answers.items():
                yield {"system": system, "document": record["id"], "type": asked.kind, "question": asked.question,
                       "grade": grade(asked, answered, lines), "flagged": answered.flagged,
                       "confidence": answered.confidence, "quotations": list(answered.quotations),
                       "seconds": time.perf_counter() - started}


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: right (partly) answers to each type of question by system, and flags below."""
    systems = [system for system in _SYSTEMS if any(record["system"] == system for record in records)]
    lines = ["| | asked | " + " | ".join(f"{system}: right (partly)" for system in systems) + " |",
             "| --- | --- |" + " --- |" * len(systems)]
    answerable = [record for record in records if record["type"] not in ("unanswerable", "summary")]
    for kind in dict.fromkeys(record["type"] for record in records):
        lines.append(_row(kind, [record for record in records if record["type"] == kind], systems))
    lines.append(_row("**answerable**", answerable, systems))
    for system in systems:
        own = [record for record in answerable if record["system"] == system]
        flagged = sum(record["flagged"] for record in own)
        lines.append(f"\n{system}: {flagged} of {len(own)} answerable questions flagged as unanswered "
                     f"({flagged / max(1, len(own)):.0%})")
    return "\n".join(lines)


def _row(name: str, records: Sequence[dict[str, Any]], systems: Sequence[str]) -> str:
    counts = Counter((record["system"], record["grade"]) for record in records)
    cells = [f"{counts[system, 'right']} ({counts[system, 'partly']})" for system in systems]
    return f"| {name} | {len(records) // max(1, len(systems))} | " + " | ".join(cells) + " |"


def measure_support(folder: Path) -> dict[str, Any]:
    """Return how many sentences of each kind are marked as unsupported."""
    records, asked = load_questions(folder)
    finders = {record["id"]: SupportFinder(read_document(folder / "docs" / record["file"])) for record in records}
    found = list(_judged_sentences(asked, finders))
    marked = {kind: [score < THRESHOLD for one, score in found if one == kind] for kind in _SENTENCES}
    rates = {kind: sum(marks) / max(1, len(marks)) for kind, marks in marked.items()}
    precision = rates["foreign"] / max(1e-9, rates["foreign"] + rates["restated"])
    return {"threshold": THRESHOLD, "sentences": {kind: len(marks) for kind, marks in marked.items()},
            "marked": {kind: round(rate, 3) for kind, rate in rates.items()},
            "precision_at_equal_numbers": round(precision, 3)}


def _judged_sentences(asked: Sequence[Asked], finders: dict[str, SupportFinder]) -> Iterator[tuple[str, float]]:
    """Yield (kind, score) of each sentence that can be judged."""
    rng, answered = random.Random(1), [one for one in asked if one.accepted and one.kind != "summary"]
    for one in answered:
        own, others = one.accepted[0], [other for other in answered if other.document != one.document]
        far, half = rng.choice(others), rng.choice(others).accepted[0].split()
        words = own.split()
        tried = [(one.document, "restated", sentence) for sentence in one.accepted if len(one.accepted) > 1]
        tried += [(far.document, "foreign", own),
                  (one.document, "half foreign", " ".join(words[: len(words) // 2] + half[len(half) // 2 :]))]
        for document, kind, sentence in tried:
            covered = _covered(finders[document], sentence) if kind == "restated" else frozenset[int]()
            judged = support(finders[document].index, sentence, covered)
            if judged is not None:
                yield kind, judged[0]


def _covered(finder: SupportFinder, sentence: str) -> frozenset[int]:
    """Return where the sentence itself stands, whole or in large parts."""
    wanted = letters(sentence)
    found = ((at, letters(one)) for at, one in enumerate(finder.index.sentences))
    return frozenset(at for at, one in found
                     if one and (wanted in one or (one in wanted and 3 * len(one) > len(wanted))))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m triforce_core.bench.answers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="docs.json, questions.jsonl and docs/")
    parser.add_argument("--model", default="builtin", help="as of app.py (default: the built-in pair)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--words-only", action="store_true", help="the prior and BM25 alone: no model is loaded")
    parser.add_argument("--document", default="", metavar="ID", help="this document only")
    parser.add_argument("--answers", action="store_true", help="print every answer as a JSON line before the table")
    parser.add_argument("--support", action="store_true", help="how well sentences without support are found")
    given = parser.parse_args(arguments)
    try:
        if given.support:
            print(json.dumps(measure_support(given.folder)))
            return 0
        records = []
        for record in measure(given.folder, EngineConfig(model=given.model, device=given.device),
                              model=not given.words_only, only=given.document):
            records.append(record)
            if given.answers:
                print(json.dumps(record, ensure_ascii=False), flush=True)
    except TriForceError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
