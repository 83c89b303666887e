"""Where an engine runs and in which number type: choices for machines that are not this one."""

from __future__ import annotations

import pytest
import torch

from triforce_core.config import EngineConfig
from triforce_core.device.capability import Capability
from triforce_core.engine import memory
from triforce_core.kernels.library import Compiled

CPU = torch.device("cpu")


def chosen(flags: set[str], library: object, monkeypatch: pytest.MonkeyPatch, dtype: str = "auto") -> torch.dtype:
    monkeypatch.setattr(memory, "compiled", lambda: Compiled(library, "told"))  # type: ignore[arg-type]
    machine = Capability("a CPU", 2, 4, 8 << 30, 6 << 30, frozenset(flags), ())
    found, why = memory.number_type(EngineConfig(dtype=dtype), CPU, machine)  # type: ignore[arg-type]
    assert why.startswith(str(found).removeprefix("torch."))
    return found


def test_our_kernels_bring_bfloat16_to_what_has_no_instruction_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = object()
    assert chosen({"avx2"}, ours, monkeypatch) == chosen({"avx2", "avx512f"}, ours, monkeypatch) == torch.bfloat16
    assert chosen({"asimd"}, ours, monkeypatch) == torch.bfloat16  # ARM
    assert chosen({"asimd"}, None, monkeypatch) == torch.float32
    assert chosen({"avx2"}, None, monkeypatch) == chosen(set(), ours, monkeypatch) == torch.float32
    assert chosen({"avx512_bf16"}, None, monkeypatch) == torch.bfloat16
    assert chosen({"avx2"}, ours, monkeypatch, "float32") == torch.float32


def test_a_cpu_takes_what_it_would_choose_for_float16_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen({"avx2"}, object(), monkeypatch, "float16") == torch.bfloat16
    assert chosen({"avx2"}, None, monkeypatch, "float16") == torch.float32
    machine = Capability("a CPU", 2, 4, 8 << 30, 6 << 30, frozenset({"avx512_bf16"}), ())
    _, why = memory.number_type(EngineConfig(dtype="float16"), CPU, machine)
    assert why.endswith("not float16, as chosen, in which a CPU is many times slower")
    assert memory.number_type(EngineConfig(dtype="float16"), torch.device("cuda"), machine)[0] == torch.float16
