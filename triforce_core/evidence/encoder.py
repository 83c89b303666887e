"""Read questions, passages and claims with the encoder in ``assets/words``: how well a passage answers and which of its
sentences do, vectors of both, and whether a passage supports a claim.

MPNet (arXiv 2004.09297) made from all-mpnet-base-v2 (Apache 2.0) by ``training/encoder.py``; its matrices lie in
the file in four bits. The embedding stays so. The layers are kept in bfloat16 where the CPU multiplies it natively, in
eight bits where that is faster than fp32 (it needs a quarter of the memory), and elsewhere in fp32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assets import WORDS_FOLDER
from ..documents.typography import ascii_typography
from .passages import path_text

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ENCODER_FILE = WORDS_FOLDER / "encoder.npz"
_QUESTION, _BEFORE, _PATH, _TEXT, _CLAIM, _ROW = 40, 24, 36, 110, 96, 224  # pieces of each, at most; of a row in all
_BEGIN, _PAD, _END = 0, 1, 2  # their numbers among the pieces
_FIRST_POSITION = 2  # a row's first piece is at this row of the positions
_FARTHEST = 128  # pieces between two, from where on all distances count alike
_EPS = 1e-5  # of the norms
_GROUP = 64  # weights that share a scale
_AT_ONCE = 2048  # pieces: more need memory and are no faster


@dataclass(frozen=True, slots=True)
class Reading:
    """A passage as the encoder reads it. path: the document's title, the headings above the passage from the outermost,
    and what introduces its list; sentences: in order, or the rows of a table."""

    path: tuple[str, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, the question that it answers ("" if none) and the passage that it is compared with."""

    text: str
    question: str
    passage: Reading


@dataclass(frozen=True, slots=True)
class Ranked:
    """score: nats in favour of a passage against "it does not answer". marks: for each of its sentences the mean over
    its pieces of the nats in favour of "this piece answers"; -inf for a sentence that was not read."""

    score: float
    marks: tuple[float, ...]


class Rows:
    """Makes rows of pieces (WordPiece, arXiv 1810.04805) of texts."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """pieces: "<s>", "<pad>", "</s>" first, "[UNK]" among them."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        numbers = {piece: number for number, piece in enumerate(pieces)}
        self._tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def pieces(self, texts: Sequence[str]) -> dict[str, list[int]]:
        """Return the pieces of each text."""
        once = list(dict.fromkeys(texts))
        # Half a surrogate pair is no text to the tokenizer.
        whole = [ascii_typography(text).encode(errors="replace").decode() for text in once]
        read = self._tokenizer.encode_batch(whole, add_special_tokens=False)
        return {text: row.ids[:_TEXT] for text, row in zip(once, read, strict=True)}

    def question(self, question: str, before: str) -> list[int]:
        """Return the end of the question before and the question."""
        found = self.pieces([question, before])
        return found[before][-_BEFORE:] + found[question][:_QUESTION]

    def passages(self, passages: Sequence[Reading], asked: Sequence[Sequence[Sequence[int]]],
                 ) -> tuple[list[list[int]], list[list[int]]]:
        """Return (rows, where each sentence of a row ends): <s> asked </s> ... </s> path </s> sentences </s>; without
        anything asked <s> path </s> sentences </s>. asked: for each passage what stands before it."""
        known = self.pieces([text for one in passages for text in (path_text(one.path), *one.sentences)])
        rows, ends = [], []
        for one, before in zip(passages, asked, strict=True):
            row = [_BEGIN]
            for part in before:
                row += [*part, _END]
            row += [*([_END] if before else []), *known[path_text(one.path)][:_PATH], _END]
            stops = [len(row)]
            for sentence in one.sentences:
                row += known[sentence]
                stops.append(min(len(row), _ROW - 1))
            rows.append([*row[: _ROW - 1], _END])
            ends.append(stops)
        return rows, ends


class Encoder:
    """One network with three heads: rank, mark and check."""

    def __init__(self, rows: Rows, stored: dict[str, np.ndarray], dtype: torch.dtype) -> None:
        """stored: as ``training/mpnet.py`` saves it. dtype: bfloat16; float32, exactly; int8: see the module."""
        import torch

        self._rows, self._stored = rows, dict(stored)
        self._numbers = torch.float32 if dtype == torch.int8 else dtype
        self._layers = 1 + max(int(name.split(".")[0]) for name in stored if name[0].isdigit())
        self._width, self._heads = stored["norm.weight"].shape[0], stored["distances"].shape[1]
        self._weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in stored.items()
                         if array.dtype != np.uint8 and not name.endswith(".scale")}
        self._weights["positions"] = self._matrix("positions")
        for name in self._weights:
            if name.split(".")[0] not in ("rank", "mark", "check") and "norm" not in name:
                self._weights[name] = self._weights[name].to(self._numbers)
        self._linear = {}
        for layer in range(self._layers):
            for name in ("query", "key", "value", "out", "up", "down"):
                at = f"{layer}.{name}"
                self._linear[at] = _linear(self._matrix(f"{at}.weight"), self._weights.pop(f"{at}.bias"), dtype)
                self._stored.pop(f"{at}.weight")

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Encoder:
        """Return the one in ``assets/words``, in the type that this machine multiplies fastest."""
        import torch

        from ..device.capability import choose_dtype, read_capability

        dtype = choose_dtype(read_capability(), "cpu")
        eight = dtype != "bfloat16" and eight_is_faster()
        return cls.load(ENCODER_FILE, torch.int8 if eight else getattr(torch, dtype))

    @classmethod
    def load(cls, file: Path, dtype: torch.dtype) -> Encoder:
        """Load what ``training/encoder.py`` wrote."""
        with np.load(file) as opened:
            stored = dict(opened)
        return cls(Rows(stored.pop("pieces").tobytes().decode().split("\n")), stored, dtype)

    def rank(self, question: str, before: str, passages: Sequence[Reading]) -> list[Ranked]:
        """Say how well each passage answers, and which of its sentences do. before: the question before, where this one
        points back to it."""
        asked = self._rows.question(question, before)
        rows, ends = self._rows.passages(passages, [[asked]] * len(passages))
        found: dict[int, Ranked] = {}
        for numbers, hidden, _ in self._read(rows):
            scores, marks = self._head(hidden[:, 0], "rank")[:, 0], self._head(hidden, "mark")[..., 0].numpy()
            for place, number in enumerate(numbers):
                means = tuple(float(marks[place, start:end].mean()) if end > start else -math.inf
                              for start, end in zip(ends[number], ends[number][1:], strict=False))
                found[number] = Ranked(float(scores[place]), means)
        return [found[number] for number in range(len(passages))]

    def check(self, claims: Sequence[Claim]) -> np.ndarray:
        """Return float32 [claims, 3]: the nats of "the passage supports it", "says nothing of it", "contradicts it"."""
        known = self._rows.pieces([text for one in claims for text in (one.text, one.question)])
        asked = [[known[one.text][:_CLAIM], known[one.question][:_QUESTION]] for one in claims]
        rows, _ = self._rows.passages([one.passage for one in claims], asked)
        found = np.zeros((len(rows), 3), np.float32)
        for numbers, hidden, _ in self._read(rows):
            found[numbers] = self._head(hidden[:, 0], "check").numpy()
        return found

    def vectors(self, passages: Sequence[Reading]) -> np.ndarray:
        """Return float32 [passages, width], each of length 1, and but for rounding the same in any company."""
        return self._vectors_of(self._rows.passages(passages, [()] * len(passages))[0])

    def question_vector(self, question: str, before: str = "") -> np.ndarray:
        """Return float32 [width], of length 1: its product with a passage's vector says how near they are. before: as
        in ``rank``."""
        vector: np.ndarray = self._vectors_of([[_BEGIN, *self._rows.question(question, before), _END]])[0]
        return vector

    def _vectors_of(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        import torch.nn.functional as F

        found = np.zeros((len(rows), self._width), np.float32)
        for numbers, hidden, here in self._read(rows):
            found[numbers] = F.normalize((hidden.float() * here[..., None]).sum(1), dim=-1).numpy()
        return found

    def _read(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield (numbers of rows, hidden [rows, length, width], where a piece stands [rows, length]): rows of like
        length together, so that little is filled up."""
        import torch

        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        start = 0
        with torch.inference_mode():
            while start < len(order):
                longest = len(rows[order[start]])
                some = order[start : start + max(1, _AT_ONCE // longest)]
                start += len(some)
                ids = torch.tensor([[*rows[row], *[_PAD] * (longest - len(rows[row]))] for row in some])
                yield some, self._hidden(ids), ids != _PAD

    def _hidden(self, ids: Tensor) -> Tensor:
        """[rows, length, width] of pieces [rows, length]."""
        import torch
        import torch.nn.functional as F

        here, length = ids != _PAD, ids.shape[1]
        once, place = torch.unique(ids, return_inverse=True)
        hidden = self._embedding(once)[place] + self._weights["positions"][_FIRST_POSITION : _FIRST_POSITION + length]
        hidden = self._norm(hidden, "norm")
        mask = self._weights["distances"][_buckets(length)].permute(2, 0, 1)[None]
        if not bool(here.all()):
            mask = mask.masked_fill(~here[:, None, None], torch.finfo(mask.dtype).min)
        for layer in range(self._layers):
            query, key, value = (self._linear[f"{layer}.{name}"](hidden).unflatten(-1, (self._heads, -1))
                                 .transpose(1, 2) for name in ("query", "key", "value"))
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)
            hidden = self._norm(hidden + self._linear[f"{layer}.out"](seen), f"{layer}.norm")
            wide = F.gelu(self._linear[f"{layer}.up"](hidden))
            hidden = self._norm(hidden + self._linear[f"{layer}.down"](wide), f"{layer}.norm2")
        return hidden

    def _norm(self, rows: Tensor, name: str) -> Tensor:
        import torch.nn.functional as F

        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(rows.float(), (self._width,), weight, bias, _EPS).to(self._numbers)

    def _head(self, rows: Tensor, name: str) -> Tensor:
        """fp32 [..., outputs]."""
        import torch.nn.functional as F

        return F.linear(rows.float(), self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _embedding(self, pieces: Tensor) -> Tensor:
        return self._matrix("words", pieces.numpy()).to(self._numbers)

    def _matrix(self, name: str, rows: np.ndarray | slice = slice(None)) -> Tensor:
        """fp32 [rows, columns] of a stored matrix: uint8 [rows, columns / 2], of two neighbours the first in the lower
        half, and NAME.scale fp16 [rows, columns / group]; or fp16 as it is."""
        import torch

        halves = self._stored[name][rows]
        if halves.dtype != np.uint8:
            return torch.from_numpy(halves.astype(np.float32))
        scale = torch.from_numpy(self._stored[f"{name}.scale"][rows]).float()
        packed = torch.from_numpy(halves)
        steps = torch.stack((packed & 15, packed >> 4), -1).flatten(1).float() - 8
        return (steps.unflatten(1, (-1, _GROUP)) * scale[..., None]).flatten(1)


class _Whole:
    """A linear layer whose weight is kept as numbers of one type."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, rows: Tensor) -> Tensor:
        import torch.nn.functional as F

        return F.linear(rows, self._weight, self._bias)


class _Eight:
    """A linear layer in eight bits: activations with a scale for each piece, weights with one for each output and in
    seven bits, for AVX2 adds two products in sixteen (seen: wrong sums where weights had eight)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        import torch

        self._scale = (weight.abs().amax(1) / 63).clamp_min(1e-9)
        self._steps = (weight / self._scale[:, None]).round().to(torch.int8)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        import torch

        flat = rows.flatten(0, -2)
        scale = (flat.abs().amax(1, keepdim=True) / 127).clamp_min(1e-9)
        product = torch._int_mm((flat / scale).round_().to(torch.int8), self._steps.t()).float()
        return torch.addcmul(self._bias, product.mul_(scale), self._scale).view(*rows.shape[:-1], -1)


def eight_is_faster() -> bool:
    """Measure, in a few milliseconds, whether a product in eight bits is faster here than in fp32: where the CPU has no
    instruction for it, torch's takes some twenty times as long."""
    import torch

    rows, weights = torch.ones(32, 256, dtype=torch.int8), torch.ones(256, 256, dtype=torch.int8)
    few, matrix = rows.float(), weights.float()

    def seconds(product: Callable[[], object]) -> float:
        times = []
        for _ in range(4):
            began = time.perf_counter()
            product()
            times.append(time.perf_counter() - began)
        return min(times)

    return seconds(lambda: torch._int_mm(rows, weights.t())) < seconds(lambda: few @ matrix.t())


def _linear(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> _Whole | _Eight:
    """weight: fp32 [outputs, inputs]."""
    import torch

    return _Eight(weight, bias) if dtype == torch.int8 else _Whole(weight.to(dtype), bias.to(dtype))


def _buckets(length: int) -> Tensor:
    """int64 [length, length]: the bucket of each distance, as in T5 (arXiv 1910.10683); half of 32 for each side, of
    those half for one distance each, the others ever wider."""
    import torch

    at = torch.arange(length)
    away = at[:, None] - at[None]
    size = away.abs()
    far = 8 + (torch.log(size.clamp_min(1).float() / 8) / math.log(_FARTHEST / 8) * 8).long()
    return (away < 0) * 16 + torch.where(size < 8, size, far.clamp_max(15))
