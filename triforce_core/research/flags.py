"""Command-line flags of comparisons, for benchmarks."""

from __future__ import annotations

import argparse

from ..flags import add_speculation_flags, auto_or_whole, speculation_config
from .settings import ResearchConfig


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
