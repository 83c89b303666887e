"""Values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary. Token i of a draft follows token i - 1 (a chain), or token parents[i] (a tree).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from . import staged


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed after a context.

    probs: for each token the distribution [V] it was *actually drawn from*, given the context, the tokens before it
    and, in a tree, its older siblings; None where it was not drawn at all (greedy, coupled, guided): its distribution
    is one-hot. So siblings drawn independently share a distribution, and without replacement each distribution lacks
    the older siblings: how they were drawn is all in their distributions. Whether token i is proposed may depend on
    what came before it, never on token i itself. sources: for each token, the tier that wrote it and was not overruled
    on the way here. proposers: for each token, the drafter that handed it up, where several did; empty: the one that
    proposed it all. confidence: for each token, the greatest probability of its tier's distribution there, at
    temperature 1 and unmasked; 1 where it was guided; empty where nobody asked.
    parents: see ``staged``; empty: a chain.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    proposers: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.probs) == len(self.sources)
        assert not self.proposers or len(self.proposers) == len(self.token_ids)
        assert not self.parents or len(self.parents) == len(self.token_ids)
        assert not self.confidence or len(self.confidence) == len(self.token_ids)

    @property
    def families(self) -> list[list[int]]:
        """See ``tree.families``."""
        if self.parents:
            return staged.families(self.parents)
        return [[i] for i in range(len(self.token_ids))] + [[]]

    @property
    def tails(self) -> list[list[int]] | None:
        """Of a tree: the tokens on the way to each row (see ``tree.tails``). None: of a chain, row i has the first i.
        """
        return staged.tails(self.token_ids, self.parents) if self.parents else None

    @property
    def depth(self) -> int:
        """Tokens along its longest path."""
        return 1 + max(staged.depths(self.parents)) if self.parents else len(self.token_ids)

    def first(self, count: int) -> Draft:
        """Its first tokens, of a tree its first levels: any beginning of a draft is a draft."""
        if count >= len(self.token_ids):
            return self
        if not self.parents:
            return Draft(self.token_ids[:count], self.probs[:count], self.sources[:count], self.proposers[:count],
                         confidence=self.confidence[:count])
        return self._only([i for i, depth in enumerate(staged.depths(self.parents)) if depth < count])

    def smaller(self, size: int) -> Draft:
        """At most so many tokens, the last ones left out: no token of a draft needs those behind it."""
        return self if size >= len(self.token_ids) else self._only(range(size))

    def _only(self, nodes: Sequence[int]) -> Draft:
        number = {old: new for new, old in enumerate(nodes)} | {-1: -1}
        return Draft([self.token_ids[i] for i in nodes], [self.probs[i] for i in nodes],
                     [self.sources[i] for i in nodes], [self.proposers[i] for i in nodes] if self.proposers else [],
                     [number[self.parents[i]] for i in nodes] if self.parents else [],
                     [self.confidence[i] for i in nodes] if self.confidence else [])

    def proposed_by(self, tier: str) -> list[str]:
        """For each token, the tier under which what becomes of it counts. tier: of the drafter that proposed it."""
        return self.proposers or [tier] * len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier made of a draft: ``token_ids`` = accepted drafted tokens, then one of its own.

    path: the drafted tokens kept, as the draft numbers them. refused: those that would have come next and were all
    refused; empty: nothing more was drafted. Each token is distributed exactly as the verifying model's, given those
    before it.
    """

    token_ids: list[int]
    path: Sequence[int]
    refused: Sequence[int]

    @property
    def num_accepted(self) -> int:
        return len(self.path)

    @property
    def num_tested(self) -> int:
        """Positions at which something drafted was tested: siblings count as one."""
        return len(self.path) + bool(self.refused)

    @property
    def own(self) -> str:
        """Its own token is "recovered" (what was drafted there was refused) or a "bonus" (nothing was)."""
        return "recovered" if self.refused else "bonus"
