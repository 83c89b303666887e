"""Models of which some layers, or all, attend a window: the same words with and without speculation, wherever keys and
values lie, and a document is read once however many conversations there are about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.events import DocumentOpened, Finished, Turn
from triforce_core.kv_cache import window

WINDOW = 100
PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = SpeculationConfig(verifier="coupled", budget=128, recent=48, window=32, gamma1=2, gamma2=10)
SOME = ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.fixture(autouse=True)
def short_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "SLACK", 64)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    made = {}
    for name, kinds in (("some", SOME), ("all", ["sliding_attention"] * 3)):
        at = tmp_path_factory.mktemp(name)
        made[name] = (write_model(at / "target", layers=3, heads=2, seed=0),
                      write_model(at / "draft", layers=2, heads=1, seed=1))
        for folder, own in zip(made[name], (kinds, kinds[:2]), strict=True):
            raw = json.loads((folder / "config.json").read_text())
            raw |= {"architectures": ["MistralForCausalLM"], "sliding_window": WINDOW, "layer_types": own}
            (folder / "config.json").write_text(json.dumps(raw))
    return made


def opened(pair: tuple[Path, Path], **changes: object) -> tuple[Engine, DocumentOpened]:
    engine = Engine(EngineConfig(**{"model": str(pair[0]), "draft_model": str(pair[1]), "dtype": "float32",
                                    "threads": 1, "mode": "cpu", **changes}))
    list(engine.load())
    return engine, list(engine.open_document(document()))[-1]


def answer(engine: Engine, how: SpeculationConfig, question: str, history: tuple[Turn, ...] = (),
           temperature: float = 0.0, tokens: int = 60) -> Finished:
    sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=tokens, stop_token_ids=())
    return list(engine.ask(question, history, sampling, how))[-1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("which", "mode"), [("some", {}), ("all", {}), ("some", {"mode": "offload", "device": "cpu",
                                                                                  "resident_layers": 0}),
                                             ("some", {"kv": "int8"})])
def test_speculation_says_what_plain_decoding_says(pairs: dict[str, tuple[Path, Path]], which: str,
                                                   mode: dict[str, object], temperature: float) -> None:
    engine, _ = opened(pairs[which], **mode)
    plain, fast = (answer(engine, how, "Who found the lamp?", temperature=temperature) for how in (PLAIN, TRIFORCE))
    assert fast.text == plain.text and len(plain.text) > 20
    assert fast.stats.engine == "triforce"


def test_other_conversations_read_the_document_no_more(pairs: dict[str, tuple[Path, Path]]) -> None:
    engine, found = opened(pairs["some"])
    first = answer(engine, TRIFORCE, "Who found the lamp?", tokens=300)
    turns = (Turn("Who found the lamp?", first.token_ids),)
    later = answer(engine, TRIFORCE, "And the river?", turns)
    assert later.stats.reused_tokens > found.tokens + 200
    fresh = answer(engine, TRIFORCE, "Who sold the violin?")
    assert found.tokens >= fresh.stats.reused_tokens > found.tokens - 64
    other, _ = opened(pairs["some"])
    assert answer(other, TRIFORCE, "Who sold the violin?").text == fresh.text


@pytest.mark.parametrize("which", ["some", "all"])
def test_a_saved_reading_has_its_windows(pairs: dict[str, tuple[Path, Path]], which: str, tmp_path: Path) -> None:
    engine, found = opened(pairs[which], saved_readings=tmp_path)
    again, restored = opened(pairs[which], saved_readings=tmp_path)
    assert not found.restored and restored.restored
    assert answer(again, PLAIN, "Who sold the violin?").text == answer(engine, PLAIN, "Who sold the violin?").text
