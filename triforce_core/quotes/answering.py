"""How a model that can only quote answers a line: which sentences it chooses among and how they are preferred, which
it has
to quote, and what the app says in its own words."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .line_roles import Role
from .question_words import points_back
from .request_kind import RequestKind, request_kind
from .sentence_index import SentenceIndex
from .sentence_prior import SentencePrior
from .summary import chosen, quotable, scope_of, summary_features, with_lead_in

NOT_FOUND = "I found no sentence that clearly answers this. Closest:"
_OWN_WORDS = {
    RequestKind.SOCIAL: "You are welcome to ask about this document: I answer with sentences quoted from it.",
    RequestKind.ABOUT_APP: "I am the small built-in model of this app: I answer questions about this document in "
    "English, with sentences quoted from it. For anything else, load a chat model under Models.",
    RequestKind.TASK: "I can only quote from this document. To translate, rewrite or write something new, load a chat "
    "model under Models.",
    RequestKind.LANGUAGE: "I only understand English. To ask in another language, load a chat model under Models.",
    RequestKind.OUTSIDE: "I only know what this document says. For other questions, load a chat model under Models.",
}
THRESHOLD = 0.3  # confidence below which the answer says that it found none; see docs/measurements.md
_DIGEST, _CLOSEST, _AROUND = 4, 3, 2  # sentences of a digest, beside "no sentence", around the last quotation
_FAR = 6.0  # nats behind the best: no part of a list
_QUOTED = re.compile("“([^”]*)”")


@dataclass(frozen=True, eq=False)
class AnswerPlan:
    """scores: nats [sentences], how a quotation is preferred to others. words: what the answer begins with. spans: the
    (first, last) sentences to quote then, in order; none: the model chooses one, or nothing is quoted if there are
    words.
    confidence: the chance that the document answers; answerable: False where it is too low; None: no such question."""

    kind: RequestKind
    scores: np.ndarray
    words: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    confidence: float | None = None
    answerable: bool | None = None


class Answering:
    """Plans answers about one document. Pure: the same question and history give the same plan."""

    def __init__(self, index: SentenceIndex, prior: SentencePrior) -> None:
        self.index, self._prior = index, prior

    def plan(self, question: str, before: str = "", said: str = "") -> AnswerPlan:
        """before: the question before this one; said: the answer to it."""
        kind, index = request_kind(question), self.index
        if kind is RequestKind.MORE and not self._around(said):
            kind = RequestKind.SENTENCE
        if kind is RequestKind.LANGUAGE and self._speaks(question):
            kind = RequestKind.SENTENCE
        if not index.size or kind in _OWN_WORDS:
            return AnswerPlan(kind, np.zeros(index.size, np.float32), _OWN_WORDS.get(kind, ""))
        if kind is RequestKind.MORE:
            return AnswerPlan(kind, np.zeros(index.size, np.float32), spans=self._around(said))
        before = before if points_back(question) else ""
        scores = self._prior.scores(index, question, before)
        if kind is RequestKind.SUMMARY:
            return AnswerPlan(kind, scores, spans=self._digest(question))
        confidence = self._prior.confidence(index, question, scores, before)
        if confidence < THRESHOLD:
            closest = np.argsort(-scores, kind="stable")[:_CLOSEST].tolist()
            return AnswerPlan(kind, scores, NOT_FOUND, tuple(with_lead_in(index, closest)), confidence, False)
        spans = self._several(question, scores) if kind is RequestKind.SEVERAL else ()
        return AnswerPlan(kind, scores, spans=spans, confidence=confidence, answerable=True)

    def _digest(self, question: str) -> tuple[tuple[int, int], ...]:
        scope = scope_of(self.index, question)
        scores = self._prior.summary(summary_features(self.index, scope))
        return tuple(with_lead_in(self.index, chosen(self.index, scores, quotable(self.index) & scope, _DIGEST)))

    def _several(self, question: str, scores: np.ndarray) -> tuple[tuple[int, int], ...]:
        """The best that do not repeat each other, within the section that the question names, if it names one."""
        allowed = quotable(self.index) & scope_of(self.index, question)
        allowed &= scores > scores[allowed].max(initial=-np.inf) - _FAR
        return tuple(with_lead_in(self.index, chosen(self.index, scores, allowed, _DIGEST)))

    def _around(self, said: str) -> tuple[tuple[int, int], ...]:
        """What follows the last quotation of an answer in the document."""
        quoted = _QUOTED.findall(said)
        if not quoted:
            return ()
        last = "".join(quoted[-1].split())
        ends = [number for number, sentence in enumerate(self.index.sentences)
                if last.endswith("".join(sentence.split())) and len(sentence) > 3]
        if not ends:
            return ()
        following = range(ends[0] + 1, self.index.size)
        kept = [number for number in following if self.index.roles[number] not in (Role.HEADING, Role.CONTENTS)]
        return tuple((number, number) for number in kept[:_AROUND])

    def _speaks(self, question: str) -> bool:
        """Whether the document is in the question's language: it holds most of its words."""
        terms = self.index.terms(question)
        return sum(term in self.index.vocabulary for term in terms) * 2 > len(terms)
