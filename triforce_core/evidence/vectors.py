"""Vectors of words, so that "pay" finds "contribute", and of sentences, so that other words find an answer.

Word vectors are trained by ``training/words.py``. Those of sentences come with the package ``wordllama`` (MIT): static
ones of tokens, fitted so that the mean over a question lies near the mean over a text that answers it. Only its two
files are used: its own loader looks in the wrong folder, would fetch from the internet, and sets up logging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assets import WORDS_FOLDER
from ..config import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_AT_ONCE = 1024  # texts
_REMEMBERED = 1 << 17  # words


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


def unit(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1; zeros stay."""
    scaled: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return scaled


@cache
def _stemmer() -> Callable[[str], str]:
    import snowballstemmer  # models that do not quote do without

    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return stem


@lru_cache(_REMEMBERED)
def stem(word: str) -> str:
    """Return a word without its English ending (Snowball)."""
    return _stemmer()(word)


class SentenceVectors:
    """table: float32 [tokens, dimensions]."""

    def __init__(self, tokenizer: Tokenizer, table: np.ndarray) -> None:
        self._tokenizer, self._table = tokenizer, table

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> SentenceVectors:
        """Return those of the package. Raises ConfigError where it is not installed."""
        from safetensors.numpy import load_file  # models that do not quote do without
        from tokenizers import Tokenizer

        require(["wordllama"], "Finding what a question is about")
        found = find_spec("wordllama")
        assert found is not None and found.submodule_search_locations, "a package, found just now"
        folder = Path(found.submodule_search_locations[0])
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
        return cls(tokenizer, weights.astype(np.float32))

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [texts, dimensions], of length 1; zeros for a text without tokens."""
        import torch.nn.functional as F  # in numpy the sums take forty times as long
        from torch import from_numpy

        summed = np.zeros((len(texts), self._table.shape[1]), np.float32)
        for first in range(0, len(texts), _AT_ONCE):
            # Half a surrogate pair is no text to the tokenizer.
            whole = [text.encode(errors="replace").decode() for text in texts[first : first + _AT_ONCE]]
            part = self._tokenizer.encode_batch(whole, add_special_tokens=False)
            starts = np.cumsum([0, *(len(text.ids) for text in part[:-1])])
            tokens = np.array([token for text in part for token in text.ids], np.int64)
            summed[first : first + len(part)] = F.embedding_bag(
                from_numpy(tokens), from_numpy(self._table), from_numpy(starts), mode="sum").numpy()
        return unit(summed)
