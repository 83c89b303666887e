"""Plan how a model that can only quote answers a line: which sentences it chooses among or has to quote, and what the
app says in its own words.

In a summary each sentence has a score from where it stands, what it says of the text itself and how much of the whole
its words tell; the best that do not repeat each other are taken (Carbonell and Goldstein 1998)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .line_roles import Role
from .question import RequestKind, points_back, request_kind
from .ranking import Ranking, SentencePrior
from .sentence_index import SentenceIndex

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


_NAMES = (r"(?:report|paper|document|chapter|book|article|guide|handbook|manual|proposal|essay|speech|page|post|"
          r"section|PEP|RFC|"
          r"specification|standard|memo|opinion|case|appeal|agreement|contract|study|work|text|module|policy|tutorial)")
_OF_ITSELF = re.compile(rf"\b(?:[Tt]his|[Tt]he present|[Oo]ur) {_NAMES}\b|\b[Ww]e (?:propose|present|describe|show|"
                        rf"introduce|"
                        r"examine|discuss|argue|conclude|hold|affirm|review)\b|\b[Ii]n this " + _NAMES)
_DOES = re.compile(r"\b(?:describes?|propos\w+|defin\w+|discuss\w*|examin\w+|outlin\w+|provid\w+|explain\w*|"
                   r"introduc\w+|cover\w*|"
                   r"overview|purpose|goal|aim|allows?|specif\w+|presents?|explor\w+|summar\w+|focus\w*)\b")
_STRONG = re.compile(r"\b(?:important|key|main|most|must|should|need|first|conclu\w+|therefore|overall|in short|new|"
                     r"major|because|"
                     r"goal|principle|result|finding|recommend\w*|significant\w*|critical|essential)\b", re.IGNORECASE)
_OPENING = re.compile(r"\b(?:summary|abstract|introduction|overview|purpose|background|preface|about|objectives?|"
                      r"motivation)\b",
                      re.IGNORECASE)
_CLOSING = re.compile(r"\b(?:conclusions?|conclusion|closing|key (?:points|concepts|takeaways)|results|"
                      r"findings)\b", re.IGNORECASE)
_LEANS = re.compile(r"\A(?:This|These|It|They|That|Those|He|She|Such|However|But|And|Thus|Therefore|Moreover|For "
                    r"example|Then|So|In addition|Also|Another|Here|There)\b")
_IMPRINT = re.compile(r"\be-?books?\b|project gutenberg|\bcopyright|all rights reserved|\bisbn\b|©|if you are not "
                      r"located|"
                      r"\A(?:title|authors?|product type|publication date|published|version|status|credits?)\b.{0,20}:",
                      re.IGNORECASE)
_ENDED = re.compile(r"[.!?][\"')\]]*\Z")
_STARTS = (3, 10, 30)
_ALIKE = 0.5  # how much being like one already taken counts against a sentence
FEATURES = 26
LONGEST_QUOTATION = 80  # words


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """words: what the answer begins with. spans: the (first, last) sentences to quote then, in order. choices:
    passages, none overlapping another, of which the model quotes one instead; weights: nats [choices], how each is
    preferred. confidence: the chance that the document answers; None where that was not asked."""

    kind: RequestKind
    words: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, int], ...] = ()
    weights: tuple[float, ...] = ()
    confidence: float | None = None

    @property
    def answerable(self) -> bool | None:
        """Return whether the confidence is high enough; None where there is none."""
        return None if self.confidence is None else self.confidence >= THRESHOLD


class Answering:
    """Plans answers about one document; the same question and history give the same plan."""

    def __init__(self, index: SentenceIndex, prior: SentencePrior) -> None:
        self.index, self._prior = index, prior
        self._rankings: dict[tuple[str, str], Ranking] = {}  # by question and the one before, oldest first
        _ = index.meanings  # now, so that no question waits for them

    def plan(self, question: str, before: str = "", said: str = "") -> AnswerPlan:
        """Plan the answer to a question. before: the question before this one; said: the answer to it."""
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
            return AnswerPlan(kind, NOT_FOUND, choices[:_CLOSEST], confidence=confidence)
        if kind is RequestKind.SEVERAL:
            return AnswerPlan(kind, spans=self._several(question, scores), confidence=confidence)
        weights = tuple(float(scores[first : last + 1].max()) for first, last in choices)
        return AnswerPlan(kind, choices=choices, weights=weights, confidence=confidence)

    def _ranking(self, question: str, before: str) -> Ranking:
        """Return a ranking, the newest of which are kept: a race asks twice, and to read sentences takes a while."""
        if (question, before) not in self._rankings:
            self._rankings[question, before] = self._prior.ranking(self.index, question, before)
            if len(self._rankings) > _REMEMBERED:
                del self._rankings[next(iter(self._rankings))]
        return self._rankings[question, before]

    def _passages(self, scores: np.ndarray) -> tuple[tuple[int, int], ...]:
        """Return the best passages, best first: a sentence, with the one before where it leans on that, or else with a
        neighbour that scores nearly as high: often one names the thing and the other says what it is."""
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
        """Return the best that do not repeat each other, within the section that the question names, unless the best
        of all is far better than all of that section."""
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
        """Return whether the document holds most of the question's words, so that it is in its language."""
        terms = self.index.terms(question)
        return sum(term in self.index.vocabulary for term in terms) * 2 > len(terms)


def scope_of(index: SentenceIndex, question: str) -> np.ndarray:
    """Return bool [n]: the section that the question names by its heading, or the whole."""
    whole = np.ones(index.size, bool)
    terms = set(index.terms(question))
    best, found = 0.0, -1
    for line in np.flatnonzero(index.line_roles == Role.HEADING):
        sentence = index.first_sentence(int(line))
        words = set(index.terms(index.sentences[sentence]))
        share = len(words & terms) / max(1, len(words)) if words & terms else 0.0
        if share > max(best, 0.6 if len(words) > 1 else 0.99):
            best, found = share, sentence
    if found < 0:
        return whole
    inside = index.heading_of == found
    return inside if inside.sum() >= 2 else whole


def summary_features(index: SentenceIndex, scope: np.ndarray) -> np.ndarray:
    """Return float32 [n, FEATURES]: what speaks for each sentence as part of a summary of the scope."""

    def found(pattern: re.Pattern[str]) -> np.ndarray:
        return np.array([pattern.search(sentence) is not None for sentence in index.sentences])

    n = index.size
    at = np.maximum(np.cumsum(scope) - 1, 0)
    size = max(1, int(scope.sum()))
    vectors = index.mean_vectors
    middle = vectors[scope].mean(0)
    central = vectors @ (middle / max(float(np.linalg.norm(middle)), 1e-9))
    heads = [index.sentences[head] if head >= 0 else "" for head in index.heading_of]
    opening = np.array([_OPENING.search(head) is not None for head in heads])
    closing = np.array([_CLOSING.search(head) is not None for head in heads])
    under = at - np.maximum.accumulate(np.where(np.diff(index.heading_of, prepend=-2) != 0, at, 0))
    text = index.sentences
    lead = vectors[np.flatnonzero(scope)[:1]].mean(0)
    columns = [
        *(at < start for start in _STARTS), np.log1p(at) / 5, at / size, (at / size) > 0.95,
        opening, opening & (under < 3), closing, under == 0, under < 3,
        index.place_in_line == 0, central, central - central[scope].mean(), vectors @ lead,
        found(_OF_ITSELF), found(_DOES), found(_STRONG), found(_LEANS),
        np.array([sentence.rstrip("\"')”’").endswith("?") for sentence in text]),
        np.array([sentence[-1:] in ".!\"')" for sentence in text]),
        index.lengths < 8, index.lengths > 45, np.minimum(index.lengths, 60) / 30,
        index.roles == Role.ITEM, np.array([sum(c.isdigit() for c in sentence) > 3 for sentence in text]),
    ]  # fmt: skip
    assert len(columns) == FEATURES
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1).reshape(n, FEATURES)


def chosen(index: SentenceIndex, scores: np.ndarray, allowed: np.ndarray, count: int) -> list[int]:
    """Return the best ``count`` sentences that do not repeat each other, in the document's order."""
    left = np.where(allowed, scores, -np.inf)
    taken: list[int] = []
    while len(taken) < count and np.isfinite(left).any():
        best = int(left.argmax())
        taken.append(best)
        alike = index.mean_vectors @ index.mean_vectors[best]
        spread = max(float(np.std(scores[allowed])), 1e-6)
        less = scores - _ALIKE * spread * 4 * np.maximum(alike - 0.6, 0)
        left = np.where(np.isfinite(left), np.minimum(left, less), left)
        left[best] = -np.inf
        left[alike > 0.97] = -np.inf
    return sorted(taken)


def quotable(index: SentenceIndex) -> np.ndarray:
    """Return bool [n]: what may stand in a list of quotations: text of some words, but no imprint."""
    good = (index.roles == Role.PROSE) | (index.roles == Role.ITEM)
    good &= np.array([_IMPRINT.search(sentence) is None for sentence in index.sentences], bool)
    return good & (index.lengths >= 4) & (index.lengths <= LONGEST_QUOTATION)


def finished(index: SentenceIndex) -> np.ndarray:
    """Return bool [n]: whether a sentence ends as one, which titles do not."""
    return np.array([_ENDED.search(sentence) is not None for sentence in index.sentences], bool)


def with_lead_in(index: SentenceIndex, sentences: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last sentence to quote for each: it begins with one before it, on the same line, where
    its first word speaks of that."""
    spans = []
    for number in sentences:
        before = number - 1
        beside = before >= 0 and index.line_of[before] == index.line_of[number]
        room = beside and index.lengths[before] + index.lengths[number] <= LONGEST_QUOTATION
        spans.append((before if room and _LEANS.match(index.sentences[number]) else number, number))
    return spans
