"""The engine with rounds that the device leads, on a CPU with kernels that take what a GPU's take."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from engine.captures import Captures
from engine.tiny import document, pair_config

from tests.model.tiny import attention, indexed_attention
from triforce_core.config import SamplingParams
from triforce_core.engine import pipeline, session
from triforce_core.events import DocumentOpened, Finished, PrefillProgress, RoundEvent
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache
from triforce_core.model.graphs import PassGraphs
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.draft_length import Costs
from triforce_core.speculation.graph_runner import GraphRunner

SETTINGS = {"ngram": "off", "budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 5, "quotes": "off"}


@pytest.fixture(scope="module")
def engines(pair):
    """One led by the device, one by the host."""
    made = []
    for on_device in (True, False):
        engine = ResearchEngine(pair_config(pair))
        list(engine.load())
        if on_device:
            for model in (engine._loaded.target, engine._loaded.draft):
                model.kernels = replace(model.kernels, attention=attention, indexed_attention=indexed_attention,
                                        device_lengths=(32,))
        list(engine.open_document(document()))
        made.append(engine)
    return made


def test_warming_up_is_told_step_by_step(engines, monkeypatch):
    """A document on a machine with graphs; then the first question captures nothing more."""
    captures = Captures()
    engine = engines[0]
    target = engine._loaded.target
    monkeypatch.setattr(pipeline, "CudaCapture", lambda: captures)
    monkeypatch.setattr(target, "graphs", PassGraphs(target.rope, 64, lambda: captures))
    events = list(engine.open_document(document(seed=5)))
    told = [event for event in events if isinstance(event, PrefillProgress) and event.stage == "warm-up"]
    assert [type(event) for event in events[-2:]] == [PrefillProgress, DocumentOpened]
    assert len(told) >= 4 and told[0].tokens_done == 0 and told[0].eta_seconds is None
    assert all(a.tokens_done < b.tokens_done for a, b in pairwise(told))
    assert told[-1].tokens_done == told[-1].tokens_total and told[-1].eta_seconds == pytest.approx(0, abs=1e-6)
    assert all(event.eta_seconds > 0 for event in told[1:-1])
    before = captures.count
    assert before > 0
    list(engine.ask(None, (), SamplingParams(max_new_tokens=12, stop_token_ids=()), ResearchConfig()))
    assert captures.count == before
    monkeypatch.undo()
    list(engine.open_document(document()))  # as the other tests expect it


def answer(engine, speculation, tokens=24, **sampling) -> tuple[Finished, list[RoundEvent]]:
    params = SamplingParams(max_new_tokens=tokens, stop_token_ids=(), **sampling)
    if speculation.pace == "on":  # costs are measured between answers
        list(engine.ask("Who found the lamp?", (), replace(params, max_new_tokens=1), speculation))
        list(engine.prepare())
    *events, done = engine.ask("Who found the lamp?", (), params, speculation)
    return done, [event for event in events if isinstance(event, RoundEvent)]


def test_chunks_are_chosen_while_the_pass_that_chooses_them_runs(engines, monkeypatch, request):
    """The host knows no verdict then. The words stay the same, and so does what the page is told."""
    done, calls = {}, []
    for ahead in (True, False):
        if not ahead:
            request.getfixturevalue("chosen_after_the_verdict")
        for name in ("choose", "select", "sync"):
            own = getattr(IndexedRetrievalCache, name)
            monkeypatch.setattr(IndexedRetrievalCache, name, lambda self, *given, _own=own, _name=name: (
                calls.append((_name, self.full.num_staged > 0)), _own(self, *given))[1])
        calls.clear()
        done[ahead], rounds = answer(engines[0], ResearchConfig(verifier="coupled", **SETTINGS), tokens=60,
                                     temperature=0.8, seed=3)
        if ahead:
            assert calls.count(("choose", True)) == len(rounds) > 5 and ("sync", False) in calls
            assert calls.count(("select", False)) == 1, "by the prompt's attention, before the first round"
        else:
            assert calls.count(("select", False)) == len(rounds) + 1 and ("choose", True) not in calls
        assert all(event.page_shares and sum(event.page_shares) == pytest.approx(1.0) for event in rounds)
        monkeypatch.undo()
    plain, _ = answer(engines[0], ResearchConfig(engine="autoregressive", verifier="coupled", quotes="off"),
                      tokens=60, temperature=0.8, seed=3)
    assert done[True].token_ids == done[False].token_ids == plain.token_ids


@pytest.mark.usefixtures("chosen_after_the_verdict")
@pytest.mark.parametrize("tiers", [{}, {"gamma1": 0}, {"gamma1": 4, "gamma2": 7}, {"small_model": "off"},
                                   {"middle_cache": "none"}, {"middle_cache": "streaming"},
                                   {"draft_cache": "cross"}, {"draft_cache": "cross", "middle_cache": "none"},
                                   {"small_model": "self-skip"},
                                   {"refresh": "chunk-means", "refresh_every": 2}], ids=str)
@pytest.mark.parametrize("sampling", [pytest.param({}, marks=pytest.mark.exhaustive, id="T0"),
                                      pytest.param({"temperature": 0.8, "top_p": 0.9, "seed": 3}, id="T0.8")])
def test_the_same_rounds(engines, tiers, sampling):
    found = []
    for engine in engines:
        done, rounds = answer(engine, ResearchConfig(**{**SETTINGS, "verifier": "coupled", **tiers}), **sampling)
        found.append((done.token_ids, done.stats.acceptance, [(r.token_ids, r.sources, r.passes) for r in rounds]))
        assert all(set(r.milliseconds) <= {"draft", "retrieval", "streaming", "verify", "select", "other"}
                   for r in rounds)
    assert found[0] == found[1]
    pipelines = [engine._session.pipeline for engine in engines]
    assert [isinstance(pipeline.drafter, GraphRunner) for pipeline in pipelines] == [True, False]
    assert (type(pipelines[0].parts.part) is IndexedRetrievalCache) == ("middle_cache" not in tiers)


def test_the_host_leads_where_tokens_are_penalised_on_the_same_caches(engines):
    found = [answer(engine, ResearchConfig(verifier="coupled", **SETTINGS), temperature=0.8, seed=3,
                    frequency_penalty=0.6, min_p=0.05)[0].token_ids for engine in engines]
    plain, _ = answer(engines[0], ResearchConfig(engine="autoregressive", verifier="coupled", quotes="off"),
                      temperature=0.8, seed=3, frequency_penalty=0.6, min_p=0.05)
    assert isinstance(engines[0]._session.pipeline.drafter, GraphRunner) and found == [plain.token_ids] * 2


def test_steps_of_held_answers_are_measured_as_the_host_leads_them(engines, monkeypatch):
    """They take longer than those that the device leads; each kind is measured once."""
    measured = []
    monkeypatch.setattr(selector, "measure_costs", lambda *given: (
        measured.append(given[-2].masks is not None), Costs(100.0, ((1, 100.0), (64, 101.0)), 1.0))[1])
    wanted = {**SETTINGS, "gamma2": "auto", "window": 33}  # other tiers than those that are known
    for quotes in ("on", "off", "on", "off"):
        answer(engines[0], ResearchConfig(pace="on", **{**wanted, "quotes": quotes}), tokens=8)
    assert measured == [True, True, False, False], "greedy choices and others"


def test_where_ngrams_are_asked_for_the_host_leads_and_it_is_said(engines):
    short = {**SETTINGS, "gamma2": 4}
    done, _ = answer(engines[0], ResearchConfig(verifier="coupled", **{**short, "ngram": "on"}), tokens=120)
    assert not isinstance(engines[0]._session.pipeline.drafter, GraphRunner)
    plain, _ = answer(engines[0], ResearchConfig(verifier="coupled", **short), tokens=120)
    assert done.token_ids == plain.token_ids
    assert "n-gram" in done.stats.acceptance and "n-gram" not in plain.stats.acceptance
    assert "the host leads" in done.stats.why and "the host leads" not in plain.stats.why
    alone = ResearchConfig(verifier="coupled", middle_cache="none", small_model="off", **{**short, "ngram": "on"})
    lookup, _ = answer(engines[0], alone, tokens=120)
    assert lookup.token_ids == done.token_ids and set(lookup.stats.acceptance) == {"n-gram"}


@pytest.mark.usefixtures("chosen_after_the_verdict")
def test_where_the_device_leads_copies_go_straight_or_not_at_all(engines):
    """Round by round the same on the host and on the device, also after rounds in which its tiers did nothing."""
    speculation = ResearchConfig(verifier="coupled", **{**SETTINGS, "gamma2": 4, "ngram": "straight"})
    found = [answer(engine, speculation, tokens=200) for engine in engines]
    assert found[0][0].token_ids == found[1][0].token_ids
    assert {"n-gram", "retrieval", "draft"} == set(found[0][0].stats.acceptance)
    assert found[0][0].stats.acceptance == found[1][0].stats.acceptance
    alone = [not event.passes["retrieval"] for event in found[0][1]]
    assert any(alone) and not all(alone[alone.index(True) :]), "and after copies the tiers write again"
    plain, _ = answer(engines[0], ResearchConfig(engine="autoregressive", verifier="coupled", quotes="off"),
                      tokens=200)
    assert plain.token_ids == found[0][0].token_ids


def test_the_small_model_reads_while_the_document_is_opened(engines, monkeypatch):
    """As on a GPU, where it does so by default."""
    decide = session.plan_for
    monkeypatch.setattr(session, "plan_for", lambda *given: replace(decide(*given), draft_cache="cross"))
    engines[0]._session = None  # opened anew
    steps = [event.stage for event in engines[0].open_document(document()) if isinstance(event, PrefillProgress)]
    reading = engines[0]._session.parts.draft_prefill
    assert steps[0] == "read" and "draft" in steps and steps[-1] == "warm-up"
    assert reading.full.num_committed == len(engines[0]._session.reading.document) - 1


def test_quoting_is_led_by_the_host_on_the_same_caches(engines):
    speculation = ResearchConfig(verifier="coupled", **{**SETTINGS, "quotes": "on"})
    quoting = [answer(engine, speculation, temperature=0.6)[0].token_ids for engine in engines]
    assert quoting[0] == quoting[1]
    plain = ResearchConfig(engine="autoregressive", verifier="coupled", quotes="on")
    assert quoting[0] == answer(engines[0], plain, temperature=0.6)[0].token_ids
