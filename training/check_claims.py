"""Statements about held-out documents, true and false ones: `python -m training.check_claims --help`.

In the folder, `documents.jsonl` holds `id`, `title`, `text`; `claims.jsonl` holds `doc`, `question`, `claim`, `label`
(0 supported, 1 the document says nothing of it, 2 it denies it, 3 one of both) and `kind`: written by hand, or made of
answers in other words: a number, name, negation or quantifier exchanged, an invented half, an answer about another
document. `python -m triforce_core.bench.checks FOLDER` judges them.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from training.claims import NAME, NEGATION, NUMBER, QUANTIFIER, Changer
from training.encoder_data import ABSENT, CONTRADICTED, LABELS, NOT_SUPPORTED, SUPPORTED, Source, sources, texts_of
from training.question_sets import held_out, read_lines
from training.wordnet import WordNet
from triforce_core.prompt.builder import ascii_typography

ANSWERS = 3  # of a document, that false ones are made of


def claims_of(source: Source, by_hand: dict[str, dict], others: Sequence[str], answers: int) -> Iterator[dict]:
    """Of one document. others: answers about other documents."""
    chance = Random(zlib.crc32(source.name.encode()))
    changer = Changer(source.sentences[:4000], WordNet(), chance)

    def made(claim: str, question: str, label: int, kind: str) -> dict:
        return {"doc": source.name, "question": question, "claim": ascii_typography(claim), "label": label,
                "kind": kind}

    for asked in source.asked:
        if record := by_hand.get(asked.key):
            yield made(record["true"], record["question"], SUPPORTED, "hand true")
            yield made(record["false"], record["question"], LABELS.get(record["kind"], NOT_SUPPORTED),
                       f"hand {record['kind']}")
            if record.get("partial"):
                yield made(record["partial"], record["question"], ABSENT, "hand partial")
    told = [one for one in source.asked if one.golds and one.answer and one.source != "multi"]
    for one in chance.sample(told, min(len(told), answers)):
        near = [source.sentences[at] for at in one.golds]
        yield made(one.answer, one.text, SUPPORTED, "answer")
        for kind in (NUMBER, NAME, NEGATION, QUANTIFIER):
            if change := changer.change(one.answer, kind, near):
                yield made(change.of(one.answer), one.text, CONTRADICTED, f"made {kind}")
        other = chance.choice(others)
        if all(other != answer.answer for answer in told):
            yield made(other, one.text, ABSENT, "made other")
            yield made(f"{one.answer.rstrip('.')}, and {other[0].lower()}{other[1:]}", one.text, ABSENT, "made half")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder of corpora and sets of questions")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=ANSWERS, help="of a document, that false ones are made of")
    given = parser.parse_args()
    asked = sources(given.shared, None)
    unseen = held_out(one.name for one in asked)
    held = [one for one in asked if one.name in unseen]
    by_hand = {record["id"]: record for record in read_lines(given.shared / "qa-answers/checks.jsonl")}
    others = [one.answer for source in held for one in source.asked if one.answer and one.golds]
    rows = [row for source in held for row in claims_of(source, by_hand, others, given.answers)]
    given.out.mkdir(parents=True, exist_ok=True)
    documents = [{"id": name, "title": title, "text": text}
                 for name, (title, text) in texts_of(given.shared, unseen).items()]
    for name, lines in (("documents", documents), ("claims", rows)):
        written = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in lines)
        (given.out / f"{name}.jsonl").write_text(written, encoding="utf-8")
    print(f"{len(documents)} documents, {len(rows)} claims")


if __name__ == "__main__":
    main()
