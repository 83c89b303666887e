"""How well sentences of free answers are told apart: ``python -m triforce_core.bench.support FOLDER``.

FOLDER is that of ``bench.answers``. Nobody has judged answers in free words there, so other sentences stand for them.
Supported: sentences that answer a question whose other answers stand elsewhere in the document, looked up with their
own place covered. Unsupported: sentences of another document, and ones whose second half comes from another document.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import flags
from ..documents import read_document
from ..errors import TriForceError
from ..evidence.support import THRESHOLD, SupportFinder, support
from .answers import Asked, letters, load_questions

KINDS = ("restated", "foreign", "half foreign")


def samples(asked: Sequence[Asked], finders: dict[str, SupportFinder],
            seed: int = 1) -> Iterator[tuple[str, float]]:
    """Yield (kind, score) of each sentence that can be judged."""
    rng, answered = random.Random(seed), [one for one in asked if one.accepted and one.kind != "summary"]
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.support", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="docs.json, questions.jsonl and docs/")
    given = parser.parse_args(argv)
    try:
        records, asked = load_questions(given.folder)
        finders = {record["id"]: SupportFinder(read_document(given.folder / "docs" / Path(record["file"]).name))
                   for record in records}
    except TriForceError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    found = list(samples(asked, finders))
    marked = {kind: [score < THRESHOLD for one, score in found if one == kind] for kind in KINDS}
    rates = {kind: sum(marks) / max(1, len(marks)) for kind, marks in marked.items()}
    precision = rates["foreign"] / max(1e-9, rates["foreign"] + rates["restated"])
    print(json.dumps({"threshold": THRESHOLD, "sentences": {kind: len(marks) for kind, marks in marked.items()},
                      "marked": {kind: round(rate, 3) for kind, rate in rates.items()},
                      "precision_at_equal_numbers": round(precision, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
