"""How a model that can only quote answers a line: which sentences it chooses among and how they are preferred, which
it has to quote, and what the app says in its own words."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .line_roles import Role
from .question_words import points_back
from .request_kind import RequestKind, request_kind
from .sentence_index import SentenceIndex
from .sentence_prior import Ranking, SentencePrior
from .summary import LONGEST_QUOTATION, chosen, finished, quotable, scope_of, summary_features, with_lead_in

NOT_FOUND = "I found no sentence that clearly answers this. Closest:"
_OWN_WORDS = {
    RequestKind.SOCIAL: "I am the small built-in model of this app. You are welcome to ask about this document, in "
    "English: I answer with sentences quoted from it. For anything else, load a chat model under Models.",
    RequestKind.TASK: "I can only quote from this document. To translate, rewrite or write something new, load a chat "
    "model under Models.",
    RequestKind.LANGUAGE: "I only understand English. To ask in another language, load a chat model under Models.",
}
THRESHOLD = 0.43  # confidence below which the answer says that it found none; see docs/measurements.md
_DIGEST, _CLOSEST, _AROUND = 5, 3, 2  # sentences of a digest, beside "no sentence", around the last quotation
_REMEMBERED = 8  # questions
_CHOICES = 8  # passages that the model chooses from
_NEAR = 3.0  # nats behind the best: a neighbour that is quoted with it
_FAR = 6.0  # nats behind the best: no part of a list
_QUOTED = re.compile("“([^”]*+)(”?)")  # one that is open to the end is read once


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """words: what the answer begins with. spans: the (first, last) sentences to quote then, in order. choices:
    passages, none overlapping another, of which the model quotes one instead; weights: nats [choices], how each is
    preferred. confidence: the chance that the document answers; answerable: False where it is too low; None: no such
    question."""

    kind: RequestKind
    words: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, int], ...] = ()
    weights: tuple[float, ...] = ()
    confidence: float | None = None
    answerable: bool | None = None


class Answering:
    """Plans answers about one document. Pure: the same question and history give the same plan."""

    def __init__(self, index: SentenceIndex, prior: SentencePrior) -> None:
        self.index, self._prior = index, prior
        self._rankings: dict[tuple[str, str], Ranking] = {}  # by question and the one before, oldest first
        _ = index.meanings  # now, so that no question waits for them

    def plan(self, question: str, before: str = "", said: str = "") -> AnswerPlan:
        """before: the question before this one; said: the answer to it."""
        kind = request_kind(question)
        around = self._around(said) if kind is RequestKind.MORE else ()
        if (kind is RequestKind.MORE and not around) or (kind is RequestKind.LANGUAGE and self._speaks(question)):
            kind = RequestKind.SENTENCE
        if not self.index.size or kind in _OWN_WORDS:
            return AnswerPlan(kind, _OWN_WORDS.get(kind, ""))
        if kind is RequestKind.MORE:
            return AnswerPlan(kind, spans=around)
        if kind is RequestKind.SUMMARY:
            return AnswerPlan(kind, spans=self._digest(question))
        before = before if points_back(question) else ""
        ranking = self._ranking(question, before)
        scores, confidence = ranking.scores, ranking.confidence
        choices = self._passages(scores)
        if confidence < THRESHOLD:
            return AnswerPlan(kind, NOT_FOUND, choices[:_CLOSEST], confidence=confidence, answerable=False)
        if kind is RequestKind.SEVERAL:
            return AnswerPlan(kind, spans=self._several(question, scores), confidence=confidence, answerable=True)
        weights = tuple(float(scores[first : last + 1].max()) for first, last in choices)
        return AnswerPlan(kind, choices=choices, weights=weights, confidence=confidence, answerable=True)

    def _ranking(self, question: str, before: str) -> Ranking:
        """The newest are kept: a race asks twice, and to read sentences takes a while."""
        if (question, before) not in self._rankings:
            self._rankings[question, before] = self._prior.ranking(self.index, question, before)
            if len(self._rankings) > _REMEMBERED:
                del self._rankings[next(iter(self._rankings))]
        return self._rankings[question, before]

    def _passages(self, scores: np.ndarray) -> tuple[tuple[int, int], ...]:
        """The best passages, best first: a sentence, with the one before where it leans on that, or else with a
        neighbour that the prior likes nearly as much: often one names the thing and the other tells."""
        taken: list[tuple[int, int]] = []
        free = np.ones(self.index.size + 1, bool)  # the last: for looking one place behind the end
        for best in np.argsort(-scores, kind="stable")[: 4 * _CHOICES].tolist():
            if not free[best]:
                continue
            (first, last), line = with_lead_in(self.index, [best])[0], self.index.line_of[best]
            beside = [at for at in (best - 1, best + 1) if first == last and 0 <= at < self.index.size and free[at]
                      and self.index.line_of[at] == line and scores[at] > scores[best] - _NEAR
                      and self.index.lengths[at] + self.index.lengths[best] <= LONGEST_QUOTATION]
            if beside:
                other = max(beside, key=lambda at: float(scores[at]))
                first, last = min(best, other), max(best, other)
            if not free[first : last + 1].all():
                first = last = best
            free[first : last + 1] = False
            taken.append((first, last))
            if len(taken) == _CHOICES:
                break
        return tuple(taken)

    def _digest(self, question: str) -> tuple[tuple[int, int], ...]:
        scope = scope_of(self.index, question)
        scores = self._prior.summary(summary_features(self.index, scope))
        allowed = quotable(self.index) & finished(self.index) & scope
        return tuple(with_lead_in(self.index, chosen(self.index, scores, allowed, _DIGEST)))

    def _several(self, question: str, scores: np.ndarray) -> tuple[tuple[int, int], ...]:
        """The best that do not repeat each other, within the section that the question names, if it names one and the
        best of all is not far better than all of that section."""
        everywhere = quotable(self.index)
        allowed = everywhere & scope_of(self.index, question)
        if scores[everywhere].max(initial=-np.inf) > scores[allowed].max(initial=-np.inf) + _FAR:
            allowed = everywhere
        allowed &= scores > scores[allowed].max(initial=-np.inf) - _FAR
        return tuple(with_lead_in(self.index, chosen(self.index, scores, allowed, _DIGEST)))

    def _around(self, said: str) -> tuple[tuple[int, int], ...]:
        """Return what follows the last quotation of an answer in the document."""
        quoted = [words for words, closed in _QUOTED.findall(said) if closed]
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
