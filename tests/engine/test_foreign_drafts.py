"""A draft model of another vocabulary, in an engine: the words are plain decoding's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine.tiny import document, pair_config, write_model

from triforce_core.config import BUILTIN, EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.errors import ConfigError
from triforce_core.events import Finished
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig

GGUF = os.environ.get("TRIFORCE_GGUF_MODELS", "")
GEMMA, SMOLLM = (str(Path(GGUF) / name) for name in ("gemma-3-270m-q4_k_m.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"))


def answer(engine: Engine, temperature: float, tokens: int, kind: str = "triforce", **wanted: object) -> Finished:
    asked = SpeculationConfig(engine=kind, verifier="coupled", ngram="off", quotes="off", pace="off", **wanted)
    sampling = SamplingParams(temperature, max_new_tokens=tokens, seed=5)
    events = list(engine.ask("What did Adele do?", (), sampling, asked))
    assert isinstance(events[-1], Finished)
    return events[-1]


def opened(config: EngineConfig, kind: type[Engine] = Engine) -> Engine:
    engine = kind(config)
    list(engine.load())
    list(engine.open_document(document(sentences=120)))
    return engine


@pytest.fixture(scope="module")
def tiny(pair) -> Engine:
    return opened(pair_config((pair[0], BUILTIN)))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("tiers", [{"middle_cache": "none", "gamma2": 4}, {"budget": 256, "recent": 96, "gamma2": 10}],
                         ids=["alone", "below the retrieval cache"])
def test_words_are_those_of_plain_decoding(tiny: Engine, temperature: float, tiers: dict) -> None:
    plain, fast = answer(tiny, temperature, 48, "autoregressive"), answer(tiny, temperature, 48, **tiers)
    assert fast.token_ids == plain.token_ids
    assert fast.stats.acceptance["draft"].tested > 10
    assert "one token in its vocabulary and in the model's" in fast.stats.why


def test_what_it_reads_lies_elsewhere_than_what_the_target_attends(tiny: Engine) -> None:
    assert answer(tiny, 0.0, 2, draft_cache="cross").stats.settings["draft_cache"] == "streaming"


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_one_vocabulary_in_logits_of_two_widths(pair, tmp_path: Path, temperature: float) -> None:
    engine = opened(pair_config((pair[0], write_model(tmp_path / "draft", layers=1, heads=2, seed=2, unused=64))))
    plain = answer(engine, temperature, 32, "autoregressive")
    fast = answer(engine, temperature, 32, middle_cache="none", gamma2=4)
    assert fast.token_ids == plain.token_ids
    assert fast.stats.acceptance["draft"].tested > 10


def test_trees_are_for_models_of_one_vocabulary(pair) -> None:
    engine = opened(pair_config((pair[0], BUILTIN)), ResearchEngine)
    trees = ResearchConfig(tree="sequoia", tree_tier="draft", middle_cache="none")
    with pytest.raises(ConfigError, match="another vocabulary"):
        list(engine.ask("What?", (), SamplingParams(), trees))


@pytest.mark.exhaustive
@pytest.mark.skipif(not GGUF, reason="TRIFORCE_GGUF_MODELS names none")
@pytest.mark.parametrize(("target", "draft"), [(GEMMA, SMOLLM), (GEMMA, BUILTIN), (SMOLLM, BUILTIN)])
def test_real_pairs_say_the_same_and_much_is_accepted(target: str, draft: str) -> None:
    engine = opened(EngineConfig(model=target, draft_model=draft, dtype="float32", mode="cpu", threads=1))
    plain, fast = answer(engine, 0.0, 64, "autoregressive"), answer(engine, 0.0, 64, gamma2=4)
    assert fast.token_ids == plain.token_ids
    drafted = fast.stats.acceptance["draft"]
    assert drafted.accepted > 0.2 * drafted.tested
