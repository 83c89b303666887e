"""Two ranks on two GPUs (NCCL, captured passes) against one: the same words in fp32, close logits in bf16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from engine.tiny import document, write_model

from tests.worker.test_ranks import PLAIN, QUESTION, WAYS, family, finished, gone, sampling
from triforce_core.config import EngineConfig
from triforce_core.errors import EngineDiedError
from triforce_core.events import ModelInfo
from triforce_core.worker.client import EngineClient

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than 2 GPUs")]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    root = tmp_path_factory.mktemp("pair")
    write_model(root / "target", layers=3, heads=4, seed=1)
    write_model(root / "draft", layers=1, heads=2, seed=2)
    return EngineConfig(str(root / "target"), str(root / "draft"), "on-chip", "float32",
                        saved_readings=root / "readings")


def answers(config: EngineConfig) -> tuple[list[tuple[int, ...]], list[tuple[float, ...]], list[psutil.Process]]:
    """Token ids and page shares in each way, twice (the second time from captured passes); and who answered."""
    with EngineClient(config) as client:
        *_, info = client.load()
        assert isinstance(info, ModelInfo) and info.device.startswith("2 x") == (config.gpus == 2)
        list(client.open_document(document()))
        found = [finished(client.ask(QUESTION, (), sampling(temperature), way)) for temperature, way in WAYS * 2]
        processes = family(client)
    return [done.token_ids for done in found], [done.page_shares for done in found], processes


def test_two_gpus_write_what_one_does(config: EngineConfig) -> None:
    one, shares, _ = answers(config)
    two, their_shares, processes = answers(replace(config, gpus=2))
    assert two == one and len(processes) == 2 and gone(processes)
    for mine, theirs in zip(shares, their_shares, strict=True):
        assert theirs == pytest.approx(mine, abs=1e-3)


def test_a_rank_killed_inside_a_collective_ends_the_other(config: EngineConfig, tmp_path: Path) -> None:
    with EngineClient(replace(config, gpus=2, saved_readings=tmp_path)) as client:
        list(client.open_document(document()))
        processes = family(client)
        job = client.ask(QUESTION, (), sampling(0.0, 3000), PLAIN)
        for _ in range(3):
            next(job)
        processes[1].kill()
        with pytest.raises(EngineDiedError, match="rank 1 is gone"):
            list(job)
        assert finished(client.ask(QUESTION, (), sampling(0.0), PLAIN, document=document())).token_ids
        assert gone(processes)
