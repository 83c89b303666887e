"""Order texts by the words that they share with a question (BM25; Robertson and Zaragoza 2009, section 3.2)."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Sequence

import numpy as np

from .vectors import stem

_K1, _B = 1.2, 0.75
_ALIKE = 0.75  # ratio of letters in common from which a word may be another with a typing error
_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    "a an the of to in on at by for from with and or is are was were be been it its this that these "
    "those as do does did i you he she we they my your what which who whom when where why how can "
    "could may might will would should shall must have has had not no if than then so there any some "
    "about into".split())


def telling(text: str, language: str = "en") -> list[str]:
    """Return the stems of a text in order, without those of small words. language: a code, as of ``stem``."""
    return [stem(word, language) for word in _WORD.findall(text.lower()) if word not in _STOP]


class BM25:
    """An index over texts, such as a document's passages."""

    def __init__(self, texts: Sequence[Sequence[str]], language: str = "en",
                 english: Container[str] = frozenset()) -> None:
        """texts: the stems of each, as of ``telling``; language: theirs; english: stems that are no typing errors."""
        self._size, self._language, self._english = len(texts), language, english
        lengths = np.zeros(len(texts), np.float32)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, text in enumerate(texts):
            counts = Counter(text)
            lengths[number] = counts.total()
            for word, count in counts.items():
                postings[word].append((number, count))
        norm = _K1 * (1 - _B + _B * lengths / max(1.0, float(lengths.mean()) if len(texts) else 1.0))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._rare: dict[str, float] = {}
        for word, places in postings.items():
            at, times = (np.array(column) for column in zip(*places, strict=True))
            self._rare[word] = math.log(1 + (len(texts) - len(places) + 0.5) / (len(places) + 0.5))
            self._weights[word] = (at, self._rare[word] * times * (_K1 + 1) / (times + norm[at]))

    def __contains__(self, word: str) -> bool:
        """Return whether a text holds this stem."""
        return word in self._rare

    def scores(self, query: str) -> np.ndarray:
        """Return float32 [texts]."""
        scores = np.zeros(self._size, np.float32)
        for word in {self._meant(word) for word in telling(query, self._language)}:
            if word in self._weights:
                at, weights = self._weights[word]
                scores[at] += weights
        return scores

    def _meant(self, word: str) -> str:
        """Return a stem, or the text's that is spelt most like one that neither the texts nor English know."""
        if word in self._weights or word in self._english or len(word) < 4 or self._language != "en":
            return word  # of other languages we know too few words
        near = [known for known in self._weights if abs(len(known) - len(word)) < 3]
        return next(iter(difflib.get_close_matches(word, near, 1, _ALIKE)), word)

    def shared(self, query: str, text: str) -> float:
        """Return how much of a question's words a text holds, each counted by its rarity here."""
        both = set(telling(query, self._language)).intersection(telling(text, self._language))
        return sum(self._rare.get(word, 0.0) for word in both)

    def best(self, query: str, count: int, without: Collection[int] = ()) -> list[int]:
        """Return the numbers of the texts that fit best, best first; those that share no word are left out."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[: count + len(without)].tolist()
        return [at for at in order if scores[at] > 0 and at not in without][:count]
