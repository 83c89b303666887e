"""A model on a cache, and the drafter that lets a small one write token by token (the first tier of TriForce)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from ..device.side_stream import sent
from ..kv_cache.base import KVCache
from ..kv_cache.staging import StagingCache
from ..sampling import Sampler, chances
from ..speculation import staged
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter, KeepGoing

if TYPE_CHECKING:
    from ..kernels import AttentionObserver
    from ..model import Llama


CacheT = TypeVar("CacheT", bound=KVCache)


class ModelOnCache(Generic[CacheT]):
    """A model with one cache that knows how far it has read.

    ``skipped``: tokens of the context that the cache was never given (a streaming cache starts with the sinks
    and the recent window; what lies between would have been evicted anyway). observer is handed to every pass.
    """

    def __init__(self, model: Llama, cache: CacheT, device: torch.device | str = "cpu") -> None:
        self.model, self.cache, self.device = model, cache, torch.device(device)
        self.skipped = 0
        self.observer: AttentionObserver | None = None
        self._staged: list[int] = []
        self._parents: list[int] = []  # of staged tokens: see ``speculation.staged``

    @property
    def length(self) -> int:
        """Tokens of the context behind this cache, staged ones included."""
        return self.cache.length + self.skipped

    @property
    def num_staged(self) -> int:
        return len(self._staged)

    @property
    def room(self) -> int:
        return self.cache.room

    def feed(self, token_ids: Sequence[int], logits_rows: int) -> Tensor:
        """Stage these tokens, each behind the one before; logits [logits_rows, V] of the last of them."""
        ids = sent(torch.tensor(token_ids, dtype=torch.int64), self.device)
        self._stage(token_ids)
        return self.model.forward(ids, self.cache, logits_rows=logits_rows, observer=self.observer)

    def grow(self, token_ids: Sequence[int], parents: Sequence[int], logits_rows: int) -> Tensor:
        """Stage these tokens, each behind the staged one that ``parents`` names as they are counted, these included;
        logits [logits_rows, V] of the last of them. Until ``keep`` or ``agree``, more can only be grown."""
        before = self.num_staged
        ids = sent(torch.tensor(token_ids, dtype=torch.int64), self.device)
        chain = self._parents == list(range(-1, before - 1)) and min(parents) >= before - 1
        self._staged.extend(token_ids)
        self._parents.extend(parents)
        # Behind a chain, a tree looks the same wherever it stands.
        depths, mask = (_sees(tuple(parent - before for parent in parents), 0, self.device) if chain
                        else _sees(tuple(self._parents), before, self.device))
        return self.model.forward(ids, self.cache, logits_rows=logits_rows, observer=self.observer, depths=depths,
                                  staged_mask=mask)

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        pending = context[self.length :]
        assert pending, "the last token of the context must not be in the cache: its logits are what is asked for"
        if not parents:
            return self.feed([*pending, *draft], len(draft) + 1)
        start = self.num_staged
        last = start + len(pending) - 1
        chain = range(start - 1, last)
        return self.grow([*pending, *draft], [*chain, *(last + 1 + parent for parent in parents)], len(draft) + 1)

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        first = length - self.skipped - self.cache.num_committed
        self._keep([*range(first), *(first + node for node in path)])

    def agree(self, context: Sequence[int]) -> None:
        """Keep staged tokens as far as they are the context's, but never its last token."""
        base, last = self.cache.num_committed + self.skipped, -1
        path: list[int] = []
        for true in context[base : len(context) - 1]:
            matching = (node for node in range(last + 1, self.num_staged)
                        if self._parents[node] == last and self._staged[node] == true)
            last = next(matching, self.num_staged)
            if last == self.num_staged:
                break
            path.append(last)
        self._keep(path)

    def _keep(self, path: Sequence[int]) -> None:
        assert len(path) <= self.num_staged
        if len(path) < self.num_staged:
            self.cache.keep(path)
            kept = [self._staged[node] for node in path]
            self._forget()
            self._stage(kept)

    def _stage(self, token_ids: Sequence[int]) -> None:
        """Behind the last one, in a chain."""
        self._parents.extend(range(self.num_staged - 1, self.num_staged - 1 + len(token_ids)))
        self._staged.extend(token_ids)

    def _forget(self) -> None:
        self._staged.clear()
        self._parents.clear()

    def staged_elsewhere(self, token_ids: Sequence[int]) -> None:
        """A pass that this object did not run has staged these behind what was staged."""
        assert isinstance(self.cache, StagingCache)
        if token_ids:
            self.cache.begin(len(token_ids))
            self.cache.staged_elsewhere()
            self._stage(token_ids)

    def grown_elsewhere(self, token_ids: Sequence[int], parents: Sequence[int]) -> None:
        """``staged_elsewhere`` of a tree; parents as for ``grow``. A token that is none (-1) is never kept."""
        assert isinstance(self.cache, StagingCache)
        self.cache.begin(len(token_ids))
        self.cache.staged_elsewhere()
        self._staged.extend(token_ids)
        self._parents.extend(parents)

    def commit(self) -> None:
        self.cache.commit()
        self._forget()

    def keep_up(self, context: Sequence[int]) -> None:
        """Read what another drafter wrote, before it is more than a pass stages without larger buffers. All of
        ``context`` must be settled."""
        pending = context[self.length : -1]
        if len(pending) > _BEHIND:
            self.feed(pending, 0)
            self.commit()

    def start(self, context: Sequence[int], sinks: int, window: int) -> None:
        """Forget all, and read the first ``sinks`` and the last ``window`` tokens of ``context`` but its last one.

        A streaming cache would have evicted what lies between. Keys of the window are computed without it, which
        changes guesses, never the output, and makes opening a document free for a tier that drafts."""
        self.reset()
        seen = context[: len(context) - 1]
        if len(seen) > sinks + window:
            self.skipped = len(seen) - sinks - window
            seen = [*seen[:sinks], *seen[len(seen) - window :]]
        if seen:
            self.feed(seen, 0)
            self.commit()

    def truncate(self, length: int) -> None:
        self.cache.truncate(max(0, length - self.skipped))
        self._forget()

    def reset(self) -> None:
        self.cache.reset()
        self.skipped = 0
        self._forget()


@lru_cache(maxsize=8)
def _sees(parents: tuple[int, ...], before: int, device: torch.device) -> tuple[list[int], Tensor]:
    """Of staged tokens from ``before`` on: depths, counted from there, and a pass's mask, on the device. Kept, as the
    trees of most rounds have one shape: what every layer reads is sent there once."""
    depths = [depth - before for depth in staged.depths(parents)[before:]]
    sees = staged.ancestry(parents)[before:]
    for_all = int(sees[:, :before].all(0).cumprod().sum())  # staged tokens that all of these follow
    return depths, torch.from_numpy(sees[:, for_all:].copy()).to(device)


QUOTE = "quote"  # origin of tokens that the document forces: no model was asked
_BEHIND = 32  # tokens of settled context that a cache may lack
MAX_GUIDED = 32  # of them in one draft; a verification is not free per token


class ModelDrafter(Drafter):
    """Lets a model write a chain of tokens, one pass each; forced ones come without a pass.

    leaves_guided: it stops where some follow its own: to the tier above they come as cheap, and unseen by its pass.
    keep_going: asked before each pass but the first; None: as many tokens as are asked for."""

    def __init__(self, model: ModelOnCache, *, tier: str = "draft", leaves_guided: bool = False) -> None:
        self.model, self.tier, self._leaves_guided = model, tier, leaves_guided
        self.keep_going: KeepGoing | None = None
        self._seconds, self._passes = 0.0, 0

    tells_confidence = True

    def configure(self, gamma1: int, keep_going: KeepGoing | None) -> None:
        self.keep_going = keep_going

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        started = perf_counter()
        tokens: list[int] = []
        probs: list[Tensor | None] = []
        sources: list[str] = []
        confidence: list[float] = []
        own: list[float] = []  # of those that are not forced
        grown = list(context)
        while len(tokens) < num_draft_tokens and not (tokens and tokens[-1] in sampler.stop):
            guided = sampler.guided(grown, MAX_GUIDED)
            if guided and self._leaves_guided:
                break
            if guided:
                tokens += guided
                grown += guided
                probs += [None] * len(guided)
                sources += [QUOTE] * len(guided)
                confidence += [1.0] * len(guided)
                continue
            if own and self.keep_going is not None and not self.keep_going(own, len(tokens), 0):
                break
            logits = self.model.logits(grown, ())
            self._passes += 1
            if sampler.coupled:
                token, token_probs = sampler.draws(logits, grown)[0], None
            else:
                token_probs = sampler.distributions(logits, grown)[0]
                token = sampler.chance.pick(token_probs)
            probs.append(token_probs)
            tokens.append(token)
            grown.append(token)
            sources.append(self.tier)
            if self.keep_going is not None:
                own.append(chances(logits, [token], 1)[0][1][0][1])
                confidence.append(own[-1])
        self._seconds += perf_counter() - started
        return Draft(tokens, probs, sources, confidence=confidence if self.keep_going is not None else [])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.model.agree(context)
        if committed:
            self.model.commit()
            self.model.keep_up(context)

    def reset(self) -> None:
        self.model.reset()

    def milliseconds(self) -> dict[str, float]:
        spent, self._seconds = self._seconds * 1e3, 0.0
        return {self.tier: spent}

    def passes(self) -> dict[str, int]:
        made, self._passes = self._passes, 0
        return {self.tier: made}
