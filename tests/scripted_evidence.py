"""The verbs of ``triforce_core.EvidenceClient`` without a process: a passage is a sentence that shares words with the
question, in the order of how many."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from triforce_core.documents.document import Document
from triforce_core.errors import EvidenceDiedError
from triforce_core.events import Level, Passage, Passages, QuotePlace, SentenceSupport
from triforce_core.evidence.support import answer_sentences

_SENTENCE = re.compile(r"[A-Z][^.!?\n]{8,200}[.!?]")
_WORD = re.compile(r"\w{4,}")
_MOST = 8


class ScriptedEvidence:
    """level: of every question; None: it is a summary's. words: the app's own. first: seconds in which a first order
    (the passages back to front) is shown. dead: searching fails. judges: sentences of answers are. pid: as of the
    client."""

    def __init__(self, folder: Path | None = None) -> None:
        self.level: Level | None = "found"
        self.words, self.first, self.dead, self.judges = "", 0.0, False, False
        self.pid: int | None = None
        self.indexed: list[str] = []
        self.forgotten: list[str] = []
        self.asked: list[tuple[str, str, str]] = []
        self._closed = threading.Event()

    def forget(self, documents: Collection[str]) -> None:
        self.forgotten += documents

    def index(self, document: Document) -> None:
        self.indexed.append(document.id)

    def find(self, document: Document, question: str, before: str = "", said: str = "") -> Iterator[Passages]:
        self.asked.append((question, before, said))
        if self.dead or self._closed.is_set():
            raise EvidenceDiedError("The document could not be searched: it was ended from outside")
        found = tuple(self._passages(document, question))
        request = "summary" if self.level is None else "sentence"
        if self.first:
            yield Passages(question, request, found[::-1], self.level, self.words, final=False)
            self._closed.wait(self.first)
        yield Passages(question, request, found, self.level, self.words)

    def check(self, document: Document, answer: str, question: str = "", start: int = 0,
              whole: bool = True) -> Iterator[SentenceSupport]:
        """A sentence is supported where it stands, contradicted where it does but for "not", else not found."""
        for first, last in answer_sentences(answer if self.judges else ""):
            if first < start or not (whole or answer[last:].strip()):
                continue
            sentence = answer[first:last]
            for verdict, words in (("supported", sentence), ("contradicted", sentence.replace(" not ", " "))):
                there = [(number, page, page.text.find(words)) for number, page in enumerate(document.pages, start=1)]
                found = [(number, page, at) for number, page, at in there if at >= 0]
                if found:
                    number, page, at = found[0]
                    place = QuotePlace(number, page.label, at, at + len(words))
                    yield SentenceSupport(first, last, verdict, 0.9, (place,))
                    break
            else:
                yield SentenceSupport(first, last, "not found", 0.1)

    def close(self) -> None:
        self._closed.set()

    @staticmethod
    def _passages(document: Document, question: str) -> list[Passage]:
        wanted, found = {*_WORD.findall(question.lower())}, list[tuple[int, Passage]]()
        for number, page in enumerate(document.pages, start=1):
            for match in _SENTENCE.finditer(page.text):
                shared = [word for word in _WORD.finditer(match[0]) if word[0].lower() in wanted]
                place = QuotePlace(number, page.label, *match.span())
                marks = tuple(word.span() for word in shared)
                marked = tuple(QuotePlace(number, page.label, match.start() + low, match.start() + high)
                               for low, high in marks)
                found.append((-len(shared), Passage((place,), match[0], (f"Part {number}",), "", marks, marked,
                                                    chance=0.9 - len(found) / 100)))
        return [passage for _, passage in sorted(found, key=lambda one: one[0])][:_MOST]
