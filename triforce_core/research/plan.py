"""A plan with comparisons in it.

Trees are off unless asked for: on chip the small model's wrote 0.9 of what TriForce's chains did. With the cache in
host memory a verification takes as long for 256 guesses as for 32, and trees write more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..config import SpeculationConfig
from ..engine import plan as usual
from ..engine.plan import Plan, Situation
from ..speculation.prompt_lookup import MOST_COPIED
from .settings import HEAVY_HITTERS, ResearchConfig, fields_of

# The caches' rules, in words.
_HELD = {"streaming": "sinks and the newest are attended in place of chosen chunks",
         "h2o": "the most attended so far and the newest are attended in place of chosen chunks",
         "streaming-h2o": "the most attended so far and the newest, moved together, are attended in place of chunks",
         "top-k": "an oracle reads everything for each query's best tokens"}
_SKIPS = "the small model is the model itself without a part of its layers"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Hold how trees are grown.

    kind: "off", "sequoia" or "specinfer". tier: who grows them, "draft" (the small model) or "middle" (the model on its
    part of the cache, and the small model rests); "none". why: a clause fit to show, or empty."""

    kind: str = "off"
    tier: str = "none"
    size: int = 0
    depth: int = 0
    why: str = ""

    @classmethod
    def decide(cls, wanted: ResearchConfig, *, small: bool, middle: bool, offloaded: bool,
               on_graphs: bool) -> TreeSettings:
        """Decide by the tiers that there are (small, middle). on_graphs: trees are grown without the host."""
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
    """Return guesses and levels of a tree.

    streams: a pass that streams its cache verifies it. captured: a tree and the token before it fill one of few widths.
    """
    if streams:
        return (255, 48) if captured else (64, 32)
    if tier == "middle":
        return (15, 10) if captured else (16, 10)
    return (7, 4) if captured else (8, 4)


@dataclass(frozen=True, slots=True)
class ResearchPlan(Plan):
    """Hold a plan with comparisons in it. lookup: copies draft below the other tiers, up to ``ngram_tail`` of them
    follow unreviewed. verifies_trees: drafts for the full cache are trees."""

    refresh: str = "attention"
    self_skip: bool = False
    lenience: float = 1.0
    ngram_tail: int = 0
    trees: TreeSettings = TreeSettings()

    @property
    def verifies_trees(self) -> bool:
        return self.trees.tier == "middle" or (self.trees.tier == "draft" and not self.has_intermediate)

    @property
    def tiers_key(self) -> str | None:
        own = (self.lookup, self.refresh, self.self_skip, self.lenience, self.ngram_tail, self.trees)
        # An oracle reads the whole context.
        return None if self.middle_cache == "top-k" else f"{Plan.tiers_key.fget(self)}; {own}"  # type: ignore

    def shown(self) -> dict[str, int | str]:
        trees = {f"tree_{name}": getattr(self.trees, name) for name in ("kind", "tier", "size", "depth")}
        return {name: value for name, value in Plan.shown(self).items() if name != "trees"} | trees


def plan(wanted: SpeculationConfig, at: Situation) -> Plan:
    """Return the plan that ``engine.plan.plan`` makes, changed by the comparisons that ``wanted`` names."""
    if not isinstance(wanted, ResearchConfig):
        return usual.plan(wanted, at)
    if not wanted.compares:
        return usual.plan(wanted.usual(), at)
    self_skip = wanted.small_model == "self-skip"
    # The target itself needs no draft model, and attends no chunks in that one's place.
    base: dict[str, Any] = {"draft_cache": "streaming"} if self_skip else {}
    at = replace(at, has_draft=at.has_draft or self_skip)
    first = usual.plan(wanted.usual(**base), at)
    trees = TreeSettings.decide(wanted, small=first.draft_model, middle=first.has_intermediate,
                                offloaded=at.offloaded, on_graphs=at.on_graphs)
    lookup = wanted.ngram == "on" and trees.kind == "off"  # a tree is not reviewed copies
    if trees.tier == "middle":
        base["small_model"] = "off"
    if trees.kind != "off":
        base |= {"pace": "off", "gamma1" if trees.tier == "draft" and first.has_intermediate else "gamma2": trees.depth}
    if wanted.ngram == "on":
        drafts = first.draft_model or first.has_intermediate
        base["ngram"] = "straight" if lookup and not drafts else "off"
    if lookup and first.draft_model and wanted.gamma1 == "auto":
        base["gamma1"] = usual.CHAIN
    if wanted.middle_cache in HEAVY_HITTERS and wanted.recent == "auto":  # H2O's own division
        base["recent"] = min(first.budget // 2, first.budget - 2 * wanted.chunk_size)
    made = usual.plan(wanted.usual(**base), at)
    lengths = made.lengths
    if lookup and not made.draft_model:
        lengths = replace(lengths, gamma1=MOST_COPIED if wanted.gamma1 == "auto" else wanted.gamma1)
    tail = MOST_COPIED if wanted.ngram_tail == "auto" else wanted.ngram_tail
    held = wanted.middle_cache if made.has_intermediate else "none"
    copies = "what stood in the text before is copied first"
    copies += ", so the host leads the rounds" if at.on_graphs else ""
    why = (made.why, _HELD.get(held, ""), trees.why, _SKIPS if self_skip and made.draft_model else "",
           copies if lookup and (made.draft_model or made.has_intermediate) else "")
    found = fields_of(made) | {"middle_cache": held, "lookup": lookup or made.lookup, "lengths": lengths,
                             "why": "; ".join(filter(None, why))}
    return ResearchPlan(**found, refresh=wanted.refresh, self_skip=self_skip, lenience=wanted.lenience,
                        ngram_tail=tail if lookup and made.draft_model else 0, trees=trees)
