"""A draft model with another vocabulary than its target's (token-level intersection, arXiv 2502.05202, algorithm 4).

It reads the same text in its own tokens, and may propose what is one token in both vocabularies: its distribution over
those, renormalised, under the target's ids. A token is drawn from exactly that, with the target's masks, penalties and
temperature, so whoever verifies is as lossless as with a vocabulary in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..kv_cache import shared_prefix
from ..tokenizer.translation import Translation
from .model_drafter import BEHIND, CacheT, ModelOnCache

# The logit of what the draft cannot say. Finite, so that rules which leave nothing else still leave a distribution; so
# low that it has no probability otherwise.
_UNSAID = -1e4
_LOOK_BACK = 24  # of the target's tokens, for a place where a word begins


class ModelAcross(ModelOnCache[CacheT]):
    """Take contexts in the target's tokens and give logits over them, for a model with tokens of its own.

    Settled text is encoded anew from the last place where a word begins, as a later token may change how an earlier one
    is spelled; before that place it is committed for good. What the model itself drafts is fed as it wrote it."""

    def __init__(self, on: ModelOnCache[CacheT], words: Translation, vocabulary: int) -> None:
        """on: the model over its cache. vocabulary: the target's width of logits."""
        super().__init__(on.model, on.cache, on.device)
        self._words, self._vocabulary = words, vocabulary
        within = [(own, target) for own, target in words.shared
                  if own < on.model.config.vocab_size and target < vocabulary]
        own, target = (list(side) for side in zip(*within, strict=True))
        self._own, self._target = (torch.tensor(side, device=on.device) for side in (own, target))
        self._forget()

    def _forget(self) -> None:
        self._committed = self._settled = 0  # tokens of the context
        self._tail: list[int] = []  # own tokens of what lies between them

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        assert not draft, "it drafts token by token, and reviews nobody"
        ids = [*self._tail, *self._words.drafted(context[self._settled :])] or self._words.opening or [0]
        return self._translated(self._fed(ids, at_least=1))

    def _fed(self, ids: Sequence[int], at_least: int) -> Tensor:
        """Have these staged, behind what is committed, and nothing else; return logits of the last ``at_least``."""
        same = min(shared_prefix(self.staged, ids), len(ids) - at_least)
        self.keep_staged(range(same))
        return self.feed(ids[same:], at_least) if same < len(ids) else torch.empty(0)

    def _translated(self, logits: Tensor) -> Tensor:
        known = logits.index_select(-1, self._own)
        said = known.new_full((*logits.shape[:-1], self._vocabulary), _UNSAID)
        return said.index_copy_(-1, self._target, known)

    def agree(self, context: Sequence[int]) -> None:
        self._settled = len(context)
        self._tail = self._words.spelled(context[self._committed :])
        self.keep_staged(range(min(shared_prefix(self.staged, self._tail), max(0, len(self._tail) - 1))))

    def commit(self) -> None:
        """Leave it to ``keep_up``: what was staged may yet be spelled otherwise."""

    def keep_up(self, context: Sequence[int]) -> None:
        if len(self._tail) > BEHIND:
            until = self._parting(context, self._committed)
            if until == self._committed:
                return
            self._fed(self._words.spelled(context[self._committed : until]), at_least=0)
            super().commit()
            self._committed = until
            self._tail = self._words.spelled(context[until:])

    def start(self, context: Sequence[int], sinks: int, window: int) -> None:
        first = max(0, len(context) - window)
        until = self._parting(context, first)
        head = self._words.spelled(context[: min(sinks, first)])
        if head[:1] != self._words.opening:
            head = [*self._words.opening, *head]
        head = head[:sinks]
        super().start([*head, *self._words.spelled(context[first:until]), 0], len(head), window)
        super().commit()
        self._committed = until
        self.agree(context)

    def _parting(self, context: Sequence[int], first: int) -> int:
        """Return the last place from ``first`` on where a word begins, or one that is near enough, with text behind it.
        """
        last = len(context) - 1
        nearest = max(first, last - _LOOK_BACK)
        places = (at for at in range(last, nearest, -1) if self._words.parts_before(context, at))
        return next((at for at in places if self._words.spelled(context[at:])), nearest)

    def truncate(self, length: int) -> None:
        raise NotImplementedError("its tokens are not the context's")

    def reset(self) -> None:
        super().reset()
        self._forget()
