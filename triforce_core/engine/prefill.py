"""Read tokens into caches, chunk by chunk: a document, conversations behind it, and the same for the draft model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from threading import Event
from time import perf_counter

import torch
from torch import Tensor

from ..device.shard import Shard
from ..events import PrefillProgress, PrefillStage
from ..kernels import AttentionObserver
from ..kv_cache import shared_prefix
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval import CrossModelCache
from ..kv_cache.streaming import StreamingCache
from ..model import Llama
from ..speculation.model_drafter import ModelOnCache

# The newest prompt tokens, always read again in a pass of their own: their attention chooses the first chunks,
# and a question asked twice from the same cache takes the same passes.
OBSERVED = 16
_PACED = 9  # chunks whose pace says how long the rest takes
# The draft model's reading: tokens of a pass, and before them that it attends. 2,048 and as many did no better.
_READ, _READ_WITH = 1024, 1024
_SLACK = 128  # tokens staged and committed between two choices, before buffers grow
_LEFT = 48  # tokens that a first draft reads; with its own they stay within half of the slack or little more
MOST_BYTES = 128 * 2**20  # of all conversations that were left, on each rank
WORTH_KEEPING = 64  # tokens: fewer are soon read again


class Cancellation(Event):
    """A wish to stop, which any thread may set. All ranks ask at the same places, so that they stop together, when
    rank 0 was cancelled."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self._shard = shard

    def __call__(self) -> bool:
        """Return whether to stop."""
        return bool(self._shard.same([self.is_set()])[0])


def prefill(model: ModelOnCache, token_ids: Sequence[int], chunk: int, cancelled: Callable[[], bool],
            total: int | None = None, reach: int | None = None) -> Iterator[PrefillProgress]:
    """Feed and commit ``token_ids`` behind what the cache holds. Ends early, between chunks, when cancelled. reach:
    tokens that attention reaches back at most, None for all.

    Time left follows from the work that is left: attention goes over all that was read before, so the last tokens of a
    long document take many times as long as the first. Of the last chunks the median counts: one that something else
    held up, or that captured or compiled, says nothing about those to come."""
    started, before, work = perf_counter(), model.length, model.model.config.prefill_flops
    total = before + len(token_ids) if total is None else total
    paces = deque[float]([], maxlen=_PACED)  # seconds per operation
    now, read = started, work(before, reach)
    for start in range(0, len(token_ids), chunk):
        if cancelled():
            return
        # A pass without logits skips its last layer's attention: an observer would miss it.
        model.feed(token_ids[start : start + chunk], 1 if model.observer else 0)
        model.commit()
        done = model.length
        last, now = now, perf_counter()
        last_read, read = read, work(done, reach)
        paces.append((now - last) / (read - last_read))
        left = median_low(paces) * (work(total, reach) - read)
        yield PrefillProgress(done, total, (done - before) / max(now - started, 1e-9), left)


def share_done(stage: PrefillStage, share: float, total: int, started: float) -> PrefillProgress:
    """Return the progress where this share of ``total`` tokens is done since ``started`` (by ``perf_counter``)."""
    spent = perf_counter() - started
    return PrefillProgress(int(share * total), total, share * total / max(spent, 1e-9),
                           spent / share - spent if share else None, stage)


def read_prompt(model: ModelOnCache[FullCache], wanted: Sequence[int], chunk: int, observer: AttentionObserver,
                cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
    """Read what the cache lacks of ``wanted``, a prompt without its last token, whose logits the first round asks for.
    The observer sees the last pass."""
    model.observer = None
    last = max(model.length, len(wanted) - OBSERVED)
    yield from prefill(model, wanted[model.length : last], chunk, cancelled, len(wanted))
    if model.length == last and not cancelled():
        model.observer = observer
        yield from prefill(model, wanted[last:], OBSERVED, cancelled)


def prepare(model: ModelOnCache[FullCache], total: int, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
    """Prepare its cache before it is filled. Ends early when cancelled."""
    for _ in model.cache.prepare():
        if cancelled():
            return
        yield PrefillProgress(0, total, 0.0, None)


def on_streaming(model: Llama, sinks: int, window: int) -> ModelOnCache:
    """Return the model over StreamingLLM's cache, which holds nothing yet."""
    c = model.config
    cache = StreamingCache(c.num_layers, c.num_kv_heads, c.head_dim, sinks=sinks, window=window,
                           frequencies=model.frequencies, dtype=model.dtype, device=model.device,
                           windows=c.windows)
    return ModelOnCache(model, cache, model.device)


class DraftPrefill:
    """The context as the draft model reads it, kept whole for one document, so that any of it may be attended."""

    def __init__(self, model: Llama, document: int, *, max_tokens: int) -> None:
        """document: its tokens that every context begins with. Raises NotEnoughMemoryError."""
        c = model.config
        self.model, self._document = model, document
        self.full = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=model.dtype,
                              device=model.device, slots=min(document, max_tokens), windows=c.windows)

    def on_chunks(self, budget: int, recent: int, chunk_size: int) -> ModelOnCache[CrossModelCache]:
        """Return the model over a part of what it has read: see ``CrossModelCache``."""
        cache = CrossModelCache(self.full, budget=budget, chunk_size=chunk_size, recent=recent, slack=_SLACK,
                                frequencies=self.model.frequencies)
        return ModelOnCache(self.model, cache, self.model.device)

    def read(self, context: Sequence[int], chunk: int, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Read all of ``context`` but its last token, and keep nothing else. The document's part is read once, and
        always in the same passes; behind it so few tokens as a question has are left to the first draft, which reads
        what it lacks in a pass of its own. Ends early when cancelled."""
        total = len(context) - 1
        shared = min(self._document, total)
        self.full.truncate(self.full.reachable(min(shared, self.full.length)))
        stops = [stop for stop in (shared, total if total - shared > _LEFT else 0) if stop > self.full.length]
        if not stops:
            return
        reader = self.on_chunks(_READ_WITH, _READ_WITH // 2, 8)
        for stop in stops:
            rest = context[self.full.length : stop]
            for progress in prefill(reader, rest, min(chunk, _READ), cancelled, total, _READ_WITH):
                yield replace(progress, stage="draft")
            if stop == shared and self.full.length == shared:
                self.full.keep_place()


def mark(small: CrossModelCache, scores: Tensor, shard: Shard, *, ahead: bool = False) -> None:
    """Have ``small`` attend the chunks that the target's attention, over all its layers and heads, went to.

    scores [layers, H, chunks], of this rank's heads; every rank's draft model attends the same. ahead: a draft is being
    verified, and ``small`` is marked already."""
    chunks = shard.sum(scores.sum((0, 1)))
    choose = small.choose if ahead else small.select
    choose(chunks.expand(small.num_layers, small.num_kv_heads, -1))


@dataclass(frozen=True, eq=False, slots=True)
class _Left:
    """Hold keys and values of the tokens from ``start`` of the context on, both [layers, n, H, D]."""

    document_id: str
    start: int
    token_ids: list[int]
    keys: Tensor
    values: Tensor

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class LeftConversations:
    """Keep keys and values of conversations that were left for another, in host memory: going back to one reads none
    of its words again. Those left longest ago go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left: list[_Left] = []
        self._most_bytes = most_bytes

    def __len__(self) -> int:
        return len(self._left)

    def keep(self, document_id: str, start: int, read: Sequence[int], cache: FullCache) -> None:
        """Keep what the cache holds from ``start`` on, behind the document. read: the tokens of all of it. Caches that
        hold no plain numbers on the device, or not of all tokens, keep nothing."""
        ids = list(read[start : cache.num_committed])
        if len(ids) < WORTH_KEEPING or cache.streams or cache.kind != "same" or cache.windows:
            return
        if len(ids) * cache.nbytes // cache.slots > self._most_bytes:
            return
        held = [cache.read(layer, start, start + len(ids)) for layer in range(cache.num_layers)]
        # A question waits for it: one copy of all layers, not one each.
        keys, values = (torch.stack([pair[which] for pair in held]).transpose(1, 2).cpu() for which in (0, 1))
        # What this one goes on from is of no more use.
        self._left = [one for one in self._left if one.document_id != document_id or one.start != start
                      or one.token_ids != ids[: len(one.token_ids)]]
        self._left.append(_Left(document_id, start, ids, keys, values))
        while sum(one.nbytes for one in self._left) > self._most_bytes:
            del self._left[0]

    def bring(self, document_id: str, context: Sequence[int], full: ModelOnCache[FullCache], most: int) -> int:
        """Put behind what ``full`` holds of ``context`` what one of them holds of it further on, up to ``most`` tokens.
        Return how many it holds then."""
        common, best = full.length, None
        for one in self._left:
            if one.document_id != document_id or one.start > full.length:
                continue
            end = one.start + shared_prefix(one.token_ids, context[one.start : most])
            if end >= common + WORTH_KEEPING:
                common, best = end, one
        if best is not None:
            cache, part = full.cache, slice(full.length - best.start, common - best.start)
            cache.begin(common - full.length)
            keys, values = (kept[:, part].to(cache.device) for kept in (best.keys, best.values))
            for layer in range(cache.num_layers):
                cache.stage(layer, keys[layer], values[layer])
            cache.commit()
        return full.length


class Reading:
    """Follow what the full cache has read: a document, and the conversation behind it.

    document: its token ids, of which every context begins with the first ``shared``; token_ids: those behind the cache,
    in order; chunk: tokens of a pass."""

    def __init__(self, full: ModelOnCache[FullCache], document_id: str, document: list[int], shared: int, chunk: int,
                 left: LeftConversations) -> None:
        self.full, self.document, self.shared, self.chunk = full, document, shared, chunk
        self.token_ids = document[: full.length]
        full.cache.keep_place()
        self._document_id, self._left = document_id, left

    def follow(self, context: list[int], passes: Iterator[PrefillProgress]) -> Iterator[PrefillProgress]:
        """Run ``passes`` that read ``context``; what is in the cache is known after each."""
        for progress in passes:
            self.token_ids = context[: self.full.length]
            yield progress

    def grow(self, context: list[int]) -> None:
        """Note what a round of an answer has committed of ``context``."""
        self.token_ids += context[len(self.token_ids) : self.full.length]

    def go_back(self, context: list[int]) -> int:
        """Go back to what the cache shares with ``context``, and on to what a conversation that was left shares with it
        further on; return how many tokens that is. The conversation that is left for it is kept."""
        most = len(context) - 1 - OBSERVED
        if len(self.token_ids) - self._common(context) >= WORTH_KEEPING:
            self.leave()
        reused = self.rewind(context)
        reused = self._left.bring(self._document_id, context, self.full, most) if reused < most else reused
        self.token_ids = context[:reused]
        return reused

    def rewind(self, context: list[int], most: int | None = None) -> int:
        """Truncate the cache to what it shares with ``context``, ``most`` tokens, or to where it can go back to before
        that; return how many that is."""
        common = min(self._common(context), len(context) - 1 - OBSERVED, len(context) if most is None else most)
        common = self.full.cache.reachable(max(0, common))
        self.full.truncate(common)
        del self.token_ids[common:]
        return common

    def leave(self) -> None:
        """Keep what was said, for when somebody comes back to it."""
        self._left.keep(self._document_id, self.shared, self.token_ids, self.full.cache)

    def _common(self, context: list[int]) -> int:
        """Return the number of tokens with which what was read and ``context`` begin alike."""
        # Both begin with the document, which is too long to be compared token by token.
        common = min(self.shared, len(self.token_ids), len(context))
        return common + shared_prefix(self.token_ids[common:], context[common:])
