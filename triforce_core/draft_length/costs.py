"""What a round's parts take on this machine, and how that moves while it works. Measures nothing itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_REMEMBERED, _ENOUGH = 9, 3  # measurements of a median, and how many it takes to be believed


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds of a pass by its rows, linear between what was measured. points: (rows, milliseconds), ascending."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        rows = [rows for rows, _ in self.points]
        assert rows and rows == sorted(set(rows)), rows

    def at(self, rows: float) -> float:
        """Beyond the last point as between the last two, but never less: a wider pass is not quicker."""
        if len(self.points) == 1 or rows <= self.points[0][0]:
            return self.points[0][1]
        upper = next((i for i, (known, _) in enumerate(self.points[1:], start=1) if rows <= known),
                     len(self.points) - 1)
        (low, before), (high, after) = self.points[upper - 1 : upper + 1]
        return before + max(0.0, after - before) * (rows - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds. plain: of a round that drafts nothing and that nobody observes. verify: of the full pass over a
    draft, with its verdict. step: of the drafter's smallest one (the small model's chain and the middle tier's pass
    over it; without a middle tier one pass; without a model one token). choose: of all that a round does beside,
    whatever its length."""

    plain: float
    verify: Curve
    step: float
    choose: float = 0.0


class Drift:
    """How much longer, or shorter, something takes now than it once did: a median, as one stop tells nothing."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)

    def note(self, now: float, then: float) -> None:
        if now > 0 and then > 0:
            self._ratios.append(now / then)

    @property
    def factor(self) -> float:
        return median(self._ratios) if len(self._ratios) >= _ENOUGH else 1.0


def middle(times: Sequence[float]) -> float:
    """Of repeated measurements: the lower median, as whatever disturbs makes them longer."""
    return sorted(times)[(len(times) - 1) // 2]
