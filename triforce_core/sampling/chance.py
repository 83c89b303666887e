"""Where randomness comes from, on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Chance(Protocol):
    """Where randomness comes from. Tests replace it by one that walks every branch."""

    def happens(self, probability: float) -> bool: ...

    def pick(self, weights: Tensor) -> int:
        """Index drawn in proportion to the non-negative weights [V]."""
        ...

    def numbers(self, count: int) -> Tensor:
        """The same chance for decisions on a device: see ``DrawnChance``."""
        ...


class SeededChance:
    """A generator of its own: nothing else in the process moves it."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def happens(self, probability: float) -> bool:
        return self._generator.random() < probability

    def pick(self, weights: Tensor) -> int:
        # float64: a 150k-entry float32 running sum would lose the tail that sampling is about.
        cumulative = weights.double().cumsum(-1)
        point = self._generator.random() * cumulative[-1]
        index = int(torch.searchsorted(cumulative, point.reshape(1), right=True))
        return min(index, int(weights.nonzero()[-1]))

    def numbers(self, count: int) -> Tensor:
        """For ``DrawnChance``: float64 [count] in [0, 1)."""
        return torch.from_numpy(self._generator.random(count))


class SharedChance:
    """One generator's outcomes in several processes: their probabilities may differ in the last bit."""

    def __init__(self, chance: Chance, same: Callable[[list[int]], list[int]]) -> None:
        """same: gives every process the first one's numbers."""
        self._chance, self._same = chance, same

    def happens(self, probability: float) -> bool:
        return bool(self._same([self._chance.happens(probability)])[0])

    def pick(self, weights: Tensor) -> int:
        return self._same([self._chance.pick(weights)])[0]

    def numbers(self, count: int) -> Tensor:
        return self._chance.numbers(count)
