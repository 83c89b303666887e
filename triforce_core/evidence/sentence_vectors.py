"""Make one vector of what a sentence is about, so that a question finds an answer in other words.

The vectors of tokens come with the package ``wordllama`` (MIT): static ones, made from the embeddings of large models
and fitted so that the mean over a question lies near the mean over a text that answers it. Only its two files are used:
its own loader looks for one of them in the wrong folder, would fetch it from the internet, and sets up logging.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..config import require
from .word_vectors import unit

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_AT_ONCE = 1024  # texts


class SentenceVectors:
    """table: float32 [tokens, dimensions]."""

    def __init__(self, tokenizer: Tokenizer, table: np.ndarray) -> None:
        self._tokenizer, self._table = tokenizer, table

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> SentenceVectors:
        """Those of the package. Raises ConfigError where it is not installed."""
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
        """float32 [texts, dimensions], of length 1; zeros for a text without tokens."""
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
