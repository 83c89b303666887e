"""The engine on a GPU: the same words as plain decoding there, and as the CPU in fp32."""

from __future__ import annotations

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = SpeculationConfig(verifier="coupled", budget=128, recent=48, window=32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    return write_model(root / "target", layers=3, heads=4, seed=1), write_model(root / "draft", layers=1, heads=2, seed=2)


def words(folders, mode: str, speculation: SpeculationConfig, temperature: float) -> tuple[int, ...]:
    engine = Engine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", mode=mode))
    list(engine.load())
    list(engine.open_document(document()))
    sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=48, stop_token_ids=())
    return list(engine.ask("Who found the lamp?", (), sampling, speculation))[-1].token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_same_words_on_the_gpu_with_and_without_speculation_and_on_the_cpu(folders, temperature):
    fast = words(folders, "on-chip", TRIFORCE, temperature)
    assert fast == words(folders, "on-chip", PLAIN, temperature)
    assert fast == words(folders, "cpu", PLAIN, temperature)
