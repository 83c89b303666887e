"""The cache that attends chosen chunks in place, against the one that copies them: same choice, same logits."""

from __future__ import annotations

import random

import pytest
import torch

from tests.model.tiny import LIKE_A_GPU, VOCAB, tiny_llama
from triforce_core.errors import ContextTooLongError
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache, RetrievalCache

MODEL = tiny_llama(kernels=LIKE_A_GPU, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)


def prefilled(count: int, max_tokens: int = 600) -> FullCache:
    c = MODEL.config
    full = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=MODEL.dtype, slots=8)
    MODEL.forward(torch.arange(count) % VOCAB, full, logits_rows=0)
    full.commit()
    return full


def chosen(cache: IndexedRetrievalCache | RetrievalCache) -> list[list[list[int]]] | None:
    return None if cache.selection is None else cache.selection.sort(-1).values.tolist()


@pytest.mark.parametrize("size", [4, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_a_life_beside_the_copying_cache(size: int, seed: int) -> None:
    """Two full caches are fed alike; one is followed in place, the other by copies: by one cache that copies when
    something is staged, and by one that is always level."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    fulls = [prefilled(203), prefilled(203)]
    caches = [IndexedRetrievalCache(fulls[0], budget=64, recent=17, chunk_size=size),
              RetrievalCache(fulls[1], budget=64, recent=17, chunk_size=size)]
    level = RetrievalCache(fulls[1], budget=64, recent=17, chunk_size=size)
    selections = 0
    for _ in range(25):
        if rng.random() < 0.6:
            mass = torch.rand(2, 2, caches[1].num_chunks - rng.randint(0, 3), generator=g)
            for cache in (*caches, level):
                cache.select(mass)
            selections += 1
        for _ in range(rng.randint(0, 3)):  # inner rounds
            new = torch.tensor([rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5]))])
            mine, copied = (MODEL.forward(new, cache, logits_rows=len(new)) for cache in caches)
            torch.testing.assert_close(mine, copied, atol=1e-4, rtol=1e-3)
            kept = rng.randint(0, caches[0].num_staged)
            for cache in caches:
                cache.keep(range(kept))
        for cache in caches:
            cache.keep([])
        if rng.random() < 0.8:  # the outer round writes over what was staged
            new = torch.tensor([rng.randrange(VOCAB) for _ in range(rng.choice([1, 4, 9]))])
            mine, copied = (MODEL.forward(new, full, logits_rows=1) for full in fulls)
            torch.testing.assert_close(mine, copied, atol=1e-4, rtol=1e-3)
            kept = rng.randint(1, len(new))
            for full in fulls:
                full.keep(range(kept))
                full.commit()
        else:
            length = rng.randint(60, fulls[0].num_committed)
            for full in fulls:
                full.truncate(length)
        for cache in caches:
            cache.commit()
            cache.check_integrity()
        level.sync()
        level.check_integrity()
        assert chosen(caches[0]) == chosen(level)
        if rng.random() < 0.5:
            caches[1].sync()  # as before something is staged: it looks no sooner
            caches[1].check_integrity()
            assert chosen(caches[1]) == chosen(level)
        assert caches[0].length == caches[1].length == fulls[0].num_committed
    assert selections > 5


def test_chosen_while_tokens_are_staged_they_stay_so() -> None:
    """As a full pass is under way: the next drafts attend the same as if it had been chosen before that round, and what
    the round committed."""
    g = torch.Generator().manual_seed(5)
    fulls = [prefilled(203), prefilled(203)]
    ahead, before = (IndexedRetrievalCache(full, budget=64, recent=17) for full in fulls)
    mass = torch.rand(2, 2, ahead.num_chunks, generator=g)
    before.select(mass)
    drafted = torch.tensor([5, 6, 7, 8])
    for full, cache in zip(fulls, (ahead, before), strict=True):
        MODEL.forward(drafted, cache, logits_rows=1)
        cache.keep([])
        MODEL.forward(drafted, full, logits_rows=4)
        if cache is ahead:
            length, staged = cache.length, full.num_staged
            cache.choose(mass)
            assert (cache.length, full.num_staged) == (length, staged)
        full.keep(range(3))
        full.commit()
        cache.commit()
        cache.check_integrity()
        assert cache.length == 206
    assert chosen(ahead) == chosen(before)
    after = torch.tensor([9, 10])
    assert torch.equal(MODEL.forward(after, ahead, logits_rows=2), MODEL.forward(after, before, logits_rows=2))


@pytest.mark.parametrize("way", [IndexedRetrievalCache, RetrievalCache])
def test_one_token_cut_off_the_chosen_ends_the_choice_and_one_less_does_not(way) -> None:
    full = prefilled(203)
    cache = way(full, budget=64, recent=17)
    mass = torch.rand(2, 2, cache.num_chunks, generator=torch.Generator().manual_seed(5))
    newest = (203 - 17) // 8 * 8
    for cut in (newest, newest - 1):
        cache.select(mass)
        full.truncate(cut)
        MODEL.forward(torch.tensor([7, 8]), full, logits_rows=0)  # behind it another text
        full.commit()
        cache.sync()
        cache.check_integrity()
        held = cache.selection.shape[-1] if cache.selection is not None else 0
        assert (held > 1) == (cut == newest)  # else chunk 0 and a window
        MODEL.forward(torch.arange(203 - full.num_committed), full, logits_rows=0)
        full.commit()


def test_choosing_copies_nothing() -> None:
    full = prefilled(300)
    cache = IndexedRetrievalCache(full, budget=64, recent=16)
    before = [(layer.keys.clone(), layer.values.clone()) for layer in full.layers]
    addresses = cache.addresses
    cache.select(torch.rand(2, 2, cache.num_chunks))
    assert cache.layers is full.layers and cache.addresses == addresses == full.addresses
    for layer, (keys, values) in zip(full.layers, before, strict=True):
        assert torch.equal(layer.keys, keys) and torch.equal(layer.values, values)


def test_a_tree_of_staged_tokens() -> None:
    fulls = [prefilled(203), prefilled(203)]
    caches = [IndexedRetrievalCache(fulls[0], budget=64, recent=17), RetrievalCache(fulls[1], budget=64, recent=17)]
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    ids, after = torch.tensor([10, 11, 12, 13]), torch.tensor([7])
    found = []
    for cache in caches:
        logits = MODEL.forward(ids, cache, logits_rows=4, depths=[0, 1, 1, 2], staged_mask=mask)
        cache.keep([0, 2, 3])
        found.append(torch.cat((logits, MODEL.forward(after, cache, logits_rows=1))))
        cache.check_integrity()
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


def test_it_never_writes_beyond_the_full_cache_nor_into_its_staged_tokens() -> None:
    full = prefilled(40, max_tokens=44)
    cache = IndexedRetrievalCache(full, budget=64, recent=16)
    assert full.room == 4
    with pytest.raises(ContextTooLongError):
        cache.begin(5)
    MODEL.forward(torch.arange(4), cache, logits_rows=1)
    cache.commit()
    MODEL.forward(torch.arange(2), full, logits_rows=1)
    with pytest.raises(AssertionError):
        cache.begin(1)
