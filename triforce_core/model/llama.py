"""The only decoder: Llama and its kin (see ``families``), described by data, batch 1, state passed in.

Letters: n tokens of a pass, H KV heads, G query heads per KV head, D head_dim, d hidden, V vocabulary.
The model holds weights and nothing else; keys and values live in the cache it is given. It neither keeps nor
commits: the caller decides which staged tokens survive.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device.shard import ALONE, Shard
from ..device.streams import sent
from ..kernels import (
    HEAD_KIND,
    WEIGHT_KINDS,
    AttentionObserver,
    FusedLinear,
    Kernels,
    PreNorm,
    bytes_per_weight,
    choose_kernels,
    from_rows,
)
from ..kv_cache.base import KVCache, KVView
from .config import ModelConfig, local_config
from .graphs import DeviceSlots, PassGraphs, StagesKV
from .layers import DecoderWeights, FusedLayer, Layer, WeightLoader
from .native_pass import NativePass
from .rope import RotaryTable
from .weights import ShardedWeights, WeightSource


class Llama:
    """A decoder-only transformer; see ``load_model`` for the usual way to get one.

    dtype is the type of products, keys and values; norms, softmax sums and the residual stream are fp32.
    config is this rank's: with several (``shard``) it counts the heads and MLP features that are computed here."""

    def __init__(self, config: ModelConfig, weights: WeightSource, *, device: torch.device | str = "cpu",
                 dtype: torch.dtype = torch.float32, kernels: Kernels | None = None, shard: Shard = ALONE,
                 rounding: str = "same") -> None:
        """Reads every tensor the config asks for. rounding: of matrices to few bits, one at a time ("int8", "int4").

        Raises DamagedWeightsError (missing, extra, misshapen), ConfigError (heads that cannot be shared out)."""
        self.config, self.shard = local_config(config, shard), shard
        self.device, self.dtype = torch.device(device), dtype
        self.kernels = kernels or choose_kernels(self.device)
        self.rope = RotaryTable((config.rope, *config.other_ropes), config.head_dim, self.device, config.score_scale)
        source = weights if shard.world == 1 else ShardedWeights(weights, shard, config.vocab_size)
        loader = WeightLoader(source, self.config, shard, self.kernels, device=self.device, dtype=dtype,
                              rounding=rounding)
        with torch.inference_mode():
            self._compute_with(loader.load())

    def _compute_with(self, weights: DecoderWeights) -> None:
        self.weights = weights
        self._fused = weights.fused(self.config, self.shard)
        self._native = NativePass.of(self.config, weights) if self.shard.world == 1 else None
        captures = self.device.type == "cuda" and self.runs_on_device
        self.graphs = PassGraphs(self.rope, self.kernels.max_rows) if captures else None

    @property
    def layers(self) -> list[Layer]:
        return self.weights.layers

    @property
    def turns_near(self) -> bool:
        """Return whether a longrope turns by the factors of short contexts."""
        rope = self.config.rope
        return rope.kind == "longrope" and not rope.near_divisors

    @property
    def frequencies(self) -> Tensor:
        """Return radians per position by which each layer's keys turn, fp32 [layers, D / 2]."""
        return self.rope.frequencies[[layer.rope for layer in self.layers]]

    @property
    def in_groups(self) -> bool:
        """Return whether weights are multiplied in groups of few bits."""
        return self.weights.in_groups

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
        """Return this model with products of weights rounded to ``kind``; all else is shared.

        For drafting: another function, near this one. Made where the weights are, one matrix at a time."""
        return self._with(self.weights.quantized(self.kernels, self.config, kind))

    def with_layers(self, layers: list[Layer]) -> Llama:
        """Return a model of these layers; all else is shared. It computes another function: for drafting."""
        return self._with(replace(self.weights, layers=layers))

    def _with(self, weights: DecoderWeights) -> Llama:
        twin = copy(self)
        windows = tuple(layer.window for layer in weights.layers) if self.config.windows else ()
        twin.config = replace(self.config, num_layers=len(weights.layers), windows=windows)
        twin._compute_with(weights)
        return twin

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
        assert cache.windows == self.config.windows, "the cache is for another model"
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
        self.rope.reserve(int(positions.max()))  # of those on the host, which waits for no device
        cos, sin = self.rope.take(sent(positions, self.device))
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
        c = self.config
        return c.head_dim in self.kernels.device_lengths and not (c.windows or c.experts)

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
        reserved the positions (``rope.reserve``) and the slots, and updates the cache afterwards."""
        return self._run(token_ids, *self.rope.take(positions), slots, logits_rows, None)

    @torch.inference_mode()
    def prepare(self, cache: KVCache, rows: int, observer: AttentionObserver | None = None, *,
                tree: bool = False, logits_rows: int | None = None) -> None:
        """Have a pass of so many rows captured where passes are and there is room. logits_rows: of the last of them
        (None: of all)."""
        if self.graphs is not None and cache.capturable and rows <= cache.room:
            wanted = rows if logits_rows is None else logits_rows
            self.graphs.prepare(self._run, cache, rows, wanted, observer, tree=tree)

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
        return self._logits(self._norm(hidden, addend, self.weights.final_norm))

    def _logits(self, normed: Tensor) -> Tensor:
        return self.shard.gather(self.weights.head(normed).float(), self.config.vocab_size)

    def _run_fused(self, layers: list[FusedLayer], hidden: Tensor, cos: Tensor, sin: Tensor, cache: DeviceSlots,
                   observer: AttentionObserver | None) -> Tensor:
        """The same in six launches per block instead of ten, for passes of few rows."""
        eps = self.config.rms_norm_eps
        x = PreNorm(self._norm(hidden, None, self.layers[0].input_norm), None, eps)
        for layer in layers:
            view = cache.view(layer.index)
            q = layer.qkv.rotated(x, cos[layer.rope], sin[layer.rope], view.keys, view.values, cache.slots)
            attended, mass = self._attend(q, view, observer)
            if observer is not None:
                observer.see(layer.index, q, mass)
            x = layer.output.added(attended, hidden, layer.post_norm, eps)
            x = layer.down.added(layer.gate_up.gated(x), hidden, layer.after, eps)
        if isinstance(self.weights.head, FusedLinear):
            return self.shard.gather(self.weights.head.normed(x), self.config.vocab_size)
        return self._logits(self._norm(hidden, None, self.weights.final_norm))  # a head that is left whole

    def _norm(self, hidden: Tensor, addend: Tensor | None, weight: Tensor | None) -> Tensor:
        """Return the norm of hidden + addend, which hidden becomes; without weight, the sum itself."""
        if weight is None:
            return (hidden if addend is None else hidden.add_(addend)).to(self.dtype)
        return self.kernels.add_rms_norm(hidden, addend, weight, self.config.rms_norm_eps, self.dtype)

    def _embed(self, token_ids: Tensor) -> Tensor:
        table, scale = self.weights.embedding, self.weights.embedding_scale
        rows = (F.embedding(token_ids, table) if isinstance(table, Tensor) else table(token_ids)).float()
        if self.config.embedding_scale != 1:
            rows = rows * self.config.embedding_scale
        return rows if scale is None else rows.mul_(scale[token_ids, None])

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
        normed = self._norm(hidden, self._after(addend, layer.attention_norm), layer.post_norm)
        gated = ops.swiglu if self.config.activation == "silu" else ops.geglu
        if layer.experts is not None:
            given = layer.experts(normed, gated)
        else:
            assert layer.gate_up is not None and layer.down is not None
            given = layer.down(gated(layer.gate_up(normed)))
        return hidden, self._after(self._sum(given), layer.mlp_norm)

    def _after(self, part: Tensor, weight: Tensor | None) -> Tensor:
        """The norm of what attention or MLP gives, in the families that have one there."""
        return part if weight is None else self.kernels.rms_norm(part, weight, self.config.rms_norm_eps)

    def _stage(self, index: int, layer: Layer, qkv: Tensor, cos: Tensor, sin: Tensor,
               cache: StagesKV) -> tuple[Tensor, KVView]:
        """qkv [n, heads, D] rotated: queries, and the cache's view with the new keys and values in it."""
        c, ops = self.config, self.kernels
        qk_heads = c.num_heads + c.num_kv_heads
        turn = cos[layer.rope], sin[layer.rope]
        if layer.q_norm is not None or layer.query_rope != layer.rope:
            q, k = self._normed(qkv[:, : c.num_heads], layer.q_norm), self._normed(qkv[:, c.num_heads : qk_heads],
                                                                                  layer.k_norm)
            q, k = ops.rotate(q, cos[layer.query_rope], sin[layer.query_rope]), ops.rotate(k, *turn)
        elif isinstance(cache, DeviceSlots):
            view = cache.view(index)
            return ops.rotate_and_write(qkv, *turn, view.keys, view.values, cache.slots), view
        else:
            rotated = ops.rotate(qkv[:, :qk_heads], *turn)
            q, k = rotated[:, : c.num_heads], rotated[:, c.num_heads :]
        return q, cache.stage(index, k, qkv[:, qk_heads:])

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """[n, heads, D]: each head normed, or all of them as one vector, as the weight is long."""
        if weight is None:
            return x
        rows = x if len(weight) == x.shape[2] else x.flatten(1)
        return self.kernels.rms_norm(rows, weight, self.config.rms_norm_eps).view(x.shape)

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
        watched = observer if observer is not None and not view.window else None  # a window has nothing to choose
        return ops.attention(q, view.keys, view.values, view.length, view.staged_mask,
                             watched.mass_rows if watched else 0, watched.chunk_size if watched else 1)

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
