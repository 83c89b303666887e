"""What the GPUs of this machine have spent, where NVIDIA's library tells (package ``nvidia-ml-py``; optional)."""

from __future__ import annotations

import importlib
import logging
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)


def joules() -> float | None:
    """Since the driver was loaded, all GPUs together, whoever used them; None where nobody counts."""
    library, handles = _counters()
    if not handles:
        return None
    try:
        return sum(library.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1000
    except library.NVMLError as error:
        log.debug("energy: %s", type(error).__name__)
        return None


@lru_cache(maxsize=1)
def _counters() -> tuple[Any, tuple[Any, ...]]:
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None, ()
    try:
        library.nvmlInit()
        found = tuple(library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount()))
        for handle in found:  # GPUs before Volta do not count
            library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except library.NVMLError as error:
        log.debug("energy: %s", type(error).__name__)
        return library, ()
    return library, found
