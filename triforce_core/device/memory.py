"""Read the memory that is free at this moment, hold to a limit, and free some when it has run out. Knows no models."""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from dataclasses import dataclass

import psutil
import torch

from ..errors import ConfigError
from .capability import free_host_memory
from .memory_plan import Room, size


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of this process, and bytes still free; of the GPU None without one."""

    host_used: int
    host_free: int
    device_used: int | None = None
    device_free: int | None = None


def read_room(device: torch.device, limit: int | None, held: int = 0, processes: int = 1) -> Room:
    """Read the memory that a plan may count on. held: bytes that the engine has taken in host memory already and that
    the plan counts too (of a GPU's memory torch knows). processes: that share what is free on the host."""
    host = free_host_memory() // processes
    if device.type != "cuda":
        info = psutil.Process().memory_info()  # weights in mapped files count as free: the kernel can drop them
        return Room(host + min(held, info.rss - getattr(info, "shared", 0)))
    free, _ = torch.cuda.mem_get_info(device)
    return Room(host + held, free + torch.cuda.memory_reserved(device), limit)


def read_use(device: torch.device, limit: int | None) -> MemoryUse:
    """Waits for nothing: no kernel, no copy."""
    used, free = int(psutil.Process().memory_info().rss), free_host_memory()
    if device.type != "cuda":
        return MemoryUse(used, free)
    reserved, (left, _) = torch.cuda.memory_reserved(device), torch.cuda.mem_get_info(device)
    return MemoryUse(used, free, reserved, left if limit is None else max(0, min(left, limit - reserved)))


def limit_device_memory(device: torch.device, limit: int | None) -> None:
    """Let torch take at most ``limit`` bytes of this GPU, in this process (None: all). Raises ConfigError."""
    if device.type != "cuda":
        if limit is not None:
            raise ConfigError(f"gpu_memory_limit is {limit / 2**30:g} and the engine does not run on a GPU",
                              allowed="none", remedy="Leave the limit out, or choose a GPU.")
        return
    total = torch.cuda.get_device_properties(device).total_memory
    if limit is not None and limit > total:
        raise ConfigError(f"gpu_memory_limit is {limit / 2**30:g}", allowed=f"at most {size(total)}, what this GPU has")
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else limit / total, index)


def ran_out(error: BaseException) -> bool:
    """Return whether this is an allocation that failed: not every library that torch calls has a type for it."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    said = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in said)


def give_back(error: BaseException) -> None:
    """Free what the frames of a failed allocation still hold, and what torch keeps for later."""
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def return_freed() -> None:
    """Have the C library return to the machine what was freed: it keeps it for later. Only glibc needs to be asked."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
