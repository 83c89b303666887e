"""Values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from . import tree


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed after a context.

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
        assert not self.proposers or len(self.proposers) == len(self.token_ids)
        assert not self.confidence or len(self.confidence) == len(self.token_ids)
        assert not self.parents or len(self.parents) == len(self.token_ids)

    @property
    def depth(self) -> int:
        """Tokens along its longest path."""
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
        """For each token, the tier under which what becomes of it counts. tier: of the drafter that proposed it."""
        return self.proposers or [tier] * len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier made of a draft: ``token_ids`` = accepted drafted tokens, then one of its own.

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
        """Positions at which something drafted was tested: siblings count as one."""
        return len(self.path) + bool(self.refused)

    @property
    def own(self) -> str:
        """Its own token is "recovered" (what was drafted there was refused) or a "bonus" (nothing was)."""
        return "recovered" if self.refused else "bonus"
