"""The one contract of every drafter, and the values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from ..events import RankCount, TierCount
from ..sampling import Sampler
from . import tree

# Asked between the steps of one draft whether another is to follow, by what is drafted so far: how sure its tier was of
# each token that was not forced, how many tokens there are, in how many steps they were written, and how many steps are
# under way already.
KeepGoing = Callable[[Sequence[float], int, int, int], bool]
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Draft:
    """Hold tokens proposed after a context.

    probs: for each token the distribution [V] it was *actually drawn from*, given the context and the tokens before it;
    None where it was not drawn at all (greedy, coupled, guided): its distribution is one-hot. Whether token i is
    proposed may depend on what came before it, never on token i itself. sources: for each token, the tier that wrote it
    and was not overruled on the way here. proposers: for each token, the drafter that handed it up, where several did;
    empty: the one that proposed it all. confidence: for each token, the greatest probability of its tier's distribution
    there, at temperature 1 and unmasked; 1 where it was guided; empty where nobody asked.
    parents: for each token the one that it follows, where several may follow one (see ``tree``); empty: a chain, token
    i follows token i - 1. The probs of siblings are given the older ones too: where they were drawn independently they
    share a distribution, without replacement each lacks the older siblings.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    proposers: list[str] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.probs) == len(self.sources)
        assert all(not given or len(given) == len(self.token_ids)
                   for given in (self.proposers, self.confidence, self.parents))

    @property
    def depth(self) -> int:
        """Return the tokens along its longest path."""
        return 1 + max(tree.depths(self.parents)) if self.parents else len(self.token_ids)

    def first(self, depth: int) -> Draft:
        """Return its tokens up to ``depth``: any beginning of a draft is a draft."""
        if depth >= len(self.token_ids):
            return self
        if not self.parents:
            return self._only(range(depth))
        return self._only([node for node, level in enumerate(tree.depths(self.parents)) if level < depth])

    def within(self, room: int) -> Draft:
        """Return its first ``room`` tokens, however deep: none needs those behind it."""
        return self if room >= len(self.token_ids) else self._only(range(room))

    def _only(self, nodes: Sequence[int]) -> Draft:
        number = {old: new for new, old in enumerate(nodes)} | {-1: -1}
        return Draft([self.token_ids[node] for node in nodes], [self.probs[node] for node in nodes],
                     [self.sources[node] for node in nodes],
                     [self.proposers[node] for node in nodes] if self.proposers else [],
                     [self.confidence[node] for node in nodes] if self.confidence else [],
                     [number[self.parents[node]] for node in nodes] if self.parents else [])

    def proposed_by(self, tier: str) -> list[str]:
        """Return, for each token, the tier that it counts for. tier: of the drafter that proposed the draft."""
        return self.proposers or [tier] * len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold what a verifier made of a draft: ``token_ids`` are accepted drafted tokens, then one of its own.

    path: the drafted tokens kept, as the draft numbers them. refused: what would have come next and was refused (of a
    tree, several); empty: nothing more was drafted. Each token is distributed exactly as the verifying model's, given
    those before it.
    """

    token_ids: list[int]
    path: Sequence[int]
    refused: Sequence[int]

    @property
    def num_accepted(self) -> int:
        return len(self.path)

    @property
    def num_tested(self) -> int:
        """Return the positions at which something drafted was tested: siblings count as one."""
        return len(self.path) + bool(self.refused)

    @property
    def own(self) -> str:
        """Return what its own token is: "recovered" (what was drafted there was refused) or a "bonus" (nothing was)."""
        return "recovered" if self.refused else "bonus"


@dataclass(frozen=True, slots=True)
class DraftStats:
    """Hold what drafting took and what became of it.

    counts: of each tier *below* the asked one, tested and accepted tokens. milliseconds: spent by tier; passes: of each
    tier's model. ranks: of trees."""

    counts: tuple[TierCount, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    ranks: tuple[RankCount, ...] = ()

    def __add__(self, other: DraftStats) -> DraftStats:
        return DraftStats(self.counts + other.counts, _added(self.milliseconds, other.milliseconds),
                          _added(self.passes, other.passes), self.ranks + other.ranks)


def _added(mine: Mapping[str, _Number], others: Mapping[str, _Number]) -> dict[str, _Number]:
    return {tier: mine.get(tier, 0) + others.get(tier, 0) for tier in {**mine, **others}}


class Drafter(ABC):
    """Guess tokens after a context. A drafter may be a table, a model, or a whole round (``hierarchical``)."""

    tier: str  # the name its tokens are counted under
    gives_confidence = False  # its drafts may end where their tier is no longer sure of them: ``configure``
    runs_on_graphs = False  # its rounds need no host, and may be captured

    @abstractmethod
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """Return about ``num_draft_tokens`` tokens after ``context`` (all of it, document included).

        Fewer, also none, is always allowed; a few more where a tier below works in blocks. May stage
        tokens in its cache until the next ``settle``."""

    @abstractmethod
    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        """Take ``context`` for the truth, as the verifier above decided; forget staged tokens that disagree.

        committed: the full cache itself decided, so nothing in ``context`` will be taken back; only now
        may a cache evict."""

    @abstractmethod
    def reset(self) -> None:
        """Be as new: nothing is known of any context."""

    def configure(self, keep_going: KeepGoing | None) -> None:  # noqa: B027  # few have steps
        """Ask ``keep_going`` between the steps of the drafts that follow; None: draft as much as is asked for.

        A wrapper passes it on."""

    def begin(self, num_draft_tokens: int) -> int:
        """Return how many tokens to ask for in a round that is to draft so many."""
        return num_draft_tokens

    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:  # noqa: B027
        """Capture what drafts of up to so many tokens after ``context`` run, with choices as these samplers make them.

        What cannot be captured, or is not, runs as usual, which takes longer."""

    def stats(self) -> DraftStats:
        """Return those of this tier and those below since the last call, and clear them."""
        return DraftStats()


class NoDrafter(Drafter):
    """Guess nothing. A round over it is plain decoding."""

    tier = "none"

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        return Draft()

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        pass

    def reset(self) -> None:
        pass
