"""The only decoder: Llama and its close kin (Mistral, Qwen2, Qwen3), batch 1, state passed in.

Letters: n tokens of a pass, H KV heads, G query heads per KV head, D head_dim, d hidden, V vocabulary.
The model holds weights and nothing else; keys and values live in the cache it is given. It neither keeps nor
commits: the caller decides which staged tokens survive.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device.shard import ALONE, Shard
from ..device.streams import sent
from ..kernels import (
    HEAD_KIND,
    WEIGHT_KINDS,
    AttentionObserver,
    Dense,
    FusedLinear,
    Grouped,
    Kernels,
    Linear,
    PreNorm,
    bytes_per_weight,
    choose_kernels,
    fits,
    from_rows,
    join_grouped,
    to_groups,
)
from ..kv_cache.base import KVCache, KVView
from .config import ModelConfig
from .graphs import DeviceSlots, PassGraphs, StagesKV
from .native_pass import NativePass
from .quantized import quantize
from .rope import RotaryTable
from .sharded import ShardedWeights, local_config
from .weights import WeightSource


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block's weights. q, k, v and gate, up are one product each: fewer, larger reads."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class _FusedLayer:
    """A block's products, and the norms after its two sums."""

    index: int
    qkv: FusedLinear
    output: FusedLinear
    post_norm: Tensor
    gate_up: FusedLinear
    down: FusedLinear
    after: Tensor


# large: the weights by their names in a checkpoint
class Llama:
    """A decoder-only transformer; see ``load_model`` for the usual way to get one.

    dtype is the type of products, keys and values; norms, softmax sums and the residual stream are fp32.
    config is this rank's: with several (``shard``) it counts the heads and MLP features that are computed here."""

    def __init__(self, config: ModelConfig, weights: WeightSource, *, device: torch.device | str = "cpu",
                 dtype: torch.dtype = torch.float32, kernels: Kernels | None = None, shard: Shard = ALONE,
                 rounding: str = "same") -> None:
        """Reads every tensor the config asks for. rounding: of matrices to few bits, one at a time ("int8", "int4").

        Raises DamagedWeightsError (missing, extra, misshapen), ConfigError
        (heads that cannot be shared out)."""
        self.config, self.shard = local_config(config, shard), shard
        self.device, self.dtype = torch.device(device), dtype
        self.kernels, self._rounding = kernels or choose_kernels(self.device), rounding
        self.in_groups = False  # whether weights are multiplied in groups of few bits
        self.rope = RotaryTable(config.rope, config.head_dim, self.device)
        self.graphs = self._own_graphs()
        with torch.inference_mode():
            self._build(weights if shard.world == 1 else ShardedWeights(weights, shard, config.vocab_size))
        self._fused = self._fused_parts()
        self._native = NativePass.of(self, self._head, self._final_norm)
        weights.finish()

    def _own_graphs(self) -> PassGraphs | None:
        captures = self.device.type == "cuda" and self.runs_on_device
        return PassGraphs(self.rope, self.kernels.max_rows) if captures else None

    def can_quantize(self, kind: str) -> bool:
        """Return whether ``quantized(kind)`` makes a model that is faster here at few rows."""
        return self.dtype in self.kernels.quantized_types and kind in WEIGHT_KINDS

    def quantized_bytes(self, kind: str) -> int:
        """Estimate the bytes that ``quantized(kind)`` takes beside this model."""
        c = self.config
        head = c.vocab_size * c.hidden_size
        blocks = c.num_parameters - head * (1 if c.tied_embeddings else 2)
        return int(blocks * bytes_per_weight(kind) + head * bytes_per_weight(HEAD_KIND))

    @torch.inference_mode()
    def quantized(self, kind: str) -> Llama:
        """This model with a second set of products, from weights rounded to ``kind``; all else is shared.

        For drafting: another function, near this one. Made where the weights are, one matrix at a time."""

        c = self.config

        def small(linear: Linear, to: str = kind, pair: int = 0) -> Linear:
            return self.kernels.quantize_linear(linear, to, pair) if isinstance(linear, Dense) else linear

        return self.with_layers([
            replace(layer, qkv=small(layer.qkv, pair=c.head_dim // 2), output=small(layer.output),
                    gate_up=small(layer.gate_up, pair=c.intermediate_size), down=small(layer.down))
            for layer in self.layers], small(self._head, HEAD_KIND))

    def with_layers(self, layers: list[Layer], head: Linear | None = None) -> Llama:
        """Return a model of these layers and this head (None: its own); all else is shared. It computes another
        function: for drafting."""
        twin = copy(self)
        twin.config, twin.layers = replace(self.config, num_layers=len(layers)), layers
        twin._head = head or self._head
        twin._fused = twin._fused_parts()
        twin._native = NativePass.of(twin, twin._head, self._final_norm)
        twin.graphs = self._own_graphs()
        return twin

    def _fused_parts(self) -> list[_FusedLayer] | None:
        """The same products as ``layers``, where all of them can be fused with what is between them."""
        if self.config.qkv_bias or self.config.qk_norm or (self.shard.world > 1 and self.shard.splits_layers):
            return None
        after = [*(layer.input_norm for layer in self.layers[1:]), self._final_norm]
        found: list[_FusedLayer] = []
        for index, (layer, norm) in enumerate(zip(self.layers, after, strict=True)):
            qkv, output, gate_up, down = layer.qkv, layer.output, layer.gate_up, layer.down
            if not (isinstance(qkv, FusedLinear) and isinstance(output, FusedLinear)
                    and isinstance(gate_up, FusedLinear) and isinstance(down, FusedLinear)):
                return None
            found.append(_FusedLayer(index, qkv, output, layer.post_norm, gate_up, down, norm))
        return found

    def _build(self, weights: WeightSource | ShardedWeights) -> None:
        c, d = self.config, self.config.hidden_size
        embedding = weights.matrix("model.embed_tokens.weight", (c.vocab_size, d))
        self._embedding = embedding.data.to(self.device)
        self._embedding_scale = None if embedding.scale is None else embedding.scale.to(self.device, torch.float32)
        if embedding.scale is None:
            self._embedding = self._embedding.to(self.dtype)
        self.layers = [self._layer(weights, f"model.layers.{index}") for index in range(c.num_layers)]
        self._final_norm = self._vector(weights, "model.norm.weight", d)
        self._head = self._head_of(weights)

    def _layer(self, weights: WeightSource | ShardedWeights, at: str) -> Layer:
        """The block whose tensors' names begin with ``at``."""
        c, d, attn, mlp = self.config, self.config.hidden_size, f"{at}.self_attn", f"{at}.mlp"
        q_size, kv_size = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        norm, linear = partial(self._vector, weights), partial(self._linear, weights)
        return Layer(
            input_norm=norm(f"{at}.input_layernorm.weight", d),
            qkv=linear([f"{attn}.{x}_proj" for x in "qkv"], [q_size, kv_size, kv_size], d, bias=c.qkv_bias,
                       pair=c.head_dim // 2),
            q_norm=norm(f"{attn}.q_norm.weight", c.head_dim) if c.qk_norm else None,
            k_norm=norm(f"{attn}.k_norm.weight", c.head_dim) if c.qk_norm else None,
            output=linear([f"{attn}.o_proj"], [d], q_size),
            post_norm=norm(f"{at}.post_attention_layernorm.weight", d),
            gate_up=linear([f"{mlp}.gate_proj", f"{mlp}.up_proj"], [c.intermediate_size] * 2, d,
                           pair=c.intermediate_size),
            down=linear([f"{mlp}.down_proj"], [d], c.intermediate_size),
        )

    def _head_of(self, weights: WeightSource | ShardedWeights) -> Linear:
        """From the last layer to logits."""
        c, d = self.config, self.config.hidden_size
        start, stop = self.shard.span(c.vocab_size)
        if not c.tied_embeddings:
            return self._linear(weights, ["lm_head"], [stop - start], d, kind=HEAD_KIND)
        weights.ignore("lm_head.weight")  # some exporters write the tied matrix twice
        groups = weights.grouped("model.embed_tokens.weight", (c.vocab_size, d))
        if groups is not None:
            return self._grouped(groups, None)
        scale = None if self._embedding_scale is None else self._embedding_scale[start:stop]
        return self._product(self._embedding[start:stop], scale, None, HEAD_KIND)

    def _vector(self, weights: WeightSource | ShardedWeights, name: str, size: int) -> Tensor:
        """A norm's."""
        return weights.tensor(name, (size,)).to(self.device, torch.float32)

    def _linear(self, weights: WeightSource | ShardedWeights, names: list[str], sizes: list[int], width: int, *,
                bias: bool = False, pair: int = 0, kind: str = "") -> Linear:
        """One product with these matrices [size, width], one below the other. pair, kind: see ``_product``; kind empty:
        as the model's others."""
        named = list(zip(names, sizes, strict=True))
        offset = None
        if bias:
            offset = _join([weights.tensor(f"{name}.bias", (size,)) for name, size in named]).to(self.device)
        kept = [weights.grouped(f"{name}.weight", (size, width)) for name, size in named]
        groups = [part for part in kept if part is not None]
        if len(groups) == len(kept):
            return self._grouped(join_grouped(groups), offset, pair)
        parts = [weights.matrix(f"{name}.weight", (size, width)) for name, size in named]
        data = _join([part.data for part in parts]).to(self.device)
        scales = [part.scale for part in parts if part.scale is not None]
        scale = _join(scales).to(self.device) if len(scales) == len(parts) else None
        return self._product(data, scale, offset, kind or self._rounding, pair)

    def _product(self, data: Tensor, scale: Tensor | None, bias: Tensor | None, kind: str, pair: int = 0) -> Linear:
        """Rounded to ``kind`` where rounding is asked for, unless it is in that form already. pair: see
        ``kernels.reference.quantize_linear``."""
        if self._rounding == "same":
            return self.kernels.make_linear(data, scale, bias, self.dtype)
        if self.device.type == "cpu" and kind == "int8":
            if scale is None:
                data, scale = quantize(data)
            return self.kernels.make_linear(data, scale, bias, self.dtype)
        if self.device.type == "cpu":
            weight = (data if scale is None else data.float() * scale.float()[:, None]).to(self.dtype)
            if not fits(weight, kind):
                return self.kernels.make_linear(weight, None, bias, self.dtype)
            return self._grouped(to_groups(weight), bias)
        made = self.kernels.make_linear(data, scale, bias, self.dtype)
        return self.kernels.quantize_linear(made, kind, pair) if isinstance(made, Dense) else made

    def _grouped(self, weight: Grouped, bias: Tensor | None, pair: int = 0) -> Linear:
        self.in_groups = True
        return self.kernels.make_grouped(weight.in_order(lambda part: part.to(self.device)), bias, self.dtype, pair)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, cache: KVCache, *, logits_rows: int,
                observer: AttentionObserver | None = None, depths: list[int] | None = None,
                staged_mask: Tensor | None = None) -> Tensor:
        """One pass over n new tokens, which end up staged in ``cache``.

        token_ids: int64 [n]. logits_rows: how many of the last rows get logits (0: none, for prefill).
        depths, staged_mask: for a tree (see KVCache.positions, KVCache.begin).
        Returns fp32 [logits_rows, V]. Raises what ``cache.begin`` raises, before anything changed.
        """
        n = token_ids.shape[0]
        assert token_ids.dim() == 1 and 0 <= logits_rows <= n, (token_ids.shape, logits_rows)
        positions = cache.positions(n, depths)
        cache.begin(n, staged_mask)
        token_ids = sent(token_ids, self.device)
        chain = depths is None and staged_mask is None
        # A pass without logits reads what was written elsewhere: hardly two of them have one width.
        if self.graphs is not None and logits_rows and cache.capturable:
            logits = None
            if chain:
                logits = self.graphs.forward(token_ids, positions, cache, logits_rows, observer)
            elif staged_mask is not None:
                logits = self.graphs.forward_tree(token_ids, positions, cache, staged_mask, logits_rows, observer)
            if logits is not None:
                return logits
        cos, sin = self.rope.rows(sent(positions, self.device))
        if self._native is not None:
            logits = self._native.run(self._embed(token_ids), cos, sin, cache, staged_mask, logits_rows, observer)
            if logits is not None:
                return logits
        if (self._fused is not None and cache.capturable
                and logits_rows == n <= self.kernels.max_rows):
            # Fused, as a captured pass of this width would be: both round alike.
            place = DeviceSlots.behind(cache, n, staged_mask)
            logits = self._run(token_ids, cos, sin, place, logits_rows, observer)
            cache.staged_elsewhere()
            return logits
        return self._run(token_ids, cos, sin, cache, logits_rows, observer)

    __call__ = forward

    @property
    def runs_on_device(self) -> bool:
        """Return whether a pass needs nothing from the host: see ``forward_on_device``."""
        return self.config.head_dim in self.kernels.device_lengths

    @property
    def faster_sampling(self) -> Kernels | None:
        """The kernels, where they choose tokens of this vocabulary faster than ``sampling`` does."""
        return self.kernels if self.config.vocab_size <= self.kernels.probs_width else None

    @property
    def retrieves_in_place(self) -> bool:
        """Return whether attending chosen chunks where they lie is faster than copying them together."""
        return self.runs_on_device and self.kernels.indexed_attention is not None

    def batch_invariant_rows(self, cache: KVCache) -> int | None:
        """Tokens behind those in ``cache`` of which one pass computes what passes of one token each would, to the last
        bit: at least one; None: not known."""
        own, c = self.kernels.batch_invariant_rows, self.config
        return None if own is None else own(cache.length, c.num_kv_heads, cache.layers[0].keys.dtype, self.device)

    @torch.inference_mode()
    def forward_on_device(self, token_ids: Tensor, positions: Tensor, slots: StagesKV, logits_rows: int) -> Tensor:
        """``forward`` over a chain whose ids, positions and slots the device itself has computed. The caller has
        reserved the positions (``rope.reserve``) and the slots, and tells the cache afterwards what became of them."""
        return self._run(token_ids, *self.rope.take(positions), slots, logits_rows, None)

    @torch.inference_mode()
    def prepare(self, cache: KVCache, rows: int, observer: AttentionObserver | None = None, *,
                tree: bool = False, logits_rows: int | None = None) -> None:
        """Have a pass of so many rows captured where passes are and there is room. logits_rows: of the last of them
        (None: of all)."""
        if self.graphs is not None and cache.capturable and rows <= cache.room:
            if tree:
                self.graphs.prepare_tree(self._run, cache, rows, observer)
            else:
                self.graphs.prepare(self._run, cache, rows, rows if logits_rows is None else logits_rows, observer)

    @torch.inference_mode()
    def capture_wanted(self, cache: KVCache) -> int:
        """Have passes captured that came often and were not; how many. Nothing may be staged."""
        if self.graphs is None or not cache.capturable:
            return 0
        return self.graphs.capture_wanted(self._run, cache)

    def _run(self, token_ids: Tensor, cos: Tensor, sin: Tensor, cache: StagesKV, logits_rows: int,
             observer: AttentionObserver | None) -> Tensor:
        """The pass itself: on a GPU nothing in it waits for the device, so that it can be captured."""
        n = token_ids.shape[0]
        hidden = self._embed(token_ids)  # [n, d], the residual stream
        if self._fused is not None and isinstance(cache, DeviceSlots) and not cache.in_rows and logits_rows == n:
            return self._run_fused(self._fused, hidden, cos, sin, cache, observer)
        addend = None  # what the last block wants added to it: the next norm does so
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            rows = logits_rows if index == last else n
            hidden, addend = self._block(index, layer, hidden, addend, cos, sin, cache, rows, observer)
        if logits_rows == 0:
            return torch.empty(0, self.config.vocab_size, device=self.device)
        logits = self._head(self._norm(hidden, addend, self._final_norm)).float()
        return self.shard.gather(logits, self.config.vocab_size)

    def _run_fused(self, layers: list[_FusedLayer], hidden: Tensor, cos: Tensor, sin: Tensor, cache: DeviceSlots,
                   observer: AttentionObserver | None) -> Tensor:
        """The same in six launches per block instead of ten, for passes of few rows."""
        eps = self.config.rms_norm_eps
        x = PreNorm(self._norm(hidden, None, self.layers[0].input_norm), None, eps)
        for layer in layers:
            view = cache.view(layer.index)
            q = layer.qkv.rotated(x, cos, sin, view.keys, view.values, cache.slots)
            attended, mass = self._attend(q, view, observer)
            if observer is not None:
                observer.see(layer.index, q, mass)
            x = layer.output.added(attended, hidden, layer.post_norm, eps)
            x = layer.down.added(layer.gate_up.gated(x), hidden, layer.after, eps)
        if isinstance(self._head, FusedLinear):
            logits = self._head.normed(x)
        else:  # checkpoints in few bits often leave it whole
            logits = self._head(self._norm(hidden, None, self._final_norm)).float()
        return self.shard.gather(logits, self.config.vocab_size)

    def _norm(self, hidden: Tensor, addend: Tensor | None, weight: Tensor) -> Tensor:
        return self.kernels.add_rms_norm(hidden, addend, weight, self.config.rms_norm_eps, self.dtype)

    def _embed(self, token_ids: Tensor) -> Tensor:
        rows = F.embedding(token_ids, self._embedding).float()
        if self._embedding_scale is not None:
            rows *= self._embedding_scale[token_ids, None]
        return rows

    def _block(self, index: int, layer: Layer, hidden: Tensor, addend: Tensor | None, cos: Tensor, sin: Tensor,
               cache: StagesKV, rows: int, observer: AttentionObserver | None) -> tuple[Tensor, Tensor | None]:
        """One block on hidden + addend -> the same two for the next one; only the last ``rows`` rows go on after
        attention (nobody reads the others)."""
        ops, n = self.kernels, hidden.shape[0]
        qkv = layer.qkv(self._norm(hidden, addend, layer.input_norm)).view(n, -1, self.config.head_dim)
        q, view = self._stage(index, layer, qkv, cos, sin, cache)
        if rows == 0:
            return hidden[:0], None  # a prefill pass's last layer: its keys and values are all that was wanted
        attended, mass = self._attend(q, view, observer)
        if observer is not None:
            observer.see(index, q, mass)
        hidden, addend = hidden[n - rows :], self._sum(layer.output(attended))[n - rows :]
        normed = self._norm(hidden, addend, layer.post_norm)
        return hidden, self._sum(layer.down(ops.swiglu(layer.gate_up(normed))))

    def _stage(self, index: int, layer: Layer, qkv: Tensor, cos: Tensor, sin: Tensor,
               cache: StagesKV) -> tuple[Tensor, KVView]:
        """qkv [n, heads, D] rotated: queries, and the cache's view with the new keys and values in it."""
        c, ops = self.config, self.kernels
        qk_heads = c.num_heads + c.num_kv_heads
        if layer.q_norm is not None:
            q, k = qkv[:, : c.num_heads], qkv[:, c.num_heads : qk_heads]
            assert layer.k_norm is not None
            q = ops.rotate(ops.rms_norm(q, layer.q_norm, c.rms_norm_eps), cos, sin)
            k = ops.rotate(ops.rms_norm(k, layer.k_norm, c.rms_norm_eps), cos, sin)
        elif isinstance(cache, DeviceSlots):
            view = cache.view(index)
            return ops.rotate_and_write(qkv, cos, sin, view.keys, view.values, cache.slots), view
        else:
            rotated = ops.rotate(qkv[:, :qk_heads], cos, sin)
            q, k = rotated[:, : c.num_heads], rotated[:, c.num_heads :]
        return q, cache.stage(index, k, qkv[:, qk_heads:])

    def _sum(self, part: Tensor) -> Tensor:
        """The ranks' products over their own heads or features, added up."""
        return self.shard.sum(part) if self.shard.splits_layers else part

    def _attend(self, q: Tensor, view: KVView, observer: AttentionObserver | None) -> tuple[Tensor, Tensor | None]:
        ops, at = self.kernels, view.index
        if view.keys.dtype == torch.int8 and not ops.attends_rows(self.dtype, len(q), view.staged_mask is not None,
                                                                  at is not None):
            view = self._unpacked(view)
        if at is not None:
            assert ops.indexed_attention is not None
            return ops.indexed_attention(q, view.keys, view.values, view.length, at.chunks, at.bounds, at.size,
                                         view.staged_mask), None
        return ops.attention(q, view.keys, view.values, view.length, view.staged_mask,
                             observer.mass_rows if observer else 0, observer.chunk_size if observer else 1)

    def _unpacked(self, view: KVView) -> KVView:
        """With the numbers that its rows stand for."""
        if view.room is None:
            keys, values = (from_rows(rows, self.config.head_dim).to(self.dtype) for rows in (view.keys, view.values))
            return replace(view, keys=keys, values=values)
        assert isinstance(view.length, int)
        keys, values = view.room()
        for rows, numbers in ((view.keys, keys), (view.values, values)):
            self.kernels.unpack_rows(rows[:, : view.length], numbers[:, : view.length])
        return replace(view, keys=keys, values=values)


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
