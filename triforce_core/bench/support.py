"""How well an answer's sentences are told apart: ``python -m triforce_core.bench.support FOLDER``.

FOLDER is that of ``bench.answers``. Nobody has judged answers in free words there, so other sentences stand for them.
Supported: sentences that answer a question whose other answers stand elsewhere in the document, looked up with their
own place covered. Unsupported: sentences of another document, and ones whose second half comes from another document.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..documents import read_document
from ..errors import TriForceError
from ..evidence.support import THRESHOLD, SupportFinder, support
from .answers import Asked, load_questions

KINDS = ("restated", "foreign", "half foreign")


def samples(asked: Sequence[Asked], finders: dict[str, SupportFinder],
            seed: int = 1) -> Iterator[tuple[str, str, float]]:
    """(document, kind, score) of each sentence that can be judged."""
    rng, answered = random.Random(seed), [one for one in asked if one.accepted and one.kind != "summary"]
    for one in answered:
        finder, own = finders[one.document], one.accepted[0]
        others = [other for other in answered if other.document != one.document]
        for sentence in one.accepted if len(one.accepted) > 1 else ():
            yield from _score(one.document, "restated", finder, sentence, _covered(finder, sentence))
        far, half = rng.choice(others), rng.choice(others).accepted[0].split()
        yield from _score(far.document, "foreign", finders[far.document], own)
        words = own.split()
        mixed = " ".join(words[: len(words) // 2] + half[len(half) // 2 :])
        yield from _score(one.document, "half foreign", finder, mixed)


def _score(document: str, kind: str, finder: SupportFinder, sentence: str,
           but: frozenset[int] = frozenset()) -> Iterator[tuple[str, str, float]]:
    judged = support(finder.index, sentence, but)
    if judged is not None:
        yield document, kind, judged[0]


def _covered(finder: SupportFinder, sentence: str) -> frozenset[int]:
    """Where the sentence itself stands, whole or in large parts."""
    letters = _letters(sentence)
    found = ((at, _letters(one)) for at, one in enumerate(finder.index.sentences))
    return frozenset(at for at, one in found
                     if one and (letters in one or (one in letters and 3 * len(one) > len(letters))))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m triforce_core.bench.support", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(argv)
    try:
        records, asked = load_questions(given.folder)
        finders = {record["id"]: SupportFinder(read_document(given.folder / "docs" / Path(record["file"]).name))
                   for record in records}
    except TriForceError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    found, documents = list(samples(asked, finders)), list(finders)
    for name, half in (("all", documents), ("even documents", documents[::2]), ("odd documents", documents[1::2])):
        marked = {kind: [score < THRESHOLD for document, one, score in found if one == kind and document in half]
                  for kind in KINDS}
        rates = {kind: sum(marks) / max(1, len(marks)) for kind, marks in marked.items()}
        precision = rates["foreign"] / max(1e-9, rates["foreign"] + rates["restated"])
        print(json.dumps({
            "documents": name, "threshold": THRESHOLD,
            "sentences": {kind: len(marks) for kind, marks in marked.items()},
            "marked": {kind: round(rate, 3) for kind, rate in rates.items()},
            "precision_at_equal_numbers": round(precision, 3), "recall_foreign": round(rates["foreign"], 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
