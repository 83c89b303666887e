"""Whether drafts are trees, of which tier, and how large, with every "auto" decided.

They are off unless asked for: more tokens per pass, but fewer per second. A chain's rounds are led by the device and
captured, a tree's levels are led by the host: on an H200, llama2-7b offloaded at 32,594 tokens, a level takes 11 ms and
a chain's pass 5. And second guesses are seldom right: of the retrieval tier in 2 of 100 families (first ones in 98), of
the small model in 10 (72). At temperature 0: 88 tokens/s with chains of 32, 37 with the retrieval tier's trees of 128,
63 with the small model's trees of 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import SpeculationConfig


@dataclass(frozen=True, slots=True)
class TreeDials:
    """kind: "off", "sequoia" or "specinfer". tier: who grows them, "draft" (the small model) or "middle" (the model on
    its part of the cache, and the small model rests); "none". why: a clause fit to show, or empty."""

    kind: str = "off"
    tier: str = "none"
    size: int = 0
    depth: int = 0
    why: str = ""

    @classmethod
    def decide(cls, wanted: SpeculationConfig, *, small: bool, middle: bool, offloaded: bool,
               device_leads: bool) -> TreeDials:
        """small, middle: the tiers that there are. device_leads: trees are grown without the host."""
        if wanted.tree in ("auto", "off"):
            return cls()
        tier = wanted.tree_tier
        if tier == "auto":  # a verification over a link is worth many guesses, and only the better tier has them
            tier = "middle" if middle and (offloaded or not small) else "draft"
        if not (middle if tier == "middle" else small):
            who = "no small model" if tier == "draft" else "no middle tier"
            return cls(why=f"no trees: there is {who} to grow them")
        alone = tier == "middle" or not middle
        size, depth = (64, 32) if offloaded and alone else (16, 10) if tier == "middle" else (8, 4)
        if device_leads:  # its passes have a few widths: a tree and the token before it fill one
            size, depth = (255, 48) if offloaded and alone else (15, 10) if tier == "middle" else (7, 4)
        size = size if wanted.tree_size == "auto" else wanted.tree_size
        depth = min(size, depth if wanted.tree_depth == "auto" else wanted.tree_depth)
        grower = "the small model" if tier == "draft" else "the part of the cache"
        what = f"trees of up to {size} guesses on {depth} levels" if wanted.tree == "sequoia" else \
            f"{max(1, size // depth)} chains of {depth} guesses side by side"
        return cls(wanted.tree, tier, size, depth, f"{what}, grown by {grower}")
