"""Energy by the machine's own counters: NVML's of a GPU, RAPL's of a CPU. They tell of the whole device, with other
programs' work, and of nothing beside it: no memory, fans or power supply."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

Joules = Callable[[], float | None]  # since some moment; None: the machine does not tell

_POWERCAP = Path("/sys/class/powercap")
_NVML = ("libnvidia-ml.so.1", "nvml.dll")


def energy_counter(device: str, gpus: int = 1) -> tuple[Joules, str]:
    """Of what computes, and whose counter it is, in words; "" where there is none.

    device: "cpu" or "cuda". Several GPUs belong to other processes, and are not asked."""
    if device == "cpu":
        zones = [zone for zone in sorted(_POWERCAP.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        rapl = Rapl(zones)
        return rapl.joules, "the processor's own counter" if rapl.joules() is not None else ""
    read = _nvml() if gpus == 1 else None
    return (read, "the GPU's own counter") if read is not None else (lambda: None, "")


class Rapl:
    """The sum of some zones' counters, which start anew when they are full."""

    def __init__(self, zones: list[Path]) -> None:
        self._zones, self._last, self._sum = zones, dict[Path, int](), 0

    def joules(self) -> float | None:
        """None where there are no zones, or only root may read them."""
        try:
            for zone in self._zones:
                now, full = (int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
                self._sum += (now - self._last.get(zone, now)) % (full + 1)
                self._last[zone] = now
        except (OSError, ValueError):
            return None
        return self._sum / 1e6 if self._zones else None


def _nvml() -> Joules | None:
    """The counter of torch's current GPU; None where its driver has none."""
    import torch

    for name in _NVML:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return None
    handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()

    def joules() -> float | None:
        failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1e3

    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
        return None
    return joules if joules() is not None else None
