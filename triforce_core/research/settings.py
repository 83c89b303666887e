"""What comparisons change in a plan, with every "auto" of theirs decided.

Trees are off unless asked for. On an H200, llama2-7b at 124,868 tokens, Moby Dick, temperature 0: on chip 329 tokens/s
with TriForce's chains, 291 to 303 with the small model's trees of 6 to 15 (10 of 100 second guesses are right where 72
first ones are, and the host led each round), 196 with the retrieval tier's trees: a level is a pass of 3.2 ms, in which
a chain gains two tokens. With the cache in host memory a verification takes 1,080 ms, for 256 guesses as for 32, and
the retrieval tier's trees write 15.6 tokens/s with 64 guesses on 32 levels, 19.3 with 128.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..config import HEAVY_HITTERS, SpeculationConfig
from ..drafters.prompt_lookup import MOST_COPIED
from ..engine.plan import Situation, Tiers
from ..engine.registry import Comparison

# What the caches attend, in words.
_HELD = {"streaming": "sinks and the newest of", "h2o": "the most attended so far and the newest,",
         "streaming-h2o": "the most attended so far and the newest, moved together,",
         "top-k": "an oracle that reads everything for each query's best"}
_SKIPS = "the small model is the model itself without a part of its layers"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """kind: "off", "sequoia" or "specinfer". tier: who grows them, "draft" (the small model) or "middle" (the model on
    its part of the cache, and the small model rests); "none". why: a clause fit to show, or empty."""

    kind: str = "off"
    tier: str = "none"
    size: int = 0
    depth: int = 0
    why: str = ""

    @classmethod
    def decide(cls, wanted: SpeculationConfig, *, small: bool, middle: bool, offloaded: bool,
               on_graphs: bool) -> TreeSettings:
        """small, middle: the tiers that there are. on_graphs: trees are grown without the host."""
        if wanted.tree in ("auto", "off"):
            return cls()
        tier = wanted.tree_tier
        if tier == "auto":  # a verification over a link is worth many guesses, and only the better tier has them
            tier = "middle" if middle and (offloaded or not small) else "draft"
        if not (middle if tier == "middle" else small):
            who = "no small model" if tier == "draft" else "no intermediate verifier"
            return cls(why=f"no trees: there is {who} to grow them")
        size, depth = _usual_size(tier, streams=offloaded and (tier == "middle" or not middle),
                                  captured=on_graphs and wanted.tree == "sequoia")
        size = size if wanted.tree_size == "auto" else wanted.tree_size
        depth = min(size, depth if wanted.tree_depth == "auto" else wanted.tree_depth)
        grower = "the small model" if tier == "draft" else "the part of the cache"
        what = f"trees of up to {size} guesses on {depth} levels" if wanted.tree == "sequoia" else \
            f"{max(1, size // depth)} chains of {depth} guesses side by side"
        return cls(wanted.tree, tier, size, depth, f"{what}, grown by {grower}")


def _usual_size(tier: str, *, streams: bool, captured: bool) -> tuple[int, int]:
    """Guesses and levels of a tree. streams: a pass that streams its cache verifies it. captured: a tree and the token
    before it fill one of few widths."""
    if streams:
        return (255, 48) if captured else (64, 32)
    if tier == "middle":
        return (15, 10) if captured else (16, 10)
    return (7, 4) if captured else (8, 4)


@dataclass(frozen=True)
class Compared(Comparison):
    """self_skip: the small model is the target itself, without a part of its layers. lookup: up to ``ngram_tail`` of
    the copies follow unreviewed. verifies_trees: drafts for the full cache are trees."""

    self_skip: bool = False
    lenience: float = 1.0
    ngram_tail: int = 0
    trees: TreeSettings = TreeSettings()
    verifies_trees: bool = False


def compare(wanted: SpeculationConfig, tiers: Tiers, at: Situation) -> tuple[Tiers, Compared]:
    """See ``registry.compared``."""
    self_skip = wanted.small_model == "self-skip"
    if self_skip:  # it needs no draft model
        tiers = replace(tiers, draft_model=tiers.speculates)
    if wanted.middle_cache in HEAVY_HITTERS and wanted.recent == "auto":  # H2O's own division
        tiers = replace(tiers, recent=min(tiers.budget // 2, tiers.budget - 2 * wanted.chunk_size))
    trees = TreeSettings.decide(wanted, small=tiers.draft_model, middle=tiers.intermediate, offloaded=at.offloaded,
                                on_graphs=at.on_graphs)
    lookup = wanted.ngram == "on" and trees.kind == "off"  # a tree is not reviewed copies
    rests = trees.tier == "middle"
    tail = wanted.ngram_tail if wanted.ngram_tail != "auto" else MOST_COPIED
    tail = tail if lookup and tiers.draft_model and not rests else 0
    reviewed = trees.tier == "draft" and tiers.intermediate  # the small model's trees, by the tier above
    compared = Compared(
        gamma1=trees.depth if reviewed else None,
        gamma2=trees.depth if trees.kind != "off" and not reviewed else None, paced=trees.kind == "off", lookup=lookup,
        attends_all=self_skip, held=_HELD.get(wanted.middle_cache, ""),
        why="; ".join(filter(None, (trees.why, _SKIPS if self_skip and not rests else ""))),
        lasting=wanted.middle_cache != "top-k",  # an oracle reads the whole context
        shown={"self_skip": self_skip, "lenience": wanted.lenience, "ngram_tail": tail, "tree": trees.kind,
               "tree_tier": trees.tier, "tree_size": trees.size, "tree_depth": trees.depth},
        self_skip=self_skip, lenience=wanted.lenience, ngram_tail=tail, trees=trees,
        verifies_trees=rests or (trees.tier == "draft" and not tiers.intermediate))
    return replace(tiers, draft_model=False) if rests else tiers, compared
