"""Measuring a machine once: when, what is kept of it, who goes by it, and that no word of an answer depends on it."""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, field, replace

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.device.shard import Shard
from triforce_core.draft_length import selector as pacing
from triforce_core.draft_length.costs import Costs, Curve
from triforce_core.draft_length.plan import Plan
from triforce_core.draft_length.profile import Records, Subject, TreeCosts
from triforce_core.engine import calibration, measured
from triforce_core.engine.engine import Engine
from triforce_core.engine.loading import full_cache
from triforce_core.errors import ConfigError
from triforce_core.events import DocumentOpened, Finished, ModelInfo, PrefillProgress, RoundEvent

COSTS = Costs(10.0, Curve(((3, 12.0), (33, 40.0))), {gamma1: 3.0 + gamma1 for gamma1 in range(9)}, 0.5)
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

    def fake(hierarchy, full, context, *_):
        contexts.append(len(context))
        return COSTS

    monkeypatch.setattr(calibration, "measure_costs", fake)
    monkeypatch.setattr(pacing, "measure_costs", fake)
    return contexts


def start(folders, measurements, **settings) -> Engine:
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1,
                                 mode="cpu", measurements=measurements, **settings))
    list(engine.load())
    return engine


def answer(running, tokens=24, temperature=0.0, seed=0, **settings) -> tuple[Finished, list[RoundEvent]]:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=tokens, stop_token_ids=())
    wanted = SpeculationConfig(**{**SMALL, **settings})
    if wanted.engine == "triforce":  # what is measured and planned between answers
        list(running.ask("Who found the lamp?", (), replace(sampling, max_new_tokens=1), wanted))
        list(running.prepare())
    *events, done = running.ask("Who found the lamp?", (), sampling, wanted)
    return done, [event for event in events if isinstance(event, RoundEvent)]


def opened_tokens(events) -> int:
    return events[-1].tokens


def test_a_first_opening_measures_and_the_next_start_knows(folders, tmp_path, timed):
    first = start(folders, tmp_path)
    events = list(first.open_document(document(140)))
    stages = [event.stage for event in events if isinstance(event, PrefillProgress)]
    told = stages.count("tune")
    assert told > 3 and stages[:told] == ["tune"] * told and isinstance(events[-1], DocumentOpened)
    hundredths = [event.tokens_done for event in events[:told]]
    assert hundredths == sorted(hundredths) and hundredths[-1] == events[0].tokens_total == 100
    assert all(event.eta_seconds is not None for event in events[1:told])
    # All that the model can, but for room to draft in; then behind the document, before it can be asked about.
    assert set(timed) == {3840, opened_tokens(events) + 1}
    assert {file.name for file in tmp_path.iterdir()} == {next(tmp_path.glob("*.json")).name}
    timed.clear()
    again = start(folders, tmp_path)
    opened = list(again.open_document(document(140)))
    assert not timed and not any(getattr(event, "stage", "") == "tune" for event in opened)
    assert again.facts().drafting
    afresh = start(folders, tmp_path, tune=True)
    assert any(getattr(event, "stage", "") == "tune" for event in afresh.open_document(document(140)))


def test_cancelled_it_opens_nothing_and_measures_next_time(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    events = []
    for event in engine.open_document(document(140)):
        events.append(event)
        engine.cancel()
    assert events and not any(isinstance(event, DocumentOpened) for event in events)
    assert any(isinstance(event, DocumentOpened) for event in engine.open_document(document(140)))
    assert timed


def test_on_demand_with_lengths_of_ones_own(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    list(engine.open_document(document(140)))
    timed.clear()
    *_, model = engine.tune((1024, 3000))
    assert isinstance(model, ModelInfo) and set(timed) == {1024, 3000}
    assert model.drafting.startswith("measured 20")
    assert "at 1,024 and 3,000 tokens: drafting as many tokens at a time as pay" in model.drafting
    assert "how many are right is not known yet" in model.drafting
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

    monkeypatch.setattr(calibration, "full_cache", watched)
    list(engine.tune((1024, 2600, 3000)))
    assert alive == [[], [False], [False, False]]


def test_a_length_at_which_memory_runs_out_is_left_out(folders, tmp_path, monkeypatch):
    def fake(hierarchy, full, context, *_):
        if len(context) > 2600:
            raise torch.OutOfMemoryError
        return COSTS

    monkeypatch.setattr(calibration, "measure_costs", fake)
    engine = start(folders, tmp_path)
    *_, model = engine.tune((2600, 3000))
    assert "at 2,600 tokens" in model.drafting
    *_, model = engine.tune((3000,))
    assert model.drafting.startswith("no memory is free to measure at 3,000 tokens; not measured")
    assert isinstance(list(engine.open_document(document(140)))[-1], DocumentOpened)
    monkeypatch.setattr(calibration, "measure_costs", lambda *_: {}["no figures"])
    with pytest.raises(KeyError):  # nothing but memory is a reason
        list(engine.tune((2600,)))


def test_where_nothing_drafts_nothing_is_measured(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "prefill", lambda *_: pytest.fail("read for nothing"))
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model="none", dtype="float32", threads=1, mode="cpu",
                                 measurements=tmp_path))
    list(engine.load())
    assert isinstance(list(engine.tune((1024,)))[-1], ModelInfo)


def test_a_check_says_what_is_missing_or_wrong(folders, tmp_path, timed):
    config = EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1, mode="cpu",
                          measurements=tmp_path)
    never = "not measured on this machine yet: python -m triforce_core tune"
    assert list(Engine(config).check())[-1].drafting == never
    list(start(folders, tmp_path).tune((1024,)))
    [file] = tmp_path.iterdir()
    file.write_text("{")
    assert list(Engine(config).check())[-1].drafting == f"what was measured before cannot be read; {never}"


def test_really_measured_costs_are_times(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "_PATIENCE", 1e9)  # however busy this machine is
    engine = start(folders, tmp_path)
    list(engine.tune((2600,)))
    content = json.loads(next(tmp_path.iterdir()).read_text())
    [full] = content["full"].values()
    assert full["2600"]["plain"] > 0 and all(time > 0 for _, time in full["2600"]["verify"])
    budgets = [tiers for tiers in content["steps"] if "retrieval" in tiers]
    assert len(budgets) == 2  # 768 and its half; twice as much would be most of the context
    [trees] = content["trees"].values()
    assert all(time > 0 for _, time in [*trees["2600"]["verify"], *trees["2600"]["draft"]])


def test_lengths_chosen_round_by_round_go_by_what_was_measured_near(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    *_, opened = engine.open_document(document(140))
    assert isinstance(opened, DocumentOpened)
    timed.clear()
    answer(engine, pace="on")
    assert len(timed) == 1  # no such budget was ever timed
    timed.clear()
    again = start(folders, tmp_path)
    list(again.open_document(document(140)))
    answer(again, pace="on")
    assert not timed


@pytest.mark.parametrize("law", [{}, {"temperature": 0.8, "verifier": "coupled"}], ids=["greedy", "coupled"])
def test_a_plan_changes_what_is_on_auto_and_no_word(folders, tmp_path, timed, monkeypatch, law):
    usual = start(folders, None)
    engine = start(folders, tmp_path)
    for one in (usual, engine):
        list(one.open_document(document(140)))
    plain = answer(usual, engine="autoregressive", **law)[0].token_ids
    assert answer(engine, **law)[0].token_ids == plain
    engine._measured.records.keep_costs("all on the device", _tiers(engine), 1500, COSTS)
    monkeypatch.setattr(measured, "make_plan", lambda *_: Plan("as planned", {"gamma1": 1, "gamma2": 5}))
    done, rounds = answer(engine, **law)
    assert done.token_ids == plain and {event.gamma2 for event in rounds if event.index} == {5}
    assert engine.facts().drafting == "as planned"
    done, rounds = answer(engine, gamma2=3, **law)  # what was given stays
    assert done.token_ids == plain and {(event.gamma1, event.gamma2) for event in rounds} == {(1, 3)}
    monkeypatch.setattr(measured, "make_plan", lambda *_: Plan("a tree", {
        "tree": "sequoia", "tree_tier": "middle", "tree_size": 6, "tree_depth": 3}))
    done, rounds = answer(engine, **law)
    assert done.token_ids == plain and done.stats.dials["tree"] == "sequoia"
    assert answer(engine, tree="off", **law)[0].stats.dials["tree"] == "off"


def _tiers(engine: Engine) -> str:
    """Of the settings that these tests ask with."""
    session = engine._session
    asked = session._asked("", SamplingParams(), SpeculationConfig(**SMALL), 1500)
    return measured.tiers(engine._measured._dials(asked, asked.speculation))


def test_where_chance_decides_what_was_learnt_changes_no_word(folders, tmp_path, timed):
    usual, engine = start(folders, None), start(folders, tmp_path)
    for one in (usual, engine):
        list(one.open_document(document(140)))
    engine._measured.records.keep_costs("all on the device", _tiers(engine), 1500, COSTS)
    words = [answer(one, temperature=0.9, seed=3)[0].token_ids for one in (usual, engine, engine)]
    assert words[0] == words[1] == words[2]
    assert "where chance decides" in engine.facts().drafting


def test_a_plan_for_the_middle_tiers_trees_goes_by_its_own(folders, tmp_path, timed):
    """Their siblings, and their costs: those of the small model are others."""
    engine = start(folders, tmp_path)
    list(engine.open_document(document(140)))
    known = engine._measured
    trees = TreeCosts(COSTS.verify, COSTS.verify)
    known.records.keep_trees("all on the device", 1500, trees)
    for tier, small_model, learnt in (("draft", "on", False), ("middle", "off", True)):
        done, _ = answer(engine, tree="sequoia", tree_tier=tier)
        asked = engine._session._asked("", SamplingParams(), SpeculationConfig(**SMALL, small_model=small_model), 1500)
        dials = known._dials(asked, asked.speculation)
        assert done.stats.ranks and bool(known.records.seen(asked.kind(dials)).ranks_tested[0]) == learnt
        known.records.keep_costs("all on the device", measured.tiers(dials), 1500, COSTS)
        assert known._ways(asked, dials)[0].trees == trees
    alone = engine._session._asked("", SamplingParams(), SpeculationConfig(**SMALL, middle_cache="none"), 1500)
    dials = known._dials(alone, alone.speculation)
    known.records.keep_costs("all on the device", measured.tiers(dials), 1500, COSTS)
    assert known._ways(alone, dials)[0].trees is None


@dataclass(frozen=True)
class Asking(Shard):
    """Notes what is asked of all ranks."""

    asked: list[int] = field(default_factory=list)

    def least(self, number: int) -> int:
        self.asked.append(number)
        return number


def test_ranks_ask_each_other_as_often_whatever_each_has_measured(folders, tmp_path, timed):
    """Else one of them would wait for an answer that the others do not owe."""
    engine = start(folders, None)
    list(engine.open_document(document(140)))
    often = []
    for measures in (False, True):
        shard = Asking()
        known = measured.Measured(replace(engine._loaded, shard=shard), Records(None, Subject({}, "", "")))
        asked = engine._session._asked("", SamplingParams(), SpeculationConfig(recent=48, draft_cache="cross"), 3000)
        if measures:
            known.records.keep_costs("all on the device", measured.tiers(known._dials(asked, asked.speculation)), 3000,
                                     COSTS)
        shard.asked.clear()
        known.plan(asked)
        often.append(len(shard.asked))
    assert often[0] == often[1] > 2


def test_answers_are_learnt_from_and_no_text_is_kept(folders, tmp_path, timed):
    engine = start(folders, tmp_path)
    list(engine.open_document(document(140)))
    engine._measured.records.keep_costs("all on the device", _tiers(engine), 1500, COSTS)
    done, rounds = answer(engine, tokens=40)
    [file] = tmp_path.iterdir()
    content = json.loads(file.read_text())
    [(kind, known)] = content["seen"].items()
    assert "temperature 0, rejection, free" in kind and "retrieval 128" in kind
    tested = sum(count.tested for event in rounds for count in event.tiers if count.tier == "retrieval")
    assert sum(known["tested"]) == pytest.approx(tested, abs=1)  # a round may be cut where the answer ends
    used = {str(event.gamma1) for event in rounds if event.gamma2 and event.index}
    assert used and all(time > 0 for gamma1 in used for time in known["pace"][gamma1])
    later = start(folders, tmp_path)
    assert later._measured.records.seen(kind).total == sum(known["tested"])
    assert not any(word in file.read_text() for word in ("lamp", "Adele", "Who", done.text[:12].strip() or "lamp"))
