"""Trees change the speed, never a word: whoever grows them, on every cache, with quotes, to the end of the context."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from engine.tiny import document, write_model

from tests.model.tiny import attention, indexed_attention
from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.engine.plan import Plan, Situation
from triforce_core.errors import ConfigError
from triforce_core.events import Finished, RoundEvent
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache, RetrievalCache
from triforce_core.research.device_tree import DeviceTree
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.plan import ResearchPlan, TreeSettings, plan
from triforce_core.research.settings import ResearchConfig
from triforce_core.research.tree_runner import TreeRunner
from triforce_core.speculation.graph_runner import GraphRunner
from triforce_core.speculation.hierarchical import HierarchicalDrafter

SETTINGS = {"budget": 128, "recent": 48, "window": 32}
MADE = {"ordinary": {}, "offloaded": {"mode": "offload", "device": "cpu", "resident_layers": 1}, "in place": {},
        "all offloaded": {"mode": "offload", "device": "cpu", "resident_layers": 0}}


@pytest.fixture(scope="module")
def engines(tmp_path_factory, lengths_given):
    """in place: with kernels that take what a GPU's take, so that the retrieval cache is an index."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    target = write_model(root / "target", layers=3, heads=4, seed=1)
    draft = write_model(root / "draft", layers=1, heads=2, seed=2)
    made = {}
    for name, changes in MADE.items():
        engine = ResearchEngine(EngineConfig(**{"model": str(target), "draft_model": str(draft), "dtype": "float32",
                                                "threads": 1, "mode": "cpu", **changes}))
        list(engine.load())
        if name == "in place":
            for model in (engine._loaded.target, engine._loaded.draft):
                model.kernels = replace(model.kernels, attention=attention, indexed_attention=indexed_attention,
                                        device_lengths=(32,), max_rows=64)
        list(engine.open_document(document()))
        made[name] = engine
    return made


def answer(led, *, tokens=40, temperature=0.0, **settings) -> tuple[Finished, list[RoundEvent]]:
    sampling = SamplingParams(temperature=temperature, seed=5, max_new_tokens=tokens, stop_token_ids=())
    speculation = ResearchConfig(**{"verifier": "coupled", **SETTINGS, **settings})
    *events, done = led.ask("Who found the lamp?", (), sampling, speculation)
    return done, [event for event in events if isinstance(event, RoundEvent)]


GROWERS = [{"tree_tier": "draft"}, {"tree_tier": "middle", "tree_size": 40}, {"middle_cache": "none"},
           {"tree": "specinfer", "tree_tier": "middle", "tree_size": 12, "tree_depth": 4}, {"tree": "specinfer"}]
HUNDREDS = {"tree_tier": "middle", "tree_size": 300, "tree_depth": 16}
SKIPPING = {"small_model": "self-skip", "tree_tier": "draft"}
FOR_ALL = [{"middle_cache": "streaming"}, {"middle_cache": "streaming", "tree_tier": "middle"}]
ON_CHIP = [{"middle_cache": "h2o", "tree_tier": "middle"}, {"middle_cache": "streaming-h2o", "tree_tier": "middle"},
           {"middle_cache": "top-k", "tree_tier": "middle"}, {"draft_cache": "cross"}]
CASES = [*(("ordinary", grower) for grower in [*GROWERS, *FOR_ALL, *ON_CHIP]),
         *(("offloaded", grower) for grower in [GROWERS[1], GROWERS[4], FOR_ALL[0]]),
         *(("in place", grower) for grower in [GROWERS[0], GROWERS[3]]),
         # The host leads where the document's words are looked up.
         *(("in place", {**grower, "quotes": "off"}) for grower in [SKIPPING, *GROWERS[1:3]]),
         *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in (
             *(("offloaded", grower) for grower in [GROWERS[0], *GROWERS[2:4], FOR_ALL[1]]),
             *(("in place", grower) for grower in [*GROWERS[1:3], GROWERS[4]])))]


@pytest.fixture(scope="module")
def plainly(engines):
    """Return plain decoding's answers, each made once."""
    return cache(lambda **given: answer(engines["ordinary"], engine="autoregressive", **given)[0])


@pytest.mark.parametrize(("name", "grower"), CASES, ids=str)
@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.exhaustive), 1.0])
def test_same_words_as_plain_decoding(engines, plainly, name, grower, temperature, monkeypatch):
    tokens, quotes = (16, "off") if "quotes" in grower else (40, "auto")
    plain = plainly(temperature=temperature, tokens=tokens, quotes=quotes)
    grown, step = [], DeviceTree._pass
    monkeypatch.setattr(DeviceTree, "_pass", lambda *args: grown.append(step(*args)))
    done, rounds = answer(engines[name], **{"tree": "sequoia", **grower}, temperature=temperature, tokens=tokens)
    assert done.token_ids == plain.token_ids
    assert bool(grown) == ("quotes" in grower)
    tier = grower.get("middle_cache", "retrieval") if grower.get("tree_tier") == "middle" or (
        name == "offloaded" and "tree_tier" not in grower and grower.get("middle_cache") != "none") else "draft"
    assert {count.tier for count in done.stats.ranks} == {tier}
    assert max(count.rank for count in done.stats.ranks) >= 1  # there were siblings
    assert all(0 <= count.accepted <= count.tested for count in done.stats.ranks)
    accepted = sum(count.accepted for count in done.stats.ranks)
    assert done.stats.acceptance[tier].accepted >= accepted
    assert accepted or "quotes" in grower  # random weights agree on quotations only
    assert sum(event.passes[tier] for event in rounds) >= len(rounds)
    drafter = engines[name]._session.pipeline.drafter
    assert not isinstance(drafter, GraphRunner)
    tiers = engines[name]._session.pipeline.tiers
    assert isinstance(tiers, (DeviceTree, TreeRunner)) == (name == "in place")
    assert isinstance(tiers, HierarchicalDrafter) == (
        name != "in place" and tier == "draft" and grower.get("middle_cache") != "none")
    full = engines[name]._session.full.cache
    full.check_integrity()
    assert isinstance(full, OffloadedCache) == (name == "offloaded")
    part = engines[name]._session.pipeline.parts.part
    if part is not None and grower.get("middle_cache") is None:
        assert isinstance(part, IndexedRetrievalCache if name == "in place" else RetrievalCache)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("mode", ["on-chip", "offload"])
def test_same_words_on_a_gpu(tmp_path_factory, mode):
    """Also where chance decides on the device: siblings drawn at once, families tested side by side."""
    root = tmp_path_factory.mktemp("pair")
    folders = (write_model(root / "target", layers=3, heads=4, seed=1),
               write_model(root / "draft", layers=1, heads=2, seed=2))
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", mode=mode,
                                         resident_layers=1 if mode == "offload" else "auto"))
    list(engine.load())
    list(engine.open_document(document()))
    for temperature, quotes in ((0.0, "off"), (1.0, "off"), (1.0, "on")):
        plain, _ = answer(engine, engine="autoregressive", temperature=temperature, quotes=quotes)
        for grower in [*GROWERS, *FOR_ALL, HUNDREDS, {**HUNDREDS, "tree_tier": "draft", "tree_depth": 5}]:
            done, _ = answer(engine, **{"tree": "sequoia", **grower}, temperature=temperature, quotes=quotes)
            assert done.token_ids == plain.token_ids, (grower, quotes)
    for grower in [*GROWERS, HUNDREDS]:
        done, _ = answer(engine, **{"tree": "sequoia", **grower}, verifier="rejection", temperature=1.0, quotes="off")
        assert len(done.token_ids) == 40 and sum(count.tested for count in done.stats.ranks) > 20, grower


def test_hundreds_of_guesses_stream_the_cache_once(engines):
    """More than the newest tokens of a streamed layer that stay on the device; no layer comes twice for them."""
    plain, singly = answer(engines["all offloaded"], engine="autoregressive", temperature=1.0, tokens=20, quotes="off")
    done, rounds = answer(engines["all offloaded"], tree="sequoia", **HUNDREDS, temperature=1.0, tokens=20,
                          quotes="off")
    assert done.token_ids == plain.token_ids
    assert sum(event.passes["retrieval"] for event in rounds) >= len(rounds)
    full = engines["all offloaded"]._session.full.cache
    whole = 2 * full.num_layers * full.num_kv_heads * full.head_dim * 4 * full.length
    for events in (singly[1:], rounds[1:]):  # the first layers may be there; staged tokens come along once
        assert 0.3 * whole < sum(event.streamed_bytes for event in events) / len(events) <= 1.2 * whole
    assert max(len(event.token_ids) for event in rounds) > 1


def test_an_answer_may_end_anywhere_in_a_tree(engines):
    whole, _ = answer(engines["ordinary"], engine="autoregressive")
    for tokens in (1, 2, 3, 5, 8):
        for name in MADE:
            done, _ = answer(engines[name], tree="sequoia", tree_tier="middle", tree_size=64, tokens=tokens)
            assert done.token_ids == whole.token_ids[:tokens]


def test_a_tree_is_no_larger_than_the_context_has_room_for(tmp_path_factory):
    root = tmp_path_factory.mktemp("short")
    folders = write_model(root / "t", layers=2, heads=2, seed=1), write_model(root / "d", layers=1, heads=2, seed=2)
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1,
                                         mode="cpu", max_context=560))
    list(engine.load())
    list(engine.open_document(document(sentences=34)))
    ends = []
    for settings in ({"engine": "autoregressive"}, {"tree": "sequoia", "tree_size": 60},
                     {"tree": "sequoia", "tree_size": 60, "tree_tier": "middle"}):
        done, _ = answer(engine, tokens=400, **settings)
        assert done.reason == "context"
        ends.append(done.token_ids)
    assert ends[0] == ends[1] == ends[2]


def decide(*, has_draft=True, context=30_000, offloaded=False, **wanted) -> tuple[Plan, TreeSettings]:
    found = plan(ResearchConfig(tree="sequoia", **wanted),
                 Situation(context, has_draft, on_gpu=False, offloaded=offloaded))
    return found, found.trees if isinstance(found, ResearchPlan) else TreeSettings()


def test_who_grows_and_how_much():
    small, trees = decide()
    assert (trees.tier, small.draft_model, small.lengths.gamma1) == ("draft", True, trees.depth)
    middle, trees = decide(offloaded=True)
    assert (trees.tier, middle.draft_model, middle.lengths.gamma2) == ("middle", False, trees.depth)
    assert trees.size == 64 and "grown by the part of the cache" in middle.why
    assert decide(small_model="off")[1].tier == "middle"
    nobody, trees = decide(tree_tier="draft", has_draft=False)
    assert trees.kind == "off" and "no small model to grow them" in nobody.why
    assert decide(tree_tier="middle", context=100)[1].kind == "off"
    assert not decide(ngram="on")[0].lookup
    for offloaded, tier, most in ((True, "auto", 255), (False, "middle", 15), (False, "draft", 7)):
        grown = TreeSettings.decide(ResearchConfig(tree="sequoia", tree_tier=tier), small=True, middle=True,
                                    offloaded=offloaded, on_graphs=True)
        assert grown.size == most and (grown.size + 1) & grown.size == 0  # whole passes, the token before it included
    assert decide(tree_size=3)[1].depth == 3
    for bad in ({"tree": "oak"}, {"tree_tier": "target"}, {"tree_size": 0}, {"tree_depth": 65}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            ResearchConfig(**bad)
