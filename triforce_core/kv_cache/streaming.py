"""StreamingLLM (arXiv 2309.17453): the first few tokens (attention sinks) and a recent window, nothing between.

Positions are "inside the cache" there: sinks and window sit next to each other. Rotary attention sees differences of
positions only, so it is the same to leave the window's keys where they are in the text and to move the *sinks* up to
the window whenever something between is evicted: a few keys to rotate instead of all. Tokens therefore keep their
absolute positions, and only sinks carry an offset, always applied to their first keys (rounding never adds up).

Slots hold ``slack`` tokens beyond the window, so that eviction happens once in ``slack`` tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from .base import KVCache, LayerBuffers
from .window import layers_of


class StreamingCache(KVCache):
    """Slots: [sinks | recent tokens, window to window + slack of them | staged]."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, *, sinks: int, window: int,
                 frequencies: Tensor, dtype: torch.dtype, device: torch.device | str = "cpu", slack: int = 64,
                 windows: Sequence[int] = ()) -> None:
        """frequencies: radians per position, fp32 [layers, head_dim / 2] (``Llama.frequencies``).
        slack: tokens committed or staged beyond the window before buffers grow or evict. windows: see ``FullCache``:
        such layers have no sinks."""
        assert sinks >= 0 and window >= 1 and slack >= 1 and frequencies.shape[-1] == head_dim // 2
        at, slots = torch.device(device), sinks + window + 2 * slack
        layers = (LayerBuffers(num_kv_heads, slots, head_dim, dtype, at)
                  for _ in range(num_layers - sum(map(bool, windows))))
        super().__init__(num_layers, num_kv_heads, head_dim, slots=slots, dtype=dtype, device=device,
                         layers=layers_of(windows, layers, num_kv_heads, head_dim, dtype=dtype, device=at))
        self.sinks, self.window, self.slack = sinks, window, slack
        self._normal_slots = slots
        self._frequencies = frequencies.to(self.device).expand(num_layers, -1)
        self._sink_keys: list[Tensor] | None = None  # fp32 [H, sinks, D] per layer, as first staged
        self._evicted = 0  # tokens between the sinks and the first recent one

    @property
    def num_evicted(self) -> int:
        """Return how many tokens of the context are gone: [sinks, sinks + num_evicted)."""
        return self._evicted

    def make_room(self, n: int) -> None:
        needed = self._filled + self.num_staged + n
        if needed > self.slots:
            for buffers in self.layers:
                buffers.resize(needed, self._filled + self.num_staged)

    @torch.inference_mode()
    def commit(self) -> None:
        super().commit()
        surplus = self._filled - self.sinks - self.window
        if surplus < self.slack:
            return
        if self._sink_keys is None:
            self._sink_keys = [buffers.keys[:, : self.sinks].clone().float() for buffers in self.layers]
        self._evicted += surplus
        self._filled -= surplus
        source = torch.arange(self.sinks, self._filled, device=self.device) + surplus
        for buffers, first_keys, own in zip(self.layers, self._sink_keys, self._frequencies, strict=True):
            if buffers.window:
                continue
            buffers.move(source, self.sinks)
            buffers.keys[:, : self.sinks] = turn(first_keys, self._evicted * own)
        if sys.maxsize > self.slots > self._normal_slots:  # a long prefill pass had made it larger
            for buffers in self.layers:
                buffers.resize(self._normal_slots, self._filled)

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, (length, self.length)
        if length == 0:
            self._evicted, self._sink_keys = 0, None
        elif self._evicted and length < self.sinks + self._evicted + self.window and length < self.num_committed:
            raise ValueError(f"tokens before {self.sinks + self._evicted} are evicted: {length} has no whole window")
        self.cut_windows(length)
        self.length = length
        self.num_committed = min(self.num_committed, length)
        self._filled = self.num_committed - self._evicted

    def check_integrity(self) -> None:
        super().check_integrity()
        assert self._filled == self.num_committed - self._evicted
        assert self._evicted == 0 or self._sink_keys is not None
        assert self._filled < self.sinks + self.window + self.slack


def turn(keys: Tensor, angles: Tensor) -> Tensor:
    """Return keys fp32 [H, n, D] rotated on by angles [D / 2], or [H, n, D / 2] of their own."""
    cos, sin = angles.cos(), angles.sin()
    first, second = keys.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
