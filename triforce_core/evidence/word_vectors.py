"""Word vectors: which words are used alike, so that "pay" finds "contribute". Trained by ``training/words.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..assets import WORDS_FOLDER

_FILE = WORDS_FOLDER / "vectors.npz"


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
        """Those in ``assets/words``."""
        return cls.load(_FILE)

    @classmethod
    def load(cls, file: Path) -> WordVectors:
        """Those that ``training/words.py`` wrote: each row as small integers."""
        with np.load(file) as stored:
            words = bytes(stored["words"]).decode().split("\n")
            vectors, rarity = stored["vectors"].astype(np.float32), stored["rarity"].astype(np.float32)
        return cls(words, unit(vectors), rarity)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """int64 [n]: where each stem stands in the tables; -1 for unknown ones."""
        return np.array([self.number.get(word, -1) for word in words], np.int64)

    def of(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors [n, dimensions] (zeros for unknown words) and rarity [n] (the largest there is) of stems."""
        numbers = self.numbers(words)
        known = numbers >= 0
        return (np.where(known[:, None], self.vectors[numbers], 0.0).astype(np.float32),
                np.where(known, self.rarity[numbers], self.rarity.max()).astype(np.float32))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; zeros stay."""
    scaled: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return scaled


class Stems:
    """Words without their English endings (Snowball). Remembers what it was asked."""

    def __init__(self) -> None:
        import snowballstemmer  # models that do not quote do without

        self._stemmer = snowballstemmer.stemmer("english")
        self._known: dict[str, str] = {}

    def of(self, word: str) -> str:
        stem = self._known.get(word)
        if stem is None:
            stem = self._known[word] = self._stemmer.stemWord(word)
        return stem
