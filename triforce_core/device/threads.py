"""How many threads torch's own operations take on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, torch's operations take one thread meanwhile.

    For many small ones in a row: each waits for its slowest thread, which another program may keep from its core for
    some milliseconds. Copying the chosen chunks took 65 to 335 ms with two threads where it takes 5 to 18 with one (two
    cores of Zen 4, both busy; at rest 5 either way)."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
