"""BM25 over the passages of `triforce_core.evidence.passages`, for candidates and for comparison."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np
import snowballstemmer

from triforce_core.evidence.passages import Unit

K1, B = 1.2, 0.75  # of BM25
_WORD = re.compile(r"[a-z0-9]+")
_STOP = frozenset(
    "a an the of to in on at by for from with and or is are was were be been it its this that these "
    "those as do does did i you he she we they my your what which who whom when where why how can "
    "could may might will would should shall must have has had not no if than then so there any some "
    "about into ".split()
)


class Words:
    """Stems of texts; stop words are left out."""

    def __init__(self) -> None:
        self._stemmer, self._known = snowballstemmer.stemmer("english"), dict[str, str]()

    def of(self, text: str) -> list[str]:
        """In order."""
        found = []
        for word in _WORD.findall(text.lower()):
            if word not in _STOP:
                if word not in self._known:
                    self._known[word] = self._stemmer.stemWord(word)
                found.append(self._known[word])
        return found


class BM25:
    """Over the texts of a document's passages."""

    def __init__(self, texts: Sequence[str], words: Words) -> None:
        self._words, self._size = words, len(texts)
        lengths = np.zeros(len(texts), np.float32)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, text in enumerate(texts):
            counts = Counter(words.of(text))
            lengths[number] = counts.total()
            for word, count in counts.items():
                postings[word].append((number, count))
        norm = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean())))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, places in postings.items():
            at, count = (np.array(column) for column in zip(*places, strict=True))
            rare = math.log(1 + (len(texts) - len(places) + 0.5) / (len(places) + 0.5))
            self._weights[word] = (at, rare * count * (K1 + 1) / (count + norm[at]))

    def scores(self, query: str) -> np.ndarray:
        """fp32 [passages]."""
        scores = np.zeros(self._size, np.float32)
        for word in set(self._words.of(query)):
            if word in self._weights:
                at, weights = self._weights[word]
                scores[at] += weights
        return scores

    def best(self, query: str, count: int, without: Collection[int] = ()) -> list[int]:
        """Numbers of the passages that fit best, best first; those that share no word are left out."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[: count + len(without)].tolist()
        return [at for at in order if scores[at] > 0 and at not in without][:count]


def text_of(passage: Unit, sentences: Sequence[str]) -> str:
    """What words are counted in: its headings but the title, and its sentences."""
    return " ".join((*passage.path[1:], *(sentences[number] for number in passage.sentences)))
