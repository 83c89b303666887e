"""Keep what reading a document cost on disk, and fill the full cache from it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter

import torch

from ..errors import NotEnoughDiskError
from ..events import PrefillProgress
from ..kernels import compiled
from ..kv_cache.full import FullCache
from ..kv_cache.snapshot import (
    KV_VERSION,
    PROMPT_VERSION,
    DamagedSnapshot,
    Snapshot,
    SnapshotKey,
    SnapshotStore,
    prefix_digests,
    token_digest,
)
from ..speculation.model_drafter import ModelOnCache
from .loading import Loaded
from .prefill import share_done

_WORTH_SAVING = 2048  # tokens: shorter documents are read faster than a file is looked after
_SAVED_PER_SECOND = 5 * 10**8  # bytes, checksum included
_WORTH_KEEPING = 0.2  # seconds that keeping an unfinished reading may take, of each that it took


class SavedReading:
    """One document's place in the store of saved readings; without a store nothing is kept and nothing found."""

    def __init__(self, store: SnapshotStore | None, loaded: Loaded, document_id: str, title: str,
                 token_ids: Sequence[int], chunk: int, kv_kind: str) -> None:
        """chunk: tokens per pass of the prefill; keys and values of other passes are others in their last bits."""
        self._store, self._loaded, self._document_id, self._title = store, loaded, document_id, title
        self._token_ids, self._chunk, self._kv_kind = token_ids, chunk, kv_kind
        self._prefixes = prefix_digests(token_ids, chunk) if store else []

    def restore(self, full: ModelOnCache[FullCache]) -> Generator[PrefillProgress, None, float | None]:
        """Fill the full cache with the whole document. Return what reading it had cost in seconds, or None: read it
        (again)."""
        saved = self._store and self._store.load(self.key())
        return (yield from _fill(full, saved, len(self._token_ids))) if saved else None

    def restore_beginning(self, full: ModelOnCache[FullCache]) -> Iterator[PrefillProgress]:
        """Fill the full cache with the longest beginning that the document shares with a saved reading of any document,
        if that is more than the cache holds. Only whole chunks of the prefill: then keys and values are the same, to
        the bit, as if everything was read."""
        if self._store is None or full.cache.windows:  # a window of the beginning is not there any more
            return
        found = self._store.load_beginning(self.key(), self._prefixes,
                                           more_than=full.length // self._chunk)
        if found is not None:
            saved, chunks = found
            yield from _fill(full, saved, chunks * self._chunk)

    def save(self, full: ModelOnCache[FullCache], seconds: float, cancelled: Callable[[], bool]
             ) -> Generator[PrefillProgress, None, str]:
        """Save what reading the document took ``seconds`` for. Return why it could not be kept (full disk, quota,
        folder): that costs the next opening time, not this one. Cancelled: nothing is kept."""
        return (yield from self._save(full.cache, len(self._token_ids), seconds, cancelled))

    def save_beginning(self, full: ModelOnCache[FullCache], reused: int, seconds: float) -> Iterator[PrefillProgress]:
        """Save the whole chunks of a reading that was cut short, for whoever goes on with it, where writing them takes
        little beside what reading them took. reused: tokens that were not read now."""
        kept = full.length // self._chunk * self._chunk
        if self._store is None or kept - reused < _WORTH_SAVING or self._loaded.shard.world > 1 or full.cache.windows:
            return
        full.truncate(kept)
        keys, values = full.cache.read(0)
        size = full.cache.num_layers * (keys.nbytes + values.nbytes)
        seconds *= kept / (kept - reused)  # as if all of it had been read now
        if size / _SAVED_PER_SECOND < seconds * _WORTH_KEEPING:
            yield from self._save(full.cache, kept, seconds, lambda: False, unfinished=True)

    def _save(self, cache: FullCache, tokens: int, seconds: float, cancelled: Callable[[], bool],
              unfinished: bool = False) -> Generator[PrefillProgress, None, str]:
        started = perf_counter()
        if self._store is None or tokens < _WORTH_SAVING:
            return ""
        layers = [cache.read(layer) for layer in range(cache.num_layers)]
        try:
            for fraction in self._store.save_steps(
                    self.key(tokens), layers, read_seconds=seconds, title=self._title, unfinished=unfinished,
                    tokens=tokens,
                    prefixes=self._prefixes[: tokens // self._chunk]):
                if cancelled():
                    return ""
                yield share_done("save", fraction, tokens, started)
        except NotEnoughDiskError as error:
            return str(error)
        return ""

    def key(self, tokens: int | None = None) -> SnapshotKey:
        """Return all that keys and values of the first ``tokens`` follow from; None: of the whole document."""
        loaded, target, shard = self._loaded, self._loaded.target, self._loaded.shard
        settings = [("device", target.device.type), ("kv", str(KV_VERSION)), ("prefill_chunk", str(self._chunk))]
        if target.device.type == "cpu" and target.dtype == torch.bfloat16 and compiled().library:
            settings.append(("kernels", "own"))  # they round otherwise than torch's
        if target.in_groups:
            settings.append(("weights", "in groups"))
        if target.turns_near:
            settings.append(("rope", "near"))
        if self._kv_kind != "same":
            settings.append(("kv_kind", self._kv_kind))
        if shard.world > 1:  # each keeps the keys and values of its own heads
            settings.append(("rank", f"{shard.rank} of {shard.world}"))
        return SnapshotKey(self._document_id, token_digest(self._token_ids[:tokens]), loaded.fingerprint,
                           loaded.tokenizer.fingerprint, loaded.info.dtype, str(PROMPT_VERSION), tuple(settings))


def _fill(model: ModelOnCache[FullCache], saved: Snapshot, tokens: int
          ) -> Generator[PrefillProgress, None, float | None]:
    """Hold the saved reading's first tokens. Return what the whole of it had cost; None, and hold nothing, if it is
    damaged."""
    started = perf_counter()
    with saved:
        places = model.cache.restore(tokens)
        try:
            if saved.num_layers != len(places) or saved.tokens < tokens:
                raise saved.damaged(f"{saved.num_layers} layers of {saved.tokens} tokens")
            for layer, (own, kept) in enumerate(zip(places, saved.layers(), strict=True)):
                yield share_done("restore", layer / len(places), tokens, started)
                for place, values in zip(own, kept, strict=True):
                    values = values[:, :tokens]
                    if (values.shape, values.dtype) != (place.shape, place.dtype):  # a copy would stretch and round it
                        raise saved.damaged(f"layer {layer}: {values.dtype} {list(values.shape)}")
                    place.copy_(values)
        except DamagedSnapshot:
            model.reset()
            return None
        return saved.read_seconds
