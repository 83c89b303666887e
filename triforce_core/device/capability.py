"""Read what this machine has, as frozen values, and which dtype and thread count follow from it.

Nothing here imports torch before a function is called, so ``--help`` stays fast. Knows no models: what fits is
``memory_plan``'s business.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from .memory_plan import size


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One NVIDIA GPU. Bytes; capability as (major, minor)."""

    index: int
    name: str
    capability: tuple[int, int]
    total_memory: int
    free_memory: int

    @property
    def bfloat16(self) -> bool:
        """Native bfloat16 products (Ampere and later)."""
        return self.capability >= (8, 0)


@dataclass(frozen=True, slots=True)
class Capability:
    """The machine at the moment of asking. Memory in bytes."""

    cpu_name: str
    physical_cores: int
    logical_cores: int  # that this process may use
    total_memory: int
    free_memory: int
    cpu_flags: frozenset[str]  # of those that matter here
    cuda: tuple[CudaDevice, ...]

    @property
    def cpu_bfloat16(self) -> bool:
        """The CPU multiplies bfloat16 natively; elsewhere it is emulated and slower than float32."""
        return bool(self.cpu_flags & {"avx512_bf16", "amx_bf16"})


_MATTERS = frozenset({"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd"})


def read_capability() -> Capability:
    """Ask the machine. Imports torch (seconds, the first time)."""
    import psutil

    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    name, flags = _cpu()
    return Capability(
        cpu_name=name,
        physical_cores=max(1, min(physical, logical)),
        logical_cores=logical,
        total_memory=total_host_memory(),
        free_memory=free_host_memory(),
        cpu_flags=flags,
        cuda=tuple(_cuda_devices()),
    )


def choose_dtype(machine: Capability, device: str) -> str:
    """"bfloat16" where the device multiplies it natively, otherwise "float32" (CPU) or "float16" (older GPUs)."""
    if device.startswith("cuda"):
        index = int(device.partition(":")[2] or 0)
        found = next((gpu for gpu in machine.cuda if gpu.index == index), None)
        return "bfloat16" if found is None or found.bfloat16 else "float16"
    return "bfloat16" if machine.cpu_bfloat16 else "float32"


def choose_threads(machine: Capability) -> int:
    """Physical cores: a second thread per core only waits for the same memory. At most ``thread_limit``."""
    return min(machine.physical_cores, thread_limit())


def thread_limit() -> int:
    """Return how many threads OpenMP gives this process, by OMP_THREAD_LIMIT (2**31 - 1: any number).

    torch does not ask: where it counts on more of them, oneDNN's products leave a part of their output unwritten
    (seen with torch 2.13 in bfloat16)."""
    try:
        return max(1, int(os.environ["OMP_THREAD_LIMIT"]))
    except (KeyError, ValueError):  # what is no number OpenMP ignores too
        return 2**31 - 1


def describe(machine: Capability) -> list[tuple[str, str]]:
    """(name, value) rows fit to show (``--check``): what there is and what follows from it."""
    natively = "multiplies bfloat16 natively" if machine.cpu_bfloat16 else "no native bfloat16"
    rows = [
        ("CPU", f"{machine.physical_cores} cores, {machine.cpu_name} ({natively})"),
        ("Memory", f"{size(machine.free_memory)} free of {size(machine.total_memory)}"),
    ]
    for gpu in machine.cuda:
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {size(gpu.free_memory)} free of {size(gpu.total_memory)}, "
                                         f"{choose_dtype(machine, f'cuda:{gpu.index}')}"))
    return rows if machine.cuda else [*rows, ("GPU", "none that torch can use")]


def _cpu() -> tuple[str, frozenset[str]]:
    """Name and the flags that matter, from /proc/cpuinfo; elsewhere what torch says."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        name, flags = platform.machine(), frozenset[str]()
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = _MATTERS & set(value.split())
        return name, flags
    arm = platform.machine().lower() in ("arm64", "aarch64")  # all of these have its vectors
    return platform.processor() or platform.machine(), frozenset({"asimd"}) if arm else _flags_by_torch()


def _flags_by_torch() -> frozenset[str]:
    import torch

    checks = {"avx2": "_is_avx2_supported", "avx512f": "_is_avx512_supported",
              "avx512_bf16": "_is_avx512_bf16_supported", "avx512_vnni": "_is_vnni_supported",
              "amx_bf16": "_is_amx_tile_supported"}
    have = getattr(torch, "cpu", None)
    return frozenset(flag for flag, check in checks.items() if getattr(have, check, lambda: False)())


def total_host_memory() -> int:
    """Bytes that this process could take if nobody else took any."""
    import psutil

    total, group = int(psutil.virtual_memory().total), _group()
    return total if group is None else min(total, group[0])


def free_host_memory() -> int:
    """Bytes that this process may still take: what the system has available, within its control group (containers)."""
    import psutil

    available = int(psutil.virtual_memory().available)
    group = _group()
    return available if group is None else max(0, min(available, group[0] - group[1]))


def _group() -> tuple[int, int] | None:
    """(limit, used) of this process's control group, version 2 or 1, if it has a limit. The page cache that the kernel
    would give up first is not used."""
    for folder, limit, usage, cache in (("", "memory.max", "memory.current", "inactive_file"),
                                        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_inactive_file")):
        root = Path("/sys/fs/cgroup") / folder
        try:
            most, used = (root / limit).read_text().strip(), int((root / usage).read_text())
            stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if most.isdigit() and int(most) < 1 << 60:
            return int(most), used - int(stat.get(cache, 0))
    return None


def _cuda_devices() -> list[CudaDevice]:
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name, capability = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
        found.append(CudaDevice(index, name, capability, total, free))
    return found
