"""How well a sentence answers a question, read together: a small encoder over both (a cross-encoder, arXiv 1901.04085).

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

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

_FILE = Path(__file__).resolve().parents[2] / "assets" / "words" / "reranker.npz"
_QUESTION, _SENTENCE, _AROUND, _HEADING = 28, 56, 28, 12  # pieces of each, at most
GROUP = 64  # weights that share a scale
_EPS = 1e-12  # of BERT's norms


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, the heading above it, and the sentence before it on its line; "" where there is none."""

    sentence: str
    heading: str = ""
    before: str = ""


class Reranker:
    """A BERT encoder (arXiv 1810.04805) and a linear layer on its first position."""

    def __init__(self, tokenizer: Tokenizer, weights: dict[str, Tensor], heads: int) -> None:
        """weights: by the names of transformers' ``BertModel``, ``head.weight`` and ``head.bias`` beside them."""
        self._tokenizer, self._weights, self._heads = tokenizer, weights, heads
        self._layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
        self._dtype = weights["encoder.layer.0.output.dense.weight"].dtype
        self._first, self._end = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Reranker:
        """The one in ``assets/words``, in the type that this machine multiplies fastest."""
        import torch

        from ..device.capability import choose_dtype, read_capability

        return cls.load(_FILE, getattr(torch, choose_dtype(read_capability(), "cpu")))

    @classmethod
    def load(cls, file: Path, dtype: torch.dtype) -> Reranker:
        """What ``training/reranker.py`` wrote."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # models that do not quote do without

        with np.load(file) as stored:
            arrays = dict(stored)
        pieces, heads = arrays.pop("pieces").tobytes().decode().split("\n"), int(arrays.pop("heads"))
        tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)},
                                               unk_token="[UNK]", max_input_chars_per_word=100))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(tokenizer, unpacked(arrays, dtype), heads)

    def scores(self, question: str, passages: Sequence[Passage]) -> np.ndarray:
        """float32 [passages]: nats in favour of each against "nothing answers this"."""
        import torch

        if not passages:
            return np.zeros(0, np.float32)
        asked = self._pieces([question], _QUESTION)[0]
        with torch.inference_mode():
            return self._forward(self._rows(asked, passages), len(asked) + 2).numpy()

    def _pieces(self, texts: Sequence[str], most: int) -> list[list[int]]:
        # Half a surrogate pair is no text to the tokenizer.
        whole = [text.encode(errors="replace").decode() for text in texts]
        return [text.ids[:most] for text in self._tokenizer.encode_batch(whole, add_special_tokens=False)]

    def _rows(self, asked: list[int], passages: Sequence[Passage]) -> list[list[int]]:
        """[CLS] question [SEP] sentence [SEP] heading [SEP] the end of the sentence before [SEP]."""
        sentences = self._pieces([passage.sentence for passage in passages], _SENTENCE)
        headings = self._pieces([passage.heading for passage in passages], _HEADING)
        before = self._pieces([passage.before for passage in passages], _SENTENCE)
        rows = []
        for sentence, heading, former in zip(sentences, headings, before, strict=True):
            around = [*heading, *([self._end, *former[len(heading) + 1 - _AROUND :]] if former else [])]
            rows.append([self._first, *asked, self._end, *sentence, self._end, *around, self._end])
        return rows

    def _forward(self, rows: list[list[int]], asked: int) -> Tensor:
        """fp32 [rows]; asked: pieces of the first segment."""
        import torch
        import torch.nn.functional as F

        weights, longest = self._weights, max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        here = torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
        segments = (torch.arange(longest) >= asked).long()

        def linear(x: Tensor, name: str) -> Tensor:
            return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(x: Tensor, name: str) -> Tensor:
            return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], _EPS)

        x = (weights["embeddings.word_embeddings.weight"][ids]
             + weights["embeddings.position_embeddings.weight"][:longest]
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
        return F.linear(x[:, 0].float(), weights["head.weight"].float(), weights["head.bias"].float())[:, 0]


def packed(weights: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Matrices in four bits: NAME uint8 [rows, columns / 2], of two neighbours the first in the lower half, and
    NAME.scale fp16 [rows, columns / GROUP]; all else fp16."""
    import torch

    stored: dict[str, np.ndarray] = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2 or tensor.shape[1] % GROUP or len(tensor) < GROUP:
            stored[name] = tensor.half().numpy()
            continue
        groups = tensor.float().unflatten(1, (-1, GROUP))
        scale = scales(groups)
        steps = ((groups / scale).round().clamp(-7, 7) + 8).flatten(1).to(torch.uint8)
        stored[name] = (steps[:, ::2] | steps[:, 1::2] << 4).numpy()
        stored[f"{name}.scale"] = scale[..., 0].half().numpy()
    return stored


def scales(groups: Tensor) -> Tensor:
    """[..., 1] of groups [..., GROUP]."""
    return (groups.abs().amax(-1, keepdim=True) / 7).clamp_min(1e-7).half().float()


def unpacked(stored: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """What ``packed`` was given, but for rounding."""
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
