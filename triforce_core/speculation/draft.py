"""Values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary. A draft is a chain here: token i follows token i - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed after a context.

    laws: for each token the distribution [V] it was *actually drawn from*, given the context and the tokens
    before it; None where it was not drawn at all (greedy, coupled, forced): its law is one-hot.
    Whether token i is proposed may depend on what came before it, never on token i itself.
    origins: for each token, the tier that wrote it and was not overruled on the way here.
    givers: for each token, the drafter that handed it up, where several did; empty: the one that proposed it all.
    """

    token_ids: list[int] = field(default_factory=list)
    laws: list[Tensor | None] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    givers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.laws) == len(self.origins)
        assert not self.givers or len(self.givers) == len(self.token_ids)

    def first(self, count: int) -> Draft:
        """Its first tokens: any beginning of a draft is a draft."""
        if count >= len(self.token_ids):
            return self
        return Draft(self.token_ids[:count], self.laws[:count], self.origins[:count], self.givers[:count])

    def given_by(self, tier: str) -> list[str]:
        """For each token, the tier under which what becomes of it counts. tier: of the drafter that proposed it."""
        return self.givers or [tier] * len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier made of a draft: ``token_ids`` = accepted drafted tokens, then one of its own.

    num_accepted: drafted tokens kept; own: "recovered" (a draft was refused) or "bonus" (none was).
    Each token is distributed exactly as the verifying model's, given those before it.
    """

    token_ids: list[int]
    num_accepted: int
    num_tested: int
    own: str
