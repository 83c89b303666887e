"""A model on a cache, and the drafter that lets a small one write token by token (the first tier of TriForce)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from ..device.streams import sent
from ..kv_cache import shared_prefix
from ..kv_cache.base import KVCache
from ..sampling import Sampler, chances
from . import tree
from .drafter import Draft, Drafter, DraftStats, KeepGoing

if TYPE_CHECKING:
    from ..kernels import AttentionObserver
    from ..model import Llama


CacheT = TypeVar("CacheT", bound=KVCache)


class ModelOnCache(Generic[CacheT]):
    """Hold a model with one cache that knows how far it has read.

    ``skipped``: tokens of the context that the cache was never given (a streaming cache starts with the sinks
    and the recent window; what lies between would have been evicted anyway). observer is handed to every pass.
    """

    def __init__(self, model: Llama, cache: CacheT, device: torch.device | str = "cpu") -> None:
        self.model, self.cache, self.device = model, cache, torch.device(device)
        self.skipped = 0
        self.rests = False  # it drafts nothing in this answer, and does not read along
        self.observer: AttentionObserver | None = None
        self.staged: list[int] = []  # tokens

    @property
    def length(self) -> int:
        """Return how many tokens of the context it has read, staged ones included."""
        return self.cache.length + self.skipped

    @property
    def num_staged(self) -> int:
        return len(self.staged)

    @property
    def room(self) -> int:
        return self.cache.room

    def feed(self, token_ids: Sequence[int], logits_rows: int, depths: list[int] | None = None,
             mask: Tensor | None = None) -> Tensor:
        """Stage these tokens, each behind the one before; return logits [logits_rows, V] of the last of them.

        depths, mask: where they are no chain, see ``tree.sees``."""
        ids = sent(torch.tensor(token_ids, dtype=torch.int64), self.device)
        self.staged.extend(token_ids)
        return self.model.forward(ids, self.cache, logits_rows=logits_rows, observer=self.observer, depths=depths,
                                  staged_mask=mask)

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        pending = context[self.length :]
        assert pending, "the last token of the context must not be in the cache: its logits are what is asked for"
        shape = tree.sees(tree.behind(len(pending), parents), 0, self.device) if parents else (None, None)
        return self.feed([*pending, *draft], len(draft) + 1, *shape)

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        first = length - self.skipped - self.cache.num_committed
        self.keep_staged([*range(first), *(first + node for node in path)])

    def agree(self, context: Sequence[int]) -> None:
        """Keep staged tokens as far as they are the context's, but never its last token."""
        self.keep_staged(range(shared_prefix(self.staged, context[self.length - self.num_staged : -1])))

    def keep_staged(self, path: Sequence[int]) -> None:
        """Keep these of the staged tokens, in their order."""
        assert len(path) <= self.num_staged
        if len(path) < self.num_staged:
            self.cache.keep(path)
            self.staged = [self.staged[node] for node in path]

    def staged_elsewhere(self, token_ids: Sequence[int]) -> None:
        """Count these as staged behind what was: a pass that this object did not run has done so."""
        if token_ids:
            self.cache.begin(len(token_ids))
            self.cache.staged_elsewhere()
            self.staged.extend(token_ids)

    def commit(self) -> None:
        self.cache.commit()
        self.staged.clear()

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
        self.staged.clear()

    def reset(self) -> None:
        self.cache.reset()
        self.skipped = 0
        self.staged.clear()


QUOTE = "quote"  # origin of tokens that the document forces: no model was asked
_BEHIND = 32  # tokens of settled context that a cache may lack
MAX_GUIDED = 32  # of them in one draft; a verification is not free per token


class SteppingDrafter(Drafter):
    """Write step by step. Tokens that the document forces (verbatim quoting) come between the steps, without asking
    any model: their distribution is one-hot at every tier.

    leaves_guided: it stops where some follow its own: to the tier above they come as cheap, and unseen by its pass.
    keep_going: see ``configure``."""

    leaves_guided = False
    keep_going: KeepGoing | None = None
    gives_confidence = True

    @abstractmethod
    def step(self, grown: list[int], sampler: Sampler) -> Draft:
        """Append one step's tokens to ``grown`` and return them, with ``confidence`` where ``keep_going`` is."""

    def configure(self, keep_going: KeepGoing | None) -> None:
        self.keep_going = keep_going

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        grown = list(context)
        probs: list[Tensor | None] = []
        sources: list[str] = []
        confidence: list[float] = []
        own: list[float] = []  # of those that are not forced
        steps = 0
        while len(sources) < num_draft_tokens and not (sources and grown[-1] in sampler.stop):
            guided = sampler.guided(grown, MAX_GUIDED)
            if guided and self.leaves_guided:
                break
            if guided:
                grown += guided
                probs += [None] * len(guided)
                sources += [QUOTE] * len(guided)
                confidence += [1.0] * len(guided)
                continue
            if own and self.keep_going is not None and not self.keep_going(own, len(sources), steps, 0):
                break
            written = self.step(grown, sampler)
            steps += 1
            probs += written.probs
            sources += written.sources
            own += written.confidence
            confidence += written.confidence
        return Draft(grown[len(context) :], probs, sources,
                     confidence=confidence if self.keep_going is not None else [])


class ModelDrafter(SteppingDrafter):
    """Let a model write a chain of tokens, one pass each."""

    def __init__(self, model: ModelOnCache, *, tier: str = "draft", leaves_guided: bool = False) -> None:
        self.model, self.tier, self.leaves_guided = model, tier, leaves_guided
        self._seconds, self._passes = 0.0, 0

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        started = perf_counter()
        draft = super().propose(context, num_draft_tokens, sampler)
        self._seconds += perf_counter() - started
        return draft

    def step(self, grown: list[int], sampler: Sampler) -> Draft:
        logits = self.model.logits(grown, ())
        self._passes += 1
        if sampler.coupled:
            token, token_probs = sampler.draws(logits, grown)[0], None
        else:
            token_probs = sampler.distributions(logits, grown)[0]
            token = sampler.chance.pick(token_probs)
        grown.append(token)
        sure = [chances(logits, [token], 1)[0][1][0][1]] if self.keep_going is not None else []
        return Draft([token], [token_probs], [self.tier], confidence=sure)

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        if self.model.rests:
            return
        self.model.agree(context)
        if committed:
            self.model.commit()
            self.model.keep_up(context)

    def reset(self) -> None:
        self.model.reset()

    def stats(self) -> DraftStats:
        mine = DraftStats(milliseconds={self.tier: self._seconds * 1e3}, passes={self.tier: self._passes})
        self._seconds, self._passes = 0.0, 0
        return mine
