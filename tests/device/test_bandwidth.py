"""A GPU's copy rate: of the order that GPUs have, and the engine reports it; a CPU has none."""

from __future__ import annotations

import pytest
import torch

from triforce_core.config import EngineConfig
from triforce_core.engine.engine import Engine


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_engine_says_what_its_gpu_moves() -> None:
    from triforce_core.device.bandwidth import copy_rate

    engine = Engine(EngineConfig(mode="on-chip"))
    list(engine.load())
    told, again = engine.facts().copy_rate, copy_rate(512 * 2**20)
    assert 1e10 < told < 1e14 and told == pytest.approx(again, rel=0.2)


def test_a_cpu_has_none() -> None:
    engine = Engine(EngineConfig(mode="cpu"))
    *_, info = engine.load()
    assert engine.facts().copy_rate is None
    weights = engine._loaded.target.config.matrix_weights  # stored as int8, which bfloat16's products read as it is
    assert info.pass_bytes == weights * (1 if info.dtype == "bfloat16" else 4)
