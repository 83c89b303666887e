"""Values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary. Token i of a draft follows token i - 1. A draft that is no chain is a kind of
its own (``research.tree_draft``), which says through ``layout`` and ``verdict`` what is different with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..sampling import Sampler

# Of a pass over so many tokens of the context and a draft behind them: how deep each stands, and the mask of which it
# sees (``KVView.staged_mask``), on that device.
Layout = Callable[[int, torch.device], tuple[list[int], Tensor]]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed after a context.

    probs: for each token the distribution [V] it was *actually drawn from*, given the context and the tokens before it;
    None where it was not drawn at all (greedy, coupled, guided): its distribution is one-hot. Whether token i is
    proposed may depend on what came before it, never on token i itself. sources: for each token, the tier that wrote it
    and was not overruled on the way here. proposers: for each token, the drafter that handed it up, where several did;
    empty: the one that proposed it all. confidence: for each token, the greatest probability of its tier's distribution
    there, at temperature 1 and unmasked; 1 where it was guided; empty where nobody asked.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    proposers: list[str] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.probs) == len(self.sources)
        assert not self.proposers or len(self.proposers) == len(self.token_ids)
        assert not self.confidence or len(self.confidence) == len(self.token_ids)

    @property
    def depth(self) -> int:
        """Tokens along its longest path."""
        return len(self.token_ids)

    @property
    def layout(self) -> Layout | None:
        """None: a chain."""
        return None

    def verdict(self, logits: Tensor, context: Sequence[int],
                sampler: Sampler) -> tuple[Verdict, list[Tensor | None]] | None:
        """Of a draft that is no chain: see ``verify``. None: a chain."""
        return None

    def first(self, count: int) -> Draft:
        """Its first tokens: any beginning of a draft is a draft."""
        if count >= len(self.token_ids):
            return self
        return Draft(self.token_ids[:count], self.probs[:count], self.sources[:count], self.proposers[:count],
                     self.confidence[:count])

    def within(self, room: int) -> Draft:
        """What of it is verified where a cache has so much room; who asks for a chain asks for none that is longer."""
        return self

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
