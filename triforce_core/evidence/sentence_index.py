"""Index the sentences of a document, in a second or so, and measure how each fits a question: the features of
``ranking``, from counts of words and their vectors."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .line_roles import Role, line_roles
from .question import WORD, Asks, asks, subject_words
from .vectors import SentenceVectors, WordVectors, stem, unit

_SATURATION, _LENGTH = 1.2, 0.5  # k1 and b of BM25 (Robertson and Zaragoza 2009, section 3.2)
_SOFT = 0.3  # words whose vectors are less alike than this have nothing to do with each other
_SIGNS = tuple(re.compile(pattern) for pattern in (
    r"\b(?:1[0-9]|20)\d\d\b|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b",
    r"\d",
    r"[$€£]\s?\d|\b(?:dollars|pounds|euros|cents)\b",
    r"\d\s?%|\bpercent\b",
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|hundred|thousand|million|dozen|half)\b",
    r"(?<=[a-z,] )[A-Z][a-z]+ [A-Z][a-z]+|\b(?:Mr|Mrs|Dr|Sir|Prof)\b",
    r"(?<=[a-z,] )[A-Z][a-zA-Z]+",
    r"\b(?:because|since|so that|in order to|due to|as a result|therefore|thus|reason|cause[sd]?|otherwise|result(?:s|"
    r"ed)? in|leads? to|led to|to (?:avoid|prevent|ensure|reduce|protect|allow|help|make))\b",
    r"\b(?:is|are|was|were) (?:an?|the|one of|any|defined|called|known)\b",
    r"\b(?:means?|refers? to|defined as|called|known as|i\.e\.|that is|consists? of|denotes?|represents?|term)\b",
    r"\b(?:must|shall|required?|requires|need to|needs to|have to|has to|mandatory|obligat\w+|MUST|SHALL|REQUIRED)\b",
    r"\b(?:should|may|can|allowed|permit\w*|prohibit\w*|cannot|not be|SHOULD|MAY|recommend\w*|forbid\w*|unlawful)\b",
    r"\b(?:in|at|near|from|to) (?:the )?[A-Z][a-z]+",
    r"\b(?:by|using|through|via|first|then|step)\b",
    r"\b(?:not|no|never|none|neither|without|fail\w*)\b",
    r"\b(?:but|however|although|though|despite|instead|rather|while)\b",
    r"\b(?:day|days|hour|hours|year|years|month|months|minute|minutes|weeks?|decades?)\b",
    r"^(?:This|These|It|They|That|Those|He|She|Such|However|But|And|Thus|Therefore|In addition|Moreover|For example)\b",
    r"\?[\"')]*$",
    r"[.!][\"')\]]*$",
    r":$",
    r"^[A-Z][\w() /-]{1,30}: \S",
))  # fmt: skip
# Stems of the words that stand between a term and what it means.
_DEFINING = ("is", "are", "was", "were", "mean", "refer", "defin", "call", "known", "denot", "consist", "describ",
             "term", "includ")
_BEFORE_DEFINING, _CLOSE, _OPENING_WORDS = 9, 6, 8  # words


class SentenceIndex:
    """The n sentences of a document in its order, on lines: paragraphs, headings, rows and items."""

    def __init__(self, sentences: Sequence[str], lines: Sequence[int] | np.ndarray, vectors: WordVectors) -> None:
        """lines: the number of the line on which each sentence stands, ascending."""
        assert len(sentences) == len(lines)
        self._vectors = vectors
        self._corrected: dict[str, str] = {}  # stems of words that nobody knows: looking for the nearest takes 10 ms
        self.sentences, self.size = list(sentences), len(sentences)
        self.line_of = np.unique(np.asarray(lines, np.int64), return_inverse=True)[1].reshape(-1)
        self._line_starts = np.flatnonzero(np.diff(self.line_of, prepend=-1))
        ends = [*self._line_starts[1:], self.size][: len(self._line_starts)]  # none of a document without sentences
        texts = [" ".join(self.sentences[first:last]) for first, last in zip(self._line_starts, ends, strict=True)]
        self.line_roles = np.array(line_roles(texts), np.int64)
        self.roles = self.line_roles[self.line_of]
        self._index_words()
        self.heading_of = self._headings()
        self.signs = np.array([[pattern.search(text) is not None for pattern in _SIGNS] for text in self.sentences],
                              np.float32).reshape(self.size, len(_SIGNS))

    def _index_words(self) -> None:
        raw = [WORD.findall(sentence.lower()) for sentence in self.sentences]
        self._spellings = Counter(word for words in raw for word in words)
        self.vocabulary: dict[str, int] = {}
        known = self.vocabulary
        numbers = [[known.setdefault(stem(word), len(known)) for word in words] for words in raw]
        self.lengths = np.array([len(words) for words in numbers], np.int64)
        # A sentence without words has one that is nobody's, so that every one has a stretch of its own.
        nobody = len(known)
        self._words = np.array([number for words in numbers for number in (words or [nobody])], np.int64)
        self._starts = np.concatenate(([0], np.cumsum(np.maximum(self.lengths, 1))[:-1])).astype(np.int64)
        owner = np.repeat(np.arange(self.size), np.maximum(self.lengths, 1))
        pairs = np.unique(owner * (nobody + 1) + self._words)
        self._held_in = np.bincount(pairs % (nobody + 1), minlength=nobody + 1)  # sentences that hold each word
        stems = [*known, ""]
        self._word_vectors, rarity = self._vectors.of(stems)
        weighted = self._word_vectors[self._words] * rarity[self._words, None]
        self.mean_vectors = unit(np.add.reduceat(weighted, self._starts) if self.size else weighted)

    def _headings(self) -> np.ndarray:
        """Return [n]: the first sentence of the heading above each sentence; -1 before the first heading."""
        heads = np.where(self.line_roles == Role.HEADING, self._line_starts, -1)
        own = np.maximum.accumulate(heads)[self.line_of]
        return np.where(own == np.arange(self.size), -1, own)

    @property
    def place_in_line(self) -> np.ndarray:
        """Return [n]: how many sentences stand before each one on its line."""
        place: np.ndarray = np.arange(self.size) - self._line_starts[self.line_of]
        return place

    def first_sentence(self, line: int) -> int:
        """Return the first sentence of a line, counted from 0."""
        return int(self._line_starts[line])

    def lead_in(self, sentence: int) -> str:
        """Return the sentence with a colon that introduces an item's list, or the first row of a row's table; "" where
        there is none, as for every other sentence."""
        role, line = self.roles[sentence], int(self.line_of[sentence])
        if role not in (Role.ITEM, Role.ROW):
            return ""
        first = line
        while first > 0 and self.line_roles[first - 1] == role:
            first -= 1
        if role == Role.ROW:
            return self._line(first) if first < line else ""
        above = self._line(first - 1) if first else ""
        return self.sentences[int(self._line_starts[first]) - 1] if above.endswith(":") else ""

    def _line(self, line: int) -> str:
        end = self._line_starts[line + 1] if line + 1 < len(self._line_starts) else self.size
        return " ".join(self.sentences[self._line_starts[line] : end])

    @cached_property
    def meanings(self) -> np.ndarray:
        """Return ``SentenceVectors`` of the sentences [n, dimensions]; a novel takes a second."""
        return SentenceVectors.shipped().of(self.sentences)

    @cached_property
    def centrality(self) -> np.ndarray:
        """Return [n]: how near each sentence's words lie to those of the whole document."""
        prose = (self.roles == Role.PROSE) | (self.roles == Role.ITEM)
        middle = self.mean_vectors[prose].mean(0) if prose.any() else np.zeros(self.mean_vectors.shape[1])
        return self.mean_vectors @ (middle / max(float(np.linalg.norm(middle)), 1e-9))

    def terms(self, question: str) -> list[str]:
        """Return stems of its subject words; one that neither the document nor English knows stands for the document's
        word that is spelt most like it."""
        found = []
        for word in subject_words(question):
            term = stem(word)
            if term not in self.vocabulary and term not in self._vectors.number and len(word) > 3:
                if word not in self._corrected:
                    near = [known for known in self._spellings if abs(len(known) - len(word)) < 3]
                    alike = difflib.get_close_matches(word, near, 1, 0.75)
                    self._corrected[word] = stem(alike[0]) if alike else term
                term = self._corrected[word]
            found.append(term)
        return list(dict.fromkeys(found)) or [""]  # no word: one that stands nowhere

    def stems(self, words: Sequence[str]) -> list[str]:
        """Return stems of words as ``WORD`` finds them, each once."""
        return list(dict.fromkeys(map(stem, words)))

    def in_english(self, terms: Sequence[str]) -> bool:
        """Return whether the word vectors, which are of English, know most of these stems."""
        return 2 * sum(term in self._vectors.number or term[0].isdigit() for term in terms) > len(terms)

    def rarity_of(self, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return how many sentences hold each term [terms], and how rare it is in English, in nats [terms]."""
        held = np.array([self._held_in[self.vocabulary[term]] if term in self.vocabulary else 0 for term in terms])
        return held, self._vectors.of(list(terms))[1]

    def bm25(self, question: str) -> np.ndarray:
        """Return float32 [n]: BM25 (Robertson and Zaragoza 2009, section 3.2) of every sentence."""
        terms = self.terms(question)
        _, times = self.matches(terms)
        held, _ = self.rarity_of(terms)
        return self.inverse(held) @ self._saturated(times)

    def inverse(self, held: np.ndarray) -> np.ndarray:
        """Return how rare terms are that so many sentences hold, as BM25 counts it: nats [terms]."""
        inverse: np.ndarray = np.log(1 + (self.size - held + 0.5) / (held + 0.5)).astype(np.float32)
        return inverse

    def _saturated(self, times: np.ndarray) -> np.ndarray:
        damping = _SATURATION * (1 - _LENGTH + _LENGTH * self.lengths / max(1.0, float(self.lengths.mean())))
        saturated: np.ndarray = times * (_SATURATION + 1) / (times + damping[None, :])
        return saturated

    def matches(self, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return (alike, times), both [terms, n]: how alike the most similar word of each sentence is to each term, 1
        for the term itself; and how often the term stands there."""
        vectors, _ = self._vectors.of(list(terms))
        alike = vectors @ self._word_vectors.T
        numbers = np.array([self.vocabulary.get(term, -1) for term in terms], np.int64)
        alike[:, -1] = 0.0
        alike = np.minimum(alike, 0.95)
        for row, number in enumerate(numbers):
            if number >= 0:
                alike[row, number] = 1.0
        spread = alike[:, self._words]
        times = np.add.reduceat(self._words[None, :] == numbers[:, None], self._starts, axis=1, dtype=np.float32)
        return np.maximum.reduceat(spread, self._starts, axis=1), times

    def features(self, question: str, before: str = "") -> np.ndarray:
        """Return float32 [n, features]: how each sentence fits the question. before: the question that this one points
        back to, whose words count half."""
        terms = self.terms(question)
        weights = np.ones(len(terms), np.float32)
        if before:
            more = [term for term in self.terms(before) if term not in terms]
            terms, weights = terms + more, np.concatenate((weights, np.full(len(more), 0.5, np.float32)))
        held, rarity = self.rarity_of(terms)
        alike, times = self.matches(terms)
        inverse = self.inverse(held) * weights
        overlap = self._overlap(alike, times, inverse, rarity * weights, terms)
        order = self._order(terms, inverse)
        return np.concatenate((overlap, self._form(question), order,
                               self._with_context(self.likeness(question, before))), axis=1)

    def _order(self, terms: Sequence[str], inverse: np.ndarray) -> np.ndarray:
        """Return float32 [n, 6]: how the question's words that the document holds stand: pairs that follow each other
        as there, in the sentence and on its line; at its beginning; before a word that defines."""
        known = [at for at, term in enumerate(terms) if term in self.vocabulary]
        flat, word, everything = self._words, np.arange(len(self._words)), max(float(inverse[known].sum()), 1e-6)
        place = word - np.repeat(self._starts, np.maximum(self.lengths, 1))
        pairs, on_line, leading = np.zeros((3, self.size), np.float32)
        before, close = np.zeros(len(flat), np.float32), np.zeros(len(flat), bool)
        both, last = 1e-6, None  # all pairs' weight; the term before: its place among the terms, and where it stands
        for at in known:
            here, weight = flat == self.vocabulary[terms[at]], float(inverse[at])
            leading += weight * self._any(here & (place < _OPENING_WORDS))
            counted = np.concatenate(([0], np.cumsum(here)))
            before += weight * (counted[word] > counted[word - np.minimum(place, _BEFORE_DEFINING)])
            close |= counted[word] > counted[word - np.minimum(place, _CLOSE)]
            if last is not None:
                weight += float(inverse[last[0]])
                held = self._any(np.concatenate((last[1][:-1] & here[1:] & (place[1:] > 0), [False])))
                both += weight
                pairs += weight * held
                on_line += weight * np.maximum.reduceat(held, self._line_starts)[self.line_of]
            last = (at, here)
        verbs = np.isin(flat, [self.vocabulary[stem] for stem in _DEFINING if stem in self.vocabulary])
        defined = np.maximum.reduceat(np.where(verbs & close, before, 0.0), self._starts)
        columns = [pairs / both, (pairs - pairs.max()) / both, on_line / both, leading / everything,
                   defined / everything, (defined - defined.max()) / everything]
        return np.stack(columns, axis=1).astype(np.float32)

    def _any(self, words: np.ndarray) -> np.ndarray:
        """Return float32 [n]: 1 where a sentence holds such a word. words: bool, of ``_words``."""
        found: np.ndarray = np.maximum.reduceat(words, self._starts).astype(np.float32)
        return found

    def likeness(self, question: str, before: str = "") -> np.ndarray:
        """Return float32 [n]: how near what the question is about lies to what each sentence is about."""
        near: np.ndarray = self.meanings @ SentenceVectors.shipped().of([f"{question} {before}".strip()])[0]
        return near

    def _with_context(self, near: np.ndarray) -> np.ndarray:
        """Return float32 [n, 8] from near [n]: that of the sentence, the best of its line, its neighbours', its
        heading's; and where it stands among the document's."""
        line = np.maximum.reduceat(near, self._line_starts)[self.line_of]
        heading = np.where(self.heading_of >= 0, near[self.heading_of], 0.0)
        order = np.argsort(np.argsort(-near, kind="stable"), kind="stable")
        columns = [near, line, _moved(near, 1), _moved(near, -1), heading, near - near.max(),
                   (near - near.mean()) / max(float(near.std()), 1e-6), np.log1p(order) / 5]
        return np.stack(columns, axis=1).astype(np.float32)

    def _overlap(self, alike: np.ndarray, times: np.ndarray, inverse: np.ndarray, rarity: np.ndarray,
                 terms: Sequence[str]) -> np.ndarray:
        """Measure how words of sentence, paragraph, neighbours and heading fit the question's."""
        bm25 = inverse @ self._saturated(times)
        exact = (alike >= 0.999).astype(np.float32)
        soft = np.maximum(alike - _SOFT, 0) / (1 - _SOFT)
        line = np.maximum.reduceat(soft, self._line_starts, axis=1)[:, self.line_of]
        exact_line = np.maximum.reduceat(exact, self._line_starts, axis=1)[:, self.line_of]
        previous, following = _moved(soft, 1), _moved(soft, -1)
        heading = np.where(self.heading_of[None, :] >= 0, soft[:, self.heading_of], 0.0)
        line_heading = np.where(self.heading_of[None, :] >= 0, line[:, self.heading_of], 0.0)
        inverse_all, rarity_all = max(float(inverse.sum()), 1e-6), max(float(rarity.sum()), 1e-6)
        around = np.maximum.reduce((soft, previous, following, heading))
        asked = self._vectors.of(list(terms))[0] * rarity[:, None]
        wanted = asked.sum(0) / max(float(np.linalg.norm(asked.sum(0))), 1e-9)
        near = self.mean_vectors @ wanted
        line_near = np.maximum.reduceat(near, self._line_starts)[self.line_of]
        rarest = int(np.argmax(inverse)) if len(inverse) else 0
        columns = [
            bm25 / 10, bm25 / inverse_all, inverse @ exact / inverse_all, rarity @ exact / rarity_all,
            inverse @ soft / inverse_all, rarity @ soft / rarity_all, inverse @ soft / 10,
            inverse @ line / inverse_all, inverse @ exact_line / inverse_all, rarity @ line / rarity_all,
            inverse @ previous / inverse_all, inverse @ following / inverse_all,
            inverse @ heading / inverse_all, inverse @ line_heading / inverse_all, inverse @ around / inverse_all,
            exact[rarest], soft[rarest], soft.min(0), (soft > 0.35).mean(0), (exact > 0).sum(0) / 5.0,
            near, line_near, _moved(near, 1), _moved(near, -1),
            np.where(self.heading_of >= 0, near[self.heading_of], 0.0),
            near - near.mean(),
        ]  # fmt: skip
        scores = np.stack(columns, axis=1).astype(np.float32)
        # How far behind the best of the document: what counts is the order, not the level.
        best = scores[:, [0, 4, 5, 7, 14, 20]]
        return np.concatenate((scores, best - best.max(0, keepdims=True)), axis=1)

    def _form(self, question: str) -> np.ndarray:
        """Return what a sentence looks like, and what kind of answer is wanted."""
        kind = np.zeros((self.size, len(Asks)), np.float32)
        kind[:, asks(question)] = 1.0
        roles = np.eye(len(Role), dtype=np.float32)[self.roles]
        place = np.arange(self.size) / max(1, self.size - 1)
        shape = np.stack((np.log1p(self.lengths), (self.lengths < 5), (self.lengths > 60), place, place < 0.05,
                          self.place_in_line == 0, self.centrality), axis=1).astype(np.float32)
        words = np.full((self.size, 1), min(len(question.split()), 20) / 10, np.float32)
        return np.concatenate((shape, words, roles, kind, self.signs), axis=1)


def _moved(rows: np.ndarray, by: int) -> np.ndarray:
    """Return columns moved by one place, zeros where none comes from."""
    moved = np.roll(rows, by, axis=-1)
    moved[..., 0 if by > 0 else -1] = 0
    return moved
