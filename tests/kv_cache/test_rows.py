"""The whole context in few bits: one contract with the other kinds; what it lends are the numbers that it attends."""

from __future__ import annotations

import pytest
import torch

from tests.kv_cache.test_contract import random_life
from tests.model.tiny import VOCAB, tiny_llama
from triforce_core.errors import ContextTooLongError
from triforce_core.kernels import KV_BITS, REFERENCE, compiled, row_bytes
from triforce_core.kv_cache.full import RowsCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.model import Llama
from triforce_core.research.chunk_means import ChunkMeans
from triforce_core.research.top_k import TopKCache

BF16 = torch.bfloat16
MODEL = tiny_llama(BF16, hidden_size=64, num_key_value_heads=2)
EXACT = compiled().library is not None
both = pytest.mark.parametrize("kind", KV_BITS)


def cache_of(kind: str, model: Llama = MODEL, max_tokens: int = 400, slots: int = 8) -> RowsCache:
    c = model.config
    return RowsCache(c.num_layers, c.num_kv_heads, c.head_dim, kind=kind, max_tokens=max_tokens, dtype=model.dtype,
                     slots=slots)


def one_by_one(kind: str, tokens: list[int]) -> torch.Tensor:
    """Logits of every token, each in a pass of its own: plain decoding over this kind of cache."""
    cache = cache_of(kind)
    return torch.cat([MODEL.forward(torch.tensor([token]), cache, logits_rows=1) for token in tokens])


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    if EXACT:
        assert torch.equal(one, other)
    else:  # torch's products round by their width, and a step may flip
        torch.testing.assert_close(one, other, atol=0.5, rtol=0.1)


@both
@pytest.mark.parametrize("seed", range(4))
def test_random_life(seed: int, kind: str) -> None:
    """Any passes of up to 20 tokens, cuts and growth: plain decoding's logits, to the last bit."""
    for held, logits in random_life(MODEL, cache_of(kind), seed):
        if logits is not None:
            same(logits, one_by_one(kind, held)[-len(logits) :])


def filled(kind: str, tokens: int = 200, model: Llama = MODEL) -> RowsCache:
    cache = cache_of(kind, model)
    model.forward(torch.randint(VOCAB, (tokens,), generator=torch.Generator().manual_seed(0)), cache, logits_rows=0)
    cache.commit()
    return cache


@both
def test_what_it_lends_is_what_it_attends(kind: str) -> None:
    full = filled(kind)
    part = RetrievalCache(full, budget=96, recent=16)
    part.select(torch.rand(full.num_layers, full.num_kv_heads, 25, generator=torch.Generator().manual_seed(1)))
    part.check_integrity()
    assert part.selection is not None and part.layers[0].keys.dtype == BF16
    for layer in range(full.num_layers):
        keys, values = full.layers[layer].numbers(0, 200)
        for head in range(full.num_kv_heads):
            for at, chunk in enumerate(part.selection[layer, head].tolist()):
                held, own = slice(8 * at, 8 * at + 8), slice(8 * chunk, 8 * chunk + 8)
                assert torch.equal(part.layers[layer].keys[head, held], keys[head, own])
                assert torch.equal(part.layers[layer].values[head, held], values[head, own])
    means = ChunkMeans(full, 8)
    means.update()
    queries = torch.randn(full.num_layers, 1, MODEL.config.num_heads, MODEL.config.head_dim)
    assert means.score(queries).isfinite().all()


@both
def test_a_reading_comes_back_as_it_was(kind: str) -> None:
    full, other = filled(kind), cache_of(kind)
    for (keys, values), layer in zip(other.restore(200), range(full.num_layers), strict=True):
        k, v = full.read(layer)
        assert k.dtype == torch.int8 and k.shape[2] == row_bytes(full.head_dim, KV_BITS[kind])
        keys.copy_(k)
        values.copy_(v)
    token = torch.tensor([7])
    assert torch.equal(MODEL.forward(token, full, logits_rows=1), MODEL.forward(token, other, logits_rows=1))


@both
def test_less_memory_and_its_limit(kind: str) -> None:
    cache = cache_of(kind, max_tokens=64, slots=64)
    assert cache.nbytes == sum(part.nbytes for own in cache.layers for part in (own.keys, own.values))
    assert cache.kind == kind and cache.dtype == BF16
    with pytest.raises(ContextTooLongError):
        cache.reserve(65)


@both
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_the_slow_twin_computes_alike(dtype: torch.dtype, kind: str) -> None:
    """The specification's ops over the same cache; float32 too, and where each query attends its own best slots."""
    fast = tiny_llama(dtype, hidden_size=64, num_key_value_heads=2)
    slow = tiny_llama(dtype, hidden_size=64, num_key_value_heads=2, kernels=REFERENCE)
    ids = torch.randint(VOCAB, (60,), generator=torch.Generator().manual_seed(2))
    logits = [model.forward(ids, cache_of(kind, model), logits_rows=20) for model in (fast, slow)]
    steps = 0.08 if kind == "int8" else 0.3  # other orders of addition flip some
    assert float((logits[0] - logits[1]).norm() / logits[1].norm()) < steps
    top = TopKCache(filled(kind, 100, slow), budget=500)
    assert slow.forward(ids[:1], top, logits_rows=1).isfinite().all()
    top.check_integrity()
