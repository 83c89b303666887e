"""Layers that attend a window, in every kind of cache: what is computed is what a pass over the whole text computes,
however tokens came and went, and what is held does not grow with the context."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.model.tiny import VOCAB, Watch, tiny_llama
from triforce_core.kernels import compiled
from triforce_core.kv_cache import window
from triforce_core.kv_cache.base import KVCache
from triforce_core.kv_cache.full import FullCache, RowsCache
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.kv_cache.retrieval import CrossModelCache, RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.model import Llama
from triforce_core.speculation.model_drafter import ModelOnCache

WINDOW, SLACK = 20, 16
MIXED = tiny_llama(architectures=["MistralForCausalLM"], num_hidden_layers=3, num_key_value_heads=2,
                   sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
ALL = tiny_llama(architectures=["MistralForCausalLM"], num_hidden_layers=2, num_key_value_heads=2,
                 sliding_window=WINDOW)


@pytest.fixture(autouse=True)
def short_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "SLACK", SLACK)


def sizes(model: Llama) -> tuple[int, int, int]:
    return model.config.num_layers, model.config.num_kv_heads, model.config.head_dim


def full_cache(model: Llama = MIXED) -> FullCache:
    return FullCache(*sizes(model), max_tokens=400, dtype=model.dtype, slots=8, windows=model.config.windows)


def offloaded_cache() -> OffloadedCache:
    return OffloadedCache(*sizes(MIXED), max_tokens=400, dtype=MIXED.dtype, slots=8, tail=12,
                          windows=MIXED.config.windows)


def of_all() -> FullCache:
    return full_cache(ALL)


def expected(model: Llama, tokens: list[int]) -> torch.Tensor:
    """Logits of all rows of one pass, with nothing evicted."""
    return model.forward(torch.tensor(tokens), full_cache(model), logits_rows=len(tokens))


def some_tokens(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=count)


@pytest.mark.parametrize("make", [full_cache, offloaded_cache, of_all])
@pytest.mark.parametrize("seed", range(3))
def test_random_life(make: Callable[[], FullCache], seed: int) -> None:
    rng, cache = random.Random(seed), make()
    model = ALL if make is of_all else MIXED
    committed: list[int] = []
    staged: list[int] = []
    for _ in range(60):
        action = rng.choice(["stage", "stage", "keep", "commit", "truncate"])
        if action == "stage" and len(committed) + len(staged) < 300:
            new = rng.choices(range(VOCAB), k=rng.choice([1, 2, 5, 9, 30]))
            logits = model.forward(torch.tensor(new), cache, logits_rows=len(new))
            staged += new
            torch.testing.assert_close(logits, expected(model, committed + staged)[-len(new) :], atol=1e-4, rtol=1e-3)
        elif action == "keep":
            staged = staged[: rng.randint(0, len(staged))]
            cache.keep(range(len(staged)))
        elif action == "commit":
            cache.commit()
            committed, staged = committed + staged, []
            held = [layer.keys.shape[1] for layer in cache.layers if layer.window]
            assert max(held) <= WINDOW + 3 * SLACK + 300
        elif action == "truncate":
            length = cache.reachable(max(0, len(committed) - rng.randint(0, 2 * SLACK)))
            assert length == 0 or len(committed) - length <= 2 * SLACK
            committed, staged = committed[:length], []
            cache.truncate(length)
        cache.check_integrity()


def test_what_a_round_takes_back_is_there_and_what_is_held_stays_bounded() -> None:
    cache, text = full_cache(), some_tokens(380)
    slots = {layer.keys.shape[1] for layer in cache.layers if layer.window}
    for at in range(0, 380, 5):
        MIXED.forward(torch.tensor(text[at : at + 5]), cache, logits_rows=0)
        cache.commit()
        back = max(0, cache.num_committed - SLACK)
        assert cache.reachable(back) == back
    assert {layer.keys.shape[1] for layer in cache.layers if layer.window} == slots == {WINDOW + 3 * SLACK}
    with pytest.raises(ValueError, match="evicted"):
        cache.truncate(100)


@pytest.mark.parametrize("make", [full_cache, offloaded_cache])
def test_a_marked_place_is_gone_back_to(make: Callable[[], FullCache]) -> None:
    cache, text = make(), some_tokens(300)
    for at in range(0, 300, 30):
        MIXED.forward(torch.tensor(text[at : at + 30]), cache, logits_rows=0)
        cache.commit()
        if at == 120:
            cache.keep_place()
    assert cache.reachable(200) == 150 and cache.reachable(145) == 145 and cache.reachable(90) == 0
    for length in (147, 140):
        cache.truncate(length)
        cache.check_integrity()
        logits = MIXED.forward(torch.tensor([3, 4]), cache, logits_rows=2)
        torch.testing.assert_close(logits, expected(MIXED, [*text[:length], 3, 4])[-2:], atol=1e-4, rtol=1e-3)
        MIXED.forward(torch.tensor(text[:100]), cache, logits_rows=0)
        cache.commit()
    cache.reset()
    assert cache.reachable(0) == 0


@pytest.mark.skipif(compiled().library is None, reason="our own kernels give each row the same bits")
def test_sums_do_not_depend_on_how_tokens_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one or in drafts: the same bits, as what is evicted goes in whole blocks."""
    monkeypatch.setattr(window, "SLACK", 128)
    model = tiny_llama(torch.bfloat16, architectures=["MistralForCausalLM"], hidden_size=64, head_dim=16,
                       num_key_value_heads=2, sliding_window=40, layer_types=["sliding_attention", "full_attention"])
    text, rows = some_tokens(396), []
    for size in (1, 9):
        cache, found = full_cache(model), []
        for at in range(0, 396, size):
            new = [*text[at : at + size], 5, 5][: size + 2 * (size > 1)]
            logits = model.forward(torch.tensor(new), cache, logits_rows=len(new))
            found.append(logits[:size])
            cache.keep(range(size))
            cache.commit()
        rows.append(torch.cat(found))
    assert torch.equal(*rows)


def test_a_tree_sees_its_branch_within_the_window() -> None:
    cache, text = full_cache(), some_tokens(90)
    MIXED.forward(torch.tensor(text), cache, logits_rows=0)
    cache.commit()
    model = ModelOnCache(MIXED, cache)
    parents = [-1, -1, 0, 1, 2]
    draft = [5, 6, 7, 8, 9]
    logits = model.logits([*text, 4], draft, parents)
    for node, path in ((2, [0, 2]), (3, [1, 3]), (4, [0, 2, 4])):
        branch = [*text, 4, *(draft[at] for at in path)]
        torch.testing.assert_close(logits[node + 1], expected(MIXED, branch)[-1], atol=1e-4, rtol=1e-3)
    model.keep(91, [1, 3])
    model.commit()
    logits = MIXED.forward(torch.tensor([2]), cache, logits_rows=1)
    torch.testing.assert_close(logits, expected(MIXED, [*text, 4, 6, 8, 2])[-1:], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("make", [full_cache, offloaded_cache])
def test_retrieval_chooses_chunks_of_the_other_layers_alone(make: Callable[[], FullCache]) -> None:
    """With room for everything it computes what the full cache does; its windows are the full cache's own."""
    cache, text = make(), some_tokens(150)
    watch = WatchAll()
    MIXED.forward(torch.tensor(text[:-10]), cache, logits_rows=0)
    cache.commit()
    MIXED.forward(torch.tensor(text[-10:]), cache, logits_rows=1, observer=watch)
    cache.commit()
    assert [layer for layer, mass in watch.masses if mass is not None] == [1]
    mass = torch.stack([mass for _, mass in watch.masses if mass is not None])
    for budget in (200, 64):
        part = RetrievalCache(cache, budget=budget, chunk_size=4, recent=16)
        part.select(mass)
        part.check_integrity()
        assert part.layers[0] is cache.layers[0] and (part.selection is None) == (budget == 200)
        logits = MIXED.forward(torch.tensor([1, 2, 3]), part, logits_rows=3)
        if budget == 200:
            torch.testing.assert_close(logits, expected(MIXED, [*text, 1, 2, 3])[-3:], atol=1e-4, rtol=1e-3)
        part.keep(range(2))
        again = MIXED.forward(torch.tensor([1, 2, 9]), cache, logits_rows=3)
        torch.testing.assert_close(again, expected(MIXED, [*text, 1, 2, 9])[-3:], atol=1e-4, rtol=1e-3)
        cache.keep([])
        part.sync()


class WatchAll(Watch):
    def __init__(self) -> None:
        self.masses: list[tuple[int, torch.Tensor | None]] = []

    def see(self, layer: int, queries: torch.Tensor, mass: torch.Tensor | None) -> None:
        self.masses.append((layer, mass))


def drafting_caches() -> Iterator[KVCache]:
    c = MIXED.config
    yield StreamingCache(*sizes(MIXED), sinks=4, window=300, slack=4, frequencies=MIXED.frequencies, dtype=MIXED.dtype,
                         windows=c.windows)
    yield CrossModelCache(full_cache(), budget=256, recent=64, chunk_size=4, frequencies=MIXED.frequencies)
    yield RowsCache(*sizes(MIXED), kind="int8", max_tokens=400, dtype=MIXED.dtype, windows=c.windows)


@pytest.mark.parametrize("which", range(3))
def test_caches_of_drafts_and_rounded_ones(which: int) -> None:
    cache, text = list(drafting_caches())[which], some_tokens(200)
    for at in range(0, 200, 20):
        logits = MIXED.forward(torch.tensor(text[at : at + 20]), cache, logits_rows=1)
        MIXED.forward(torch.tensor([1, 1]), cache, logits_rows=0)
        cache.keep(range(20))
        cache.commit()
        cache.check_integrity()
        off = (logits - expected(MIXED, text[: at + 20])[-1:]).abs().max()
        assert off < (0.05 if which == 2 else 1e-4) * logits.abs().max().clamp_min(1), (at, off)


def test_a_reading_is_saved_and_restored_with_its_windows() -> None:
    cache, text = full_cache(), some_tokens(210)
    for at in range(0, 210, 30):
        MIXED.forward(torch.tensor(text[at : at + 30]), cache, logits_rows=0)
        cache.commit()
    saved = [tuple(part.clone() for part in cache.read(layer)) for layer in range(3)]
    other = full_cache()
    for places, parts in zip(other.restore(210), saved, strict=True):
        for place, part in zip(places, parts, strict=True):
            place.copy_(part)
    other.check_integrity()
    logits = MIXED.forward(torch.tensor([3, 4]), other, logits_rows=2)
    torch.testing.assert_close(logits, expected(MIXED, [*text, 3, 4])[-2:], atol=1e-4, rtol=1e-3)
