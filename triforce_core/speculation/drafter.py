"""The one contract of every drafter: something that guesses what comes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..events import RankCount, TierCount
from ..sampling import Sampler
from .draft import Draft

# Asked between the steps of one draft whether another is to follow. Of what is drafted so far: how sure its tier was of
# each token that was not forced, how many tokens there are, and in how many steps they were written; and how many steps
# are under way already.
KeepGoing = Callable[[Sequence[float], int, int, int], bool]


_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class DraftStats:
    """What drafting took and what became of it. counts: of each tier *below* the asked one what was tested and
    accepted. milliseconds: spent by tier; passes: of each tier's model. ranks: of trees."""

    counts: tuple[TierCount, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    ranks: tuple[RankCount, ...] = ()

    def __add__(self, other: DraftStats) -> DraftStats:
        return DraftStats(self.counts + other.counts, _added(self.milliseconds, other.milliseconds),
                          _added(self.passes, other.passes), self.ranks + other.ranks)


def _added(mine: Mapping[str, _Number], others: Mapping[str, _Number]) -> dict[str, _Number]:
    """Tiers that stand in both are counted together."""
    return {tier: mine.get(tier, 0) + others.get(tier, 0) for tier in {**mine, **others}}


class Drafter(ABC):
    """Guesses tokens after a context. A drafter may be a table, a model, or a whole round (``hierarchical``)."""

    tier: str  # the name its tokens are counted under
    tells_confidence = False  # whether its drafts may end where their tier is no longer sure of them: ``configure``
    runs_on_graphs = False  # its rounds need no host, and may be captured

    @abstractmethod
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """About ``num_draft_tokens`` tokens after ``context`` (all of it, document included).

        Fewer, also none, is always allowed; a few more where a tier below works in blocks. May stage
        tokens in its cache until the next ``settle``."""

    @abstractmethod
    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        """The verifier above has decided: ``context`` is the truth; forget staged tokens that disagree.

        committed: the full cache itself decided, so nothing in ``context`` will be taken back; only now
        may a cache evict."""

    @abstractmethod
    def reset(self) -> None:
        """As new: nothing is known of any context."""

    def configure(self, keep_going: KeepGoing | None) -> None:  # noqa: B027  # few have steps
        """For the drafts that follow. keep_going: asked between the steps of a draft; None: as many tokens as are asked
        for. A wrapper passes it on."""

    def begin(self, num_draft_tokens: int) -> int:
        """A round is to draft so many tokens; -> how many to ask for."""
        return num_draft_tokens

    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:  # noqa: B027
        """Capture what drafts of up to so many tokens after ``context`` run, with choices as these samplers make them,
        where it can be and is not. What is not captured runs as usual, which takes longer."""

    def stats(self) -> DraftStats:
        """Of this tier and those below, since the last call; clears them."""
        return DraftStats()


class NoDrafter(Drafter):
    """Never guesses. A round over it is plain decoding."""

    tier = "none"

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        return Draft()

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        pass

    def reset(self) -> None:
        pass
