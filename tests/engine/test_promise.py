"""What a draft model promises here: measured once, kept, and heeded while answering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine.tiny import document, pair_config

from triforce_core.config import BUILTIN, EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine import promise as promise_of
from triforce_core.engine.engine import Engine
from triforce_core.engine.promise import Measure
from triforce_core.errors import ConfigError
from triforce_core.events import DraftPromise, LoadProgress
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.draft_length import Costs

CHEAP = Costs(10.0, ((2, 10.5), (13, 12.0)), 0.5)


def kept(config: EngineConfig) -> DraftPromise:
    engine = Engine(config)
    list(engine.load())
    assert engine._profile is not None and engine._profile.promise is not None
    return engine._profile.promise


def test_a_model_guesses_as_itself(pair, tmp_path, monkeypatch) -> None:
    """Over a text that its window holds."""
    monkeypatch.setattr(promise_of, "_BEFORE", 24)
    monkeypatch.setattr(promise_of, "TOKENS", 40)
    config = pair_config((pair[0], pair[0]), measurements=tmp_path)
    progress = list(Measure(config).check())
    assert all(isinstance(step, LoadProgress) for step in progress) and progress[-1].fraction == 1.0
    promise = kept(config)
    assert promise.accepted == 1.0 and promise.plain > 0 and promise.step > 0
    assert "in a fixed text" in promise.words and promise.measured


def test_another_vocabulary_is_tried_too_and_nothing_is_promised_without_a_draft(pair, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(promise_of, "TOKENS", 40)
    config = pair_config((pair[0], BUILTIN), measurements=tmp_path)
    list(Measure(config).check())
    promise = kept(config)
    assert promise.accepted < 0.2 and not promise.pays and "is left out" in promise.words
    with pytest.raises(ConfigError, match="no draft model"):
        list(Measure(replace(config, draft_model="none")).check())


@pytest.mark.parametrize(("accepted", "drafts"), [(0.6, True), (0.02, False), (None, True)])
def test_what_does_not_pay_is_left_out(pair, tmp_path, monkeypatch, accepted, drafts) -> None:
    """The same words, and not even read by the draft model; where nothing is known it is tried."""
    monkeypatch.setattr(selector, "measure_costs", lambda *_: CHEAP)
    monkeypatch.setattr(promise_of, "measure", lambda loaded, profile: iter([0.5]))
    engine = Engine(pair_config((pair[0], BUILTIN), measurements=tmp_path))
    tried = [step for step in engine.load() if isinstance(step, LoadProgress) and step.stage.startswith("Trying")]
    assert [step.fraction for step in tried] == [0.5], "a stranger is tried when it is first loaded"
    if accepted is not None:
        engine._profile.keep_promise(DraftPromise(accepted, 10.0, 0.5, 2.0))
    list(engine.open_document(document(sentences=60)))

    def answer(kind: str):
        asked = SpeculationConfig(engine=kind, ngram="off", quotes="off", middle_cache="none")
        sampling = SamplingParams(max_new_tokens=12, stop_token_ids=())
        return list(engine.ask("What did Adele do?", (), sampling, asked))[-1]

    plain, fast = answer("autoregressive"), answer("triforce")
    assert fast.token_ids == plain.token_ids
    assert bool(fast.stats.acceptance) is drafts
    assert (engine._session.pipeline.parts.draft.length > 0) is drafts
    assert ("2% of the small model's tokens were right" in fast.stats.why) is not drafts
