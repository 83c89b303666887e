"""Recorded event streams: a redesign changes no token, no draft and no count of any way of drafting.

Clocks are left out: lengths are given. After a wanted change, record anew and read what differs:
``PYTHONPATH=.:tests python tests/engine/test_golden_events.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.events import Finished, QuoteEvent, RoundEvent

GOLDEN = Path(__file__).parent / "golden_events.json"
LENGTHS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 10}
WAYS: dict[str, dict[str, Any]] = {
    "usual": {}, "held to the document": {"quotes": "on"}, "plain decoding": {"engine": "autoregressive"},
    "no small model": {"small_model": "off"}, "small model alone": {"middle_cache": "none"},
    "cross-model cache": {"draft_cache": "cross"}, "prompt lookup alone": {
        "ngram": "on", "small_model": "off", "middle_cache": "none"},
    "prompt lookup below": {"ngram": "on"}, "prompt lookup beside": {"ngram": "straight"}, "copies are off": {
        "ngram": "off"},
    "streaming": {"middle_cache": "streaming"}, "h2o": {"middle_cache": "h2o"},
    "streaming-h2o": {"middle_cache": "streaming-h2o"}, "top-k": {"middle_cache": "top-k"},
    "chunk means": {"refresh": "chunk-means", "refresh_every": 2}, "self-skip": {"small_model": "self-skip"},
    "lenience": {"lenience": 4.0}, "sequoia, small model": {"tree": "sequoia", "tree_tier": "draft", "tree_size": 8,
                                                           "tree_depth": 3},
    "sequoia, retrieval": {"tree": "sequoia", "tree_tier": "middle", "tree_size": 12, "tree_depth": 4},
    "specinfer": {"tree": "specinfer", "tree_tier": "draft", "tree_size": 8, "tree_depth": 3},
}
ASKED = [("greedy", 0.0, "rejection"), ("drawn", 0.8, "rejection"), ("coupled", 0.8, "coupled")]


def engine_of(folder: Path, mode: str) -> Engine:
    torch.set_num_threads(1)
    target = write_model(folder / "target", layers=3, heads=4, seed=1)
    draft = write_model(folder / "draft", layers=1, heads=2, seed=2)
    engine = Engine(EngineConfig(model=str(target), draft_model=str(draft), dtype="float32", threads=1, mode=mode,
                                 device="cpu"))  # type: ignore[arg-type]
    list(engine.load())
    list(engine.open_document(document()))
    return engine


def stream(engine: Engine, way: str, temperature: float, verifier: str) -> list[Any]:
    """Two answers in a row: what an answer leaves behind is part of the next one."""
    settings = SpeculationConfig(verifier=verifier, **{**LENGTHS, "quotes": "off", **WAYS[way]})  # type: ignore
    told: list[Any] = []
    for question, tokens in (("Who found the lamp?", 12), (None, 8)):
        sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=tokens)
        for event in engine.ask(question, (), sampling, settings):
            if isinstance(event, RoundEvent):
                told.append([list(event.token_ids), list(event.sources), event.drafted,
                             [[count.tier, count.tested, count.accepted] for count in event.tiers],
                             dict(sorted(event.passes.items()))])
            elif isinstance(event, QuoteEvent):
                told.append([event.start, event.end])
            elif isinstance(event, Finished):
                told.append([event.reason, event.text])
    return told


def ways(mode: str) -> Iterator[str]:
    yield from WAYS if mode == "cpu" else ("usual", "held to the document", "streaming", "prompt lookup beside",
                                           "cross-model cache", "sequoia, retrieval")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    return {mode: engine_of(tmp_path_factory.mktemp(mode), mode) for mode in ("cpu", "offload")}


@pytest.mark.parametrize(("mode", "way"), [(mode, way) for mode in ("cpu", "offload") for way in ways(mode)])
def test_events_are_as_recorded(engines: dict[str, Engine], mode: str, way: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    for name, temperature, verifier in ASKED:
        assert stream(engines[mode], way, temperature, verifier) == golden[f"{mode}: {way}, {name}"], name


if __name__ == "__main__":
    import tempfile

    found = {}
    for mode in ("cpu", "offload"):
        with tempfile.TemporaryDirectory() as folder:
            engine = engine_of(Path(folder), mode)
            found |= {f"{mode}: {way}, {name}": stream(engine, way, temperature, verifier)
                      for way in ways(mode) for name, temperature, verifier in ASKED}
    lines = (f"{json.dumps(name)}: {json.dumps(events, ensure_ascii=False)}" for name, events in found.items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
