"""Settings of comparisons, which exist to be measured beside the usual ways, and their command-line flags."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from ..config import Auto, SpeculationConfig, check, check_whole
from ..flags import add_speculation_flags, auto_or_whole, speculation_config

HEAVY_HITTERS = ("h2o", "streaming-h2o")


@dataclass(frozen=True, slots=True)
class ResearchConfig(SpeculationConfig):
    """Hold settings that exist to be compared with the usual ones; no distribution changes by them either.

    small_model "self-skip": the target without a part of its layers in the small model's place. middle_cache: what the
    target's own weights attend in the middle tier may also be the sinks and as many newest tokens as ``budget`` allows
    (StreamingLLM), the most attended tokens so far and the newest (H2O; or with positions inside the cache), or each
    query's own top k, which reads everything: an upper bound. ngram "on": copies are reviewed by the small model
    (Cascade Speculative Drafting, Max-Gram), ngram_tail: tokens that copies may add behind each draft of that one, 0:
    they draft for it only. refresh: what chooses the retrieved chunks, attention mass or the query against chunk means.
    lenience: how much more the tiers below the full cache let pass than their own distributions would, between drafters
    only; the output keeps the target's. tree: several guesses at a token in one draft, Sequoia's trees (arXiv
    2402.12374) of at most tree_size guesses on tree_depth levels, or SpecInfer's chains side by side. tree_tier: who
    grows them, the small model for the tier above it ("draft") or the middle tier for the full cache ("middle": the
    small model rests then)."""

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        **SpeculationConfig.CHOICES, "small_model": ("on", "off", "self-skip"),
        "middle_cache": ("retrieval", "streaming", *HEAVY_HITTERS, "top-k", "none"),
        "ngram": ("auto", "straight", "on", "off"), "refresh": ("attention", "chunk-means"),
        "tree": ("auto", "off", "sequoia", "specinfer"), "tree_tier": ("auto", "draft", "middle")}

    refresh: Literal["attention", "chunk-means"] = "attention"
    lenience: float = 1.0
    ngram_tail: int | Auto = "auto"
    tree: Literal["auto", "off", "sequoia", "specinfer"] = "auto"
    tree_tier: Literal["auto", "draft", "middle"] = "auto"
    tree_size: int | Auto = "auto"
    tree_depth: int | Auto = "auto"

    def __post_init__(self) -> None:
        SpeculationConfig.__post_init__(self)
        number = isinstance(self.lenience, (int, float)) and not isinstance(self.lenience, bool)
        check(number and 1 <= self.lenience <= 100, "lenience", self.lenience, "a number from 1 (none) to 100")
        check(self.refresh == "attention" or self.middle_cache in ("retrieval", "none"), "refresh", self.refresh,
              f"attention with middle_cache {self.middle_cache}, which chooses no chunks")
        check_whole("ngram_tail", self.ngram_tail, 0, 64)
        check_whole("tree_size", self.tree_size, 1, 512)
        check_whole("tree_depth", self.tree_depth, 1, 64)

    @property
    def compares(self) -> bool:
        """Return whether it asks for anything that the usual settings cannot."""
        return self.engine == "triforce" and self != ResearchConfig(**fields_of(self.usual()))

    def usual(self, **changes: Any) -> SpeculationConfig:
        """Return the nearest settings that are no comparison, with ``changes``."""
        kept = {name: value for name, value in fields_of(self).items() if name in fields_of(SpeculationConfig())}
        kept |= {name: getattr(SpeculationConfig(), name) for name, allowed in SpeculationConfig.CHOICES.items()
                 if kept[name] not in allowed}
        return SpeculationConfig(**kept | changes)


def fields_of(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields by name, as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def add_research_flags(parser: argparse.ArgumentParser) -> None:
    """Add the usual flags of speculation, with more choices, and those that only comparisons have."""
    usual, choices = ResearchConfig(), ResearchConfig.CHOICES
    add_speculation_flags(parser, ResearchConfig)
    group = parser.add_argument_group("comparisons (no distribution changes by them either)")
    group.add_argument("--refresh", choices=choices["refresh"], default=usual.refresh,
                       help="what chooses the retrieved chunks")
    group.add_argument("--lenience", type=float, default=usual.lenience, metavar="L",
                       help="let more pass between drafters, 1 to 100 (default: 1, none)")
    group.add_argument("--ngram-tail", type=auto_or_whole, default="auto", metavar="N",
                       help="with --ngram on: copied tokens behind each draft of the small model")
    group.add_argument("--tree", choices=choices["tree"], default=usual.tree,
                       help="draft several guesses at a token: the best tree, or chains side by side")
    group.add_argument("--tree-tier", choices=choices["tree_tier"], default=usual.tree_tier,
                       help="who grows trees: the small model, or the model on its part of the cache")
    group.add_argument("--tree-size", type=auto_or_whole, default="auto", metavar="N", help="guesses in a tree")
    group.add_argument("--tree-depth", type=auto_or_whole, default="auto", metavar="N", help="levels of a tree")


def research_config(given: argparse.Namespace) -> ResearchConfig:
    """Return the settings that ``add_research_flags`` gave. Raises ConfigError."""
    found = speculation_config(given, "triforce", ResearchConfig)
    assert isinstance(found, ResearchConfig)
    return found
