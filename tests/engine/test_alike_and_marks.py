"""Two choices of a session's: drafts end where a wider pass would round otherwise, and the small model is shown what
was attended where a question is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine.tiny import document, pair_config

from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.engine import pipeline, session
from triforce_core.engine.engine import Engine
from triforce_core.events import RoundEvent

SETTINGS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 10, "ngram": "off", "quotes": "off"}


@pytest.fixture
def engine(folders):
    engine = Engine(pair_config(folders))
    list(engine.load())
    list(engine.open_document(document()))
    return engine


def answer(engine, question="Who found the lamp?", tokens=100, **settings):
    sampling = SamplingParams(temperature=0.8, seed=3, max_new_tokens=tokens, stop_token_ids=())
    speculation = SpeculationConfig(verifier="coupled", **{**SETTINGS, **settings})
    return list(engine.ask(question, (), sampling, speculation))


def test_no_verification_is_wider_than_what_rounds_alike(engine, monkeypatch):
    """Every 16 tokens something changes, as on a GPU every 2,048."""
    target, passes = engine._loaded.target, []
    target.kernels = replace(target.kernels, batch_invariant_rows=lambda length, heads, dtype, device: 16 - length % 16)
    forward = target.forward
    monkeypatch.setattr(target, "forward", lambda ids, cache, **given: (
        passes.append((cache, cache.length, len(ids), given["logits_rows"])), forward(ids, cache, **given))[1])
    done = answer(engine)
    full = engine._session.full.cache
    widths = [(length, n) for cache, length, n, rows in passes if cache is full and rows][1:]  # after the prompt
    assert len(widths) > 10 and max(n for _, n in widths) > 8
    assert all(length // 16 == (length + n - 1) // 16 for length, n in widths)
    assert any((length + n) % 16 == 0 and n < 11 for length, n in widths), "and some would have been wider"
    plain = SpeculationConfig(engine="autoregressive", verifier="coupled", quotes="off")
    sampling = SamplingParams(temperature=0.8, seed=3, max_new_tokens=100, stop_token_ids=())
    assert done[-1].token_ids == list(engine.ask("Who found the lamp?", (), sampling, plain))[-1].token_ids


def test_the_small_model_is_shown_what_was_attended_where_an_answer_is_in_words_of_its_own(engine, monkeypatch):
    """Or where that is asked for; what an earlier question marked is forgotten."""
    decide, marked = session.plan_for, []
    monkeypatch.setattr(session, "plan_for", lambda *given: replace(decide(*given), draft_cache="cross"))
    mark = pipeline.mark
    monkeypatch.setattr(pipeline, "mark", lambda *given: (marked.append(1), mark(*given)))
    words = []
    short = {"gamma2": 3, "tokens": 60}
    for question, settings, marks in (("Who found the lamp?", {}, True), (None, {}, False),
                                      (None, {"draft_cache": "cross"}, True), ("Who found the lamp?", {}, True),
                                      ("Who found the lamp?", {"quotes": "on"}, False)):
        marked.clear()
        events = answer(engine, question, **short, **settings)
        rounds = [event for event in events if isinstance(event, RoundEvent)]
        assert len(marked) == (len(rounds) + 1 if marks else 0)
        held = engine._session.pipeline.parts.cross_model
        assert held.selection is None or bool(held.selection.any()) == marks
        assert sum(count.tested for count in events[-1].stats.acceptance.values() if count.tier == "draft")
        words.append(events[-1].token_ids)
    assert words[0] == words[3] and words[1] == words[2]


@pytest.mark.parametrize("question", ["Who found the lamp?", None])
def test_what_the_small_model_attends_keeps_its_place(engine, monkeypatch, question):
    """Where buffers move, all captured rounds are captured again: on an H200 some 35 ms of an answer."""
    decide, places = session.plan_for, set()
    monkeypatch.setattr(session, "plan_for", lambda *given: replace(decide(*given), draft_cache="cross"))
    after_round = pipeline.Pipeline.after_round

    def watched(self):
        places.add(self.parts.cross_model.addresses)
        after_round(self)
        places.add(self.parts.cross_model.addresses)

    monkeypatch.setattr(pipeline.Pipeline, "after_round", watched)
    for _ in range(2):
        answer(engine, question, tokens=160, gamma1=1, gamma2=2)  # more than half of its slack, each time
    assert len(places) == 1
