"""Toy models whose next-token law is a table, and a chance that walks every branch: small worlds with stated odds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from triforce_core.speculation.tree import behind, sees


def seen(token_ids: Sequence[int], row: Tensor) -> list[int]:
    return [token for token, is_seen in zip(token_ids, row.tolist(), strict=True) if is_seen]


class TableModel:
    """A ``CachedModel`` whose law depends on the last two tokens; it checks that the round feeds it properly."""

    def __init__(self, vocabulary: int, seed: int, *, like: TableModel | None = None, blend: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        table = torch.rand(vocabulary, vocabulary, vocabulary, generator=generator, dtype=torch.float64)
        self.table = (table**3 + 1e-3).log()
        if like is not None:
            self.table = (blend * like.table.exp() + (1 - blend) * self.table.exp()).log()
        self.length = 0

    def row(self, context: Sequence[int]) -> Tensor:
        return self.table[context[-2], context[-1]]

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        self.length = len(context) + len(draft)
        chain = torch.ones(len(draft) + 1, len(draft) + 1).tril()
        mask = sees(behind(1, parents), 0, torch.device("cpu"))[1] if parents else chain
        return torch.stack([self.row([*context, *seen(draft, row)]) for row in mask[:, 1:]])

    room = 64

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        assert length + len(path) <= self.length
        self.length = length + len(path)


class Settling:
    """A table model needs no cache: what drafters do with theirs is a no-op here, but for what a tree grows on."""

    room = 64

    def __init__(self, model: TableModel) -> None:
        self.model, self.skipped, self.rests = model, 0, False
        self.cache = self
        self.num_committed = 0
        self._context: list[int] = []
        self.staged: list[int] = []  # the newest of the context, and what was fed since
        self.device = torch.device("cpu")
        self.length = 0

    @property
    def num_staged(self) -> int:
        return len(self.staged)

    def logits(self, context: Sequence[int], draft: Sequence[int], parents: Sequence[int] = ()) -> Tensor:
        self._context, self.staged, self.length = list(context), [context[-1]], len(context)
        return self.model.logits(context, draft, parents)

    def feed(self, token_ids: Sequence[int], logits_rows: int, depths: Sequence[int], mask: Tensor) -> Tensor:
        self.staged += token_ids
        self.length += len(token_ids)
        masked = mask.shape[1]  # those before are seen by all
        everyone, others = self.staged[1 : self.num_staged - masked], self.staged[self.num_staged - masked :]
        rows = [[*everyone, *seen(others, row)] for row in mask]
        return torch.stack([self.model.row([*self._context, *row]) for row in rows[len(rows) - logits_rows :]])

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        pass

    agree = keep_up = keep_staged = keep

    def commit(self) -> None:
        pass


class Branching:
    """A ``Chance`` that replays one path of decisions and notes what else could have been decided."""

    def __init__(self, path: Sequence[int]) -> None:
        self._path, self._at = list(path), 0
        self.probability = 1.0
        self.options: list[list[float]] = []

    def _decide(self, odds: list[float]) -> int:
        choice = self._path[self._at] if self._at < len(self._path) else next(i for i, p in enumerate(odds) if p > 0)
        self._at += 1
        self.options.append(odds)
        self.probability *= odds[choice]
        return choice

    def happens(self, probability: float) -> bool:
        return self._decide([1.0 - probability, probability]) == 1

    def pick(self, weights: Tensor) -> int:
        return self._decide((weights / weights.sum()).tolist())


def enumerate_exactly(program: Callable[[Branching], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Run ``program`` once for every branch of its randomness; the exact distribution of what it returns."""
    outcomes: dict[tuple[int, ...], float] = defaultdict(float)
    waiting: list[list[int]] = [[]]
    while waiting:
        path = waiting.pop()
        chance = Branching(path)
        result = program(chance)
        outcomes[result] += chance.probability
        taken = [*path]
        for depth in range(len(path), len(chance.options)):
            odds = chance.options[depth]
            first = next(i for i, p in enumerate(odds) if p > 0)
            waiting.extend([*taken, i] for i in range(first + 1, len(odds)) if odds[i] > 0)
            taken.append(first)
    return outcomes


def total_variation(a: dict, b: dict) -> float:
    return 0.5 * sum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in {*a, *b})
