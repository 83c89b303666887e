"""Word vectors: which words are used alike, so that "pay" finds "contribute". Trained by ``training/words.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

_FILE = Path(__file__).resolve().parents[2] / "assets" / "words" / "vectors.npz"


class WordVectors:
    """Two tables of the same words. vectors: float32 [words, dimensions], of length 1, alike for words that stand in
    like
    places (skip-gram, arXiv 1310.4546). rarity: float32 [words], nats: -log of a word's frequency. answer: float32
    [words,
    dimensions], whose sum over a sentence is near that of the questions it answers, once those went through
    ``to_answer``
    [dimensions, dimensions]."""

    def __init__(self, words: list[str], vectors: np.ndarray, rarity: np.ndarray, answer: np.ndarray,
                 to_answer: np.ndarray) -> None:
        assert len(words) == len(vectors) == len(rarity) == len(answer)
        self.vectors, self.rarity, self.answer, self.to_answer = vectors, rarity, answer, to_answer
        self.number = {word: number for number, word in enumerate(words)}

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> WordVectors:
        """Those in ``assets/words``."""
        return cls.load(_FILE)

    @classmethod
    def load(cls, file: Path) -> WordVectors:
        """Those that ``training/words.py`` wrote: both tables as int8, each row with a scale of its own."""
        with np.load(file) as stored:
            words = bytes(stored["words"]).decode().split("\n")
            vectors = stored["vectors"].astype(np.float32)
            answer = stored["answer"].astype(np.float32) * stored["answer_scale"].astype(np.float32)[:, None]
            rarity, to_answer = stored["rarity"].astype(np.float32), stored["to_answer"].astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return cls(words, vectors, rarity, answer, to_answer)

    def numbers(self, words: Sequence[str]) -> np.ndarray:
        """int64 [n]: where each stem stands in the tables; -1 for unknown ones."""
        return np.array([self.number.get(word, -1) for word in words], np.int64)

    def of(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors [n, dimensions] (zeros for unknown words) and rarity [n] (the largest there is) of stems."""
        numbers = self.numbers(words)
        known = numbers >= 0
        return (np.where(known[:, None], self.vectors[numbers], 0.0).astype(np.float32),
                np.where(known, self.rarity[numbers], self.rarity.max()).astype(np.float32))

    def answers(self, words: Sequence[str]) -> np.ndarray:
        """[n, dimensions] of ``answer``; zeros for unknown words."""
        numbers = self.numbers(words)
        return np.where((numbers >= 0)[:, None], self.answer[numbers], 0.0).astype(np.float32)

    def as_answer(self, words: Sequence[str]) -> np.ndarray:
        """[dimensions], of length 1: where the answer to a question of these stems should lie."""
        wanted = unit(self.answers(words).sum(0)[None] @ self.to_answer)[0]
        return wanted


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
