"""A decoder's weights as this machine multiplies them: read from a checkpoint, joined, and rounded where asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..device.shard import Shard
from ..kernels import (
    HEAD_KIND,
    Dense,
    FusedLinear,
    Grouped,
    Kernels,
    Linear,
    fits,
    join_grouped,
    keeps_groups,
    to_groups,
)
from .config import Experts, ModelConfig
from .mixture import Mixture
from .weights import Rows, WeightSource, quantize


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block's weights. q, k, v and gate, up are one product each: fewer, larger reads.

    input_norm, post_norm: before attention and MLP; attention_norm, mlp_norm: of what they give. rope, query_rope: rows
    of the ``RotaryTable`` that keys and queries turn by."""

    input_norm: Tensor | None
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    post_norm: Tensor | None
    gate_up: Linear | None
    down: Linear | None
    attention_norm: Tensor | None = None
    mlp_norm: Tensor | None = None
    rope: int = 0
    query_rope: int = 0
    window: int = 0
    experts: Mixture | None = None  # in the place of the MLP


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """A block's products, and the norms after its two sums."""

    index: int
    qkv: FusedLinear
    output: FusedLinear
    post_norm: Tensor
    gate_up: FusedLinear
    down: FusedLinear
    after: Tensor
    rope: int


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding [V, d] in the model's type, or int8 with embedding_scale fp32 [V], or how its rows are read from disk.
    in_groups: whether some weights are multiplied in groups of few bits."""

    embedding: Tensor | Rows
    embedding_scale: Tensor | None
    layers: list[Layer]
    final_norm: Tensor
    head: Linear
    in_groups: bool

    def quantized(self, kernels: Kernels, config: ModelConfig, kind: str) -> DecoderWeights:
        """Return these weights with products rounded to ``kind``; norms and embedding are shared."""

        def small(linear: Linear, to: str = kind, pair: int = 0) -> Linear:
            return kernels.quantize_linear(linear, to, pair) if isinstance(linear, Dense) else linear

        layers = [replace(layer, qkv=small(layer.qkv, pair=config.head_dim // 2), output=small(layer.output),
                          gate_up=layer.gate_up and small(layer.gate_up, pair=config.intermediate_size),
                          down=layer.down and small(layer.down),
                          experts=layer.experts and layer.experts.with_products(small))
                  for layer in self.layers]
        return replace(self, layers=layers, head=small(self.head, HEAD_KIND))

    def fused(self, config: ModelConfig, shard: Shard) -> list[FusedLayer] | None:
        """Return the layers' products, where all of them can be fused with what is between them."""
        if config.qkv_bias or config.qk_norm or (shard.world > 1 and shard.splits_layers):
            return None
        if config.norms != "before" or config.activation != "silu" or config.rope.temperature:
            return None
        after = [*(layer.input_norm for layer in self.layers[1:]), self.final_norm]
        found: list[FusedLayer] = []
        for index, (layer, norm) in enumerate(zip(self.layers, after, strict=True)):
            assert norm is not None and layer.post_norm is not None
            qkv, output, gate_up, down = layer.qkv, layer.output, layer.gate_up, layer.down
            if not (isinstance(qkv, FusedLinear) and isinstance(output, FusedLinear)
                    and isinstance(gate_up, FusedLinear) and isinstance(down, FusedLinear)):
                return None
            found.append(FusedLayer(index, qkv, output, layer.post_norm, gate_up, down, norm,
                                    layer.rope))
        return found


class WeightLoader:
    """Reads every tensor that a config asks for. Raises DamagedWeightsError (missing, extra, misshapen)."""

    def __init__(self, source: WeightSource, config: ModelConfig, shard: Shard, kernels: Kernels, *,
                 device: torch.device, dtype: torch.dtype, rounding: str) -> None:
        """config: of this rank, shard: which of the head is its. rounding: see ``Llama``."""
        self._source, self._config, self._shard, self._kernels = source, config, shard, kernels
        self._device, self._dtype, self._rounding = device, dtype, rounding
        self._in_groups = False

    def load(self) -> DecoderWeights:
        c, d = self._config, self._config.hidden_size
        embedding, scale = self._embedding()
        layers = [self._layer(index) for index in range(c.num_layers)]
        norm, head = self._norm("model.norm.weight", d) * c.logit_scale, self._head(embedding, scale)
        self._source.finish()
        return DecoderWeights(embedding, scale, layers, norm, head, self._in_groups)

    def _embedding(self) -> tuple[Tensor | Rows, Tensor | None]:
        """Return it and, of int8, its scales. A CPU looks rows up on disk where they are in few bits there."""
        name, shape = "model.embed_tokens.weight", (self._config.vocab_size, self._config.hidden_size)
        rows = self._source.rows(name, shape) if self._device.type == "cpu" else None
        if rows is not None:
            return rows, None
        found = self._source.matrix(name, shape)
        if found.scale is None:
            return found.data.to(self._device).to(self._dtype), None
        return found.data.to(self._device), found.scale.to(self._device, torch.float32)

    def _layer(self, index: int) -> Layer:
        c, d, at = self._config, self._config.hidden_size, f"model.layers.{index}"
        attn, mlp = f"{at}.self_attn", f"{at}.mlp"
        q_size, kv_size = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        before, after = c.norms != "after", c.norms != "before"
        widths = (q_size, kv_size) if c.qk_norm == "whole" else (c.head_dim, c.head_dim)
        names, sizes = ([f"{attn}.{x}_proj" for x in "qkv"], [q_size, kv_size, kv_size])
        if c.fused:
            names, sizes = [f"{attn}.qkv_proj"], [q_size + 2 * kv_size]
        rope = c.rope_of[index] if c.rope_of else 0
        return Layer(
            input_norm=self._norm(f"{at}.input_layernorm.weight", d) if before else None,
            qkv=self._linear(names, sizes, d, bias=c.qkv_bias, pair=c.head_dim // 2, order=self._turned()),
            q_norm=self._norm(f"{attn}.q_norm.weight", widths[0]) if c.qk_norm else None,
            k_norm=self._norm(f"{attn}.k_norm.weight", widths[1]) if c.qk_norm else None,
            output=self._linear([f"{attn}.o_proj"], [d], q_size),
            post_norm=self._norm(f"{at}.{self._mlp_norm}.weight", d) if before else None,
            gate_up=self._gate_up(mlp, c.intermediate_size) if c.experts is None else None,
            down=self._linear([f"{mlp}.down_proj"], [d], c.intermediate_size) if c.experts is None else None,
            attention_norm=self._norm(f"{at}.post_attention_layernorm.weight", d) if after else None,
            mlp_norm=self._norm(f"{at}.post_feedforward_layernorm.weight", d) if after else None,
            rope=rope, query_rope=1 + len(c.other_ropes) if c.rope.temperature and not rope else rope,
            window=c.windows[index] if c.windows else 0,
            experts=None if c.experts is None else self._mixture(mlp, c.experts))

    def _gate_up(self, at: str, width: int) -> Linear:
        names = [f"{at}.gate_up_proj"] if self._config.fused else [f"{at}.gate_proj", f"{at}.up_proj"]
        return self._linear(names, [2 * width // len(names)] * len(names), self._config.hidden_size, pair=width)

    def _mixture(self, at: str, experts: Experts) -> Mixture:
        d, each = self._config.hidden_size, [f"{at}.experts.{number}" for number in range(experts.count)]
        router = self._source.tensor(f"{at}.gate.weight", (experts.count, d)).to(self._device, torch.float32)
        return Mixture(router, tuple(self._gate_up(one, experts.width) for one in each),
                       tuple(self._linear([f"{one}.down_proj"], [d], experts.width) for one in each), experts.used,
                       experts.normalised)

    @property
    def _mlp_norm(self) -> str:
        """Return what checkpoints call the norm before the MLP."""
        return "post_attention_layernorm" if self._config.norms == "before" else "pre_feedforward_layernorm"

    def _turned(self) -> Tensor | None:
        """Return the order of q's, k's and v's rows in which kernels turn the right pairs, i and i + D / 2 of a head,
        where a rope turns the first features only; None: their own."""
        c, turned = self._config, int(self._config.head_dim * self._config.rope.share)
        if turned == c.head_dim:
            return None
        rows, still = torch.arange(c.head_dim), (c.head_dim - turned) // 2
        head = torch.cat((rows[: turned // 2], rows[turned : turned + still], rows[turned // 2 : turned],
                          rows[turned + still :]))
        heads = torch.arange(c.num_heads + 2 * c.num_kv_heads)[:, None] * c.head_dim
        order = heads + torch.where(heads < (c.num_heads + c.num_kv_heads) * c.head_dim, head, rows)
        return order.flatten()

    def _head(self, embedding: Tensor | Rows, scale: Tensor | None) -> Linear:
        """Return the product from the last layer to logits."""
        c, d = self._config, self._config.hidden_size
        start, stop = self._shard.span(c.vocab_size)
        if not c.tied_embeddings:
            return self._linear(["lm_head"], [stop - start], d, kind=HEAD_KIND)
        self._source.ignore("lm_head.weight")  # some exporters write the tied matrix twice
        groups = self._source.grouped("model.embed_tokens.weight", (c.vocab_size, d))
        if groups is not None:
            return self._grouped(groups, None)
        assert isinstance(embedding, Tensor), "what is in few bits on disk is in groups"
        return self._product(embedding[start:stop], None if scale is None else scale[start:stop], None, HEAD_KIND)

    def _norm(self, name: str, size: int) -> Tensor:
        found = self._source.tensor(name, (size,)).to(self._device, torch.float32)
        return found + self._config.norm_offset if self._config.norm_offset else found

    def _linear(self, names: list[str], sizes: list[int], width: int, *, bias: bool = False, pair: int = 0,
                kind: str = "", order: Tensor | None = None) -> Linear:
        """Return one product with these matrices [size, width], one below the other. pair, kind: see ``_product``; kind
        empty: as the model's others. order: of all rows; None: their own."""
        named = list(zip(names, sizes, strict=True))
        offset = None
        if bias:
            offset = _join([self._source.tensor(f"{name}.bias", (size,)) for name, size in named]).to(self._device)
        kept = [self._source.grouped(f"{name}.weight", (size, width)) for name, size in named]
        groups = [part for part in kept if part is not None]
        if len(groups) == len(kept):
            joined = join_grouped(groups)
            return self._grouped(joined if order is None else joined.in_order(lambda rows: rows[order]), offset, pair)
        parts = [self._source.matrix(f"{name}.weight", (size, width)) for name, size in named]
        data = _join([part.data for part in parts]).to(self._device)
        scales = [part.scale for part in parts if part.scale is not None]
        scale = _join(scales).to(self._device) if len(scales) == len(parts) else None
        if order is not None:
            data, scale = data[order], None if scale is None else scale[order]
        return self._product(data, scale, offset, kind or self._rounding, pair)

    def _product(self, data: Tensor, scale: Tensor | None, bias: Tensor | None, kind: str, pair: int = 0) -> Linear:
        """Round to ``kind`` where rounding is asked for, unless it is in that form already. pair: see
        ``kernels.reference.quantize_linear``."""
        if self._rounding != "same" and self._device.type == "cpu":
            if kind == "int8":
                data, scale = quantize(data) if scale is None else (data, scale)
            else:
                data = (data if scale is None else data.float() * scale.float()[:, None]).to(self._dtype)
                scale = None
                if fits(data, kind) and keeps_groups(self._device, self._dtype):
                    return self._grouped(to_groups(data), bias)
                if fits(data, kind):
                    data = to_groups(data).numbers()
        made = self._kernels.make_linear(data, scale, bias, self._dtype)
        if self._rounding == "same" or self._device.type == "cpu" or not isinstance(made, Dense):
            return made
        return self._kernels.quantize_linear(made, kind, pair)

    def _grouped(self, weight: Grouped, bias: Tensor | None, pair: int = 0) -> Linear:
        self._in_groups = True
        weight = weight.in_order(lambda part: part.to(self._device))
        return self._kernels.make_grouped(weight, bias, self._dtype, pair)


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
