"""Lengths that the engine chooses while it answers: the words stay, what does not pay is left alone, a seed holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.events import Finished, RoundEvent
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.draft_length import Costs

SETTINGS = {"budget": 128, "recent": 48, "window": 32, "quotes": "off", "pace": "on", "ngram": "off"}
# A verdict that costs as much as drafting a hundred tokens: long drafts are worth a try even of random weights.
DEAR = Costs(100.0, ((1, 100.0), (64, 101.0)), 1.0)
# One that costs no more than a few drafted tokens.
EVEN = Costs(10.0, ((1, 10.0), (33, 14.0)), 4.0)
# A small model at a short context: its pass over a part of the cache takes most of a whole one.
DEAR_STEPS = Costs(8.2, ((3, 10.7), (17, 32.3), (32, 50.7)), 5.6, 3.8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=2, heads=3, seed=1),
            write_model(root / "draft", layers=1, heads=2, seed=2))


@pytest.fixture(scope="module")
def engine(folders):
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1,
                                 mode="cpu"))
    list(engine.load())
    list(engine.open_document(document(140)))
    return engine


def answer(running, tokens=48, temperature=0.0, seed=0, **settings) -> tuple[Finished, list[RoundEvent]]:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=tokens, stop_token_ids=())
    wanted = SpeculationConfig(**{**SETTINGS, **settings})
    if wanted.engine == "triforce":  # costs are measured between answers
        list(running.ask("Who found the lamp?", (), replace(sampling, max_new_tokens=1), wanted))
        list(running.prepare())
    *events, done = running.ask("Who found the lamp?", (), sampling, wanted)
    return done, [event for event in events if isinstance(event, RoundEvent)]


@pytest.mark.parametrize("tiers", [{}, {"small_model": "off"}, {"middle_cache": "none"},
                                   {"ngram": "straight"}, {"gamma2": 5}, {"gamma1": 1}], ids=str)
@pytest.mark.parametrize("dear", [False, True], ids=["measured", "verdicts dear"])
def test_the_words_stay_whatever_is_chosen(engine, monkeypatch, tiers, dear):
    if dear:
        monkeypatch.setattr(selector, "measure_costs", lambda *_: DEAR)
    plain = answer(engine, temperature=0.8, engine="autoregressive", verifier="coupled")[0].token_ids
    for number in range(2):  # the second goes by what the first has learnt
        done, rounds = answer(engine, temperature=0.8, verifier="coupled", **tiers)
        assert done.token_ids == plain
        assert tuple(token for event in rounds for token in event.token_ids) == plain
        if "gamma2" in tiers:
            assert {event.gamma2 for event in rounds} == {5}
        if dear and not number:
            assert any(event.gamma2 for event in rounds)


def test_drafts_of_random_weights_are_left_alone(engine, monkeypatch):
    monkeypatch.setattr(selector, "measure_costs", lambda *_: EVEN)
    answer(engine, tokens=60)
    done, rounds = answer(engine, tokens=120)
    assert "nothing is drafted now, but for a try now and then: a full pass over one token takes" in done.stats.why
    drafted = [event for event in rounds if event.gamma2]
    assert len(drafted) < len(rounds) / 3
    resting = [event for event in rounds[1:] if not event.gamma2 and not _before(event, drafted)]
    # The first round shows what the question attended.
    assert resting and not any(event.tiers or event.page_shares for event in resting)


def test_without_a_draft_model_nothing_is_tried_where_no_draft_can_pay(folders, monkeypatch):
    """Tries took answers of a 135M model in GGUF 5 to 17 % of their time; copies out of the text go on."""
    monkeypatch.setattr(selector, "measure_costs", lambda *_: DEAR_STEPS)
    alone = Engine(EngineConfig(model=str(folders[0]), draft_model="none", dtype="float32", threads=1, mode="cpu"))
    list(alone.load())
    list(alone.open_document(document(140)))
    plain, _ = answer(alone, tokens=120, engine="autoregressive")
    for ngram in ("off", "auto"):
        done, rounds = answer(alone, tokens=120, ngram=ngram)
        assert done.token_ids == plain.token_ids
        assert "no model drafts: even if nearly every token were right" in done.stats.why
        assert not any(event.gamma2 or event.passes["retrieval"] for event in rounds)
        assert not any(event.page_shares for event in rounds[1:])
    # What rests now is level again where it is wanted.
    fixed, rounds = answer(alone, gamma2=4)
    assert fixed.token_ids == plain.token_ids[:48] and any(event.passes["retrieval"] for event in rounds)


def _before(event: RoundEvent, drafted: list[RoundEvent]) -> bool:
    """A round that observes what the next one's drafts are chosen by."""
    return any(later.index == event.index + 1 for later in drafted)


def test_where_chance_decides_a_seed_fixes_the_words(engine):
    first, rounds = answer(engine, temperature=0.9, seed=4)
    answer(engine, temperature=0.9, seed=5)
    again, same_rounds = answer(engine, temperature=0.9, seed=4)
    assert again.token_ids == first.token_ids
    assert [event.gamma2 for event in same_rounds] == [event.gamma2 for event in rounds]


def test_measuring_leaves_nothing_behind(engine, monkeypatch):
    measured = []
    really = selector.measure_costs
    monkeypatch.setattr(selector, "measure_costs", lambda *given: measured.append(really(*given)) or measured[-1])
    before = answer(engine, gamma1=2, gamma2=4)[0]
    assert "drafting" not in before.stats.why
    assert not measured  # nothing to choose
    answer(engine, tokens=1)
    assert len(measured) == 1
    assert measured[0].plain > 0 and measured[0].step > 0
    answer(engine, tokens=1)
    assert len(measured) == 1
    for temperature in (0.7, 0.9):  # beside a CPU's passes, how tokens are chosen takes no time
        answer(engine, tokens=1, temperature=temperature)
        assert len(measured) == 1
    after = answer(engine, gamma1=2, gamma2=4)[0]
    assert after.token_ids == before.token_ids and after.stats.acceptance == before.stats.acceptance
