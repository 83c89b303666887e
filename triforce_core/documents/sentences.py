"""Find where sentences begin and end. The rules travel with a model (prompt.json), so that a model trained to quote
sentences and the constraint that holds it to them agree on what a sentence is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SENTENCE_BREAK = r"[.!?][\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])"
ABBREVIATIONS = frozenset(
    "mr mrs ms dr st no vs jr sr prof gen col capt lt rev hon vol fig ch cf e.g i.e viz sgt maj mt ft co inc ltd al "
    "messrs mme op pp approx ca c esq".split()
)
LONGEST = 80  # words: more is no quotation
_WORD = re.compile(r"\S+")
_CLAUSE = re.compile(r"[;:,]\s")
_INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
NOTE = re.compile(r"\[[^\s\[\]]{1,5}\] ")  # how a line that is a note begins; notes stand behind a page's text
_ENDED = re.compile(r"[.!?:][\"'”’)\]]*\Z")


@dataclass(frozen=True)
class SentenceRules:
    """pattern runs from a sentence's last mark to the next sentence; abbreviations: lower case, without the dot."""

    pattern: re.Pattern[str] = re.compile(SENTENCE_BREAK)
    abbreviations: frozenset[str] = ABBREVIATIONS

    @classmethod
    def of(cls, pattern: str | None, abbreviations: Iterable[str] | None) -> SentenceRules:
        """Return the rules of a model's prompt.json, with ours where it has none."""
        return cls(
            re.compile(pattern) if pattern else cls.pattern,
            frozenset(abbreviations) if abbreviations else cls.abbreviations,
        )

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each sentence of one line, in characters; an initial or an abbreviation ends none. One
        of more than LONGEST words is cut where a clause ends."""
        start = 0
        for found in self.pattern.finditer(line):
            if line[found.start()] == "." and self._goes_on(line[start : found.start()]):
                continue
            yield from _clauses(line, start, len(line[: found.end()].rstrip()))
            start = found.end()
        yield from _clauses(line, start, len(line.rstrip()))

    def _goes_on(self, before: str) -> bool:
        """Say whether the dot after this text belongs to its last word."""
        words = before.rsplit(None, 1)
        word = words[-1].lstrip("\"'“‘([") if words else ""
        initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
        return initial or word.lower() in self.abbreviations or _INITIALS.fullmatch(word) is not None

    def runs_on(self, last_line: str, next_line: str) -> bool:
        """Say whether a sentence that stops at the foot of a page goes on at the head of the next.

        Cautious: a page's last line that looks like a heading or a finished sentence is not joined."""
        if not last_line or not next_line or _ENDED.search(last_line):
            return False
        return next_line[0].islower() or (len(last_line) > 60 and next_line[0].isalnum())


def _clauses(line: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield one sentence, or its parts of at most LONGEST words each: up to the last semicolon or colon that leaves
    half of that, else the last comma, else between two words."""
    while end > start:
        words = [word.span() for word in _WORD.finditer(line, start, end)]
        if len(words) <= LONGEST:
            yield start, end
            return
        middle, last = words[LONGEST // 2][0], words[LONGEST - 1][1]
        ends = [found.start() + 1 for found in _CLAUSE.finditer(line, middle, last)]
        strong = [at for at in ends if line[at - 1] != ","]
        cut = (strong or ends or [last])[-1]
        yield start, cut
        start = next(word[0] for word in words if word[0] >= cut)
