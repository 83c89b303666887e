"""The small model and what it attends: its own sinks and newest tokens, or chunks that the target attended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from ..device.shard import Shard
from ..events import PrefillProgress
from ..kv_cache.cross_model import CrossModelCache
from ..kv_cache.full import FullCache
from ..kv_cache.streaming import StreamingCache
from ..model import Llama
from ..speculation.model_drafter import ModelOnCache
from .prefill import prefill

# Tokens of a pass when the small model reads, and before them that it attends: 2,048 and as many did no better.
_READ, _READ_WITH = 1024, 1024
_SLACK = 128  # tokens staged and committed between two choices, before buffers grow
_LEFT = 48  # tokens that a first draft reads; with its own they stay within half of the slack or little more


def on_streaming(model: Llama, sinks: int, window: int) -> ModelOnCache:
    """The model over StreamingLLM's cache, which holds nothing yet."""
    c = model.config
    cache = StreamingCache(c.num_layers, c.num_kv_heads, c.head_dim, sinks=sinks, window=window,
                           frequencies=model.rope.frequencies, dtype=model.dtype, device=model.device)
    return ModelOnCache(model, cache, model.device)


class DraftPrefill:
    """The context as the small model reads it, kept whole for one document, so that any of it may be attended."""

    def __init__(self, model: Llama, document: int, *, max_tokens: int) -> None:
        """document: its tokens that every context begins with. Raises NotEnoughMemoryError."""
        c = model.config
        self.model, self._document = model, document
        self.full = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=model.dtype,
                              device=model.device, slots=min(document, max_tokens))

    def on_chunks(self, budget: int, recent: int, chunk_size: int) -> ModelOnCache[CrossModelCache]:
        """The model over a part of what it has read: see ``CrossModelCache``."""
        cache = CrossModelCache(self.full, budget=budget, chunk_size=chunk_size, recent=recent, slack=_SLACK,
                            frequencies=self.model.rope.frequencies)
        return ModelOnCache(self.model, cache, self.model.device)

    def read(self, context: Sequence[int], chunk: int, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """All of ``context`` but its last token, and nothing else. The document's part is read once, and always in the
        same passes; behind it so few tokens as a question has are left to the first draft, which reads what it lacks in
        a pass of its own. Ends early when cancelled."""
        total = len(context) - 1
        shared = min(self._document, total)
        self.full.truncate(min(shared, self.full.length))
        stops = [stop for stop in (shared, total if total - shared > _LEFT else 0) if stop > self.full.length]
        if not stops:
            return
        reader = self.on_chunks(_READ_WITH, _READ_WITH // 2, 8)
        for stop in stops:
            rest = context[self.full.length : stop]
            for progress in prefill(reader, rest, min(chunk, _READ), cancelled, total, _READ_WITH):
                yield replace(progress, stage="draft")


def mark(small: CrossModelCache, scores: Tensor, shard: Shard, *, ahead: bool = False) -> None:
    """Have ``small`` attend the chunks that the target's attention, over all its layers and heads, went to.

    scores [layers, H, chunks], of this rank's heads; every rank's small model attends the same. ahead: a draft is being
    verified, and ``small`` is marked already."""
    chunks = shard.sum(scores.sum((0, 1)))
    choose = small.choose if ahead else small.select
    choose(chunks.expand(small.num_layers, small.num_kv_heads, -1))


def prefill_bytes(model: Llama, tokens: int) -> int:
    """Return the bytes that a ``DraftPrefill`` of so many tokens takes."""
    return tokens * model.config.kv_bytes_per_token(model.dtype.itemsize)
