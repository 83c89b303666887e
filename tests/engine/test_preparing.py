"""What answers run is made ready when a document is opened or between answers; no answer waits for it."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, sleep

import pytest
import torch
from engine.captures import Captures
from engine.tiny import document, pair_config

from tests.model.tiny import attention, indexed_attention
from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.engine import pipeline, session, warm_up
from triforce_core.engine.engine import Engine
from triforce_core.engine.pipeline import COPY_LENGTHS, Pipeline
from triforce_core.events import Finished, PrefillProgress, RoundEvent
from triforce_core.model.graphs import PassGraphs
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.draft_length import Costs

KINDS = [{}, {"temperature": 0.7}, {"temperature": 0.7, "top_p": 0.9}]


@pytest.fixture(scope="module", params=["streaming", "cross"])
def prepared(request, pair):
    """An engine as on a GPU, captures and all, with a document open; and what counts its captures."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _prepared(request.param, pair, monkeypatch)


def _prepared(draft_cache, pair, monkeypatch):
    engine = Engine(pair_config(pair))
    list(engine.load())
    captures, target = Captures(), engine._loaded.target
    for model in (target, engine._loaded.draft):
        model.kernels = replace(model.kernels, attention=attention, indexed_attention=indexed_attention,
                                device_lengths=(32,))
    monkeypatch.setattr(pipeline, "CudaCapture", lambda: captures)
    decide = session.plan_for
    monkeypatch.setattr(session, "plan_for", lambda loaded, full, wanted, *given: replace(
        decide(loaded, full, replace(wanted, budget=128, recent=48), *given), draft_cache=draft_cache))
    for model in (target, engine._loaded.draft):
        model.graphs = PassGraphs(model.rope, 64, lambda: captures)
    list(engine.open_document(document()))
    return engine, captures


def answer(running, tokens=24, **settings) -> tuple[Finished, list[RoundEvent]]:
    sampling = {name: settings.pop(name) for name in ("temperature", "top_p", "seed") if name in settings}
    params = SamplingParams(max_new_tokens=tokens, stop_token_ids=(), alternatives=2, **sampling)
    *events, done = running.ask("Who found the lamp?", (), params, SpeculationConfig(**settings))
    return done, [event for event in events if isinstance(event, RoundEvent)]


@pytest.mark.parametrize("quotes", ["on", "off"])
@pytest.mark.parametrize("verifier", ["rejection", "coupled"])
def test_no_answer_captures_or_measures(prepared, monkeypatch, quotes, verifier):
    """At any temperature, held to the document's words or free."""
    engine, captures = prepared
    before = captures.count
    monkeypatch.setattr(selector, "measure_costs", lambda *_: pytest.fail("an answer was kept waiting"))
    monkeypatch.setattr(warm_up, "preparations", lambda *_, **__: pytest.fail("an answer was kept waiting"))
    for kind in KINDS:
        _, rounds = answer(engine, verifier=verifier, quotes=quotes, **kind)
        lengths = engine._session._drafting.selector
        assert rounds and lengths._controller is not None, "lengths follow from measured costs"
    assert captures.count == before > 0
    assert lengths._costs


def test_preparing_changes_no_word(prepared):
    engine, _ = prepared
    plain = answer(engine, engine="autoregressive", verifier="coupled", temperature=0.7)[0].token_ids
    for _ in range(2):
        assert answer(engine, verifier="coupled", temperature=0.7)[0].token_ids == plain
        list(engine.prepare())
    session = engine._session
    assert session.full.length == len(session.reading.token_ids) and session.full.num_staged == 0
    session.full.cache.check_integrity()


def test_other_settings_run_unprepared_and_are_made_ready_behind_the_answer(prepared):
    engine, captures = prepared
    captured = [captures.count]
    words = []
    for _ in range(3):
        words.append(answer(engine, window=40, verifier="coupled", temperature=0.7)[0].token_ids)
        captured.append(captures.count)
        list(engine.prepare())
        captured.append(captures.count)
    assert captured[1] == captured[0] < captured[2] == captured[3] == captured[4] == captured[5] == captured[6]
    assert words[0] == words[1] == words[2]


def test_preparing_ends_when_somebody_waits(prepared):
    engine, _ = prepared
    answer(engine, window=40)
    told = 0
    for event in engine.prepare():
        told += 1
        assert isinstance(event, PrefillProgress) and event.stage == "warm-up"
        engine.cancel()
    assert told == 1
    assert answer(engine)[0].reason == "length"


def test_memory_that_runs_out_leaves_the_document_open(prepared, monkeypatch):
    engine, _ = prepared
    expected = answer(engine)[0].token_ids

    def no_memory(warming, *_):
        engine._session.full.feed([0, 0], 0)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(warm_up.WarmUp, "_try_rounds", no_memory)
    answer(engine, window=40)
    list(engine.prepare())
    monkeypatch.undo()
    assert engine._session.pipeline is None and engine._session.full.num_staged == 0
    assert answer(engine)[0].token_ids == expected


def test_measuring_asks_after_every_pass_whether_it_was_cancelled(prepared, monkeypatch):
    engine, _ = prepared
    at = engine._session
    passes, asked = [], []
    own = selector._pass
    monkeypatch.setattr(selector, "_pass", lambda *given: (passes.append(1), own(*given))[1])

    def cancelled() -> bool:
        asked.append(len(passes))
        return len(asked) == 3

    context = [*at.reading.token_ids, at.reading.document[-1]]
    at._drafting.warm_up.begin(context)
    found = selector.measure_costs(at.pipeline, at.full, context, at.pipeline.observer, engine._loaded.shard,
                                   at._drafting.warm_up.sampler(SamplingParams(), "rejection", held=False), cancelled)
    assert found is None and asked == [2, 3, 4], "one pass between two questions, but for the first, which is timed"


def test_what_drafting_needs_first_is_in_every_figure(prepared, monkeypatch):
    """From the end of reading the question to the last token nothing is left out."""
    engine, _ = prepared
    own = Pipeline.start

    def slow(self, *given, **also):
        sleep(0.2)
        own(self, *given, **also)

    monkeypatch.setattr(Pipeline, "start", slow)
    started = perf_counter()
    done, rounds = answer(engine, tokens=8)
    outside = perf_counter() - started
    stats = done.stats
    assert stats.decode_seconds > 0.2 and rounds[0].decoding > 0.2 and stats.time_to_first_token > 0.2
    assert stats.decode_seconds == pytest.approx(rounds[-1].decoding)
    assert stats.decode_tokens_per_second == pytest.approx(8 / stats.decode_seconds)
    assert stats.prefill_seconds + stats.decode_seconds == pytest.approx(rounds[-1].elapsed) and outside >= (
        stats.prefill_seconds + stats.decode_seconds)
    assert [event.decoding for event in rounds] == sorted(event.decoding for event in rounds)


def test_an_answer_that_nothing_was_measured_for_has_the_usual_lengths(prepared, monkeypatch):
    engine, _ = prepared
    monkeypatch.setattr(selector, "measure_costs", lambda *_: Costs(1.0, ((1, 1.0),), 1.0))
    _, rounds = answer(engine, window=40, quotes="off", ngram="off")
    assert {event.gamma2 for event in rounds} == {engine._session.pipeline.plan.lengths.gamma2}


def test_copies_are_ready_for_rounds_that_are_observed_and_for_those_that_are_not(prepared, monkeypatch):
    """Where drafts rest, copies are made all the same, and nobody observes the pass."""
    engine, _ = prepared
    asked = []
    pipeline = engine._session.pipeline
    monkeypatch.setattr(pipeline.target, "prepare", lambda cache, rows, observer=None, **_: asked.append(
        (rows, observer is not None)))
    plan = replace(pipeline.plan, direct=True, lengths=replace(pipeline.plan.lengths, may_rest=True))
    monkeypatch.setattr(pipeline, "plan", plan)
    for step in warm_up.preparations(pipeline, [1] * 600, []):
        if getattr(step, "func", None) is pipeline.target.prepare:
            step()
    for copied in COPY_LENGTHS:
        assert {(copied + 1, True), (copied + 1, False)} <= set(asked)
