"""Captured passes against usual ones, with a capture that simply runs again (CUDA graphs: tests/engine/test_gpu.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from model.tiny import LIKE_A_GPU, VOCAB, Watch, tiny_llama
from torch import Tensor

from triforce_core.kv_cache.base import KVCache
from triforce_core.kv_cache.full import FullCache, RowsCache
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.model import Llama
from triforce_core.model.graphs import Outputs, PassGraphs
from triforce_core.speculation.model_drafter import ModelOnCache
from triforce_core.speculation.tree import sees


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # several divide other widths in other ways, and sums part in the last bits


class RunAgain:
    """A capture whose results, as a graph's, stay in one place and are written over."""

    def __init__(self) -> None:
        self.captured = self.repeats = 0

    def __call__(self, once: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        self.captured += 1
        kept = once()

        def repeat() -> None:
            self.repeats += 1
            fresh = once()
            for item in fields(Outputs):
                if getattr(kept, item.name) is not None:
                    getattr(kept, item.name).copy_(getattr(fresh, item.name))

        return repeat, kept


def model() -> Llama:
    return tiny_llama(kernels=LIKE_A_GPU, num_key_value_heads=2)


def full(llama: Llama) -> KVCache:
    return FullCache(2, 2, 8, max_tokens=4000, dtype=torch.float32, slots=40)


def rounded(llama: Llama) -> KVCache:
    return RowsCache(2, 2, 8, kind="int8", max_tokens=4000, dtype=torch.float32, slots=40)


def streaming(llama: Llama) -> KVCache:
    return StreamingCache(2, 2, 8, sinks=2, window=8, frequencies=llama.rope.frequencies, dtype=torch.float32, slack=4)


def indexed(llama: Llama) -> KVCache:
    cache = full(llama)
    llama.forward(torch.arange(200) % VOCAB, cache, logits_rows=0)
    cache.commit()
    part = IndexedRetrievalCache(cache, budget=64, recent=16, chunk_size=4)
    part.select(torch.rand(2, 2, part.num_chunks, generator=torch.Generator().manual_seed(3)))
    return part


def assert_seen_alike(usual: Watch, captured: Watch) -> None:
    """The same queries and mass; a captured pass has room for more chunks, which hold nothing."""
    for (layer, asked, mass), (layer2, asked2, mass2) in zip(usual.seen, captured.seen, strict=True):
        assert layer == layer2 and asked.shape == asked2.shape and torch.allclose(asked, asked2, atol=1e-5)
        chunks = min(mass.shape[1], mass2.shape[1])
        assert torch.allclose(mass[:, :chunks], mass2[:, :chunks], atol=1e-5) and not mass2[:, chunks:].any()


def capturing(rows: int) -> tuple[Llama, Llama, RunAgain]:
    """A model, the same with captured passes of up to so many rows, and what captures them."""
    usual, captured, again = model(), model(), RunAgain()
    captured.graphs = PassGraphs(captured.rope, rows, lambda: again)
    return usual, captured, again


def test_captured_passes_follow_an_index_that_changes() -> None:
    usual, captured, again = capturing(8)
    caches = [indexed(usual), indexed(captured)]
    g = torch.Generator().manual_seed(0)
    for step in range(30):
        if step % 5 == 4:
            mass = torch.rand(2, 2, caches[0].num_chunks, generator=g)
            for cache in caches:
                cache.keep([])
                cache.select(mass)
        ids = torch.randint(VOCAB, (1 + step % 3,), generator=g)
        found = [llama.forward(ids, cache, logits_rows=1)
                 for llama, cache in zip((usual, captured), caches, strict=True)]
        assert torch.allclose(*found, atol=1e-5)
        captured.capture_wanted(caches[1])
    assert again.captured == 3 and again.repeats == 18, "each width from its fifth pass on"


@pytest.mark.parametrize("make", [full, rounded, streaming])
def test_same_logits_and_observations(make: Callable[[Llama], KVCache]) -> None:
    usual, captured, again = capturing(8)
    caches = [make(usual), make(captured)]
    g = torch.Generator().manual_seed(0)
    kept: list[tuple[Tensor, Tensor]] = []
    # Long enough for buffers to grow and for the rotary table to move.
    for step in range(420):
        n = 20 if step % 100 == 50 else 1 + step % 4
        ids = torch.randint(VOCAB, (n,), generator=g)
        watches = (Watch(), Watch()) if step % 3 == 0 else (None, None)
        rows = min(n, 2)
        found = [one.forward(ids, cache, logits_rows=rows, observer=watch)
                 for one, cache, watch in zip((usual, captured), caches, watches, strict=True)]
        assert torch.allclose(*found, atol=1e-5)
        kept.append((found[1], found[1].clone()))
        assert caches[0].length == caches[1].length
        if watches[0] is not None and watches[1] is not None:
            assert_seen_alike(*watches)
        for cache in caches:
            cache.keep(range(cache.num_staged - (step % 2) * (n > 1)))
            if step % 5:
                cache.commit()
            cache.check_integrity()
        captured.capture_wanted(caches[1])
        caches[1].check_integrity()
    assert all(torch.equal(result, copy) for result, copy in kept)  # nobody else writes to a result
    assert 8 <= again.captured <= 100 and again.repeats > 230


def test_what_is_prepared_is_captured_once_and_changes_nothing() -> None:
    usual, prepared, again = capturing(8)
    caches = [full(usual), full(prepared)]
    ids = torch.arange(30)
    for llama, cache in zip((usual, prepared), caches, strict=True):
        llama.forward(ids, cache, logits_rows=0)
        cache.commit()
    for _ in range(2):
        prepared.prepare(caches[1], 3, Watch())
        prepared.prepare(caches[1], 9)  # too wide to be captured
    assert again.captured == 1 and caches[1].length == 30
    found = [llama.forward(ids[:3], cache, logits_rows=3, observer=Watch())
             for llama, cache in zip((usual, prepared), caches, strict=True)]
    assert torch.allclose(*found, atol=1e-5)
    assert (again.captured, again.repeats) == (1, 1)


@pytest.mark.parametrize("watched", [True, False])
def test_a_chain_of_any_width_runs_as_a_tree_that_was_prepared(watched: bool) -> None:
    """Unobserved chains are filled up to few widths, trees too, but not in the same way."""
    usual, prepared, again = capturing(16)
    ons = [ModelOnCache(llama, FullCache(2, 2, 8, max_tokens=400, dtype=torch.float32, slots=200))
           for llama in (usual, prepared)]
    for on in ons:
        on.feed(range(30), 0)
        on.commit()
    for width in (4, 8, 12):
        prepared.prepare(ons[1].cache, width, Watch() if watched else None, tree=True)
    if watched:
        prepared.prepare(ons[1].cache, 6, Watch())
    widths = (4, 6, 7, 8, 9, 11, 12) if watched else (4, 5, 7, 8, 9, 12)
    for n in widths:
        watches = (Watch(), Watch())
        for on, watch in zip(ons, watches, strict=True):
            on.observer = watch if watched else None
        found = [on.logits([*range(30), 5], range(n - 1)) for on in ons]
        assert found[0].shape == found[1].shape == (n, VOCAB) and torch.allclose(*found, atol=1e-5)
        assert_seen_alike(*watches)
        for on in ons:
            on.keep(30)
            on.cache.check_integrity()
    expected = (4, 7) if watched else (3, 5)  # an unobserved tree of 6 was not prepared
    assert (again.captured, again.repeats) == expected, "nothing else was captured on the way"


def test_passes_of_all_widths_write_their_mass_to_one_place() -> None:
    llama = model()
    cache, watch, kept = full(llama), Watch(), list[Outputs]()

    def capture(once: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        kept.append(once())
        return (lambda: None), kept[-1]

    llama.graphs = PassGraphs(llama.rope, 8, lambda: capture)
    for n in (3, 5, 8):
        llama.prepare(cache, n, watch)
    masses = [outputs.mass for outputs in kept if outputs.mass is not None]
    assert len(masses) == 3 and len({mass.data_ptr() for mass in masses}) == 1


def test_a_cache_takes_its_graphs_along() -> None:
    _, llama, again = capturing(8)
    for count in (1, 2):
        cache = full(llama)
        for _ in range(4):
            llama.forward(torch.tensor([5]), cache, logits_rows=1)
        assert again.captured == count - 1, "no pass waits for a capture"
        assert llama.capture_wanted(cache) == 1 and llama.capture_wanted(cache) == 0
        for _ in range(2):
            llama.forward(torch.tensor([5]), cache, logits_rows=1)
        assert again.captured == count and again.repeats == 2 * count
        del cache
    assert len(llama.graphs._books) == 0


def test_passes_that_only_catch_up_are_not_captured() -> None:
    _, llama, again = capturing(8)
    cache = full(llama)
    for _ in range(9):
        llama.forward(torch.tensor([5, 6]), cache, logits_rows=0)
    llama.capture_wanted(cache)
    assert again.captured == 0 and cache.length == 18


@pytest.mark.parametrize("make", [full, streaming])
def test_a_width_between_two_is_filled_up_and_nothing_of_it_stays(make: Callable[[Llama], KVCache]) -> None:
    usual, captured, again = capturing(16)
    caches = [make(usual), make(captured)]
    g = torch.Generator().manual_seed(0)
    for step in range(60):
        n = (5, 7, 9, 10, 11)[step % 5]
        ids = torch.randint(VOCAB, (n,), generator=g)
        found = [one.forward(ids, cache, logits_rows=3) for one, cache in zip((usual, captured), caches, strict=True)]
        # Logits of about ten, in fp32: a wider pass rounds otherwise.
        assert found[0].shape == found[1].shape and torch.allclose(*found, atol=5e-5)
        assert caches[0].length == caches[1].length
        for cache in caches:
            cache.keep(range(n - step % 3))
            cache.commit()
        captured.capture_wanted(caches[1])
    assert make is streaming or again.repeats > 20, "its buffers move with every width here"
    assert again.captured <= 9, "three widths, once for each size of the buffers"


def random_tree(size: int, g: torch.Generator) -> list[int]:
    return [int(torch.randint(-1, node, (1,), generator=g)) if node else -1 for node in range(size)]


def roomy(llama: Llama) -> KVCache:
    return StreamingCache(2, 2, 8, sinks=2, window=8, frequencies=llama.rope.frequencies, dtype=torch.float32, slack=40)


@pytest.mark.parametrize("make", [full, roomy, indexed])
def test_trees_are_captured_whatever_their_shape(make: Callable[[Llama], KVCache]) -> None:
    """Also behind staged tokens, also level by level, observed or not, and with rows to fill up."""
    usual, captured, again = capturing(16)
    ons = [ModelOnCache(llama, make(llama)) for llama in (usual, captured)]
    g = torch.Generator().manual_seed(0)
    context = torch.randint(VOCAB, (ons[0].length + 12,), generator=g).tolist()
    for step in range(120):
        size, watched = (3, 5, 6, 7, 9)[step % 5], step % 3 == 0 and make is not indexed
        parents, tokens = random_tree(size, g), torch.randint(VOCAB, (size,), generator=g).tolist()
        watches = (Watch(), Watch())
        found = []
        for on, watch in zip(ons, watches, strict=True):
            on.observer = watch if watched else None
            rows = [on.logits(context, tokens, parents)]
            if step % 4 == 1:  # one level more, which sees a part of what is staged
                chain, last = on.num_staged - size, on.num_staged - 1
                staged = [*range(-1, chain - 1), *(chain + parent for parent in parents), last, last - 1, last - 1]
                rows.append(on.feed([7, 8, 9], 2, *sees(tuple(staged), last + 1, on.device)))
            found.append(torch.cat(rows))
        assert found[0].shape == found[1].shape and torch.allclose(*found, atol=1e-5)
        assert_seen_alike(*watches)
        way = [size - 1]
        while parents[way[-1]] >= 0:
            way.append(parents[way[-1]])
        path = way[::-1]
        for on in ons:
            on.keep(len(context), path)
            if step % 3 == 0 and make is not indexed:
                on.commit()
            on.cache.check_integrity()
        context += [*(tokens[node] for node in path), step % VOCAB]
        if make is indexed and step % 6 == 5:
            for on in ons:
                on.keep(on.cache.num_committed)
            context = context[: ons[0].length + 1]
        captured.capture_wanted(ons[1].cache)
        ons[1].cache.check_integrity()
    assert again.captured <= 40 and again.repeats > 70


def test_a_tree_that_was_prepared_is_captured_once() -> None:
    _, llama, again = capturing(16)
    on = ModelOnCache(llama, full(llama))
    on.feed(range(30), 0)
    on.commit()
    for _ in range(2):
        llama.prepare(on.cache, 9, Watch(), tree=True)
        llama.prepare(on.cache, 17, tree=True)  # too wide
    assert again.captured == 1 and on.length == 30
    on.observer = Watch()
    for parents in ([-1, -1, 0, 0, 1, 3, 3, 6], [-1, 0, 0, 0, 1, 1, 1, 2, 7]):
        on.logits([*range(30), 5], range(len(parents)), parents)
        on.keep(30)
    assert (again.captured, again.repeats) == (1, 2)


class OnDevice(Tensor):
    """Numbers that the host would have to wait for."""

    def __int__(self) -> int:
        raise AssertionError("the host waited for the device")

    __float__ = __index__ = item = tolist = __int__  # type: ignore[assignment]


@pytest.mark.parametrize("n", [1, 300])
def test_a_usual_pass_waits_for_no_device(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table of positions grows by what the host knows."""
    own = model()
    own.graphs = None
    c = own.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=512, dtype=own.dtype)
    expected = own.forward(torch.arange(n) % VOCAB, cache, logits_rows=1)
    cache.keep([])
    monkeypatch.setattr("triforce_core.model.llama.sent", lambda values, device: values.as_subclass(OnDevice))
    assert torch.equal(own.forward(torch.arange(n) % VOCAB, cache, logits_rows=1).as_subclass(Tensor), expected)
