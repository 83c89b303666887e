"""Judge the sentences of an answer: supported by a passage of the document, contradicted by one, or not found.

The passages nearest to a sentence are found by its words, as for a question. Of each the encoder says whether it
supports the sentence, and the facts of both are compared (``statement``); two logistic regressions weigh that. They and
their edges are fitted by ``training/check_levels.py`` on documents that no training saw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..assets import WORDS_FOLDER
from ..documents.chapters import solid
from ..documents.sentences import sentence_spans
from ..events import SentenceSupport, Verdict
from ..metrics import reasoning
from .bm25 import telling
from .encoder import Claim, Encoder
from .finder import PassageFinder
from .question import WORD
from .statement import Facts, conflicts, facts
from .vectors import WordVectors

CHECKS_FILE = WORDS_FOLDER / "checks.npz"
NEAREST = 3  # passages that a sentence is compared with
NUMBERS = slice(3, 5)  # of the features, those of numbers and their units
MISSING = 0.01  # what the chance is multiplied with where they differ
FEWEST = 3  # telling words of a sentence that is judged: fewer say too little
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LEAD = re.compile(r"\s*(?:>\s*|[-*+]\s+|\d{1,3}[.)]\s+)*")
_SKIPPED = re.compile(r"\s*(?:#|\||<|[-*_=]{3,}\s*$)")  # headings, tables, tags, rules
_EMPHASIS = str.maketrans("*`", "  ")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile("[“\"«„][^”\"»“]*+([”\"»“]?)")  # one that is open to the end is read once


@dataclass(frozen=True, slots=True)
class Compared:
    """A sentence beside a passage. unit: its number; features: see ``features``."""

    unit: int
    features: np.ndarray


@lru_cache(maxsize=1)
def shipped_checks() -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the two regressions, float32 [2, features], and their edges, float32 [2]."""
    with np.load(CHECKS_FILE) as stored:
        return stored["weights"], stored["edges"]


class SupportFinder:
    """Judges sentences by the passages of one document."""

    def __init__(self, finder: PassageFinder) -> None:
        self._finder = finder
        self._facts: dict[int, Facts] = {}

    def support(self, answer: str, question: str = "", start: int = 0, whole: bool = True) -> Iterator[SentenceSupport]:
        """Judge each sentence of a Markdown text that can be judged, the same one once: not headings, tables, code,
        questions, the reasoning before the answer, sentences that announce what follows, those that are mostly
        quotation (which are checked letter by letter), or short ones. start: the first character from which on they are
        judged; whole: False while the text is being written, so that its last sentence may go on."""
        judged = set[str]()
        for first, last in answer_sentences(answer):
            letters = solid(answer[first:last])
            if letters in judged or not (whole or answer[last:].strip("*_`\"”') ")):
                continue
            judged.add(letters)
            if first >= start and (rows := self.compared(answer[first:last], question)):
                verdict, chance, unit = self.judged(rows)
                places = self._finder.places(unit, answer[first:last]) if unit is not None else ()
                yield SentenceSupport(first, last, verdict, round(chance, 3), places)

    def compared(self, sentence: str, question: str) -> list[Compared]:
        """Return a sentence beside the passages nearest to it; [] where it says too little, or is not English."""
        sentence = " ".join(sentence.translate(_EMPHASIS).split())
        terms = list(dict.fromkeys(telling(sentence)))
        known = WordVectors.shipped().number
        english = 2 * sum(term in known or term[0].isdigit() for term in terms) > len(terms)
        if len(terms) < FEWEST or not english or not self._finder.units:
            return []
        units = self._finder.nearest(sentence, NEAREST)
        readings = [self._finder.reading(unit) for unit in units]
        nats = Encoder.shipped().check([Claim(sentence, question, one) for one in readings])
        said = facts(sentence)
        around = {word for one in readings for word in WORD.findall(" ".join((*one.path, question)).lower())}
        return [Compared(unit, features(row, conflicts(said, self._facts_of(unit), around)))
                for unit, row in zip(units, nats, strict=True)]

    def _facts_of(self, unit: int) -> Facts:
        if unit not in self._facts:
            reading = self._finder.reading(unit)
            self._facts[unit] = facts("\n".join((*reading.path[1:], *reading.sentences)))
        return self._facts[unit]

    def judged(self, rows: Sequence[Compared]) -> tuple[Verdict, float, int | None]:
        """Return the verdict of a sentence beside passages, the chance that it is supported, and the passage."""
        verdict, chance, best = verdict_of(np.stack([one.features for one in rows]), *shipped_checks())
        return verdict, chance, rows[best].unit if best is not None else None


def features(nats: np.ndarray, differing: Sequence[float]) -> np.ndarray:
    """Return float32 [features]: 1, the nats for "supported" and for "contradicted" against the other two, and what
    ``conflicts`` counts, as 0 or 1. nats: [3], of the encoder."""
    supported, absent, contradicted = nats.tolist()
    said = (supported - np.logaddexp(absent, contradicted), contradicted - np.logaddexp(supported, absent))
    return np.array([1.0, *said, *(min(one, 1.0) for one in differing)], np.float32)


def verdict_of(rows: np.ndarray, weights: np.ndarray, edges: np.ndarray) -> tuple[Verdict, float, int | None]:
    """Return a verdict, the chance that a passage supports the sentence, and the number of the passage that it is said
    of. rows: ``features`` of each passage; weights, edges: as ``shipped_checks`` returns them."""
    supported, denied = chances(rows, weights)
    best, against = int(supported.argmax()), int(denied.argmax())
    if supported[best] >= edges[0]:
        return "supported", float(supported[best]), best
    if denied[against] >= edges[1]:
        return "contradicted", float(supported[best]), against
    return "not found", float(supported[best]), None


def chances(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return [2, passages]: the chances that each supports a sentence and that it denies it. A number that does not
    stand in a passage, or counts something else there, is not supported by it."""
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(weights @ rows.T, -30, 30)))
    found[0, rows[:, NUMBERS].any(1)] *= MISSING
    return found


def answer_sentences(answer: str) -> Iterator[tuple[int, int]]:
    """Yield characters [start, end) of each sentence that states something."""
    at, fenced = reasoning(answer)[1], False
    for line in answer[at:].split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not _SKIPPED.match(line):
            lead = _LEAD.match(line)
            start = lead.end() if lead else 0
            for first, last in sentence_spans(line[start:].translate(_EMPHASIS)):
                if _states(line[start + first : start + last]):
                    yield at + start + first, at + start + last
        at += len(line) + 1


def _states(sentence: str) -> bool:
    if sentence.rstrip("*_` ").endswith((":", "?")):
        return False
    return 2 * _words([found[0] for found in _QUOTED.finditer(sentence) if found[1]]) <= _words([sentence])


def _words(texts: Sequence[str]) -> int:
    return sum(len(_WORD.findall(text)) for text in texts)
