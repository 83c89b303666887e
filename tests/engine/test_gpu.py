"""The engine on a GPU: the same words as plain decoding there, and as the CPU in fp32."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from engine.tiny import document, write_model

from tests.model.quantised_folders import write_form
from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.engine.pipeline import AttentionMass
from triforce_core.events import RoundEvent
from triforce_core.kernels import KV_BITS, REFERENCE, WEIGHT_KINDS
from triforce_core.kv_cache.full import FullCache, RowsCache
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.model import load_model
from triforce_core.research.device_tree import DeviceTree, TreeBuffers
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig
from triforce_core.research.tree_runner import TreeRunner
from triforce_core.speculation.graph_runner import GraphBuffers, GraphRunner
from triforce_core.speculation.model_drafter import ModelOnCache

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
PLAIN = ResearchConfig(engine="autoregressive", verifier="coupled")
# Lengths are given: random weights agree so seldom that drafting would soon be left alone.
SETTINGS = {"gamma1": 2, "gamma2": 10, "budget": 128, "recent": 48, "window": 32}
TRIFORCE = ResearchConfig(verifier="coupled", **SETTINGS)


@pytest.fixture(scope="module")
def folders(pair):
    """Draft lengths are measured here."""
    return pair


def words(folders, mode: str, speculation: ResearchConfig, temperature: float, **settings) -> tuple[int, ...]:
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", mode=mode,
                                         **settings))
    list(engine.load())
    if speculation.retrieval_weights != "auto":  # by the specification's products: exact comparisons need float32
        target = engine._need_loaded().target
        target.kernels = replace(target.kernels, quantize_linear=REFERENCE.quantize_linear,
                                 quantized_types=(torch.float32,))
    list(engine.open_document(document()))
    sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=48, stop_token_ids=())
    return list(engine.ask("Who found the lamp?", (), sampling, speculation))[-1].token_ids


@pytest.mark.parametrize("as_trees", [False, True])
@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, FullCache), (torch.bfloat16, FullCache), *(
    (torch.bfloat16, partial(RowsCache, kind=kind)) for kind in KV_BITS)])
def test_captured_passes_compute_what_usual_ones_do(folders, dtype, kind, as_trees):
    usual, captured = (load_model(folders[0], device="cuda", dtype=dtype) for _ in range(2))
    usual.graphs = None
    caches = [kind(3, 4, 32, max_tokens=4000, dtype=dtype, device="cuda", slots=900 if as_trees else 200)
              for _ in range(2)]
    observers = [AttentionMass(8, 4), AttentionMass(8, 4)]
    if as_trees:
        captured.prepare(caches[1], 12, observers[1], tree=True)
    ids = torch.randint(3, 8192, (400,), generator=torch.Generator().manual_seed(0)).cuda()
    at = 0
    for step in range(60):
        n = 100 if step == 0 else (1, 5, 5, 9)[step % 4]
        watched = step % 4 == 3
        found = [model.forward(ids[at : at + n], cache, logits_rows=1, observer=observer if watched else None)
                 for model, cache, observer in zip((usual, captured), caches, observers, strict=True)]
        assert torch.allclose(*found, atol=1e-4 if dtype == torch.float32 else 0.05 * float(found[0].std()))
        if watched:
            masses = [observer.latest for observer in observers]
            chunks = min(mass.shape[-1] for mass in masses)
            assert torch.allclose(*(mass[..., :chunks] for mass in masses),
                                  atol=1e-4 if dtype == torch.float32 else 2e-2)
        for cache in caches:
            cache.keep(range(max(1, n - step % 3)))
            cache.commit()
        captured.capture_wanted(caches[1])
        at = caches[0].length
    assert captured.graphs is not None
    keys = [key for book in captured.graphs._books.values() for key in book.captured]
    assert keys and as_trees == any(key[4] for key in keys) and as_trees != any(key[0] == 9 for key in keys)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_same_words_on_the_gpu_with_and_without_speculation_and_on_the_cpu(folders, temperature):
    fast = words(folders, "on-chip", TRIFORCE, temperature)
    assert fast == words(folders, "on-chip", PLAIN, temperature)
    assert fast == words(folders, "cpu", PLAIN, temperature)


@pytest.mark.parametrize("resident", [0, 1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_same_words_with_the_cache_in_host_memory(folders, resident, temperature):
    expected = words(folders, "on-chip", PLAIN, temperature)
    for speculation in (PLAIN, replace(TRIFORCE, gamma2=24)):
        assert words(folders, "offload", speculation, temperature, resident_layers=resident) == expected


def opened_in(kind: str, folders, **settings) -> ResearchEngine:
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="bfloat16", kv=kind,
                                         **settings))
    list(engine.load())
    list(engine.open_document(document()))
    assert engine._session.full.cache.kind == kind
    return engine


@pytest.mark.parametrize("kind", KV_BITS)
@pytest.mark.parametrize("tiers", [{}, {"middle_cache": "none"}, {"retrieval_weights": "int8"}, {"ngram": "straight"},
                                   {"small_model": "off"}], ids=str)
def test_same_words_over_a_cache_in_few_bits(folders, tiers, kind):
    """In bfloat16: rows of a pass are the same bits in any company. Before and after its passes are captured."""
    engine = opened_in(kind, folders)
    for temperature in (0.0, 0.8):
        sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=48, stop_token_ids=())
        found = [list(engine.ask("Who found the lamp?", (), sampling, speculation))[-1] for speculation in
                 (replace(PLAIN, quotes="off"), *2 * [replace(TRIFORCE, quotes="off", **tiers)])]
        assert len({done.token_ids for done in found}) == 1
        list(engine.prepare())


@pytest.mark.parametrize("kind", KV_BITS)
def test_the_builtin_pair_drafts_well_over_a_cache_in_few_bits(kind):
    """Trained weights agree: whole drafts are accepted, and the words are those of plain decoding."""
    engine = ResearchEngine(EngineConfig(mode="on-chip", dtype="bfloat16", kv=kind))
    list(engine.load())
    list(engine.open_document(document(sentences=120)))
    speculation = ResearchConfig(verifier="coupled", budget=256, recent=96, gamma1=2, gamma2=10, quotes="off")
    for question, temperature in (("Who found the lamp?", 0.0), (None, 0.0), (None, 0.8)):
        sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=96, stop_token_ids=())
        fast, plain = (list(engine.ask(question, (), sampling, each))[-1]
                       for each in (speculation, replace(PLAIN, quotes="off")))
        assert fast.token_ids == plain.token_ids
        assert temperature or question or fast.stats.tokens_per_full_pass > 2
        list(engine.prepare())


@pytest.mark.parametrize("kind", KV_BITS)
def test_a_reading_in_few_bits_comes_back_as_it_was(folders, tmp_path, kind):
    sampling = SamplingParams(max_new_tokens=32, stop_token_ids=())
    found = [list(opened_in(kind, folders, saved_readings=tmp_path).ask("Who?", (), sampling, TRIFORCE))[-1].token_ids
             for _ in range(2)]
    assert found[0] == found[1] and len(list(tmp_path.glob("*.kv"))) == 1


@pytest.mark.parametrize("kind", KV_BITS)
def test_wide_passes_unpack_rows_and_few_rows_attend_them(folders, kind):
    """Wide ones are another kernel's: as near as bfloat16 is. Behind buffers that grew."""
    model = load_model(folders[0], device="cuda", dtype=torch.bfloat16)
    cache = RowsCache(3, 4, 32, kind=kind, max_tokens=4000, dtype=torch.bfloat16, device="cuda", slots=600)
    ids = torch.randint(3, 8192, (1000,), generator=torch.Generator().manual_seed(0)).cuda()
    for start, stop in ((0, 500), (500, 700)):
        model.forward(ids[start:stop], cache, logits_rows=1)
        cache.commit()
    assert cache.slots > 600 and cache.layers[0].room()[0].shape == (4, cache.slots, 32)
    wide = model.forward(ids[700:], cache, logits_rows=60)
    cache.keep([])
    for start in range(700, 1000, 60):
        few = model.forward(ids[start : start + 60], cache, logits_rows=60)
    bound = 0.12 if kind == "int8" else 0.4  # random weights pass every rounding on, and flipped steps are larger
    assert float((wide - few).norm() / few.norm()) < bound
    cache.check_integrity()


@pytest.mark.parametrize("resident", [0, 2])
@pytest.mark.parametrize("locked", [False, True])
def test_an_offloaded_cache_is_a_full_one_bit_for_bit(resident, locked):
    """Three streams copy, read and write the same buffers: layers are long, so that order is put to the test."""
    layers, heads, dim, start = 5, 8, 128, 20_000
    settings = {"max_tokens": 60_000, "dtype": torch.bfloat16, "device": "cuda", "slots": start + 3000}
    caches = [FullCache(layers, heads, dim, **settings),
              OffloadedCache(layers, heads, dim, **settings, resident_layers=resident)]
    if locked:
        assert list(caches[1].prepare())[-1] == 1.0
    generator = torch.Generator("cuda").manual_seed(0)
    for step, n in enumerate((start, 700, 1, 1, 33, 250, 9, 2000, 1, 40, 3000, 5)):
        new = torch.randn(layers, 2, n, heads, dim, device="cuda", dtype=torch.bfloat16, generator=generator)
        seen = []
        for cache in caches:
            cache.begin(n)
            views = (cache.stage(layer, k, v) for layer, (k, v) in enumerate(new))
            seen.append([[part[:, : view.length].clone() for part in (view.keys, view.values)] for view in views])
            cache.keep(range(n - step % 3))
            cache.commit()
            if step == 6:
                cache.truncate(start + 500)
        for one, other in zip(*seen, strict=True):
            assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    for layer in range(layers):
        for one, other in zip(caches[0].read(layer), caches[1].read(layer), strict=True):
            assert torch.equal(one.cpu(), other.cpu())


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_same_words_with_a_copy_of_the_weights_in_few_bits(folders, kind, temperature):
    copied = words(folders, "on-chip", replace(TRIFORCE, retrieval_weights=kind), temperature)
    assert copied == words(folders, "on-chip", PLAIN, temperature)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_copy_computes_what_its_specification_does(folders, kind):
    """Usual and captured passes, in bf16, against dequantised weights in plain torch."""
    model = load_model(folders[0], device="cuda", dtype=torch.bfloat16)
    assert model.can_quantize(kind)
    specified = copy(model)
    specified.kernels, specified.graphs = replace(model.kernels, quantize_linear=REFERENCE.quantize_linear), None
    ids = torch.randint(3, 8192, (9,), generator=torch.Generator().manual_seed(0)).cuda()
    found = []
    for each in (model.quantized(kind), specified.quantized(kind), model):
        cache = FullCache(3, 4, 32, max_tokens=400, dtype=torch.bfloat16, device="cuda")
        for _ in range(5):  # usual, then captured, then replayed
            cache.truncate(0)
            each.forward(ids[:4], cache, logits_rows=1)
            cache.commit()
            logits = each.forward(ids[4:], cache, logits_rows=5)
            cache.keep([])
            each.capture_wanted(cache)
        found.append(logits)
    off = [float((other - found[1]).norm() / found[1].norm()) for other in found]
    assert off[0] < 0.1  # random weights pass every rounding on
    assert kind == "int8" or 2 * off[0] < off[2]


@pytest.mark.parametrize("kind", ["int8", "int4", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "bnb-int8"])
def test_weights_in_few_bits_give_a_row_the_same_bits_in_every_pass(folders, tmp_path, kind):
    """One row or many, observed or not, captured or not: plain decoding and a verification then agree."""
    if kind in WEIGHT_KINDS:
        model = load_model(folders[0], device="cuda", dtype=torch.bfloat16, rounding=kind)
    else:
        pytest.importorskip("gguf")
        from gguf_files import write_gguf

        whole = write_model(tmp_path / "whole", layers=3, heads=8, seed=1)
        if kind == "bnb-int8":
            place = tmp_path / "few"
            write_form(whole, kind, place, tmp_path / "plain")
        else:
            place = write_gguf(whole, tmp_path / "model.gguf", kind)
        model = load_model(place, device="cuda", dtype=torch.bfloat16)
        assert model.in_groups
    assert model._fused is not None
    ids = torch.randint(3, 8192, (364,), generator=torch.Generator().manual_seed(0)).cuda()
    observer, found = MassCounter(), []
    cache = FullCache(3, model.config.num_kv_heads, 32, max_tokens=600, dtype=torch.bfloat16, device="cuda", slots=600)
    model.forward(ids[:300], cache, logits_rows=1)
    cache.commit()
    for _ in range(6):  # as usual, then captured, then replayed
        for width, watch in ((1, None), (16, None), (16, observer), (32, None), (64, None)):
            rows = [model.forward(ids[start : start + width], cache, logits_rows=width, observer=watch)
                    for start in range(300, 364, width)]
            cache.keep([])
            found.append(torch.cat(rows))
        model.capture_wanted(cache)
    assert all(torch.equal(one, found[0]) for one in found)
    assert observer.seen == 6 * 4 * 3


class MassCounter:
    """An observer that counts layers."""

    mass_rows, chunk_size, seen = 8, 16, 0

    def see(self, layer, queries, mass):
        assert mass is not None and queries.shape[0] == 16
        self.seen += 1


@pytest.mark.usefixtures("chosen_after_the_verdict")
@pytest.mark.parametrize("tiers", [{}, {"gamma1": 0}, {"gamma1": 4, "gamma2": 7}, {"middle_cache": "none"},
                                   {"middle_cache": "streaming"}], ids=str)
def test_rounds_led_by_the_device_draft_what_rounds_led_by_the_host_do(folders, tiers):
    found = []
    for lengths in (None, ()):
        engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32"))
        list(engine.load())
        if lengths is not None:
            for model in (engine._loaded.target, engine._loaded.draft):
                model.kernels = replace(model.kernels, device_lengths=lengths)
        list(engine.open_document(document()))
        speculation = ResearchConfig(**{**SETTINGS, "verifier": "coupled", **tiers})
        sampling = SamplingParams(temperature=0.7, top_p=0.9, seed=5, max_new_tokens=64, stop_token_ids=())
        *events, done = engine.ask("Who found the lamp?", (), sampling, speculation)
        rounds = [event for event in events if isinstance(event, RoundEvent)]
        assert isinstance(engine._session.pipeline.tiers, GraphRunner) == (lengths is None)
        found.append((done.token_ids, done.stats.acceptance, [(r.token_ids, r.sources, r.passes) for r in rounds]))
    assert found[0] == found[1]


# Where the document's words are looked up the host leads.
GROWN = {**SETTINGS, "gamma1": "auto", "gamma2": "auto", "tree": "sequoia", "quotes": "off"}
TREES = [{"tree_tier": "draft", "tree_size": 7}, {"tree_tier": "middle", "tree_size": 70, "tree_depth": 5},
         {"middle_cache": "none", "tree_size": 15}, {"tree_tier": "middle", "tree_size": 31, "tree_depth": 12},
         {"tree": "specinfer", "tree_tier": "draft", "tree_size": 8},
         {"small_model": "self-skip", "tree_tier": "draft", "tree_size": 15}]


@pytest.mark.usefixtures("chosen_after_the_verdict")
@pytest.mark.parametrize("tiers", TREES, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_trees_grown_by_the_device_are_those_grown_by_the_host(folders, tiers, temperature, monkeypatch):
    # In the midst of a draft only the host can plan anew.
    monkeypatch.setattr("triforce_core.research.tree_drafter._REPLAN", 10**6)
    found = []
    for lengths in (None, ()):
        engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32"))
        list(engine.load())
        if lengths is not None:
            for model in (engine._loaded.target, engine._loaded.draft):
                model.kernels = replace(model.kernels, device_lengths=lengths)
        list(engine.open_document(document()))
        speculation = ResearchConfig(**{**GROWN, "verifier": "coupled", **tiers})
        sampling = SamplingParams(temperature=temperature, top_p=0.9, seed=5, max_new_tokens=64, stop_token_ids=())
        *events, done = engine.ask("Who found the lamp?", (), sampling, speculation)
        rounds = [event for event in events if isinstance(event, RoundEvent)]
        assert isinstance(engine._session.pipeline.tiers, (DeviceTree, TreeRunner)) == (lengths is None)
        found.append((done.token_ids, done.stats.acceptance, done.stats.ranks,
                      [(r.token_ids, r.sources) for r in rounds]))
    assert found[0] == found[1]


@pytest.mark.parametrize("grown", TREES, ids=str)
@pytest.mark.parametrize("settings", [{"verifier": "coupled"}, {"temperature": 0.7, "top_p": 0.9}], ids=["T0", "T0.7"])
def test_the_host_waits_for_no_level_and_no_verdict(folders, grown, settings, monkeypatch):
    """torch itself says so; every pass is a graph's; and all of it is decided by the seed."""
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="bfloat16"))
    list(engine.load())
    list(engine.open_document(document()))
    verifier = {"verifier": settings.get("verifier", "rejection")}
    chance = {name: value for name, value in settings.items() if name != "verifier"}
    speculation = ResearchConfig(**{**GROWN, **verifier, **grown})
    run, drafts, usual = DeviceTree._pass, [], []

    def answer(tokens: int) -> tuple[int, ...]:
        sampling = SamplingParams(seed=5, max_new_tokens=tokens, stop_token_ids=(), **chance)
        return list(engine.ask("Who found the lamp?", (), sampling, speculation))[-1].token_ids

    for _ in range(2):  # what is not captured yet rounds otherwise; it is captured behind an answer
        answer(32)
        list(engine.prepare())
    second = answer(32)

    def reading(read: Callable) -> Callable:
        def reads(state: object) -> object:
            torch.cuda.set_sync_debug_mode("default")
            drafts.append(1)
            return read(state)

        return reads

    def passing(self, *args) -> None:
        usual.append(1)
        run(self, *args)

    tiers = engine._session.pipeline.tiers
    assert isinstance(tiers, (DeviceTree, TreeRunner))
    start = tiers._clock.start
    monkeypatch.setattr(tiers._clock, "start", lambda: (start(), torch.cuda.set_sync_debug_mode("error")))
    for state in (TreeBuffers, GraphBuffers):
        monkeypatch.setattr(state, "read", reading(state.read))
    monkeypatch.setattr(DeviceTree, "_pass", passing)
    try:
        assert answer(32) == second
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(drafts) > 2 and len(usual) < len(drafts)  # but for what is captured as shapes change


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_captured_passes_over_trees_compute_what_usual_ones_do(folders, dtype):
    usual, captured = (load_model(folders[0], device="cuda", dtype=dtype) for _ in range(2))
    usual.graphs = None
    ons = [ModelOnCache(model, FullCache(3, 4, 32, max_tokens=4000, dtype=dtype, device="cuda", slots=900), "cuda")
           for model in (usual, captured)]
    g = torch.Generator().manual_seed(0)
    context = torch.randint(3, 8192, (400,), generator=g).tolist()
    for step in range(40):
        size = (5, 6, 7, 20, 40)[step % 5]
        parents = [int(torch.randint(-1, node, (1,), generator=g)) if node else -1 for node in range(size)]
        tokens = torch.randint(3, 8192, (size,), generator=g).tolist()
        observers = [AttentionMass(8, 4), AttentionMass(8, 4)]
        found = []
        for on, observer in zip(ons, observers, strict=True):
            on.observer = observer if step % 2 else None
            if step == 0:
                on.feed(context[:-1], 0)
                on.commit()
            found.append(on.logits(context, tokens, parents))
        assert torch.allclose(*found, atol=1e-4 if dtype == torch.float32 else 0.05 * float(found[0].std()))
        if step % 2:
            masses = [observer.latest for observer in observers]
            chunks = min(mass.shape[-1] for mass in masses)
            assert torch.allclose(*(mass[..., :chunks] for mass in masses),
                                  atol=1e-4 if dtype == torch.float32 else 2e-2)
        way = [size - 1]
        while parents[way[-1]] >= 0:
            way.append(parents[way[-1]])
        for on in ons:
            on.keep(len(context), way[::-1])
            on.commit()
        captured.capture_wanted(ons[1].cache)
        context += [*(tokens[node] for node in way[::-1]), 5]
    assert any(key[4] for book in captured.graphs._books.values() for key in book.captured)


def test_by_chance_the_same_seed_gives_the_same_words(folders):
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1])))
    list(engine.load())
    list(engine.open_document(document()))
    speculation = ResearchConfig(**SETTINGS)
    sampling = SamplingParams(temperature=0.8, top_p=0.9, seed=1, max_new_tokens=64, stop_token_ids=())
    words = [list(engine.ask("Who found the lamp?", (), sampling, speculation))[-1].token_ids for _ in range(2)]
    assert words[0] == words[1]
    # The document holds a quotation: where the first words agree, so do the rest. Some seeds agree in them.
    others = {list(engine.ask("Who found the lamp?", (), replace(sampling, seed=seed), speculation))[-1].token_ids
              for seed in (2, 3, 4)}
    assert others != {words[0]}
