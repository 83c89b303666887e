"""Energy: counters that start anew, machines that tell nothing, and what the table says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from steady_engine import Steady, measure

from triforce_core.bench import energy
from triforce_core.bench.energy import Rapl, energy_counter
from triforce_core.bench.measure import Answer, tokens_per_joule
from triforce_core.bench.table import table
from triforce_core.metrics import answer_stats


def zone(folder: Path, microjoules: int, full: int = 999_999) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{full}\n")
    return folder


def test_a_full_counter_starts_anew(tmp_path: Path) -> None:
    first, second = zone(tmp_path / "intel-rapl:0", 900_000), zone(tmp_path / "intel-rapl:1", 5)
    rapl = Rapl([first, second])
    assert rapl.joules() == 0
    zone(first, 100_000)
    zone(second, 300_005)
    assert rapl.joules() == pytest.approx(0.2 + 0.3)


def test_a_processor_without_a_counter_or_the_right_to_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_POWERCAP", tmp_path)
    read, whose = energy_counter("cpu")
    assert read() is None and whose == ""
    zone(tmp_path / "intel-rapl:0", 7)
    zone(tmp_path / "intel-rapl:0:0", 7)  # a part of the one above
    read, whose = energy_counter("cpu")
    assert read() == 0 and whose == "the processor's own counter"
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert read() is None
    assert energy_counter("cuda", gpus=2)[1] == ""


def answer(tokens: int, joules: float | None) -> Answer:
    stats = answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine="triforce", why="")
    return Answer(tuple(range(tokens)), stats, {}, {}, joules=joules)


def test_tokens_per_joule_counts_answers_whose_energy_is_known() -> None:
    assert tokens_per_joule([answer(10, 4.0), answer(20, 2.0), answer(99, None)]) == 5
    assert tokens_per_joule([answer(10, None), answer(10, 0.0)]) is None


def test_the_table_tells_energy_only_where_the_machine_does() -> None:
    found = measure(Steady(), [None]) | {"energy_how": "the GPU's own counter"}
    assert "per joule" not in table(found)
    found |= {"autoregressive_tokens_per_joule": 0.25, "triforce_tokens_per_joule": 1.5}
    assert "0.25 tokens per joule by plain decoding, 1.5 by TriForce (by the GPU's own counter" in table(found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_a_gpu_tells_what_work_costs() -> None:
    read, whose = energy_counter("cuda")
    if not whose:
        pytest.skip("this GPU's driver counts no energy")
    before = read()
    x = torch.randn(8192, 8192, device="cuda")
    for _ in range(60):
        x = torch.nn.functional.normalize(x @ x)
    torch.cuda.synchronize()
    after = read()
    assert before is not None and after is not None and after - before > 1
