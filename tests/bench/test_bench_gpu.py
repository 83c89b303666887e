"""The benchmark on a GPU: what it measures there is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import document, pair_config

from triforce_core.bench.measure import measure_document
from triforce_core.bench.roofline import measure_bandwidth
from triforce_core.bench.rows import ABLATION, make_rows
from triforce_core.config import SamplingParams
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]


def test_a_gpu_has_two_rates() -> None:
    found = measure_bandwidth("cuda", mebibytes=256)
    assert found.host_to_device is not None and found.copy > found.host_to_device > 1


def test_every_variant_of_the_ablation_says_the_same_words(folders: tuple[Path, Path]) -> None:
    engine = ResearchEngine(pair_config(folders, mode="on-chip"))
    list(engine.load())
    dials = ResearchConfig(budget=128, recent=48, window=32, verifier="coupled")
    rows = make_rows(SamplingParams(temperature=0.8, max_new_tokens=32, stop_token_ids=()), dials, variants=ABLATION)
    result = measure_document(engine, document(120), [None], rows, 1, lambda _: None)
    assert all(pair.identical for pairs in result.pairs for pair in pairs)
    tiers = [set(pairs[0].fast[0].passes) for pairs in result.pairs]
    assert tiers == [{"retrieval", "draft"}, {"retrieval"}, {"streaming", "draft"}, {"draft"}, set()]
