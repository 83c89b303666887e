"""Let a small model attend what a larger one says matters: chunks of a full cache of its own, which only this cache
fills (cross-model retrieval: SpecExtend, arXiv 2505.20776).

A small model attends too badly to find what it needs, but knows what to make of it. Both read the same tokens, so a
chunk that the larger one attends is the same chunk here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .retrieval_copied import RetrievalCache


class CrossModelCache(RetrievalCache):
    """A part of ``full``, and the way into it: what is committed here is committed there too.

    Until chunks are chosen, and when more is committed than half of its slack, it holds chunk 0 and the newest tokens:
    a long text may be read through it, and the other half stays free for drafts, so that buffers, which captured passes
    read, keep their place."""

    _marked = False

    @property
    def marked(self) -> bool:
        """Return whether chunks are held that mass has chosen."""
        return self._marked and self.selection is not None

    def select(self, mass: Tensor) -> None:
        super().select(mass)
        self._marked = True

    @torch.inference_mode()
    def choose(self, mass: Tensor) -> None:
        """Hold the chunks with the most ``mass`` [layers, H, chunks] in the place of as many that were ``marked``.

        The newest tokens, and staged ones behind them, stay where they are: this may run while a draft is verified."""
        assert self.marked
        self.selection = self._best(mass, self._selected // self.chunk_size - 1, self._tail_start)
        for layer, buffers in enumerate(self.layers):
            self._take_chunks(layer, buffers, self.selection[layer], self._tail_start)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._marked = self._marked and length > 0

    @torch.inference_mode()
    def commit(self) -> None:
        n = self.num_staged
        if n:
            self.full.begin(n)
            for whole, own in zip(self.full.layers, self.layers, strict=True):
                whole.copy(self.full.next_slot, own, self._filled, self._filled + n)
            self.full.staged_elsewhere()
            self.full.commit()
        if self._filled + n > self.budget + self.slack // 2:
            self.truncate(0)
        self.sync()
