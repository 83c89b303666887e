"""Vectors of words, so that "pay" finds "contribute": trained by ``training/words.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assets import WORDS_FOLDER

if TYPE_CHECKING:
    pass

_AT_ONCE = 1024  # texts
_REMEMBERED = 1 << 17  # words
_ALGORITHMS = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian", "pt": "portuguese",
               "nl": "dutch", "sv": "swedish", "da": "danish", "no": "norwegian", "nn": "norwegian", "fi": "finnish",
               "hu": "hungarian", "ro": "romanian", "ru": "russian", "tr": "turkish", "ca": "catalan"}
_ELIDING = ("fr", "it", "ca")


class WordVectors:
    """vectors: float32 [words, dimensions], of length 1, alike for words that stand in like places (skip-gram, arXiv
    1310.4546). rarity: float32 [words], nats: -log of a word's frequency."""

    def __init__(self, words: list[str], vectors: np.ndarray, rarity: np.ndarray) -> None:
        assert len(words) == len(vectors) == len(rarity)
        self.vectors, self.rarity = vectors, rarity
        self.number = {word: number for number, word in enumerate(words)}

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> WordVectors:
        """Return those in ``assets/words``."""
        return cls.load(WORDS_FOLDER / "vectors.npz")

    @classmethod
    def load(cls, file: Path) -> WordVectors:
        """Return those that ``training/words.py`` wrote: each row as small integers."""
        with np.load(file) as stored:
            words = bytes(stored["words"]).decode().split("\n")
            vectors, rarity = stored["vectors"].astype(np.float32), stored["rarity"].astype(np.float32)
        return cls(words, unit(vectors), rarity)

    def of(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return vectors [n, dimensions] (zeros for unknown words) and rarity [n] (the largest there is) of stems."""
        numbers = np.array([self.number.get(word, -1) for word in words], np.int64)
        known = numbers >= 0
        return (np.where(known[:, None], self.vectors[numbers], 0.0).astype(np.float32),
                np.where(known, self.rarity[numbers], self.rarity.max()).astype(np.float32))

    def means(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Return float32 [texts, dimensions], of length 1: the mean over a text's stems, by their rarity; zeros for a
        text without one that is known."""
        numbers = np.array([self.number.get(word, -1) for words in texts for word in words], np.int64)
        ends = np.cumsum([len(words) for words in texts])
        found = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for row, (end, words) in enumerate(zip(ends, texts, strict=True)):
            own = numbers[end - len(words) : end]
            own = own[own >= 0]
            found[row] = self.rarity[own] @ self.vectors[own]
        return unit(found)


def unit(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1; zeros stay."""
    scaled: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return scaled


@cache
def _stemmer(algorithm: str) -> Callable[[str], str]:
    import snowballstemmer  # models that do not quote do without

    stem: Callable[[str], str] = snowballstemmer.stemmer(algorithm).stemWord
    return stem


@lru_cache(_REMEMBERED)
def stem(word: str, language: str = "en") -> str:
    """Return a word without its ending (Snowball), and without what is elided before it ("l'homme"). language: a code
    such as "de"; words of one that Snowball does not know stay as they are."""
    if language in _ELIDING:
        word = word.rpartition("'")[2]
    return _stemmer(_ALGORITHMS[language])(word) if language in _ALGORITHMS else word
