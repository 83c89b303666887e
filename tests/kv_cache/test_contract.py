"""One contract over every kind of cache: random stage / keep / commit / truncate / reset against a naive model.

The model under test is one decoder on the cache; the naive model recomputes everything from the token list.
Streaming drops tokens, so its naive twin keeps a list of what is held and recomputes with slot-relative positions
(one layer only: with more, what evicted tokens left in later layers' keys cannot be recomputed)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from tests.model.tiny import VOCAB, tiny_llama
from triforce_core.errors import ContextTooLongError
from triforce_core.kv_cache.base import KVCache
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.model import Llama
from triforce_core.research.chunk_means import ChunkMeans
from triforce_core.research.h2o import HeavyHitterCache
from triforce_core.research.top_k import TopKCache
from triforce_core.research.tree_drafter import GrowingModel
from triforce_core.speculation.model_drafter import ModelOnCache

MODEL = tiny_llama(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
ONE_LAYER = tiny_llama(num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)


def full_cache(model: Llama = MODEL, max_tokens: int = 400, slots: int = 8) -> FullCache:
    c = model.config
    return FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=model.dtype, slots=slots)


def streaming_cache(model: Llama, window: int = 300, sinks: int = 4, slack: int = 4) -> StreamingCache:
    c = model.config
    return StreamingCache(c.num_layers, c.num_kv_heads, c.head_dim, sinks=sinks, window=window, slack=slack,
                          frequencies=model.rope.frequencies, dtype=model.dtype)


def offloaded_cache(model: Llama = MODEL, resident_layers: int = 0, max_tokens: int = 400, slots: int = 8,
                    tail: int = 12) -> OffloadedCache:
    """A short tail, so that it overflows often."""
    c = model.config
    return OffloadedCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=model.dtype,
                          slots=slots, resident_layers=resident_layers, tail=tail)


WHOLE = {"full": full_cache, "offloaded": offloaded_cache, "half offloaded": lambda: offloaded_cache(resident_layers=1)}


def rolling(full: FullCache, model: Llama, budget: int, recent: int) -> HeavyHitterCache:
    return HeavyHitterCache(full, budget=budget, recent=recent, frequencies=model.rope.frequencies)


# A part of a full cache, which they follow; budget tokens and more recent ones than the tests stage.
PARTS = {
    "retrieval": lambda full, budget: RetrievalCache(full, budget=budget, recent=16),
    "h2o": lambda full, budget: HeavyHitterCache(full, budget=budget, recent=16),
    "streaming-h2o": lambda full, budget: rolling(full, MODEL, budget, 16),
    "top-k": lambda full, budget: TopKCache(full, budget=budget),
}


def fresh_logits(model: Llama, tokens: list[int]) -> torch.Tensor:
    return model.forward(torch.tensor(tokens), full_cache(model), logits_rows=1)[0]


def assert_like_recomputed(model: Llama, cache: KVCache, kept: list[int]) -> None:
    """One more token on the cache gives what a fresh recomputation gives; then it is forgotten."""
    staged = cache.length - cache.num_committed
    logits = model.forward(torch.tensor([7]), cache, logits_rows=1)[0]
    torch.testing.assert_close(logits, fresh_logits(model, [*kept, 7]), atol=1e-4, rtol=1e-3)
    cache.keep(range(staged))


def random_life(model: Llama, cache: KVCache, seed: int) -> Iterator[tuple[list[int], torch.Tensor | None]]:
    """Yield after each of thirty actions what the cache must hold, and the logits of new tokens, if there are any."""
    rng = random.Random(seed)
    committed: list[int] = []
    staged: list[int] = []
    for _ in range(30):
        logits = None
        action = rng.choice(["stage", "stage", "stage", "keep", "commit", "truncate", "reset"])
        if action == "stage" and len(committed) + len(staged) < 250:
            new = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 9, 20]))]
            logits = model.forward(torch.tensor(new), cache, logits_rows=len(new))
            staged = staged + new
        elif action == "keep":
            staged = staged[: rng.randint(0, len(staged))]
            cache.keep(range(len(staged)))
        elif action == "commit":
            cache.commit()
            committed, staged = committed + staged, []
        elif action == "truncate":
            committed, staged = committed[: rng.randint(0, len(committed))], []
            cache.truncate(len(committed))
        elif action == "reset" and rng.random() < 0.3:
            cache.reset()
            committed, staged = [], []
        cache.check_integrity()
        assert (cache.num_committed, cache.length) == (len(committed), len(committed) + len(staged))
        yield committed + staged, logits


@pytest.mark.parametrize("kind", [*WHOLE, "streaming"])
@pytest.mark.parametrize("seed", range(4))
def test_random_life(kind: str, seed: int) -> None:
    """While nothing is evicted every kind is exact."""
    cache = WHOLE[kind]() if kind in WHOLE else streaming_cache(MODEL)
    for held_tokens, logits in random_life(MODEL, cache, seed):
        if logits is not None:
            torch.testing.assert_close(logits[-1], fresh_logits(MODEL, held_tokens), atol=1e-4, rtol=1e-3)
        assert_like_recomputed(MODEL, cache, held_tokens)


@pytest.mark.parametrize("kind", [*WHOLE, "streaming", *PARTS])
def test_tree_of_staged_tokens(kind: str) -> None:
    """Two branches staged in one pass; the second survives, moved next to its ancestors."""
    prefix = [1, 2, 3, 4, 5]
    full = WHOLE.get(kind, full_cache)()
    MODEL.forward(torch.tensor(prefix), full, logits_rows=0)
    full.commit()
    cache: KVCache = full
    if kind in PARTS:
        cache = PARTS[kind](full, 64)
    if kind == "streaming":
        cache = streaming_cache(MODEL)
        MODEL.forward(torch.tensor(prefix), cache, logits_rows=0)
        cache.commit()
    # root 10; its children 11 and 12; 13 under 12
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    logits = MODEL.forward(torch.tensor([10, 11, 12, 13]), cache, logits_rows=4, depths=[0, 1, 1, 2], staged_mask=mask)
    torch.testing.assert_close(logits[1], fresh_logits(MODEL, [*prefix, 10, 11]), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(logits[3], fresh_logits(MODEL, [*prefix, 10, 12, 13]), atol=1e-4, rtol=1e-3)
    cache.keep([0, 2, 3])
    assert_like_recomputed(MODEL, cache, [*prefix, 10, 12, 13])
    cache.check_integrity()


@pytest.mark.parametrize("kind", [*WHOLE, "streaming", *PARTS])
def test_a_tree_that_grows_level_by_level(kind: str) -> None:
    """Each pass stages one more level, of which a token sees its own ancestors among all that is staged."""
    prefix = [1, 2, 3, 4, 5]
    full = WHOLE.get(kind, full_cache)()
    own: KVCache = streaming_cache(MODEL) if kind == "streaming" else full
    MODEL.forward(torch.tensor(prefix), own, logits_rows=0)
    own.commit()
    grown = ModelOnCache(MODEL, PARTS[kind](full, 64) if kind in PARTS else own)
    grown.logits([*prefix, 6, 10], ())  # 6 and the root, a chain
    root, growing = grown.num_staged - 1, GrowingModel(grown)
    tails = {root: [10]}

    def level(tokens: list[int], parents: list[int]) -> None:
        first = grown.num_staged
        logits = growing.grow(tokens, parents, len(tokens))
        for number, (token, parent, row) in enumerate(zip(tokens, parents, logits, strict=True)):
            tails[first + number] = [*tails[parent], token]
            torch.testing.assert_close(row, fresh_logits(MODEL, [*prefix, 6, *tails[first + number]]), atol=1e-4,
                                       rtol=1e-3)

    level([11, 12, 13], [root] * 3)
    level([14], [root + 2])  # a level of one token sees not all that is staged
    level([15, 16, 17], [root + 1, root + 4, root + 4])
    assert grown.num_staged == root + 8
    growing.agree([*prefix, 6, 10, 12, 14, 17, 9, 9])  # what comes behind 17 is not staged
    assert grown.num_staged == root + 4
    assert_like_recomputed(MODEL, grown.cache, [*prefix, 6, 10, 12, 14, 17])
    grown.logits([*prefix, 6, 10, 12, 14, 17, 9], [20, 21, 22, 23], [-1, -1, 1, 1])  # and a tree in one pass
    grown.keep(len(prefix) + 6, [1, 3])
    assert_like_recomputed(MODEL, grown.cache, [*prefix, 6, 10, 12, 14, 17, 9, 21, 23])
    grown.cache.check_integrity()


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("n", [2, 11, 15])  # appended to an offloaded cache's tail; sending that to the host; wide
def test_a_pass_that_failed_half_way_leaves_no_trace(kind: str, n: int) -> None:
    cache = WHOLE[kind]()
    MODEL.forward(torch.tensor([1, 2, 3]), cache, logits_rows=0)
    cache.commit()
    cache.begin(n)
    k = torch.randn(n, 2, MODEL.config.head_dim)
    cache.stage(0, k, k)
    assert cache.length == 3
    assert_like_recomputed(MODEL, cache, [1, 2, 3])


@pytest.mark.parametrize("make", [full_cache, offloaded_cache])
def test_full_refuses_what_exceeds_it(make) -> None:
    cache = make(max_tokens=10)
    MODEL.forward(torch.arange(8), cache, logits_rows=0)
    cache.commit()
    with pytest.raises(ContextTooLongError, match="up to 10"):
        MODEL.forward(torch.arange(3), cache, logits_rows=1)
    cache.check_integrity()
    assert_like_recomputed(MODEL, cache, list(range(8)))


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("other", WHOLE)
def test_full_saved_and_restored(kind: str, other: str) -> None:
    """Also what one kind saved into another."""
    tokens = list(range(40))
    cache = WHOLE[kind]()
    for part in (tokens[:30], tokens[30:]):
        MODEL.forward(torch.tensor(part), cache, logits_rows=0)
        cache.commit()
    MODEL.forward(torch.tensor([9, 9]), cache, logits_rows=0)  # staged tokens are not part of it, nor lost by it
    saved = [tuple(part.clone() for part in cache.read(layer)) for layer in range(2)]
    assert_like_recomputed(MODEL, cache, [*tokens, 9, 9])
    again = WHOLE[other]()
    MODEL.forward(torch.tensor([3, 1]), again, logits_rows=0)
    for (k, v), (saved_k, saved_v) in zip(again.restore(40), saved, strict=True):
        k.copy_(saved_k)
        v.copy_(saved_v)
    assert again.num_committed == again.length == 40
    assert_like_recomputed(MODEL, again, tokens)
    again.check_integrity()


# --- streaming -------------------------------------------------------------------------------------------------------


def held(length: int, evicted: int, sinks: int) -> list[int]:
    return [*range(min(sinks, length)), *range(sinks + evicted, length)] if evicted else list(range(length))


@pytest.mark.parametrize("sinks", [0, 1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_streaming_is_slot_relative(sinks: int, seed: int) -> None:
    """With one layer, decoding on the cache equals a fresh pass over exactly the held tokens at positions 0, 1, 2..."""
    rng = random.Random(seed)
    cache = streaming_cache(ONE_LAYER, window=12, sinks=sinks, slack=3)
    tokens: list[int] = []
    evictions = 0
    for _ in range(40):
        staged: list[int] = []
        for _ in range(rng.choice([1, 2])):  # inner rounds stage and keep without committing
            new = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 3, 6]))]
            ONE_LAYER.forward(torch.tensor(new), cache, logits_rows=len(new))
            staged += new
            count = rng.randint(0, len(staged))
            cache.keep(range(count))
            staged = staged[:count]
        before = cache.num_evicted
        cache.commit()
        cache.check_integrity()
        evictions += cache.num_evicted > before
        tokens += staged
        assert cache.num_committed == len(tokens)
        slots = held(len(tokens), cache.num_evicted, sinks)
        assert len(slots) <= sinks + 12 + 3
        assert_like_recomputed(ONE_LAYER, cache, [tokens[i] for i in slots])
    assert evictions > 3
    with pytest.raises(ValueError, match="evicted"):
        cache.truncate(sinks + 1)
    cache.reset()
    assert_like_recomputed(ONE_LAYER, cache, [])


def test_streaming_prefill_in_long_passes_shrinks_again() -> None:
    cache = streaming_cache(ONE_LAYER, window=12, slack=3)
    normal = cache.slots
    for _ in range(3):
        ONE_LAYER.forward(torch.arange(50), cache, logits_rows=0)
        cache.commit()
        cache.check_integrity()
    assert cache.slots == normal and cache.num_evicted == 150 - 4 - 12
    expected = [0, 1, 2, 3, *range(38, 50)]
    assert_like_recomputed(ONE_LAYER, cache, expected)


# --- retrieval -------------------------------------------------------------------------------------------------------


def prefilled(model: Llama, count: int) -> FullCache:
    full = full_cache(model)
    model.forward(torch.arange(count) % VOCAB, full, logits_rows=0)
    full.commit()
    return full


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_part_that_holds_everything_is_exact(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    full = full_cache()
    cache = PARTS[kind](full, 256)
    tokens: list[int] = []
    for _ in range(12):
        new = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 4, 9]))]
        MODEL.forward(torch.tensor(new), cache, logits_rows=1)  # inner rounds
        cache.keep(range(rng.randint(0, len(new))))
        MODEL.forward(torch.tensor(new), full, logits_rows=1)  # the outer round decides
        full.keep(range(rng.randint(0, len(new))))
        tokens += new[: full.num_staged]
        full.commit()
        cache.sync()
        if rng.random() < 0.3:
            length = rng.randint(0, len(tokens))
            full.truncate(length)
            cache.sync()
            tokens = tokens[:length]
        cache.check_integrity()
        assert cache.num_committed == full.num_committed == len(tokens)
        assert_like_recomputed(MODEL, cache, tokens)


def expected_slots(cache: RetrievalCache, chosen: list[int], size: int, total: int) -> list[int]:
    chunks = [0, *chosen]
    return [chunk * size + i for chunk in chunks for i in range(size)] + list(range(cache._tail_start, total))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [4, 5, 8])
def test_retrieval_holds_chunk_zero_the_chosen_and_the_newest(dtype: torch.dtype, size: int) -> None:
    model = tiny_llama(dtype=dtype, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    full = prefilled(model, 203)
    cache = RetrievalCache(full, budget=64, recent=17, chunk_size=size)
    mass = torch.rand(2, 2, cache.num_chunks, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        cache.select(mass)
        cache.check_integrity()
        assert cache.num_committed == cache.length == full.num_committed
        wanted = (64 - (full.num_committed - cache._tail_start)) // size - 1
        for layer in range(2):
            for head in range(2):
                limit = cache._tail_start // size
                best = set((mass[layer, head, 1:limit].topk(wanted).indices + 1).tolist())
                assert set(cache.selection[layer, head].tolist()) == best | {0}
                slots = expected_slots(cache, cache.selection[layer, head, 1:].tolist(), size, full.num_committed)
                assert 64 - size < len(slots) <= 64
                for own, other in ((cache.layers[layer].keys, full.layers[layer].keys),
                                   (cache.layers[layer].values, full.layers[layer].values)):
                    assert torch.equal(own[head, : len(slots)], other[head, slots])
        # the full cache goes on; the retrieval cache follows exactly
        model.forward(torch.arange(30), cache, logits_rows=1)
        model.forward(torch.arange(30), full, logits_rows=1)
        full.keep(range(29))
        full.commit()
        cache.commit()
        cache.check_integrity()
        assert cache.num_committed == cache.length == full.num_committed
        cache.sync()
        cache.check_integrity()
        filled = cache._filled
        assert torch.equal(cache.layers[1].values[:, filled - 29 : filled],
                           full.layers[1].values[:, full.num_committed - 29 : full.num_committed])
    with pytest.raises(ValueError, match="needs a new selection"):
        cache.truncate(20)
    full.truncate(30)
    cache.sync()
    assert cache.num_committed == 30 and cache.selection is None
    cache.check_integrity()


def test_retrieval_copies_nothing_before_something_is_staged() -> None:
    """An answer goes on without drafts for longer than there is room for; then all of it is there."""
    full = prefilled(MODEL, 200)
    cache = RetrievalCache(full, budget=64, recent=16, slack=4)
    before = [layer.keys.clone() for layer in cache.layers]
    for _ in range(9):
        MODEL.forward(torch.arange(3), full, logits_rows=0)
        full.commit()
        cache.commit()
        assert cache.num_committed == full.num_committed == cache.length
        cache.check_integrity()
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before, strict=True))
    cache.begin(1)
    cache.check_integrity()
    at, newest = cache._filled, full.num_committed
    for own, whole in zip(cache.layers, full.layers, strict=True):
        assert torch.equal(own.keys[:, at - 40 : at], whole.keys[:, newest - 40 : newest])
        assert torch.equal(own.values[:, at - 40 : at], whole.values[:, newest - 40 : newest])


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("cut", [20, 39])
def test_a_part_notices_a_cut_that_has_grown_over(kind: str, cut: int) -> None:
    """Truncated, by one token or more, and grown again between two syncs: the length alone would not tell."""
    full = full_cache()
    MODEL.forward(torch.arange(40), full, logits_rows=0)
    full.commit()
    cache = PARTS[kind](full, 128)
    full.truncate(cut)
    MODEL.forward(torch.arange(30, 60), full, logits_rows=0)
    full.commit()
    cache.sync()
    assert_like_recomputed(MODEL, cache, [*range(cut), *range(30, 60)])


def test_chunk_means_follow_the_full_cache() -> None:
    full = prefilled(MODEL, 100)
    means = ChunkMeans(full, 8)
    queries = torch.randn(2, 3, 4, MODEL.config.head_dim, generator=torch.Generator().manual_seed(0))
    for cut, more in ((None, 0), (None, 21), (50, 70), (3, 0)):
        if cut is not None:
            full.truncate(cut)
        if more:
            MODEL.forward(torch.arange(more) % VOCAB, full, logits_rows=0)
            full.commit()
        means.update()
        assert means.num_chunks == full.num_committed // 8
        found = means.score(queries)
        assert found.shape == (2, 2, means.num_chunks)
        for layer in range(2):
            for head in range(2):
                keys = full.read(layer)[0][head, : means.num_chunks * 8].view(-1, 8, MODEL.config.head_dim).mean(1)
                mine = queries[layer, :, 2 * head : 2 * head + 2].reshape(6, -1)
                expected = (mine @ keys.T * MODEL.config.head_dim**-0.5).softmax(-1).sum(0)
                torch.testing.assert_close(found[layer, head], expected, atol=1e-5, rtol=1e-4)
