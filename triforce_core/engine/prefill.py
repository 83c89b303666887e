"""Reading: tokens into the full cache, chunk by chunk, with progress; or back from disk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter

from ..events import PrefillProgress, PrefillStage
from ..kernels import AttentionObserver
from ..kv_cache.full import FullCache
from ..kv_cache.snapshot import DamagedSnapshot, Snapshot, SnapshotKey, SnapshotStore
from ..speculation.model_drafter import ModelOnCache

# The newest prompt tokens, always read again in a pass of their own: their attention chooses the first chunks,
# and a question asked twice from the same cache takes the same passes.
OBSERVED = 16


def prefill(model: ModelOnCache, token_ids: Sequence[int], chunk: int, cancelled: Callable[[], bool],
            total: int | None = None, reach: int | None = None) -> Iterator[PrefillProgress]:
    """Feed and commit ``token_ids`` behind what the cache holds. Ends early, between chunks, when cancelled. reach:
    tokens that attention reaches back at most, None for all.

    Time left follows from the work that is left: attention goes over all that was read before, so the last tokens of a
    long document take many times as long as the first."""
    started, before, work = perf_counter(), model.length, model.model.config.prefill_flops
    total = before + len(token_ids) if total is None else total
    for start in range(0, len(token_ids), chunk):
        if cancelled():
            return
        # A pass without logits skips its last layer's attention: an observer would miss it.
        model.feed(token_ids[start : start + chunk], 1 if model.observer else 0)
        model.commit()
        done = model.length
        spent, read = max(perf_counter() - started, 1e-9), work(done, reach)
        left = spent * (work(total, reach) - read) / (read - work(before, reach))
        yield PrefillProgress(done, total, (done - before) / spent, left)


def share_done(stage: PrefillStage, share: float, total: int, started: float) -> PrefillProgress:
    """So much of ``total`` tokens is done since ``started`` (by ``perf_counter``), and goes on at that rate."""
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


def restore(model: ModelOnCache[FullCache], saved: SnapshotStore, key: SnapshotKey, tokens: int
            ) -> Generator[PrefillProgress, None, float | None]:
    """Fill the full cache with all ``tokens`` from disk. Returns what reading it had cost in seconds, or None: read it
    (again)."""
    reading = saved.load(key)
    return None if reading is None else (yield from _fill(model, reading, tokens))


def restore_beginning(model: ModelOnCache[FullCache], saved: SnapshotStore, key: SnapshotKey,
                      prefixes: Sequence[str], chunk: int) -> Iterator[PrefillProgress]:
    """Fill the full cache with the longest beginning that these tokens (prefixes: their ``prefix_digests``) share with
    a saved reading of any document, if that is more than the cache holds. Only whole chunks of the prefill: then keys
    and values are the same, to the bit, as if everything was read."""
    found = saved.load_beginning(key, prefixes, more_than=model.length // chunk)
    if found is not None:
        reading, chunks = found
        yield from _fill(model, reading, chunks * chunk)


def _fill(model: ModelOnCache[FullCache], reading: Snapshot, tokens: int
          ) -> Generator[PrefillProgress, None, float | None]:
    """Hold the reading's first tokens. Returns what the whole of it had cost; None, and nothing held, if damaged."""
    started = perf_counter()
    with reading:
        places = model.cache.restore(tokens)
        try:
            if reading.num_layers != len(places) or reading.tokens < tokens:
                raise reading.damaged(f"{reading.num_layers} layers of {reading.tokens} tokens")
            for layer, ((keys, values), (k, v)) in enumerate(zip(places, reading.layers(), strict=True)):
                yield share_done("restore", layer / len(places), tokens, started)
                for its, saved in ((keys, k[:, :tokens]), (values, v[:, :tokens])):
                    if (saved.shape, saved.dtype) != (its.shape, its.dtype):  # a copy would stretch and round it
                        raise reading.damaged(f"layer {layer}: {saved.dtype} {list(saved.shape)}")
                    its.copy_(saved)
        except DamagedSnapshot:
            model.reset()
            return None
        return reading.read_seconds
