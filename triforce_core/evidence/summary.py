"""Which sentences tell what a document, or a section of it, is about: extractive summaries.

Each sentence has a score from where it stands, what it says of the text itself and how much of the whole its words
tell;
taken are the best that do not repeat each other (maximal marginal relevance, Carbonell and Goldstein 1998)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from .line_roles import Role
from .sentence_index import SentenceIndex

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
_LEANS = re.compile(r"(?:This|These|It|They|That|Those|He|She|Such|However|But|And|Thus|Therefore|Moreover|For "
                    r"example|Then|So|"
                    r"In addition|Also|Another|Here|There)\b")
_IMPRINT = re.compile(r"\be-?books?\b|project gutenberg|\bcopyright|all rights reserved|\bisbn\b|©|if you are not "
                      r"located|"
                      r"\A(?:title|authors?|product type|publication date|published|version|status|credits?)\b.{0,20}:",
                      re.IGNORECASE)
_ENDED = re.compile(r"[.!?][\"')\]]*\Z")
_STARTS = (3, 10, 30)
_ALIKE = 0.5  # how much being like one already taken counts against a sentence
FEATURES = 26
LONGEST_QUOTATION = 80  # words


def scope_of(index: SentenceIndex, question: str) -> np.ndarray:
    """bool [n]: the section that the question names by its heading, or the whole."""
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
    """[n, FEATURES] float32: what speaks for each sentence as part of a summary of the scope."""
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
        np.array([_OF_ITSELF.search(sentence) is not None for sentence in text]),
        np.array([_DOES.search(sentence) is not None for sentence in text]),
        np.array([_STRONG.search(sentence) is not None for sentence in text]),
        np.array([_LEANS.match(sentence) is not None for sentence in text]),
        np.array([sentence.rstrip("\"')”’").endswith("?") for sentence in text]),
        np.array([sentence[-1:] in ".!\"')" for sentence in text]),
        index.lengths < 8, index.lengths > 45, np.minimum(index.lengths, 60) / 30,
        index.roles == Role.ITEM, np.array([sum(c.isdigit() for c in sentence) > 3 for sentence in text]),
    ]  # fmt: skip
    assert len(columns) == FEATURES
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1).reshape(n, FEATURES)


def chosen(index: SentenceIndex, scores: np.ndarray, allowed: np.ndarray, count: int) -> list[int]:
    """The best ``count`` sentences that do not repeat each other, in the document's order."""
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
    """bool [n]: what may stand in a list of quotations: text of some words, but no imprint."""
    good = (index.roles == Role.PROSE) | (index.roles == Role.ITEM)
    good &= np.array([_IMPRINT.search(sentence) is None for sentence in index.sentences], bool)
    return good & (index.lengths >= 4) & (index.lengths <= LONGEST_QUOTATION)


def finished(index: SentenceIndex) -> np.ndarray:
    """bool [n]: whether a sentence ends as one, which titles do not."""
    return np.array([_ENDED.search(sentence) is not None for sentence in index.sentences], bool)


def leans_back(sentence: str) -> bool:
    """Whether it begins with a word that speaks of the sentence before it."""
    return _LEANS.match(sentence) is not None


def with_lead_in(index: SentenceIndex, sentences: Sequence[int]) -> list[tuple[int, int]]:
    """Return, for each sentence, the first and the last to quote: with the one before it where it leans on that, on one
    line."""
    spans = []
    for number in sentences:
        before = number - 1
        leans = before >= 0 and index.line_of[before] == index.line_of[number] and leans_back(index.sentences[number])
        room = leans and index.lengths[before] + index.lengths[number] <= LONGEST_QUOTATION
        spans.append((before if room else number, number))
    return spans
