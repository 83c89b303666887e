"""A layer whose attention reaches a window of tokens back: it keeps those, and has nothing to retrieve or to stream.

Others name its slots by tokens' numbers in the context; it holds the newest of them, ``SLACK`` more than the window, so
that what a round takes back is still there. Which ones follows from how many are committed, in whole steps: sums then
run in one order however the tokens came, and a pass that drafts computes what plain decoding does. To go back further a
cache marks a place: the layer's tokens there are kept once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .base import ChunkIndex, KVView, LayerBuffers, Masks

SLACK = 256  # tokens; a multiple of the blocks that kernels attend
_MANY = 1024  # slots beyond the usual, after a wide pass, that are given back


class WindowLayer(LayerBuffers):
    """keys and values [H, C, D]; slot i holds token ``first`` + i."""

    __slots__ = ("_marked", "first", "window")

    def __init__(self, heads: int, window: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        """Raises NotEnoughMemoryError."""
        super().__init__(heads, window + 3 * SLACK, dim, dtype, device)
        self.window, self.first = window, 0
        self._marked: tuple[int, Tensor, Tensor] | None = None  # first token, keys, values [H, m, D] on the host

    def resize(self, slots: int, keep: int) -> None:
        """Its size does not follow the context's."""

    def write(self, start: int, k: Tensor, v: Tensor) -> None:
        """Write k, v [n, H, D] of tokens from ``start`` on. Raises NotEnoughMemoryError."""
        self.make_room(start, k.shape[0])
        super().write(start - self.first, k, v)

    def make_room(self, start: int, n: int) -> None:
        """Raises NotEnoughMemoryError."""
        if start + n - self.first > self.keys.shape[1]:
            super().resize(start + n - self.first, start - self.first)

    def view(self, start: int, n: int, mask: Tensor | None, index: ChunkIndex | None, masks: Masks) -> KVView:
        length, key = start + n - self.first, (self.window, self.first)
        if key not in masks:  # layers have one in common
            masks[key] = self._visible(length, n, mask)
        return KVView(self.keys, self.values, length, masks[key], window=self.window)

    def _visible(self, length: int, n: int, mask: Tensor | None) -> Tensor | None:
        """Return which of all ``length`` slots each of the newest n sees, bool [n, length]; None: all up to its own.
        mask: as ``begin`` was given it."""
        if length <= self.window:
            return mask
        device = self.keys.device
        slots = torch.arange(length, device=device)
        if mask is None:
            own = torch.arange(length - n, length, device=device)[:, None]
            return (slots <= own) & (slots > own - self.window)
        before = length - mask.shape[1]
        own = before - 1 + mask.to(device).sum(1, keepdim=True)  # in a tree a token's place is its depth
        seen = slots > own - self.window
        seen[:, before:] &= mask.to(device)
        return seen

    def move(self, source: Tensor, target: int) -> None:
        super().move(source - self.first, target - self.first)

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of those tokens in [start, stop) that it holds."""
        return super().read(max(0, start - self.first), stop - self.first)

    def restore(self, num_tokens: int) -> tuple[Tensor, Tensor]:
        self.first, self._marked = _first(num_tokens, self.window), None
        return super().read(0, num_tokens - self.first)

    def lend(self, into: LayerBuffers, at: int, start: int, stop: int) -> None:
        """Nothing: a part of the cache has this layer in common with it."""
        assert into is self

    def evict(self, committed: int) -> None:
        """Keep of so many tokens what the next ones attend."""
        surplus = max(self.first, _first(committed, self.window)) - self.first
        usual, kept = self.window + 3 * SLACK, committed - self.first - surplus
        if surplus:
            super().move(torch.arange(surplus, surplus + kept, device=self.keys.device), 0)
            self.first += surplus
        if self.keys.shape[1] > usual + _MANY:
            super().resize(max(usual, kept), kept)

    def mark(self, committed: int) -> None:
        """Be able to go back to here, however many tokens follow."""
        keys, values = super().read(0, committed - self.first)
        self._marked = self.first, keys.to("cpu", copy=True), values.to("cpu", copy=True)

    def reachable(self, length: int) -> int:
        """Return the greatest length up to this one to which the context can be cut."""
        if _whole(self.first, length, self.window):
            return length
        if self._marked is None:
            return 0
        first, keys, _ = self._marked
        back = min(length, first + keys.shape[1])
        return back if _whole(first, back, self.window) else 0

    def cut(self, length: int) -> None:
        """Forget tokens from ``length`` on, which is ``reachable``."""
        if length == 0:
            self.first, self._marked = 0, None
        elif not _whole(self.first, length, self.window):
            assert self._marked is not None
            self.first, keys, values = self._marked
            m = length - self.first
            self.keys[:, :m], self.values[:, :m] = keys[:, :m], values[:, :m]


def _first(committed: int, window: int) -> int:
    """Return the first token that is held."""
    return max(0, committed - window - SLACK) // SLACK * SLACK


def _whole(first: int, length: int, window: int) -> bool:
    """Return whether a token behind ``length`` others finds its window where those from ``first`` on are held."""
    return first == 0 or first + window <= length


def layers_of(windows: Sequence[int], layers: Iterable[LayerBuffers], heads: int, dim: int, *, dtype: torch.dtype,
              device: torch.device) -> list[LayerBuffers]:
    """Return all layers. windows: what each attends, 0: all tokens; () where all do. layers: makes those that do."""
    rest = iter(layers)
    return [WindowLayer(heads, window, dim, dtype, device) if window else next(rest) for window in windows] or [*rest]
