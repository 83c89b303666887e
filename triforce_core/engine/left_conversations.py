"""Keys and values of conversations that were left for another: going back to one reads none of its words again.

In host memory, whatever stands before them in the full cache: a document, which the cache or a saved reading holds.
The values are those that were computed then, for the same tokens behind the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kv_cache.full import FullCache
from ..kv_cache.prefix import shared_prefix
from ..speculation.model_drafter import ModelOnCache

MOST_BYTES = 128 * 2**20  # of all of them together, on each rank
WORTH_KEEPING = 64  # tokens: fewer are soon read again


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
    """Keep left conversations of all documents; those left longest ago go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left: list[_Left] = []
        self._most_bytes = most_bytes

    def __len__(self) -> int:
        return len(self._left)

    def keep(self, document_id: str, start: int, read: Sequence[int], cache: FullCache) -> None:
        """Keep what the cache holds from ``start`` on, behind the document. read: the tokens of all of it. Caches that
        hold no plain numbers on the device keep nothing."""
        ids = list(read[start : cache.num_committed])
        if len(ids) < WORTH_KEEPING or cache.streams or cache.kind != "same":
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
        Returns how many it holds then."""
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
