"""The sentences of an answer in free words, each with the passage of the document that comes nearest to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..documents.document import Document
from ..documents.sentences import SentenceRules
from ..events import QuotePlace, SentenceSupport

_FENCE = re.compile(r"\s*(?:```|~~~)")
_LEAD = re.compile(r"\s*(?:>\s*|[-*+]\s+|\d{1,3}[.)]\s+)*")
_SKIPPED = re.compile(r"\s*(?:#|\||<|[-*_=]{3,}\s*$)")  # headings, tables, tags, rules
_EMPHASIS = str.maketrans("*`", "  ")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile("[“\"«„][^”\"»“]*+([”\"»“]?)")  # one that is open to the end is read once


class SupportFinder:
    """Looks for passages in one document. Building it takes about a second for a long one."""

    def __init__(self, document: Document) -> None:
        from .sentence_index import SentenceIndex  # the page's process does without until it has an answer
        from .word_vectors import WordVectors

        self._pages, rules = document.pages, SentenceRules()
        self._places: list[tuple[int, int, int]] = []  # page (from 0), first and last character of each sentence
        sentences, lines = [], []
        line_number = 0
        for page, content in enumerate(document.pages):
            at = 0
            for line in content.text.split("\n"):
                for start, end in rules.spans(line):
                    if line[start:end].strip():
                        sentences.append(line[start:end])
                        lines.append(line_number)
                        self._places.append((page, at + start, at + end))
                at += len(line) + 1
                line_number += 1
        self.index = SentenceIndex(sentences, lines, WordVectors.shipped())

    def support(self, answer: str) -> tuple[SentenceSupport, ...]:
        """Of each sentence of a Markdown text that can be judged: not headings, tables, code, questions, sentences that
        announce what follows, those that are mostly quotation (which are checked letter by letter), or short ones."""
        return tuple(found for start, end in answer_sentences(answer)
                     if (found := self._of(answer[start:end], start, end)) is not None)

    def _of(self, sentence: str, start: int, end: int) -> SentenceSupport | None:
        from .support import THRESHOLD, support

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
    rules, at, fenced = SentenceRules(), 0, False
    for line in answer.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not _SKIPPED.match(line):
            lead = _LEAD.match(line)
            start = lead.end() if lead else 0
            for first, last in rules.spans(line[start:].translate(_EMPHASIS)):
                if _states(line[start + first : start + last]):
                    yield at + start + first, at + start + last
        at += len(line) + 1


def _states(sentence: str) -> bool:
    if sentence.rstrip("*_` ").endswith((":", "?")):
        return False
    return 2 * _words([found[0] for found in _QUOTED.finditer(sentence) if found[1]]) <= _words([sentence])


def _words(texts: Sequence[str]) -> int:
    return sum(len(_WORD.findall(text)) for text in texts)
