"""What the process takes of the host's memory."""

from __future__ import annotations

import ctypes
import sys

import psutil
import pytest

from triforce_core.device.memory import return_freed

GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")


@pytest.mark.skipif(not GLIBC, reason="other C libraries keep less")
def test_what_was_freed_goes_back_to_the_machine() -> None:
    blocks = [b"x" * 100_000 for _ in range(2000)]
    kept = blocks[::100]  # so that the heap cannot simply end earlier
    blocks.clear()
    used = psutil.Process().memory_info().rss
    return_freed()
    assert used - psutil.Process().memory_info().rss > 150e6 and len(kept) == 20
