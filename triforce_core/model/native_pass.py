"""A whole pass of a model in one call of the CPU's own kernels: at few rows, what lies between products is most calls.

Not all passes: see ``NativePass.of`` and ``run``. The others go op by op, with the same attention and products.
"""

from __future__ import annotations

from ctypes import addressof, byref, pointer

import torch
from torch import Tensor

from ..kernels import AttentionObserver, Linear, native
from ..kv_cache.base import KVCache, KVView
from .config import ModelConfig
from .layers import DecoderWeights


class NativePass:
    """The weights of one model as the library takes them. For one thread at a time: it has scratch memory."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights, head: native.NativeLinear) -> None:
        c = config
        self._library = head.library
        self._weights = weights  # everything that is pointed to, so that it stays
        self._layers = (native.LayerStruct * c.num_layers)(*(
            native.LayerStruct(*(_struct(linear) for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)),
                               *map(native.address, (layer.input_norm, layer.post_norm, layer.q_norm, layer.k_norm,
                                                     layer.attention_norm, layer.mlp_norm)),
                               layer.rope, layer.query_rope, c.qk_norm == "whole")
            for layer in weights.layers))
        self._head = pointer(head.struct)
        self._config = c
        asked = c.num_heads * c.head_dim
        self._narrow_width = max(c.hidden_size, asked, c.intermediate_size)
        self._wide_width = max(asked + 2 * c.num_kv_heads * c.head_dim, 2 * c.intermediate_size, c.hidden_size)
        self._narrow = self._queries = torch.empty(0, dtype=torch.bfloat16)
        self._wide = torch.empty(0)

    @classmethod
    def of(cls, config: ModelConfig, weights: DecoderWeights) -> NativePass | None:
        """Return a whole model's pass; None where a part is not the library's, or a width is not of whole vectors."""
        products = [linear for layer in weights.layers
                    for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        whole = all(width % native.LANES == 0 for width in (config.hidden_size, config.intermediate_size))
        if not (whole and native.attends(config.head_dim) and isinstance(weights.head, native.NativeLinear)
                and all(isinstance(linear, native.NativeLinear) for linear in products)):
            return None
        return cls(config, weights, weights.head)

    def run(self, hidden: Tensor, cos: Tensor, sin: Tensor, cache: KVCache, staged_mask: Tensor | None,
            logits_rows: int, observer: AttentionObserver | None) -> Tensor | None:
        """``Llama.forward`` from the embedded tokens [n, d] on, which it changes; the cache has begun the pass. None:
        nothing done, this cache needs it op by op."""
        if not cache.lies_still or any(index is not None for index in cache.indices):
            return None
        c, n, length = self._config, hidden.shape[0], cache.next_slot + hidden.shape[0]
        views = cache.upcoming()
        if not all(view.keys.is_contiguous() and view.values.is_contiguous() for view in views):
            return None
        self._make_room(n)
        logits = torch.empty(logits_rows, c.vocab_size)
        queries, mass, chunk, chunks = self._queries, None, 1, 0
        if observer is not None:
            queries = torch.empty(c.num_layers, n, c.num_heads, c.head_dim, dtype=torch.bfloat16)
            chunk = observer.chunk_size
            if observer.mass_rows and native.notes_mass(chunk):
                chunks = (length - n) // chunk
                mass = torch.empty(c.num_layers, c.num_kv_heads, chunks)
        masks = {id(view.staged_mask): view.staged_mask.to(torch.uint8).contiguous() for view in views
                 if view.staged_mask is not None}
        places = (native.PlaceStruct * c.num_layers)(*(self._place(view, masks, n) for view in views))
        given = native.PassStruct(
            self._layers, self._head, self._weights.final_norm.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            hidden.data_ptr(), logits.data_ptr(), addressof(places), native.address(mass) if chunks else None,
            queries.data_ptr(), self._narrow.data_ptr(), self._wide.data_ptr(), c.num_layers, n, c.hidden_size,
            c.num_kv_heads, c.group_size, c.head_dim, c.intermediate_size,
            min(n, observer.mass_rows) if chunks and observer else 0, chunk, chunks, logits_rows, observer is not None,
            torch.get_num_threads(), c.activation == "gelu", c.rms_norm_eps)
        native.no_memory(self._library.triforce_pass(byref(given)))
        cache.staged_elsewhere()
        if observer is not None:
            self._show(observer, queries, mass, views, staged_mask, logits_rows)
        return logits

    def _place(self, view: KVView, masks: dict[int, Tensor], n: int) -> native.PlaceStruct:
        assert isinstance(view.length, int)
        mask = masks.get(id(view.staged_mask)) if view.staged_mask is not None else None
        masked = 0 if mask is None else mask.shape[1]
        return native.PlaceStruct(view.keys.data_ptr(), view.values.data_ptr(), native.address(mask),
                                  view.keys.shape[1], view.length - n, view.length, masked,
                                  *native.row_of(view.keys, self._config.head_dim), not view.window)

    def _show(self, observer: AttentionObserver, queries: Tensor, mass: Tensor | None, views: list[KVView],
              staged_mask: Tensor | None, logits_rows: int) -> None:
        for layer in range(self._config.num_layers if logits_rows else self._config.num_layers - 1):
            view, own = views[layer], None if mass is None or views[layer].window else mass[layer]
            if own is None and observer.mass_rows and not view.window:
                assert isinstance(view.length, int)
                own = native.mass_again(queries[layer], view.keys, view.length, staged_mask,
                                        observer.mass_rows, observer.chunk_size)
            observer.see(layer, queries[layer], own)

    def _make_room(self, n: int) -> None:
        c = self._config
        if self._narrow.numel() < n * self._narrow_width:
            self._narrow = torch.empty(n * self._narrow_width, dtype=torch.bfloat16)
            self._wide = torch.empty(n * self._wide_width)
            self._queries = torch.empty(n * c.num_heads * c.head_dim, dtype=torch.bfloat16)


def _struct(linear: Linear | None) -> native.LinearStruct:
    assert isinstance(linear, native.NativeLinear)
    return linear.struct
