"""Questions about paragraphs hidden in whole books: `python -m training.hidden_questions --corpus DIR --out FOLDER`.

Writes what `python -m triforce_core.bench.answers FOLDER` reads: for each number of words a text of paragraphs of
qa-dev, strewn between those of the books of books-dev, and one question about each. Neither was in training. An answer
is right when its first quotation holds the first 40 characters of the sentence that answers, as in `training.evaluate`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from training.evaluate import load_units
from training.text import Encoder, read_records

_SPELT = 40  # characters of a sentence that tell it from the others


@dataclass(frozen=True)
class Hidden:
    """A paragraph with a question about it and the beginning of the sentence that answers."""

    text: str
    question: str
    gold: str


def hidden_paragraphs(corpus: Path, encoder: Encoder, count: int, chance: Random) -> list[Hidden]:
    """One question each, from different paragraphs."""
    units = load_units(corpus / "qa-dev.jsonl.zst", encoder)
    chance.shuffle(units)
    chosen = [(unit, chance.choice(unit.questions)) for unit in units[:count]]
    return [Hidden(encoder.decode(unit.ids).strip(), asked.text, asked.gold.strip()[:_SPELT]) for unit, asked in chosen]


def strewn(prose: list[str], hidden: list[Hidden], words: int, chance: Random) -> str:
    """All hidden paragraphs among as much prose, from its start, as makes about so many words."""
    left = words - sum(len(one.text.split()) for one in hidden)
    taken: list[str] = []
    for paragraph in prose:
        if left <= 0:
            break
        taken.append(paragraph)
        left -= len(paragraph.split())
    for one in hidden:
        taken.insert(chance.randrange(len(taken) + 1), one.text)
    return "\n\n".join(taken)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=int, nargs="+", default=[22_000, 96_000, 180_000])
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--tokenizer", type=Path, default=Path("triforce_core/assets/builtin/tokenizer.model"))
    options = parser.parse_args()
    books = read_records(options.corpus / "books-dev.jsonl.zst")
    prose = [" ".join(paragraph.split()) for book in books for paragraph in book["text"].split("\n\n") if paragraph]
    encoder = Encoder(options.tokenizer)
    (options.out / "docs").mkdir(parents=True, exist_ok=True)
    documents, questions = [], []
    for words in options.words:
        chance = Random(words)
        hidden = hidden_paragraphs(options.corpus, encoder, options.questions, chance)
        name = f"words-{words}"
        (options.out / "docs" / f"{name}.txt").write_text(strewn(prose, hidden, words, chance), encoding="utf-8")
        documents.append({"id": name, "kind": f"{words:,} words", "file": f"{name}.txt"})
        questions += [{"doc": name, "type": "fact", "question": one.question, "gold": [one.gold], "also": [], "key": []}
                      for one in hidden]
    (options.out / "docs.json").write_text(json.dumps(documents), encoding="utf-8")
    lines = "".join(f"{json.dumps(question, ensure_ascii=False)}\n" for question in questions)
    (options.out / "questions.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
