"""The model that a tree grows on, level by level."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..speculation.model_drafter import ModelOnCache
from ..speculation.tree import sees


class GrowingModel:
    """A model on a cache while a tree grows on it: knows which staged tokens follow which, from one ``agree`` to the
    next. What is staged without it stands in a chain."""

    def __init__(self, on: ModelOnCache) -> None:
        self.on = on
        self._parents: list[int] = []

    def grow(self, token_ids: Sequence[int], parents: Sequence[int], logits_rows: int) -> Tensor:
        """Stage these tokens, each behind the staged one that ``parents`` names as they are counted, these included;
        logits [logits_rows, V] of the last of them."""
        on = self.on
        before = on.num_staged
        self._chain_up()
        chain = self._parents == list(range(-1, before - 1)) and min(parents) >= before - 1
        self._parents.extend(parents)
        # Behind a chain, a tree looks the same wherever it stands.
        found, mask = (sees(tuple(parent - before for parent in parents), 0, on.device) if chain
                       else sees(tuple(self._parents), before, on.device))
        return on.feed(token_ids, logits_rows, found, mask)

    def grown_elsewhere(self, token_ids: Sequence[int], parents: Sequence[int]) -> None:
        """A pass that this object did not run has staged these; parents as for ``grow``. A token that is none (-1) is
        never kept."""
        self._chain_up()
        self.on.staged_elsewhere(token_ids)
        self._parents.extend(parents)

    def agree(self, context: Sequence[int]) -> None:
        """Keep staged tokens as far as they are the context's, but never its last token."""
        self._chain_up()
        staged, last = self.on.staged, -1
        path: list[int] = []
        for true in context[self.on.length - len(staged) : len(context) - 1]:
            matching = (node for node in range(last + 1, len(staged))
                        if self._parents[node] == last and staged[node] == true)
            last = next(matching, len(staged))
            if last == len(staged):
                break
            path.append(last)
        self.on.keep_staged(path)
        self.forget()

    def forget(self) -> None:
        """What is staged by now is a chain, or nothing."""
        self._parents.clear()

    def _chain_up(self) -> None:
        self._parents.extend(range(len(self._parents) - 1, self.on.num_staged - 1))
