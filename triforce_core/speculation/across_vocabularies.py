"""A draft model with another vocabulary than its target's (token-level intersection, arXiv 2502.05202, algorithm 4).

It reads the same text in its own tokens, and may propose what is one token in both vocabularies: its distribution over
those, renormalised, under the target's ids. A token is drawn from exactly that, with the target's masks, penalties and
temperature, so whoever verifies is as lossless as with a vocabulary in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..tokenizer.translation import Translation
from .model_drafter import CacheT, ModelOnCache

# The logit of what the draft cannot say. Finite, so that rules which leave nothing else still leave a distribution; so
# low that it has no probability otherwise.
_UNSAID = -1e4


class ModelAcross(ModelOnCache[CacheT]):
    """Take contexts in the target's tokens and give logits over them, for a model with tokens of its own."""

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
        self._known, self._spelled = 0, list[int]()  # tokens of the context, and what they are in its own

    def _read(self, context: Sequence[int]) -> list[int]:
        """Return the context in its own tokens, as far as it reads it."""
        return [*self._spelled, *self._words.spelled(context[self._known :])]

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        assert not draft, "it drafts token by token, and reviews nobody"
        own = self._read(context)
        if self.length >= len(own):  # behind a special token that it does not know
            self.keep_staged(range(len(own) - 1 - self.length + self.num_staged))
        known = super().logits(own, ()).index_select(-1, self._own)
        said = known.new_full((*known.shape[:-1], self._vocabulary), _UNSAID)
        return said.index_copy_(-1, self._target, known)

    def agree(self, context: Sequence[int]) -> None:
        super().agree(self._read(context))

    def keep_up(self, context: Sequence[int]) -> None:
        self._spelled, self._known = self._read(context), len(context)
        super().keep_up(self._spelled)

    def start(self, context: Sequence[int], sinks: int, window: int) -> None:
        """Forget all, and read the beginning and the newest tokens, as any model does. What lies between is not even
        spelled."""
        first = max(0, len(context) - window)
        head = self._words.spelled(context[: min(sinks, first)])
        opening = self._words.opening if head[:1] != self._words.opening else []
        head = [*opening, *head][: max(1, sinks)]
        own = [*head, *self._words.spelled(context[first:])] or [0]
        super().start(own, len(head), window)
        self._spelled, self._known = own, len(context)

    def truncate(self, length: int) -> None:
        raise NotImplementedError("its tokens are not the context's")

    def reset(self) -> None:
        super().reset()
        self._forget()
