"""The benchmark on a GPU: what it measures there is there, and transformers computes the same on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.bench import grow, host_attention
from triforce_core.bench.measure import measure_document
from triforce_core.bench.peer import PeerJob, measure_peer
from triforce_core.bench.roofline import measure_bandwidth
from triforce_core.bench.rows import ABLATION, make_rows
from triforce_core.bench.shapes import Shape
from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=2, heads=2, seed=1),
            write_model(root / "draft", layers=1, heads=1, seed=2))


def test_a_gpu_has_three_rates() -> None:
    found = measure_bandwidth("cuda", mebibytes=256)
    assert found.host_to_device is not None and found.matrix is not None
    assert found.copy > found.host_to_device > 1 and found.matrix > 1


def test_every_variant_of_the_ablation_says_the_same_words(folders: tuple[Path, Path]) -> None:
    engine = ResearchEngine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32",
                                         mode="on-chip"))
    list(engine.load())
    dials = ResearchConfig(budget=128, recent=48, window=32, verifier="coupled")
    rows = make_rows(SamplingParams(temperature=0.8, max_new_tokens=32, stop_token_ids=()), dials, variants=ABLATION)
    result = measure_document(engine, document(120), [None], rows, 1, lambda _: None)
    assert all(pair.identical for pairs in result.pairs for pair in pairs)
    tiers = [set(pairs[0].fast[0].passes) for pairs in result.pairs]
    assert tiers == [{"retrieval", "draft"}, {"retrieval"}, {"streaming", "draft"}, {"draft"}, set()]


def test_transformers_computes_the_same_on_grown_weights(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(grow.SHAPES, "llama3-8b", Shape(256, 320, 3, 4, 2, 64))
    monkeypatch.setitem(grow.SHAPES, "llama-68m", Shape(128, 128, 2, 2, 2, 64))
    found = measure_peer(PeerJob(str(folders[0]), str(folders[1]), "llama3-8b", 4096,
                                 tuple(3 + i % 60 for i in range(300)), "float32", "cuda", 1, 128, 8))
    assert found["failed"] == {} and len(found["methods"]) == 4
    # fp32 products on both sides (no tf32), summed in another order.
    assert found["logits"]["max_difference"] < 1e-2 < found["logits"]["deviation"]
    assert found["logits"]["same_choice"] == 1.0


def test_link_and_cpu_are_measured_alone_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_attention, "_SECONDS", 0.05)
    layers = [(torch.randn(2, 2048, 128, dtype=torch.bfloat16), torch.randn(2, 2048, 128, dtype=torch.bfloat16))]
    link = host_attention.Link(mebibytes=16)
    rates = [link.rate(), host_attention.attention_rate(layers, 3, 2), *host_attention.together(link, layers, 3, 2)]
    assert all(rate > 0 for rate in rates)
