"""Values that drafters, verifier and rounds exchange.

Letters: n drafted tokens, V vocabulary. A draft is a chain here: token i follows token i - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed after a context.

    probs: [n, V] float; row i is the distribution that token i was *actually drawn from*, given the
    context and tokens before it. None: the draft is deterministic (every row one-hot at its token).
    Whether token i is proposed may depend on what came before it, never on token i itself.
    origins: for each token, the lowest tier that wrote it and was never overruled.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: Tensor | None = None
    origins: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert len(self.origins) == len(self.token_ids)
        assert self.probs is None or self.probs.shape[0] == len(self.token_ids)


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
