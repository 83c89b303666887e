"""Who wrote each token of an answer, and what every round did, recorded while it is written.

Kept apart from the answer, so that a chat does not carry it along. ``view.provenance`` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from triforce_core import RoundEvent

from .page_shares import above

PAGES = 12  # most attended pages that are kept of each round


@dataclass
class Trace:
    """tokens: [text, source, round, probability or None, alternatives]. rounds: [tested, accepted, milliseconds by
    stage, most attended pages (page, share beyond the usual), seconds, most attended chunks {page, share, text}], with
    tested and accepted by tier; what older versions stored has no chunks. Plain JSON, as it is stored."""

    tokens: list[list[Any]] = field(default_factory=list)
    rounds: list[list[Any]] = field(default_factory=list)

    def add(self, event: RoundEvent, usual: Sequence[float] = ()) -> None:
        """usual: what each page gets of the attention whatever is asked, () where that is not known."""
        texts = event.texts or ("",) * len(event.sources)
        for n, (text, source) in enumerate(zip(texts, event.sources, strict=True)):
            chance = event.chances[n] if n < len(event.chances) else None
            self.tokens.append([text, source, len(self.rounds), chance and round(chance.probability, 4),
                                [[word, round(p, 4)] for word, p in chance.alternatives] if chance else []])
        shares = above(event.page_shares or (), usual)
        pages = [(page, share) for page, share in sorted(enumerate(shares), key=lambda item: -item[1])[:PAGES]
                 if share > 0]
        self.rounds.append([{tier.tier: tier.tested for tier in event.tiers},
                            {tier.tier: tier.accepted for tier in event.tiers},
                            {stage: round(spent, 2) for stage, spent in event.milliseconds.items()},
                            [[page, round(share, 4)] for page, share in pages], round(event.elapsed, 3),
                            [{"page": chunk.page, "share": round(chunk.share, 4), "text": chunk.text}
                             for chunk in event.chunks]])

    def stored(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "rounds": self.rounds}

    @property
    def known(self) -> bool:
        """Whether the tokens' texts were reported at all (a remote engine does not)."""
        return any(token[0] for token in self.tokens)
