"""What passes cost on this machine: measured once, kept, and believed at the next start."""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, field, replace

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.device.shard import Shard
from triforce_core.engine import tune
from triforce_core.engine.engine import Engine
from triforce_core.engine.loading import full_cache
from triforce_core.errors import ConfigError
from triforce_core.events import DocumentOpened, Finished, ModelInfo, RoundEvent
from triforce_core.kernels.library import Compiled
from triforce_core.sampling import Sampler
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.cost_profile import Profile, Subject
from triforce_core.speculation.draft_length import Costs

COSTS = Costs(10.0, ((3, 12.0), (33, 40.0)), 5.0, 0.5)
SMALL = {"budget": 128, "recent": 48, "window": 32, "quotes": "off", "ngram": "off"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=2, heads=2, seed=1),
            write_model(root / "draft", layers=1, heads=2, seed=2))


@pytest.fixture
def timed(monkeypatch):
    """Contexts that passes were timed at, with costs of our own."""
    contexts: list[int] = []

    def fake(pipeline, full, context, *_):
        contexts.append(len(context))
        return COSTS

    monkeypatch.setattr(selector, "measure_costs", fake)
    return contexts


def start(folders, measurements, **settings) -> Engine:
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1,
                                 mode="cpu", measurements=measurements, **settings))
    list(engine.load())
    return engine


def answer(running, tokens=24, temperature=0.0, seed=0, **settings) -> tuple[Finished, list[RoundEvent]]:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=tokens, stop_token_ids=())
    wanted = SpeculationConfig(**{**SMALL, **settings})
    if wanted.engine == "triforce":  # costs are measured between answers
        list(running.ask("Who found the lamp?", (), replace(sampling, max_new_tokens=1), wanted))
        list(running.prepare())
    *events, done = running.ask("Who found the lamp?", (), sampling, wanted)
    return done, [event for event in events if isinstance(event, RoundEvent)]


def test_a_first_opening_measures_and_the_next_start_knows(folders, tmp_path, timed):
    first = start(folders, tmp_path)
    *_, opened = first.open_document(document(140))
    assert isinstance(opened, DocumentOpened) and set(timed) == {opened.tokens + 1}
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]
    assert first.facts().drafting.startswith("measured 20")
    timed.clear()
    again = start(folders, tmp_path)
    list(again.open_document(document(140)))
    assert not timed and again.facts().drafting == first.facts().drafting
    list(start(folders, tmp_path, tune=True).open_document(document(140)))
    assert timed


def test_on_demand_with_lengths_of_ones_own(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    list(engine.open_document(document(140)))
    timed.clear()
    *progress, model = engine.tune((1024, 3000))
    assert isinstance(model, ModelInfo) and timed == [1024, 3000]
    hundredths = [event.tokens_done for event in progress]
    assert hundredths == sorted(hundredths) and hundredths[-1] == progress[0].tokens_total == 100
    assert all(event.eta_seconds is not None for event in progress[1:])
    assert model.drafting.startswith("measured 20") and model.drafting.endswith("at 1,024 and 3,000 tokens")
    *_, looked = Engine(engine.config).check()
    assert isinstance(looked, ModelInfo) and looked.drafting == model.drafting
    for beyond in (3841, 9000):  # there is room to draft in behind the longest
        with pytest.raises(ConfigError, match=f"context is {beyond}.*1024 to 3840"):
            list(engine.tune((beyond,)))
    assert isinstance(list(engine.open_document(document(140)))[-1], DocumentOpened)


def test_one_lengths_cache_goes_before_the_next_one_comes(folders, tmp_path, timed, monkeypatch):
    engine, caches, alive = start(folders, tmp_path), [], []

    def watched(*given):
        alive.append([cache() is not None for cache in caches])
        full = full_cache(*given)
        caches.append(weakref.ref(full.cache))
        return full

    monkeypatch.setattr(tune, "full_cache", watched)
    list(engine.tune((1024, 2600, 3000)))
    assert alive == [[], [False], [False, False]]


def test_a_length_at_which_memory_runs_out_is_left_out(folders, tmp_path, monkeypatch):
    def fake(pipeline, full, context, *_):
        if len(context) > 2600:
            raise torch.OutOfMemoryError
        return COSTS

    monkeypatch.setattr(selector, "measure_costs", fake)
    engine = start(folders, tmp_path)
    *_, model = engine.tune((2600, 3000))
    assert model.drafting.endswith("at 2,600 tokens")
    *_, model = engine.tune((3000,))
    assert model.drafting.startswith("no memory is free to measure at 3,000 tokens; not measured")
    monkeypatch.setattr(selector, "measure_costs", lambda *_: {}["no figures"])
    with pytest.raises(KeyError):  # nothing but memory is a reason
        list(engine.tune((2600,)))


def test_where_nothing_drafts_nothing_is_measured(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "prefill", lambda *_: pytest.fail("read for nothing"))
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model="none", dtype="float32", threads=1, mode="cpu",
                                 measurements=tmp_path))
    list(engine.load())
    assert isinstance(list(engine.tune((1024,)))[-1], ModelInfo)


def test_a_check_says_what_is_missing_or_wrong(folders, tmp_path, timed):
    config = EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1, mode="cpu",
                          measurements=tmp_path)
    never = "not measured on this machine yet"
    assert list(Engine(config).check())[-1].drafting == never
    list(start(folders, tmp_path).tune((2600,)))
    [file] = tmp_path.iterdir()
    file.write_text("{")
    assert list(Engine(config).check())[-1].drafting == f"what was measured before cannot be read; {never}"


def test_really_measured_costs_are_times(folders, tmp_path):
    engine = start(folders, tmp_path)
    list(engine.tune((2600,)))
    content = json.loads(next(tmp_path.iterdir()).read_text())
    [full] = content["full"].values()
    assert full["2600"]["plain"] > 0 and all(time > 0 for _, time in full["2600"]["verify"])
    [tiers] = content["steps"]
    assert "retrieval 768" in tiers and all(time > 0 for time in content["steps"][tiers].values())


def test_other_tiers_are_measured_once_and_no_text_is_kept(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    list(engine.open_document(document(140)))
    timed.clear()
    answer(engine, pace="on")
    assert len(timed) == 1  # no such budget was ever timed
    timed.clear()
    again = start(folders, tmp_path)
    list(again.open_document(document(140)))
    answer(again, pace="on")
    assert not timed
    [file] = tmp_path.iterdir()
    assert "Adele" not in file.read_text()


def test_words_do_not_depend_on_the_profile(folders, tmp_path, timed):
    usual, engine = start(folders, None), start(folders, tmp_path)
    for one in (usual, engine):
        list(one.open_document(document(140)))
    for wanted in ({}, {"temperature": 0.8, "verifier": "coupled"}, {"temperature": 0.9, "seed": 3}):
        words = [answer(one, **wanted)[0].token_ids for one in (usual, engine, engine)]
        assert words[0] == words[1] == words[2]


@dataclass(frozen=True)
class Asking(Shard):
    """Notes what is asked of all ranks."""

    asked: list[int] = field(default_factory=list)

    def least(self, number: int) -> int:
        self.asked.append(number)
        return number


def test_ranks_ask_each_other_as_often_whatever_each_has_measured(folders, timed):
    """Else one of them would wait for an answer that the others do not owe."""
    engine = start(folders, None)
    list(engine.open_document(document(140)))
    session = engine._session
    often = []
    for measures in (False, True):
        profile, shard = Profile(None, Subject({}, "", "")), Asking()
        if measures:
            profile.keep_costs(*session.pipeline.profile_key, 1500, session.pipeline.plan.lengths.gamma1, COSTS)
        pipeline = session.pipeline
        selector.DraftLengthSelector(pipeline, session.full, shard, profile).begin(
            [1] * 1500, Sampler(SamplingParams()))
        often.append(len(shard.asked))
    assert often[0] == often[1] == 1


def test_other_kernels_are_measured_anew(monkeypatch):
    """What was kept before an update made them faster would be wrong for good: a CPU's clocks correct nothing."""
    names = []
    for build in ("1f", "2e"):
        monkeypatch.setattr(tune, "compiled", lambda build=build: Compiled(None, "our own", build))
        names.append(tune.subject(torch.device("cpu"), "bfloat16", "target", "draft", Shard(0, 1)).machine["kernels"])
    assert len(set(names)) == 2
