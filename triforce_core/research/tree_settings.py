"""Whether drafts are trees, of which tier, and how large, with every "auto" decided.

They are off unless asked for. On an H200, llama2-7b at 124,868 tokens, Moby Dick, temperature 0: on chip 329 tokens/s
with TriForce's chains, 291 to 303 with the small model's trees of 6 to 15 (10 of 100 second guesses are right where 72
first ones are, and the host led each round), 196 with the retrieval tier's trees: a level is a pass of 3.2 ms, in which
a chain gains two tokens. With the cache in host memory a verification takes 1,080 ms, for 256 guesses as for 32, and
the retrieval tier's trees write 15.6 tokens/s with 64 guesses on 32 levels, 19.3 with 128.
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
        if device_leads and wanted.tree == "sequoia":  # a tree and the token before it fill one of few widths
            size, depth = (255, 48) if offloaded and alone else (15, 10) if tier == "middle" else (7, 4)
        size = size if wanted.tree_size == "auto" else wanted.tree_size
        depth = min(size, depth if wanted.tree_depth == "auto" else wanted.tree_depth)
        grower = "the small model" if tier == "draft" else "the part of the cache"
        what = f"trees of up to {size} guesses on {depth} levels" if wanted.tree == "sequoia" else \
            f"{max(1, size // depth)} chains of {depth} guesses side by side"
        return cls(wanted.tree, tier, size, depth, f"{what}, grown by {grower}")
