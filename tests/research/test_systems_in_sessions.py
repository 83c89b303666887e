"""Each system of the papers answers in a session, and its words are plain decoding's."""

from __future__ import annotations

import pytest
from engine.test_session import SETTINGS, answer
from engine.tiny import document, pair_config, write_model

from triforce_core.events import Finished, RoundEvent
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig


@pytest.fixture(scope="module")
def engine(tmp_path_factory, lengths_given):
    root = tmp_path_factory.mktemp("pair")
    engine = ResearchEngine(pair_config((write_model(root / "target", layers=3, heads=4, seed=1),
                                         write_model(root / "draft", layers=1, heads=2, seed=2))))
    list(engine.load())
    list(engine.open_document(document()))
    return engine


@pytest.fixture(scope="module")
def plain(engine):
    """Return plain decoding's answer, as long as any of the systems gives."""
    return answer(engine, ResearchConfig(engine="autoregressive", verifier="coupled", quotes="off"), temperature=0.8,
                  tokens=80)[0].token_ids


SYSTEMS = {
    "StreamingLLM in the middle": ({"middle_cache": "streaming"}, {"streaming", "draft"}),
    "StreamingLLM alone": ({"middle_cache": "streaming", "small_model": "off"}, {"streaming"}),
    "H2O": ({"middle_cache": "h2o"}, {"h2o", "draft"}),
    "Streaming-H2O": ({"middle_cache": "streaming-h2o"}, {"streaming-h2o", "draft"}),
    "top-k": ({"middle_cache": "top-k", "small_model": "off"}, {"top-k"}),
    "chunk means": ({"refresh": "chunk-means", "refresh_every": 2}, {"retrieval", "draft"}),
    "Draft & Verify": ({"small_model": "self-skip"}, {"draft", "retrieval"}),
    "lenience": ({"lenience": 4.0}, {"draft", "retrieval"}),
    "CS Drafting": ({"ngram": "on"}, {"n-gram", "draft", "retrieval"}),
    "CS Drafting, vertical only": ({"ngram": "on", "ngram_tail": 0}, {"n-gram", "draft", "retrieval"}),
    "Max-Gram under the small model": ({"ngram": "on", "middle_cache": "none"}, {"n-gram", "draft"}),
    "Max-Gram": ({"ngram": "on", "middle_cache": "none", "small_model": "off"}, {"n-gram"}),
    "Sequoia": ({"tree": "sequoia", "tree_tier": "draft"}, {"draft", "retrieval"}),
    "Sequoia by the middle tier": ({"tree": "sequoia", "tree_tier": "middle"}, {"retrieval"}),
    "SpecInfer": ({"tree": "specinfer", "tree_tier": "draft"}, {"draft", "retrieval"}),
}


@pytest.mark.parametrize(("settings", "at_work"), SYSTEMS.values(), ids=SYSTEMS)
def test_a_system_runs_and_its_words_are_plain_decodings(engine, plain, settings, at_work):
    lengths = {name: value for name, value in SETTINGS.items() if "tree" not in settings or "gamma" not in name}
    dials = ResearchConfig(verifier="coupled", quotes="off", **{"ngram": "off", **settings}, **lengths)
    done, events = answer(engine, dials, temperature=0.8, tokens=80)
    assert isinstance(done, Finished) and done.token_ids == plain
    assert set(done.stats.acceptance) == at_work
    assert all(count.tested for count in done.stats.acceptance.values())
    ran = {tier for event in events if isinstance(event, RoundEvent) for tier in event.passes}
    assert ran == at_work - {"n-gram"} and done.stats.why  # copies have no model
