"""Score how well a sentence answers a question by a small encoder that compares vectors of both (a bi-encoder, arXiv
1908.10084) and reads both together (a cross-encoder, arXiv 1901.04085), with the same weights.

It sees what counting words cannot, and takes some milliseconds a sentence: the sentence prior asks it about its own
best ones. Made from all-MiniLM-L6-v2 (Apache 2.0; arXiv 2002.10957) by ``training/reranker.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assets import WORDS_FOLDER

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_FILE = WORDS_FOLDER / "reranker.npz"
_QUESTION, _SENTENCE, _AROUND, _HEADING = 28, 56, 28, 12  # pieces of each, at most
GROUP = 64  # weights that share a scale
_AT_ONCE = 32  # sentences that vectors are made of at once
_EPS = 1e-12  # of BERT's norms


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, the heading above it, and the sentence before it on its line; "" where there is none."""

    sentence: str
    heading: str = ""
    before: str = ""


class Pairs:
    """Questions and passages as the numbers of the pieces that the encoder reads: a question's, then a passage's."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """pieces: of WordPiece (arXiv 1810.04805), among them "[CLS]", "[SEP]" and "[UNK]"; "[PAD]" is the first."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # models that do not quote do without

        numbers = {piece: number for number, piece in enumerate(pieces)}
        self._first, self._end = numbers["[CLS]"], numbers["[SEP]"]
        self._tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def questions(self, texts: Sequence[str], before: str = "") -> list[list[int]]:
        """[CLS] the end of the question before, if there is room for it, question [SEP]"""
        former, *asked = self._pieces([before, *texts])
        rows = []
        for question in asked:
            room = max(0, _QUESTION - len(question))
            rows.append([self._first, *former[len(former) - min(room, len(former)) :], *question[:_QUESTION],
                         self._end])
        return rows

    def passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        """sentence [SEP] heading [SEP] the end of the sentence before [SEP]"""
        texts = list({text: None for one in passages for text in (one.sentence, one.heading, one.before)})
        pieces = dict(zip(texts, self._pieces(texts), strict=True))
        rows = []
        for one in passages:
            heading, before = pieces[one.heading][:_HEADING], pieces[one.before][:_SENTENCE]
            around = [*heading, *([self._end, *before[len(heading) + 1 - _AROUND :]] if before else [])]
            rows.append([*pieces[one.sentence][:_SENTENCE], self._end, *around, self._end])
        return rows

    def sentences(self, texts: Sequence[str]) -> list[list[int]]:
        """[CLS] sentence [SEP]: what vectors are made of."""
        return [[self._first, *pieces[:_SENTENCE], self._end] for pieces in self._pieces(texts)]

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        # Half a surrogate pair is no text to the tokenizer.
        whole = [text.encode(errors="replace").decode() for text in texts]
        return [text.ids for text in self._tokenizer.encode_batch(whole, add_special_tokens=False)]


def batch(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """(pieces, segments, here) [rows, longest], of rows (question, passage): 1 for the passage and what fills up after
    it; whether a piece stands there."""
    import torch

    both = [[*question, *passage] for question, passage in rows]
    longest = max(map(len, both))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in both])
    here = torch.arange(longest) < torch.tensor([len(row) for row in both])[:, None]
    segments = (torch.arange(longest) >= torch.tensor([len(question) for question, _ in rows])[:, None]).long()
    return ids, segments, here


class Reranker:
    """A BERT encoder (arXiv 1810.04805) and a linear layer on its first position."""

    def __init__(self, pairs: Pairs, weights: dict[str, Tensor], heads: int) -> None:
        """weights: by the names of transformers' ``BertModel``, ``head.weight`` and ``head.bias`` beside them."""
        self._pairs, self._weights, self._heads = pairs, weights, heads
        self._layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Reranker:
        """Return the one in ``assets/words``, in the type that this machine multiplies fastest."""
        import torch

        from ..device.capability import choose_dtype, read_capability

        return cls.load(_FILE, getattr(torch, choose_dtype(read_capability(), "cpu")))

    @classmethod
    def load(cls, file: Path, dtype: torch.dtype) -> Reranker:
        """Load what ``training/reranker.py`` wrote."""
        with np.load(file) as stored:
            arrays = dict(stored)
        pieces, heads = arrays.pop("pieces").tobytes().decode().split("\n"), int(arrays.pop("heads"))
        return cls(Pairs(pieces), unpacked(arrays, dtype), heads)

    def scores(self, question: str, passages: Sequence[Passage], before: str = "") -> np.ndarray:
        """float32 [passages]: nats in favour of each against "nothing answers this". before: the question before."""
        import torch

        if not passages:
            return np.zeros(0, np.float32)
        asked = self._pairs.questions([question], before)[0]
        with torch.inference_mode():
            return self._score(*batch([(asked, passage) for passage in self._pairs.passages(passages)])).numpy()

    def vectors(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [sentences, width], each of length 1, and but for rounding the same in any company."""
        return self._vectors_of(self._pairs.sentences(sentences))

    def question_vector(self, question: str, before: str = "") -> np.ndarray:
        """float32 [width], of length 1: its product with a sentence's vector says how near they are. before: the
        question before."""
        vector: np.ndarray = self._vectors_of(self._pairs.questions([question], before))[0]
        return vector

    def _vectors_of(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        import torch

        found = np.zeros((len(rows), self._weights["head.weight"].shape[1]), np.float32)
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))  # alike in length: little to fill up
        with torch.inference_mode():
            for start in range(0, len(order), _AT_ONCE):
                some = order[start : start + _AT_ONCE]
                found[some] = self._mean(*batch([(rows[row], ()) for row in some])).numpy()
        return found

    def _mean(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """fp32 [rows, width], of a ``batch``: the mean over the pieces of each, of length 1."""
        import torch.nn.functional as F

        read = self._encoded(ids, segments, here).float()
        return F.normalize((read * here[..., None]).sum(1), dim=-1)

    def _score(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """fp32 [rows], of a ``batch``."""
        import torch.nn.functional as F

        first = self._encoded(ids, segments, here)[:, 0].float()
        return F.linear(first, self._weights["head.weight"].float(), self._weights["head.bias"].float())[:, 0]

    def _encoded(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """[rows, longest, width], of a ``batch``."""
        import torch.nn.functional as F

        weights = self._weights

        def linear(x: Tensor, name: str) -> Tensor:
            return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(x: Tensor, name: str) -> Tensor:
            return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], _EPS)

        x = (weights["embeddings.word_embeddings.weight"][ids]
             + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
             + weights["embeddings.token_type_embeddings.weight"][segments])
        x = norm(x, "embeddings.LayerNorm")
        for layer in range(self._layers):
            at = f"encoder.layer.{layer}"
            q, k, v = (linear(x, f"{at}.attention.self.{name}").unflatten(-1, (self._heads, -1)).transpose(1, 2)
                       for name in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=here[:, None, None]).transpose(1, 2).flatten(2)
            x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = F.gelu(linear(x, f"{at}.intermediate.dense"))
            x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x


def unpacked(stored: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return weights as tensors of one type. Matrices are stored in four bits: NAME uint8 [rows, columns / 2], of two
    neighbours the first in the lower half, and NAME.scale fp16 [rows, columns / GROUP]; all else as fp16."""
    import torch

    weights: dict[str, Tensor] = {}
    for name, array in stored.items():
        if name.endswith(".scale"):
            continue
        tensor = torch.from_numpy(array)
        if tensor.dtype == torch.uint8:
            steps = torch.stack((tensor & 15, tensor >> 4), -1).flatten(1).float() - 8
            scale = torch.from_numpy(stored[f"{name}.scale"]).float()
            tensor = (steps.unflatten(1, (-1, GROUP)) * scale[..., None]).flatten(1)
        weights[name] = tensor.to(dtype)
    return weights
