"""The offloaded cache beside a full one: the same numbers, each streamed layer brought in once per pass, and followers
that copy from it. (The contract itself: test_contract.py. On a GPU: tests/engine/test_gpu.py.)"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.model.tiny import VOCAB, tiny_llama
from triforce_core.kv_cache.base import LayerBuffers
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.offloaded import HostLayer, OffloadedCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.model import Llama

LAYERS = 5


def model_of(dtype: torch.dtype = torch.float32) -> Llama:
    return tiny_llama(dtype=dtype, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2)


MODEL = model_of()


def pair(model: Llama = MODEL, **settings) -> tuple[FullCache, OffloadedCache]:
    c = model.config
    sizes = (c.num_layers, c.num_kv_heads, c.head_dim)
    settings = {"tail": 10, **settings}
    return (FullCache(*sizes, max_tokens=900, dtype=model.dtype, slots=32),
            OffloadedCache(*sizes, max_tokens=900, dtype=model.dtype, slots=32, **settings))


class Watch:
    """An observer that hands each layer's mass on, at the observer's moment."""

    mass_rows, chunk_size = 4, 8

    def __init__(self, then: Callable[[int, Tensor], None]) -> None:
        self._then = then

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        assert mass is not None
        self._then(layer, mass)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("resident", range(LAYERS))
def test_bit_for_bit_what_a_full_cache_gives(resident: int, dtype: torch.dtype) -> None:
    rng, model = random.Random(resident), model_of(dtype)
    full, offloaded = pair(model, resident_layers=resident)
    for _ in range(40):
        n = rng.choice([1, 1, 4, 7, 30])
        tokens = torch.tensor([rng.randrange(VOCAB) for _ in range(n)])
        expected, found = (model.forward(tokens, cache, logits_rows=n) for cache in (full, offloaded))
        assert torch.equal(expected, found)
        kept = rng.randint(0, n)
        cut = rng.randint(0, full.num_committed) if rng.random() < 0.15 else None
        for cache in (full, offloaded):
            cache.keep(range(kept))
            cache.commit()
            if cut is not None:
                cache.truncate(cut)
            cache.check_integrity()
    for layer in range(LAYERS):
        for one, other in zip(full.read(layer), offloaded.read(layer), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("resident", [2, 3])
def test_a_pass_brings_each_streamed_layer_in_once_and_none_where_all_find_room_in_the_ring(resident: int) -> None:
    _, cache = pair(resident_layers=resident)
    MODEL.forward(torch.arange(200) % VOCAB, cache, logits_rows=0)
    cache.commit()
    MODEL.forward(torch.tensor([1]), cache, logits_rows=1)
    cache.commit()
    before, c = cache.streamed_bytes, MODEL.config
    for _ in range(5):
        MODEL.forward(torch.tensor([1]), cache, logits_rows=1)
        cache.commit()
    whole_layer = 2 * c.num_kv_heads * 200 * c.head_dim * 4
    assert cache.streamed_bytes - before == (5 * (LAYERS - resident) * whole_layer if resident == 2 else 0)


@pytest.mark.parametrize("resident", [0, 2])
def test_a_layer_has_come_in_before_its_turn(resident: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the one before it is computed, or tokens are drafted: no pass waits for more than what it wrote itself."""
    _, cache = pair(resident_layers=resident)
    ring, taken = cache._ring, []
    exact = ring.take

    def take(index: int) -> LayerBuffers:
        taken.append((index, [space.valid for space in ring._spaces if space.layer == index]))
        return exact(index)

    monkeypatch.setattr(ring, "take", take)
    for num_tokens, held in ((60, 0), (1, 60), (1, 60), (5, 60), (40, 60), (1, 107), (500, 107), (1, 608)):
        taken.clear()
        MODEL.forward(torch.arange(num_tokens) % VOCAB, cache, logits_rows=0)
        cache.commit()
        assert taken == [(index, [held]) for index in range(LAYERS - resident)]


def test_a_tree_path_also_where_the_host_has_it_already() -> None:
    """Two trees staged one after the other: the second sends the first to the host, then a path through both stays."""
    mask = torch.tensor([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0],
                         [1, 0, 1, 1, 1, 0], [1, 1, 0, 0, 0, 1]], dtype=torch.bool)
    caches = pair(tail=8)
    found = []
    for cache in caches:
        MODEL.forward(torch.arange(20), cache, logits_rows=0)
        cache.commit()
        for depths in ([0, 1, 1, 2, 3, 2], [0, 1, 1, 2, 3, 2]):
            MODEL.forward(torch.arange(30, 36), cache, logits_rows=0, depths=depths, staged_mask=mask)
        cache.keep([0, 2, 3, 6, 8])
        found.append(MODEL.forward(torch.tensor([3, 4]), cache, logits_rows=2))
        cache.commit()
        cache.check_integrity()
        found.append(MODEL.forward(torch.tensor([5]), cache, logits_rows=1))
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


def test_growth_moves_nothing_on_the_host() -> None:
    layer = HostLayer(2, 10, 4, torch.float32, for_gpu=False)
    keys, values = torch.randn(2, 25, 4), torch.randn(2, 25, 4)
    layer.write(0, keys[:, :10], values[:, :10])
    place = layer.read(0, 10)[0].data_ptr()
    layer.grow(18)
    layer.grow(25)
    layer.write(7, keys[:, 7:], values[:, 7:])
    assert layer.read(0, 10)[0].data_ptr() == place
    for start, stop in ((0, 25), (3, 11), (12, 20), (18, 25), (4, 4)):
        found = layer.read(start, stop)
        assert torch.equal(found[0], keys[:, start:stop]) and torch.equal(found[1], values[:, start:stop])
    layer.one_segment()
    assert layer.slots == 25 and len(list(layer.runs(0, 25))) == 1


@pytest.mark.parametrize("resident", [0, 2])
def test_a_retrieval_cache_copies_the_same_from_it(resident: int) -> None:
    """Chosen after the pass (from the host) and layer by layer within it (from the ring)."""
    full, offloaded = pair(resident_layers=resident, tail=40)
    followers = [RetrievalCache(cache, budget=96, recent=20, slack=16) for cache in (full, offloaded, offloaded)]
    rng = random.Random(0)
    for n in (300, 4, 9, 60, 1, 33, 5):
        tokens = torch.tensor([rng.randrange(VOCAB) for _ in range(n)])
        mass: list[Tensor] = []
        MODEL.forward(tokens, full, logits_rows=1, observer=Watch(lambda _, found, mass=mass: mass.append(found)))
        MODEL.forward(tokens, offloaded, logits_rows=1, observer=Watch(followers[2].select_layer))
        chosen = followers[2].selection
        for cache in (full, offloaded):
            if n == 9:
                cache.keep(range(4))
        if mass[0].shape[-1] > 12:
            for follower in followers[:2]:
                follower.select(torch.stack(mass))
            assert chosen is not None and torch.equal(chosen.sort(-1).values, followers[0].selection.sort(-1).values)
        for cache in (full, offloaded):
            cache.commit()
        for follower in followers:
            follower.commit()
            follower.check_integrity()
            assert follower.num_committed == full.num_committed
        logits = [MODEL.forward(torch.tensor([7]), follower, logits_rows=1) for follower in followers]
        torch.testing.assert_close(logits[0], logits[1])
        torch.testing.assert_close(logits[0], logits[2])


def test_a_selection_broken_off_within_a_pass_leaves_a_sound_cache() -> None:
    _, offloaded = pair()
    follower = RetrievalCache(offloaded, budget=96, recent=20)
    MODEL.forward(torch.arange(300) % VOCAB, offloaded, logits_rows=0)
    offloaded.commit()
    follower.sync()
    follower.select_layer(0, torch.rand(2, 37))
    follower.sync()
    follower.check_integrity()
    assert follower.num_committed == 300
