"""What this machine has, as frozen values, and which dtype and thread count follow from it.

Nothing here imports torch before a function is called, so ``--help`` stays fast. Knows no models: what fits is
``memory``'s business.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass
from pathlib import Path


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
    torch_version: str
    cuda: tuple[CudaDevice, ...]
    flash_attention: bool  # the flash_attn package is installed

    @property
    def cpu_bfloat16(self) -> bool:
        """The CPU multiplies bfloat16 natively; elsewhere it is emulated and slower than float32."""
        return bool(self.cpu_flags & {"avx512_bf16", "amx_bf16"})


_MATTERS = frozenset({"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"})


def read_capability() -> Capability:
    """Ask the machine. Imports torch (seconds, the first time)."""
    import psutil
    import torch

    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    memory = psutil.virtual_memory()
    name, flags = _cpu()
    return Capability(
        cpu_name=name,
        physical_cores=max(1, min(physical, logical)),
        logical_cores=logical,
        total_memory=min(memory.total, _group_limit() or memory.total),
        free_memory=_free(memory.available),
        cpu_flags=flags,
        torch_version=torch.__version__,
        cuda=tuple(_cuda_devices()),
        flash_attention=importlib.util.find_spec("flash_attn") is not None,
    )


def choose_dtype(machine: Capability, device: str) -> str:
    """"bfloat16" where the device multiplies it natively, otherwise "float32" (CPU) or "float16" (older GPUs)."""
    if device.startswith("cuda"):
        index = int(device.partition(":")[2] or 0)
        found = next((gpu for gpu in machine.cuda if gpu.index == index), None)
        return "bfloat16" if found is None or found.bfloat16 else "float16"
    return "bfloat16" if machine.cpu_bfloat16 else "float32"


def choose_threads(machine: Capability) -> int:
    """Physical cores: a second thread per core only waits for the same memory."""
    return machine.physical_cores


def describe(machine: Capability) -> list[str]:
    """Lines fit to show (``--check``): what there is and what follows from it."""
    gib = 1024**3
    lines = [
        f"CPU: {machine.cpu_name}, {machine.physical_cores} cores, "
        f"{machine.free_memory / gib:.1f} of {machine.total_memory / gib:.1f} GiB of memory free",
        f"CPU dtype: {choose_dtype(machine, 'cpu')} "
        + ("(this CPU multiplies bfloat16 natively)" if machine.cpu_bfloat16 else "(no native bfloat16 products)"),
        f"torch {machine.torch_version}",
    ]
    for gpu in machine.cuda:
        free, total = gpu.free_memory / gib, gpu.total_memory / gib
        lines.append(f"GPU {gpu.index}: {gpu.name}, {free:.1f} of {total:.1f} GiB free, "
                     f"{choose_dtype(machine, f'cuda:{gpu.index}')}")
    if not machine.cuda:
        lines.append("GPU: none that torch can use")
    elif not machine.flash_attention:
        lines.append("flash_attn: not installed (optional)")
    return lines


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
    return platform.processor() or platform.machine(), _flags_by_torch()


def _flags_by_torch() -> frozenset[str]:
    import torch

    checks = {"avx2": "_is_avx2_supported", "avx512f": "_is_avx512_supported",
              "avx512_bf16": "_is_avx512_bf16_supported", "avx512_vnni": "_is_vnni_supported",
              "amx_bf16": "_is_amx_tile_supported"}
    have = getattr(torch, "cpu", None)
    return frozenset(flag for flag, check in checks.items() if getattr(have, check, lambda: False)())


def _group_limit() -> int | None:
    """The memory limit of this process's control group (containers), if it has one."""
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _free(available: int) -> int:
    limit = _group_limit()
    if limit is None:
        return available
    try:
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return min(available, limit)
    return max(0, min(available, limit - used))


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
