"""A small Llama grown into a large one that computes the same function: real text and acceptance at real size.

No weights of 7B models come with this program, and random ones write nothing a small model could guess. A grown model
writes what the small one writes while moving the large one's bytes: every matrix and every cached key and value has the
large shape. Its logits equal the small model's up to rounding (fp32: below 1e-3).

Letters: d, h, f the small model's hidden size, head_dim and MLP width; D, h', f' the large one's.

- The residual stream is [x, 0]: rows that write to the added features are zero, columns that read them are random.
- RMSNorm then sees a mean square d/D as large: its eps shrinks by d/D and its weights by sqrt(d/D).
- Attention divides by sqrt(h') instead of sqrt(h): queries grow by sqrt(h'/h).
- Rotary pairs are half-split: pair i of h becomes pair i h'/h of h', which turns at the same frequency theta^(-2i/h).
  Keys of the added pairs are random, queries there are zero. Values: the first h features, the others random.
- Added heads and layers compute on random weights (attention really runs, over real keys); what they would write is
  multiplied by zero: their columns of o_proj and down_proj.
- Grouped-query attention: KV head a of the small model becomes KV head a of the large one, exactly, as long as the
  large shape has as many KV heads. Query heads added to a group in use repeat its queries, with zero columns in o_proj:
  the group's attention mass, which chooses chunks for retrieval, stays what it was.

What stays small: the vocabulary (the tokenizer's), so that the head of a llama2-7b reads 0.07 GB instead of 0.26 GB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from ..device.shard import ALONE, Shard
from ..errors import ConfigError, UnsupportedModelError
from .checkpoint import read_config
from .config import ModelConfig
from .llama import Llama
from .rope import RopeConfig
from .weights import Checkpoint, Matrix, Part, WeightSource, dequantize

_STD = 0.02  # of added weights: what such models start training with


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder: hidden D, MLP width f', layers, query heads, KV heads, head_dim h'."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def grown_config(small: ModelConfig, shape: Shape, max_context: int | None = None) -> ModelConfig:
    """The large model's config. max_context: beyond the small model's own, positions are interpolated into the range it
    was trained on (linear scaling, arXiv 2306.15595, section 2.3): another function than the small model's, which loses
    itself there; up to its own, the same function.

    Raises UnsupportedModelError where growing could not be exact, ConfigError where a size would shrink."""
    scales = {small.rope.share, small.embedding_scale, small.logit_scale, small.score_scale}
    others = small.other_ropes or small.fused or small.experts or small.rope.temperature
    plain = small.norms == "before" and scales == {1} and not others
    obstacles = {"parts that a Llama lacks": not plain, "biases on q, k, v": small.qkv_bias,
                 "norms on queries and keys": bool(small.qk_norm),
                 "a sliding window": bool(small.windows), "YaRN": small.rope.kind == "yarn"}
    refused = [name for name, present in obstacles.items() if present]
    if refused:
        raise UnsupportedModelError(f"A model with {' and '.join(refused)} cannot be grown exactly")
    for name in ("hidden_size", "intermediate_size", "num_layers", "num_kv_heads", "head_dim"):
        if getattr(shape, name) < getattr(small, name):
            raise ConfigError(f"{name} would shrink from {getattr(small, name)} to {getattr(shape, name)}")
    if shape.num_heads // shape.num_kv_heads < small.group_size or shape.head_dim % small.head_dim:
        raise ConfigError(f"{small.num_heads} heads of {small.head_dim} do not fit "
                          f"{shape.num_heads} of {shape.head_dim}",
                          allowed="as many query heads per KV head, and a multiple of head_dim")
    return replace(
        small, hidden_size=shape.hidden_size, intermediate_size=shape.intermediate_size, num_layers=shape.num_layers,
        num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim,
        rms_norm_eps=small.rms_norm_eps * small.hidden_size / shape.hidden_size, tied_embeddings=False,
        max_context=max_context or small.max_context, rope=_interpolated(small, max_context or small.max_context))


def published_names(config: ModelConfig) -> dict[str, int | float | bool]:
    """A grown model's sizes as a Hugging Face config.json names them."""
    return {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.num_layers, "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.num_kv_heads, "head_dim": config.head_dim,
            "rms_norm_eps": config.rms_norm_eps, "tie_word_embeddings": config.tied_embeddings,
            "max_position_embeddings": config.max_context}


def _interpolated(small: ModelConfig, max_context: int) -> RopeConfig:
    rope, stretch = small.rope, max_context / small.max_context
    if stretch <= 1:
        return rope
    if rope.kind not in ("default", "linear"):
        raise UnsupportedModelError(f"Positions of the rope kind {rope.kind!r} are not interpolated here",
                                    remedy=f"Leave --max-context at {small.max_context} or less.")
    return replace(rope, kind="linear", factor=rope.factor * stretch)


def grow(folder: Path, shape: Shape, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
         max_context: int | None = None, seed: int = 0, shard: Shard = ALONE, rounding: str = "same") -> Llama:
    """The model in ``folder`` in a larger shape; each matrix is made on ``device`` in ``dtype`` when it is needed.
    rounding: see ``Llama``.

    Raises what ``grown_config`` and loading raise."""
    small = read_config(folder)
    config = grown_config(small, shape, max_context)
    weights = GrownWeights(folder, small, config, torch.device(device), dtype, seed)
    return Llama(config, weights, device=device, dtype=dtype, shard=shard, rounding=rounding)


class GrownWeights(WeightSource):
    """A ``WeightSource``: the small model's files, answering with the large model's tensors."""

    def __init__(self, folder: Path, small: ModelConfig, large: ModelConfig, device: torch.device, dtype: torch.dtype,
                 seed: int) -> None:
        self._files = Checkpoint(folder)
        self._small, self._large, self._device, self._dtype, self._seed = small, large, device, dtype, seed
        # The small model's layers lie spread among the added ones.
        self._origin = {i * large.num_layers // small.num_layers: i for i in range(small.num_layers)}
        if small.tied_embeddings:
            self._files.ignore("lm_head.weight")

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """A norm's weights, fp32 [D]."""
        assert part is None
        original = self._original(name)
        grown = self._random(name, shape, torch.float32) + 1.0
        if original is not None:
            d = self._small.hidden_size
            grown[:d] = self._files.tensor(original, (d,)).to(self._device) * (d / shape[0]) ** 0.5
        return grown

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        """A weight [out, in] in the model's dtype; a part is cut from the same numbers."""
        writes = name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight"))
        if writes:  # to the residual stream: nothing may reach its added features
            grown = torch.zeros(shape, device=self._device, dtype=self._dtype)
        else:
            grown = self._random(name, shape, self._dtype)
        original = self._original(name)
        if original is not None:
            self._place(grown, original)
        return Matrix(grown if part is None else part.of(grown))

    def ignore(self, name: str) -> None:
        self._files.ignore(name)

    def finish(self) -> None:
        """Raises DamagedWeightsError if a small tensor found no place."""
        self._files.finish()

    def _original(self, name: str) -> str | None:
        """The small model's name of a large tensor; None for added layers."""
        if not name.startswith("model.layers."):
            return "model.embed_tokens.weight" if name == "lm_head.weight" and self._small.tied_embeddings else name
        _, _, layer, rest = name.split(".", 3)
        origin = self._origin.get(int(layer))
        return None if origin is None else f"model.layers.{origin}.{rest}"

    def _place(self, grown: Tensor, name: str) -> None:
        """The small matrix into the large one."""
        s = self._small
        d, f = s.hidden_size, s.intermediate_size
        queries, keys = s.num_heads * s.head_dim, s.num_kv_heads * s.head_dim
        if name.endswith("q_proj.weight"):
            source = self._source(name, (queries, d)) * (self._large.head_dim / s.head_dim) ** 0.5
            used, rows, copies = self._query_rows()
            grown[used, :d] = 0.0
            grown[rows, :d] = source.to(self._dtype)[copies]
        elif name.endswith("k_proj.weight"):
            grown[self._heads(range(s.num_kv_heads), self._pairs()), :d] = self._source(name, (keys, d)).to(self._dtype)
        elif name.endswith("v_proj.weight"):
            grown[self._heads(range(s.num_kv_heads), range(s.head_dim)), :d] = (
                self._source(name, (keys, d)).to(self._dtype))
        elif name.endswith("o_proj.weight"):
            heads = [self._query_head(head) for head in range(s.num_heads)]
            grown[:d, self._heads(heads, range(s.head_dim))] = self._source(name, (d, queries)).to(self._dtype)
        else:
            height, width = {"gate_proj": (f, d), "up_proj": (f, d), "down_proj": (d, f)}.get(
                name.split(".")[-2], (s.vocab_size, d))
            grown[:height, :width] = self._source(name, (height, width)).to(self._dtype)

    def _source(self, name: str, shape: tuple[int, int]) -> Tensor:
        """fp32 on the device."""
        found = self._files.matrix(name, shape)
        data = found.data.to(self._device)
        return data.float() if found.scale is None else dequantize(data, found.scale.to(self._device))

    def _query_head(self, head: int) -> int:
        """Where a small query head lies: in the same KV head's group."""
        return head // self._small.group_size * self._large.group_size + head % self._small.group_size

    def _query_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """All rows of groups in use; of them those that hold a small row; and which."""
        s, large = self._small, self._large
        heads = range(s.num_kv_heads * large.group_size)
        members = [head // large.group_size * s.group_size + head % large.group_size % s.group_size for head in heads]
        return (self._heads(heads, range(large.head_dim)), self._heads(heads, self._pairs()),
                _features(members, range(s.head_dim), s.head_dim, self._device))

    def _pairs(self) -> list[int]:
        """Where the features of a rotated head lie among h'."""
        half, step = self._small.head_dim // 2, self._large.head_dim // self._small.head_dim
        first = [i * step for i in range(half)]
        return [*first, *(self._large.head_dim // 2 + at for at in first)]

    def _heads(self, heads: range | list[int], features: range | list[int]) -> Tensor:
        return _features(heads, features, self._large.head_dim, self._device)

    def _random(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The same numbers for the same name and seed, whatever is built before."""
        generator = torch.Generator(self._device).manual_seed(self._seed + crc32(name.encode()))
        return torch.empty(shape, device=self._device, dtype=dtype).normal_(0.0, _STD, generator=generator)


def _features(heads: range | list[int], features: range | list[int], head_dim: int, device: torch.device) -> Tensor:
    """Indices of these features of these heads, head by head: int64."""
    return torch.tensor([head * head_dim + feature for head in heads for feature in features], device=device)
