"""The one contract of every drafter: something that guesses what comes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..events import TierCount
from .draft import Draft


class Drafter(ABC):
    """Guesses tokens after a context. A drafter may be a table, a model, or a whole round (``hierarchical``).

    Between ``propose`` and ``settle`` it may hold staged state; ``settle`` tells it how the guess fared.
    """

    @abstractmethod
    def propose(self, context: Sequence[int], num_draft_tokens: int) -> Draft:
        """Up to about ``num_draft_tokens`` tokens after ``context`` (the whole of it, document included).

        Fewer, also none, is always allowed; a few more is allowed where a tier below works in blocks."""

    @abstractmethod
    def settle(self, context: Sequence[int]) -> None:
        """The verifier above has decided: ``context`` is now the truth. Forget whatever disagrees with it."""

    @abstractmethod
    def reset(self) -> None:
        """As new."""

    def counts(self) -> list[TierCount]:
        """Tested and accepted per tier below this one since the last call; clears them."""
        return []

    def milliseconds(self) -> dict[str, float]:
        """Time spent per tier since the last call; clears it."""
        return {}
