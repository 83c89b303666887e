"""Where an engine runs, in which modes and in which number type, and why: from settings and what the machine has."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..config import EngineConfig
from ..device.capability import Capability, choose_dtype
from ..device.shard import Shard
from ..errors import ConfigError
from ..events import Mode
from ..kernels import KV_BITS, choose_wide_attention, compiled


def place(config: EngineConfig, shard: Shard) -> tuple[torch.device, str]:
    """The device, and why. Raises ConfigError."""
    has_gpu = torch.cuda.is_available()
    dry_run = config.mode == "offload" and config.device == "cpu"
    if config.mode in ("on-chip", "offload") and not has_gpu and not dry_run:
        raise ConfigError(f"mode is {config.mode!r} and torch sees no GPU", allowed="auto, cpu",
                          remedy="Install a CUDA build of torch, or use --mode cpu.")
    split = f"; {shard.world} ranks, each with its part of the heads" if shard.world > 1 else ""
    if config.device != "auto":
        try:
            device = torch.device(config.device)
        except RuntimeError as error:
            raise ConfigError(f"device is {config.device!r}", allowed="auto, cpu, cuda, cuda:N") from error
        if device.type == "cuda" and not has_gpu:
            raise ConfigError(f"device is {config.device!r} and torch sees no GPU", allowed="auto, cpu")
        return device, "chosen with --device" + split
    if has_gpu and config.mode != "cpu":
        device = torch.device("cuda", shard.rank) if split else torch.device("cuda")
        return device, ("a GPU is present" if config.mode == "auto" else "chosen with --mode") + split
    return torch.device("cpu"), ("no GPU was found" if config.mode == "auto" else "chosen with --mode") + split


def modes(config: EngineConfig, on_gpu: bool) -> tuple[Mode, ...]:
    """Best first."""
    if config.mode == "offload":  # on a CPU a dry run
        return ("offload",)
    if not on_gpu:
        return ("cpu",)
    return ("on-chip",) if config.mode == "on-chip" or config.kv in KV_BITS else ("on-chip", "offload")


def number_type(config: EngineConfig, device: torch.device, machine: Capability) -> tuple[torch.dtype, str]:
    """Return the type that products are made in, and why."""
    if config.dtype == "float16" and device.type == "cpu":
        # Torch alone computes in it there: 1,000 tokens were read at 90 a second where bfloat16 read 3,200.
        instead, why = number_type(replace(config, dtype="auto"), device, machine)
        return instead, f"{why}; not float16, as chosen, in which a CPU is many times slower"
    if config.dtype != "auto":
        return getattr(torch, config.dtype), f"{config.dtype} was chosen"
    name = choose_dtype(machine, str(device))
    # Measured on AVX2: with our kernels 1.0 to 5 times as fast as torch in float32, in half the memory.
    if device.type == "cpu" and name == "float32" and "avx2" in machine.cpu_flags and compiled().library is not None:
        return torch.bfloat16, "bfloat16, as our own kernels are faster in it than torch in float32"
    natively = name == "bfloat16" and "which this machine multiplies natively"
    return getattr(torch, name), f"{name}, {natively or 'as this machine has no native bfloat16'}"


def device_name(device: torch.device, shard: Shard, dtype: torch.dtype) -> str:
    if device.type == "cpu":
        name = f"CPU, {torch.get_num_threads()} threads; kernels: {cpu_kernels(dtype)}"
    else:
        name = torch.cuda.get_device_name(device)
    return name if shard.world == 1 else f"{shard.world} x {name}"


def cpu_kernels(dtype: torch.dtype) -> str:
    """Whose, and why, in a few words."""
    return compiled().summary if dtype == torch.bfloat16 else "torch's (our own are for bfloat16)"


def attention_words(device: torch.device, dtype: torch.dtype, group: int, dim: int) -> str:
    """Which kernel reads long documents on this GPU, measured now; "" on a CPU. group, dim: query heads per KV head,
    and head_dim."""
    if device.type != "cuda" or dtype == torch.float32:
        return ""
    return choose_wide_attention(device, dtype, group, dim).summary
