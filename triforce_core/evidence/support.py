"""Find the passage of a document that comes nearest to each sentence of an answer in free words, by its words.

A measure of overlap, not of truth: a passage may hold the words and say the opposite, or say the same in other words.
``python -m triforce_core.bench.answers FOLDER --support`` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from ..documents.document import Document
from ..documents.sentences import sentence_spans
from ..events import QuotePlace, SentenceSupport
from .question import WORD
from .sentence_index import SentenceIndex
from .vectors import WordVectors

# Of sentences that restate a passage one in sixteen lies below, of those about another document nine in ten: see
# docs/measurements.md.
THRESHOLD = 0.42
FEWEST = 4  # telling words of a sentence that is judged: fewer say too little
_TELLING = 7.0  # nats: rarer than such words as "into", "about" and "their"
_NEAR = 0.6  # words whose vectors are less alike than this do not stand for each other
_FULL = 0.9  # what a word counts at most that only resembles one of the sentence's
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LEAD = re.compile(r"\s*(?:>\s*|[-*+]\s+|\d{1,3}[.)]\s+)*")
_SKIPPED = re.compile(r"\s*(?:#|\||<|[-*_=]{3,}\s*$)")  # headings, tables, tags, rules
_EMPHASIS = str.maketrans("*`", "  ")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile("[“\"«„][^”\"»“]*+([”\"»“]?)")  # one that is open to the end is read once


class SupportFinder:
    """Looks for passages in one document. Building it takes about a second for a long one."""

    def __init__(self, document: Document) -> None:
        self._pages = document.pages
        self._places: list[tuple[int, int, int]] = []  # page (from 0), first and last character of each sentence
        sentences, lines = [], []
        line_number = 0
        for page, content in enumerate(document.pages):
            at = 0
            for line in content.text.split("\n"):
                for start, end in sentence_spans(line):
                    if line[start:end].strip():
                        sentences.append(line[start:end])
                        lines.append(line_number)
                        self._places.append((page, at + start, at + end))
                at += len(line) + 1
                line_number += 1
        self.index = SentenceIndex(sentences, lines, WordVectors.shipped())

    def support(self, answer: str) -> tuple[SentenceSupport, ...]:
        """Judge each sentence of a Markdown text that can be judged: not headings, tables, code, questions, sentences
        that announce what follows, those that are mostly quotation (which are checked letter by letter), or short
        ones."""
        return tuple(found for start, end in answer_sentences(answer)
                     if (found := self._of(answer[start:end], start, end)) is not None)

    def _of(self, sentence: str, start: int, end: int) -> SentenceSupport | None:
        judged = support(self.index, sentence)
        if judged is None:
            return None
        score, best = judged
        found = score >= THRESHOLD
        page, first, last = self._places[best]
        place = QuotePlace(page + 1, self._pages[page].label, first, last) if found else None
        return SentenceSupport(start, end, found, round(score, 3), place)


def answer_sentences(answer: str) -> Iterator[tuple[int, int]]:
    """Characters [start, end) of each sentence that states something."""
    at, fenced = 0, False
    for line in answer.split("\n"):
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


def support(index: SentenceIndex, sentence: str, but: frozenset[int] = frozenset()) -> tuple[float, int] | None:
    """(score, sentence): the share in [0, 1] of its words that the best passage holds, by the square of their rarity,
    and that passage's middle sentence. A passage is three sentences in a row; a number counts only where it stands
    itself. but: sentences of the document that do not count. None: it says too little to be judged or is not English,
    or the document is empty."""
    terms = index.stems(WORD.findall(sentence.lower().replace("’", "'")))
    rarity = index.rarity_of(terms)[1]
    if np.count_nonzero(rarity > _TELLING) < FEWEST or not index.size or not index.in_english(terms):
        return None
    alike, _ = index.matches(terms)
    weights = rarity**2
    numbers = np.array([term[0].isdigit() for term in terms])
    soft = np.clip((alike - _NEAR) / (1 - _NEAR), 0.0, _FULL)
    held = np.where(alike >= 0.999, 1.0, np.where(numbers[:, None], 0.0, soft))
    held[:, list(but)] = 0.0
    around = held.copy()
    around[:, 1:] = np.maximum(around[:, 1:], held[:, :-1])
    around[:, :-1] = np.maximum(around[:, :-1], held[:, 1:])
    scores = weights @ around / weights.sum()
    best = int(np.argmax(scores + 1e-3 * (weights @ held) / weights.sum()))  # of equal passages, the one it is in
    return float(scores[best]), best
