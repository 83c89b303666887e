"""What the machine has; choices are tested on machines that are not this one."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from triforce_core.device import capability
from triforce_core.device.capability import (
    Capability,
    CudaDevice,
    choose_dtype,
    choose_threads,
    describe,
    read_capability,
)

GIB = 1024**3
PLAIN = Capability("a CPU", 2, 4, 8 * GIB, 6 * GIB, frozenset({"avx2"}), ())
A100 = CudaDevice(0, "A100", (8, 0), 80 * GIB, 79 * GIB)
T4 = CudaDevice(1, "T4", (7, 5), 16 * GIB, 15 * GIB)


def test_this_machine() -> None:
    machine = read_capability()
    assert 1 <= machine.physical_cores <= machine.logical_cores
    assert 0 < machine.free_memory <= machine.total_memory
    assert choose_dtype(machine, "cpu") in ("float32", "bfloat16")
    assert all(name and value for name, value in describe(machine))


def test_dtype_follows_what_is_native() -> None:
    assert choose_dtype(PLAIN, "cpu") == "float32"
    native = dataclasses.replace(PLAIN, cpu_flags=frozenset({"avx512_bf16"}), cuda=(A100, T4))
    assert choose_dtype(native, "cpu") == "bfloat16"
    assert choose_dtype(native, "cuda") == choose_dtype(native, "cuda:0") == "bfloat16"
    assert choose_dtype(native, "cuda:1") == "float16"


def test_one_thread_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    assert choose_threads(PLAIN) == 2
    for limit, threads in (("1", 1), ("8", 2), ("none", 2)):
        monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
        assert choose_threads(PLAIN) == threads


ARM = "processor\t: 0\nFeatures\t: fp asimd crc32 bf16\nCPU part\t: 0xd40\n"


@pytest.mark.parametrize(("cpuinfo", "machine"), [(ARM, "aarch64"), (None, "arm64"), (None, "ARM64")])
def test_every_arm_has_its_vectors(cpuinfo: str | None, machine: str, tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux lists them; macOS and Windows say no more than the machine's name."""
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo, encoding="utf-8")
    monkeypatch.setattr(capability, "Path", lambda name: tmp_path / Path(name).name)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert read_capability().cpu_flags == {"asimd"}


def test_describe_names_gpus() -> None:
    assert dict(describe(PLAIN))["GPU"].startswith("none")
    rows = dict(describe(dataclasses.replace(PLAIN, cuda=(A100, T4))))
    assert rows["Memory"] == "6.0 GiB free of 8.0 GiB"
    assert rows["GPU 0"] == "A100, 79.0 GiB free of 80.0 GiB, bfloat16" and "float16" in rows["GPU 1"]
