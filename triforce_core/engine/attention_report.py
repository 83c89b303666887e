"""Attention mass of full-cache passes: what chooses the retrieved chunks, and what the page strip shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..device.shard import ALONE, Shard
from ..device.streams import later
from ..events import PageSpan

MASS_ROWS = 16  # newest rows of a full pass by which chunks are chosen


class AttentionMass:
    """An ``AttentionObserver``: collects each layer's mass over the chunks of the committed prefix.

    mass_rows: newest rows of a pass that count (the last row of a pass asks the next token's question).
    follower: gets each layer's mass at once, while the cache has that layer at hand.
    """

    def __init__(self, chunk_size: int, mass_rows: int) -> None:
        self.chunk_size, self.mass_rows = chunk_size, mass_rows
        self.follower: Callable[[int, Tensor], None] | None = None
        self._layers: dict[int, Tensor] = {}
        self._latest: Tensor | None = None

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        if layer == 0:
            self._layers.clear()
            self._latest = None
        if mass is not None:
            self._layers[layer] = mass
            if self.follower is not None:
                self.follower(layer, mass)

    @property
    def latest(self) -> Tensor | None:
        """fp32 [layers, H, chunks] of the newest observed pass; None before the first."""
        if self._latest is None and self._layers:
            self._latest = torch.stack([self._layers[layer] for layer in sorted(self._layers)])
        return self._latest


class AttentionReport:
    """Folds mass over a document's chunks: page shares now, and the most attended chunks of a whole answer.

    The first chunk is left out: it is an attention sink (StreamingLLM, arXiv 2309.17453), attended for being first.
    """

    def __init__(self, pages: Sequence[PageSpan], document_tokens: int, chunk_size: int, shard: Shard = ALONE,
                 usual: np.ndarray | None = None) -> None:
        """usual: shares of the chunks that any question draws to them (sum to 1); ``top`` gives what is above them."""
        self.chunk_size, self._shard = chunk_size, shard
        self.num_chunks = document_tokens // chunk_size
        middles = np.arange(self.num_chunks) * chunk_size + chunk_size // 2
        self._page_of = np.searchsorted([page.start for page in pages], middles, side="right") - 1
        self._num_pages = len(pages)
        self.total = np.zeros(self.num_chunks)
        self._newest = np.zeros(0)
        self._usual = usual if usual is not None and len(usual) == self.num_chunks else np.zeros(self.num_chunks)
        self._seen: Callable[[], Tensor] | None = None

    def see(self, mass: Tensor) -> None:
        """mass [layers, H, chunks] of one pass, for ``add_seen``; the host does not wait for it.

        H: this rank's KV heads; the other ranks add theirs at the same time."""
        self._seen = later(self._shard.sum(mass.sum((0, 1))[: self.num_chunks]).double())

    def add_seen(self) -> tuple[float, ...] | None:
        """Adds what was seen last: its share per page (sums to 1; zeros if there is none). None: nothing since."""
        seen, self._seen = self._seen, None
        if seen is None:
            return None
        chunks = seen().numpy()
        chunks[:1] = 0.0
        chunks /= max(chunks.sum(), 1e-30)
        self.total[: len(chunks)] += chunks
        self._newest = chunks
        return self._pages(chunks)

    @property
    def page_shares(self) -> tuple[float, ...]:
        """Per page over the whole answer; empty if nothing was observed."""
        return self._pages(self.total / self.total.sum()) if self.total.any() else ()

    def top(self, count: int) -> list[tuple[int, int, float]]:
        """The chunks attended most: (page index, chunk number, share of the document's mass beyond the usual), heaviest
        first."""
        return self._heaviest(self.total, count)

    def top_of_newest(self, count: int) -> list[tuple[int, int, float]]:
        """The same of the pass that was added last."""
        return self._heaviest(self._newest, count)

    def _heaviest(self, chunks: np.ndarray, count: int) -> list[tuple[int, int, float]]:
        if not chunks.any():
            return []
        above = chunks / chunks.sum() - self._usual[: len(chunks)]
        count = min(count, len(chunks))
        found = np.argpartition(above, -count)[-count:]  # there may be tens of thousands, and it is asked every round
        order = found[np.argsort(above[found])[::-1]]
        return [(int(self._page_of[c]), int(c), float(above[c])) for c in order if above[c] > 0]

    def _pages(self, chunks: np.ndarray) -> tuple[float, ...]:
        shares = np.bincount(self._page_of[: len(chunks)], weights=chunks, minlength=self._num_pages)
        return tuple(shares.tolist())
