"""A whole pass of a model in one call of the CPU's own kernels: at few rows, what lies between products is most calls.

Not all passes: see ``NativePass.of`` and ``run``. The others go op by op, with the same attention and products.
"""

from __future__ import annotations

from ctypes import addressof, byref, c_void_p, pointer

import torch
from torch import Tensor

from ..kernels import AttentionObserver, Linear, native
from ..kv_cache.base import KVCache
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
                               *map(native.address, (layer.input_norm, layer.post_norm, layer.q_norm, layer.k_norm)),
                               layer.rope, layer.query_rope)
            for layer in weights.layers))
        self._head = pointer(head.struct)
        self._config = c
        asked = c.num_heads * c.head_dim
        self._narrow_width = max(c.hidden_size, asked, c.intermediate_size)
        self._wide_width = max(asked + 2 * c.num_kv_heads * c.head_dim, 2 * c.intermediate_size)
        self._narrow = self._queries = torch.empty(0, dtype=torch.bfloat16)
        self._wide = torch.empty(0)

    @classmethod
    def of(cls, config: ModelConfig, weights: DecoderWeights) -> NativePass | None:
        """Return a whole model's pass; None where a part is not the library's, or a width is not of whole vectors."""
        if (config.norms, config.activation) != ("before", "silu") or config.qk_norm == "whole" or config.experts:
            return None
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
        if not cache.capturable or any(index is not None for index in cache.indices):
            return None
        c, n, slots = self._config, hidden.shape[0], cache.slots
        first, length = cache.next_slot, cache.next_slot + n
        if not all(pair.keys.is_contiguous() and pair.values.is_contiguous() for pair in cache.layers):
            return None
        self._make_room(n)
        logits = torch.empty(logits_rows, c.vocab_size)
        mask = None if staged_mask is None else staged_mask.to(torch.uint8).contiguous()
        queries, mass, chunk, chunks = self._queries, None, 1, 0
        if observer is not None:
            queries = torch.empty(c.num_layers, n, c.num_heads, c.head_dim, dtype=torch.bfloat16)
            chunk = observer.chunk_size
            if observer.mass_rows and native.notes_mass(chunk):
                chunks = (length - n) // chunk
                mass = torch.empty(c.num_layers, c.num_kv_heads, chunks)
        keys, values = ((c_void_p * c.num_layers)(*(getattr(pair, name).data_ptr() for pair in cache.layers))
                        for name in ("keys", "values"))
        given = native.PassStruct(
            self._layers, self._head, self._weights.final_norm.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            hidden.data_ptr(), logits.data_ptr(), addressof(keys), addressof(values), native.address(mask),
            native.address(mass) if chunks else None, queries.data_ptr(), self._narrow.data_ptr(),
            self._wide.data_ptr(), c.num_layers, n, c.hidden_size, c.num_kv_heads, c.group_size, c.head_dim,
            c.intermediate_size, slots, first, length, 0 if mask is None else mask.shape[1],
            min(n, observer.mass_rows) if chunks and observer else 0, chunk, chunks, logits_rows, observer is not None,
            torch.get_num_threads(), *native.row_of(cache.layers[0].keys, c.head_dim), c.rms_norm_eps)
        native.no_memory(self._library.triforce_pass(byref(given)))
        cache.staged_elsewhere()
        if observer is not None:
            self._show(observer, queries, mass, cache, length, staged_mask, logits_rows)
        return logits

    def _show(self, observer: AttentionObserver, queries: Tensor, mass: Tensor | None, cache: KVCache, length: int,
              staged_mask: Tensor | None, logits_rows: int) -> None:
        for layer in range(self._config.num_layers if logits_rows else self._config.num_layers - 1):
            own = None if mass is None else mass[layer]
            if own is None and observer.mass_rows:
                own = native.mass_again(queries[layer], cache.layers[layer].keys, length, staged_mask,
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
