"""Reading: tokens into the full cache, chunk by chunk, with progress; or back from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from ..drafters.model import ModelOnCache
from ..events import PrefillProgress
from ..kv_cache.full import FullCache
from ..kv_cache.snapshot import DamagedSnapshot, SnapshotKey, SnapshotStore


def prefill(model: ModelOnCache, token_ids: Sequence[int], chunk: int, cancelled: Callable[[], bool],
            total: int | None = None) -> Iterator[PrefillProgress]:
    """Feed and commit ``token_ids`` behind what the cache holds. Ends early, between chunks, when cancelled."""
    started, before = perf_counter(), model.length
    total = before + len(token_ids) if total is None else total
    for start in range(0, len(token_ids), chunk):
        if cancelled():
            return
        # A pass without logits skips its last layer's attention: an observer would miss it.
        model.feed(token_ids[start : start + chunk], 1 if model.observer else 0)
        model.commit()
        done = model.length
        rate = (done - before) / max(perf_counter() - started, 1e-9)
        yield PrefillProgress(done, total, rate, (total - done) / rate)


def prepare(model: ModelOnCache[FullCache], total: int, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
    """What its cache needs before it is filled. Ends early when cancelled."""
    for _ in model.cache.prepare():
        if cancelled():
            return
        yield PrefillProgress(0, total, 0.0, None)


def restore(model: ModelOnCache[FullCache], saved: SnapshotStore, key: SnapshotKey) -> float | None:
    """Fill the full cache from disk. Returns what reading it had cost in seconds, or None: read it (again)."""
    reading = saved.load(key)
    if reading is None:
        return None
    with reading:
        places = model.cache.restore(reading.tokens)
        try:
            for (keys, values), (k, v) in zip(places, reading.layers(), strict=True):
                keys.copy_(k)
                values.copy_(v)
        except DamagedSnapshot:
            model.reset()
            return None
        return reading.read_seconds
