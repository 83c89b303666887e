"""MPNet (arXiv 2004.09297) with three heads, its matrices rounded to four bits a weight while it trains.

One encoder reads a question with a passage (how well it answers, which words answer), a claim with a passage
(supported, absent, contradicted), and texts alone (vectors). Weights have the names of `NAMES`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from training.four_bits import GROUP, four_bits, is_rounded, packed

WIDTH, HEADS, BUCKETS, FARTHEST, EPS = 768, 12, 32, 128, 1e-5
FIRST_POSITION, POSITIONS = 2, 258  # as the base counts them: a text's first piece is at 2
BEGIN, PAD, END = 0, 1, 2
LEVELS = ("levels",)  # arrays of a file that are no weights: see training.encoder_levels
DROPPED = 0.1  # share of what a layer adds, in training
NAMES = {"attention.attn.q": "query", "attention.attn.k": "key", "attention.attn.v": "value", "attention.attn.o": "out",
         "attention.LayerNorm": "norm", "intermediate.dense": "up", "output.dense": "down", "output.LayerNorm": "norm2"}


def base_weights(folder: Path, rows: np.ndarray) -> dict[str, Tensor]:
    """Weights of a Hugging Face folder by our names, fp32. rows: those of its embedding that are kept."""
    stored = load_file(folder / "model.safetensors")
    found = {"words": stored["embeddings.word_embeddings.weight"][torch.as_tensor(rows)],
             "positions": stored["embeddings.position_embeddings.weight"][:POSITIONS],
             "norm.weight": stored["embeddings.LayerNorm.weight"], "norm.bias": stored["embeddings.LayerNorm.bias"],
             "distances": stored["encoder.relative_attention_bias.weight"]}
    for layer in range(12):
        for theirs, ours in NAMES.items():
            for part in ("weight", "bias"):
                found[f"{layer}.{ours}.{part}"] = stored[f"encoder.layer.{layer}.{theirs}.{part}"]
    return {name: tensor.float() for name, tensor in found.items()}


def with_heads(weights: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Weights and those of new heads: nothing answers, and no claim is judged yet."""
    chance = torch.Generator().manual_seed(seed)
    heads = {"rank": 1, "mark": 1, "check": 3}
    made = {f"{name}.weight": torch.randn(count, WIDTH, generator=chance) * 0.01 for name, count in heads.items()}
    made |= {f"{name}.bias": torch.full((count,), -1.0 if name != "check" else 0.0) for name, count in heads.items()}
    return weights | made


def fewer_layers(weights: dict[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
    """Only these layers, in order."""
    found = {name: tensor for name, tensor in weights.items() if not name[0].isdigit()}
    for new, old in enumerate(kept):
        found |= {f"{new}.{name.split('.', 1)[1]}": tensor for name, tensor in weights.items()
                  if name.startswith(f"{old}.")}
    return {name: tensor.clone() for name, tensor in found.items()}


def buckets(length: int, device: torch.device) -> Tensor:
    """int64 [length, length]: the bucket of each distance, as in T5 (arXiv 1910.10683)."""
    at = torch.arange(length, device=device)
    away = at[:, None] - at[None]
    half, exact = BUCKETS // 2, BUCKETS // 4
    size = away.abs()
    far = exact + (torch.log(size.clamp_min(1).float() / exact) / math.log(FARTHEST / exact) * (half - exact)).long()
    return (away < 0) * half + torch.where(size < exact, size, far.clamp_max(half - 1))


@dataclass
class Read:
    """hidden: [rows, length, width]; here: bool [rows, length], where a piece stands."""

    hidden: Tensor
    here: Tensor

    def means(self) -> Tensor:
        """fp32 [rows, width], each of length 1."""
        there = self.here[..., None]
        mean = (self.hidden * there).sum(1, dtype=torch.float32) / there.sum(1)
        return F.normalize(mean, dim=-1)


class Encoder(nn.Module):
    """fp32 weights; `working` gives those that a step computes with."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.names = list(weights)
        self.layers = 1 + max(int(name.split(".")[0]) for name in weights if name[0].isdigit())
        self.held = nn.ParameterList([nn.Parameter(tensor.float(), requires_grad=name != "distances")
                                      for name, tensor in weights.items()])
        self.four_bits, self._now = True, dict[str, Tensor]()

    def weights(self) -> dict[str, Tensor]:
        """By name, fp32, not rounded."""
        return dict(zip(self.names, self.held, strict=True))

    def working(self, dtype: torch.dtype, train: bool) -> None:
        """Round the matrices, and cast all, once for all that is read until the next call."""
        for name, tensor in self.weights().items():
            value = tensor.detach()
            if self.four_bits and is_rounded(value):
                steps, scale = four_bits(value)
                value = (steps * scale).flatten(1)
            value = value.to(torch.float32 if name.split(".")[0] in ("rank", "mark", "check") else dtype, copy=True)
            self._now[name] = value.requires_grad_(train and tensor.requires_grad)

    def collect(self) -> None:
        """Gradients of the rounded weights, to the weights that they were rounded from (arXiv 1308.3432)."""
        for name, tensor in self.weights().items():
            found = self._now[name].grad
            tensor.grad = None if found is None else found.float()

    def read(self, ids: Tensor) -> Read:
        """ids: int64 [rows, length], filled up with PAD."""
        now, here = self._now, ids != PAD
        length = ids.shape[1]
        hidden = now["words"][ids] + now["positions"][FIRST_POSITION : FIRST_POSITION + length]
        hidden = self._norm(hidden, "norm")
        bias = now["distances"][buckets(length, ids.device)].permute(2, 0, 1)[None]
        mask = bias.masked_fill(~here[:, None, None], torch.finfo(bias.dtype).min)
        for layer in range(self.layers):
            hidden = self._layer(hidden, mask, layer)
        return Read(hidden, here)

    def _layer(self, hidden: Tensor, mask: Tensor, layer: int) -> Tensor:
        rows, length, _ = hidden.shape
        query, key, value = (self._linear(hidden, f"{layer}.{name}").view(rows, length, HEADS, -1).transpose(1, 2)
                             for name in ("query", "key", "value"))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        seen = self._linear(seen.transpose(1, 2).reshape(rows, length, WIDTH), f"{layer}.out")
        hidden = self._norm(hidden + self._dropped(seen), f"{layer}.norm")
        wide = F.gelu(self._linear(hidden, f"{layer}.up"))
        return self._norm(hidden + self._dropped(self._linear(wide, f"{layer}.down")), f"{layer}.norm2")

    def _dropped(self, rows: Tensor) -> Tensor:
        return F.dropout(rows, DROPPED) if self._now["norm.weight"].requires_grad else rows

    def _linear(self, rows: Tensor, name: str) -> Tensor:
        return F.linear(rows, self._now[f"{name}.weight"], self._now[f"{name}.bias"])

    def _norm(self, rows: Tensor, name: str) -> Tensor:
        return F.layer_norm(rows, (WIDTH,), self._now[f"{name}.weight"], self._now[f"{name}.bias"], EPS)

    def head(self, rows: Tensor, name: str) -> Tensor:
        """fp32 [..., outputs]: what a head says of rows [..., width]."""
        return self._linear(rows.float(), name)


def save(out: Path, weights: dict[str, Tensor], pieces: Sequence[str]) -> None:
    """Write weights in four bits, those that are not matrices in fp16, and the pieces of the vocabulary."""
    np.savez(out, **packed({name: tensor.detach().cpu() for name, tensor in weights.items()}),
             pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8))


def load(file: Path) -> tuple[dict[str, Tensor], list[str]]:
    """(weights in fp32, pieces) of what `save` wrote."""
    with np.load(file) as stored:
        arrays = dict(stored)
    pieces = arrays.pop("pieces").tobytes().decode().split("\n")
    weights = {}
    for name, values in arrays.items():
        if name.endswith(".scale") or name in LEVELS:
            continue
        if values.dtype == np.uint8:
            steps = np.stack((values & 15, values >> 4), -1).reshape(len(values), -1, GROUP).astype(np.float32) - 8
            values = (steps * arrays[f"{name}.scale"].astype(np.float32)[..., None]).reshape(len(values), -1)
        weights[name] = torch.from_numpy(values.astype(np.float32))
    return weights, pieces
