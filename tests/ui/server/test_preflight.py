"""``--check``: the plan in plain lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engine.tiny import write_model

from tests.device.test_memory_plan import CONTEXT, GIB, PAPER
from triforce_core import READINGS, ConfigError, ModelInfo, NotEnoughMemoryError, SnapshotStore, TriForceError
from triforce_core.device.memory_plan import Room, make_plan
from triforce_core.errors import ModelNotFoundError
from triforce_core.kv_cache.snapshot import BUILTIN_TARGETS, SnapshotKey
from ui import parse
from ui.server import preflight

ROOT = Path(__file__).parents[3]


def lines(plan) -> list[str]:
    model = ModelInfo("Llama", "", plan.mode, plan.why, "A GPU", "bfloat16", 131_072, 1, 1, plan)
    return [" ".join(f"{name} {value}".split()) for name, value in preflight.about(model)]


def test_a_24_gib_card() -> None:
    shown = lines(make_plan(PAPER, Room(120 * GIB, 139 * GIB, 24 * GIB), CONTEXT, ["on-chip", "offload"]))
    assert "Context 131,072 tokens fit, of 131,072 that the model can" in shown
    assert "all on the GPU 16,006, with keys and values in host memory 131,072" in shown
    assert "Plan for 124,928 tokens" in shown
    assert "keys and values 3.8 GiB (2 of 32 layers; 512 KiB per token in all)" in shown
    assert "stream buffers 3.8 GiB" in shown and "in host memory 57.2 GiB of 112.5 GiB" in shown
    assert any(re.fullmatch(r"together 23\.\d GiB of 24\.0 GiB", line) for line in shown)
    assert not any("quantised" in line for line in shown)


@pytest.mark.parametrize(("error", "words"), [
    (NotEnoughMemoryError("It needs 9 GiB"), "This machine cannot run it: It needs 9 GiB."),
    (ModelNotFoundError("There is no file x"), "It cannot be loaded: There is no file x."),
    (ConfigError("gpus is 3"), "It cannot be loaded: gpus is 3."),
])
def test_the_machine_is_blamed_for_what_it_lacks_alone(error: TriForceError, words: str, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    def look(arguments: object) -> list[ModelInfo]:
        raise error

    monkeypatch.setattr(preflight, "look", look)
    assert preflight.check(parse(["--check", "--data-dir", str(tmp_path)])) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"Engine     {words}"


@pytest.mark.slow
def test_a_folder_without_a_gpu(tmp_path: Path) -> None:
    """In a process of its own, as a person runs it."""
    folder = write_model(tmp_path / "model", layers=2, heads=2, seed=1)
    former = SnapshotKey("d", "t", BUILTIN_TARGETS[0], "t", "float32", "1")
    layer = torch.zeros(2, 64, 8)
    list(SnapshotStore(tmp_path / "data" / "cache" / READINGS, 1 << 30).save_steps(
        former, [(layer, layer)], read_seconds=1.0))
    result = subprocess.run(
        [sys.executable, "app.py", "--check", "--model", str(folder), "--mode", "cpu", "--dtype", "float32",
         "--max-context", "2048", "--data-dir", str(tmp_path / "data")], cwd=ROOT, capture_output=True, text=True,
        timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("Engine cpu, CPU") and "chosen with --mode" in line for line in shown)
    assert "Context 2,048 tokens fit, of 2,048 that the model can" in shown
    assert "keys and values 2 MiB (1 KiB per token)" in shown
    assert any(line.startswith("Readings 1 of an earlier version") for line in shown)  # and leaves it where it is
    refused = subprocess.run(
        [sys.executable, "app.py", "--check", "--model", str(folder), "--mode", "cpu", "--gpu-memory-limit", "24",
         "--data-dir", str(tmp_path / "data")], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "gpu_memory_limit is 24" in refused.stdout
