"""What every way of drafting did, event by event: ``python tests/engine/golden_events.py`` records it anew.

Another order of sums takes another token at a near-tie, so the process that records uses no instructions which only
some processors have (``ANY_X86``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden_events.json"
# torch without AVX, MKL's products as on any processor (its "conditional numerical reproducibility"), no own kernels.
ANY_X86 = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "TRIFORCE_KERNELS": "torch"}
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
MODES = ("cpu", "offload")


def ways(mode: str) -> Iterator[str]:
    yield from WAYS if mode == "cpu" else ("usual", "held to the document", "streaming", "prompt lookup beside",
                                           "cross-model cache", "sequoia, retrieval")


def record(to: Path) -> None:
    """All of it, in a process of its own, into a file of JSON."""
    paths = os.pathsep.join(map(str, (HERE.parents[1], HERE.parent)))
    subprocess.run([sys.executable, __file__, str(to)], check=True, env={**os.environ, **ANY_X86, "PYTHONPATH": paths})


def _record_here(to: Path) -> None:
    found = {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            engine = _engine_of(Path(folder), mode)
            found |= {f"{mode}: {way}, {name}": _stream(engine, way, temperature, verifier)
                      for way in ways(mode) for name, temperature, verifier in ASKED}
    lines = (f"{json.dumps(name)}: {json.dumps(events, ensure_ascii=False)}" for name, events in found.items())
    to.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _engine_of(folder: Path, mode: str) -> Any:
    import torch
    from engine.tiny import document, write_model

    from triforce_core.config import EngineConfig
    from triforce_core.research.engine import ResearchEngine

    torch.set_num_threads(1)
    target = write_model(folder / "target", layers=3, heads=4, seed=1)
    draft = write_model(folder / "draft", layers=1, heads=2, seed=2)
    engine = ResearchEngine(EngineConfig(model=str(target), draft_model=str(draft), dtype="float32", threads=1,
                                         mode=mode, device="cpu"))  # type: ignore[arg-type]
    list(engine.load())
    list(engine.open_document(document()))
    return engine


def _stream(engine: Any, way: str, temperature: float, verifier: str) -> list[Any]:
    """Two answers in a row: what an answer leaves behind is part of the next one."""
    from triforce_core.config import SamplingParams
    from triforce_core.events import Finished, QuoteEvent, RoundEvent
    from triforce_core.research.settings import ResearchConfig

    settings = ResearchConfig(verifier=verifier, **{**LENGTHS, "quotes": "off", **WAYS[way]})  # type: ignore
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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _record_here(Path(sys.argv[1]))
    else:
        record(GOLDEN)
