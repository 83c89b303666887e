"""Order kernels one after another: each is set up, and may fetch what does not change, while the one before still runs.

Programmatic dependent launch (Hopper and later). A kernel launched so waits for its predecessor before it reads what
that writes, or writes anything: then a chain of such kernels keeps the order. Small kernels let their follower start
at once (``follow``). Those that fill the device do not (``wait``): programs of the next large kernel would crowd onto
the multiprocessors that happen to be free first (measured on an H200: up to a quarter slower). They let it start when
each of their programs has read all its share (``lead``): what is left, adding up and writing, takes as long as a
launch.
"""

from __future__ import annotations

import os
from functools import lru_cache

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found, import-untyped]

# Whether PTX may stand inline: in Triton's interpreter it may not.
ASM = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET") != "1")


@lru_cache(maxsize=16)
def early(device: torch.device) -> dict[str, bool]:
    """Arguments of a launch whose kernel takes EARLY and calls ``follow`` or ``wait``."""
    able = device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"EARLY": True, "launch_pdl": True} if able else {"EARLY": False}


@lru_cache(maxsize=16)
def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8


@triton.jit
def wait(EARLY: tl.constexpr):
    """Wait for the kernel before."""
    if EARLY:
        gdc_wait()


@triton.jit
def lead(EARLY: tl.constexpr):
    """Let the next kernel start, as soon as all programs of this one have come here. After ``wait``."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def follow(EARLY: tl.constexpr):
    """Let the next kernel start, wait for the one before."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
