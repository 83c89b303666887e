"""Heavy hitters kept as H2O says, positions inside the cache as Streaming-H2O says, the oracle's best per query."""

from __future__ import annotations

import random

import pytest
import torch

from tests.kv_cache.test_contract import MODEL, ONE_LAYER, assert_like_recomputed, full_cache, rolling
from tests.model.tiny import VOCAB
from triforce_core.kernels import REFERENCE
from triforce_core.kernels.reference import probabilities
from triforce_core.model import Llama
from triforce_core.research.h2o import HeavyHitterCache
from triforce_core.research.top_k import top_k_attention


def grow(full, model: Llama, count: int, chance: random.Random) -> list[int]:
    tokens = [chance.randrange(VOCAB) for _ in range(count)]
    model.forward(torch.tensor(tokens), full, logits_rows=0)
    full.commit()
    return tokens


@pytest.mark.parametrize("seed", range(3))
def test_the_heaviest_stay_and_the_evicted_never_come_back(seed: int) -> None:
    """Against a list of what H2O holds, one layer and head at a time; mass comes at random."""
    chance, noise = random.Random(seed), torch.Generator().manual_seed(seed)
    full = full_cache()
    grow(full, MODEL, 100, chance)
    cache = HeavyHitterCache(full, budget=40, recent=20)
    mass = torch.rand(2, 2, 100, generator=noise)
    alive = {(layer, head): set(range(100)) for layer in range(2) for head in range(2)}
    for _ in range(5):
        cache.select(mass)
        cache.check_integrity()
        total = full.num_committed
        for (layer, head), candidates in alive.items():
            old = sorted((i for i in candidates if 0 < i < total - 20), key=lambda i: -mass[layer, head, i])
            kept = {0, *old[:19], *range(total - 20, total)}
            assert set(cache.selection[layer, head].tolist()) == {i for i in kept if i < total - 20}
            slots = [*cache.selection[layer, head], *range(total - 20, total)]
            assert torch.equal(cache.layers[layer].keys[head, :40], full.layers[layer].keys[head, slots])
            alive[layer, head] = kept
        new = grow(full, MODEL, chance.choice([1, 4, 9]), chance)
        for kept in alive.values():
            kept.update(range(total, total + len(new)))
        cache.sync()
        mass = torch.nn.functional.pad(mass, (0, len(new))) + torch.rand(2, 2, total + len(new), generator=noise)


def test_after_a_reset_everything_may_be_kept_again() -> None:
    full = full_cache()
    grow(full, MODEL, 100, random.Random(0))
    cache = HeavyHitterCache(full, budget=40, recent=20)
    first, last = torch.zeros(2, 2, 100), torch.zeros(2, 2, 100)
    first[..., 10:40] = last[..., 40:70] = 1.0
    cache.select(first)
    cache.select(last)
    assert cache.selection.max() < 40
    cache.reset()
    cache.select(last)
    assert cache.selection[..., 1:].min() >= 40


@pytest.mark.parametrize("seed", range(3))
def test_rolled_positions_are_slots(seed: int) -> None:
    """With one layer, the same tokens held by every head: decoding equals a fresh pass over just them, side by side."""
    chance = random.Random(seed)
    full = full_cache(ONE_LAYER)
    tokens = grow(full, ONE_LAYER, 120, chance)
    cache = rolling(full, ONE_LAYER, 40, 20)
    mass = torch.zeros(1, 2, 120)
    heavy = sorted(chance.sample(range(1, 100), 19))
    mass[..., heavy] = 1.0
    cache.select(mass)
    cache.check_integrity()
    assert_like_recomputed(ONE_LAYER, cache, [tokens[i] for i in [0, *heavy, *range(100, 120)]])
    tokens += grow(full, ONE_LAYER, 3, chance)
    cache.sync()  # newest tokens follow as they are
    assert_like_recomputed(ONE_LAYER, cache, [tokens[i] for i in [0, *heavy, *range(100, 123)]])


def test_each_query_attends_the_best_slots_of_its_own() -> None:
    noise = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 2, 30, 8, generator=noise)
    queries = torch.randn(3, 4, 8, generator=noise)
    found = top_k_attention(queries, keys, values, 25, None, 6).view(3, 4, 8)
    probs = probabilities(queries, keys, 25, None, 3)
    for head in range(4):
        for row in range(3):
            mine = probs[head // 2, head % 2, row]
            best = sorted(range(25 - 2 + row), key=lambda i: -mine[i])[:6]
            weights = mine[best] / mine[best].sum()
            torch.testing.assert_close(found[row, head], weights @ values[head // 2, best])
    whole, _ = REFERENCE.attention(queries, keys, values, 25)
    torch.testing.assert_close(top_k_attention(queries, keys, values, 25, None, 99), whole)
