"""Run work on a device while the host does something else, and hand results over meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import torch
from torch import Tensor


class SideStream:
    """``with beside:`` queues what follows behind all that was queued so far, in the way of nothing that comes later.

    ``join`` before anything reads what was made there. Without a GPU it is done at once, in order."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._entered: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._entered = torch.cuda.stream(self._stream)
            self._entered.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(kind, error, trace)

    def join(self) -> None:
        """Let what is queued from now on wait for it; the host does not."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host's on the device. Neither waits for the other: from memory that is not pinned a copy would wait
    for all that the device has to do."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def later(values: Tensor) -> Callable[[], Tensor]:
    """A copy on the host, once the device has come to it: only that is waited for, nothing that is queued behind."""
    if not values.is_cuda:
        kept = values.clone()
        return lambda: kept
    copy = torch.empty_like(values, device="cpu", pin_memory=True)
    copy.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def waited() -> Tensor:
        copied.synchronize()
        return copy

    return waited
