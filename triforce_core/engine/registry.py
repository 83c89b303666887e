"""Comparisons by their settings' names: ``research`` is loaded where a setting names one, and only then."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..config import HEAVY_HITTERS, SpeculationConfig

if TYPE_CHECKING:
    from .build import Parts
    from .plan import Comparison, Situation, Tiers

_USUAL_CACHES = ("retrieval", "streaming", "none")
# What a plan shows of comparisons where there is none; keys as in ``research.settings.Compared.shown``.
NO_COMPARISON = {"self_skip": False, "lenience": 1.0, "ngram_tail": 0, "tree": "off", "tree_tier": "none",
                 "tree_size": 0, "tree_depth": 0}


def _named(wanted: SpeculationConfig) -> bool:
    """Whether a setting names a comparison."""
    return wanted.engine == "triforce" and (
        wanted.small_model == "self-skip" or wanted.middle_cache not in _USUAL_CACHES or wanted.ngram == "on"
        or wanted.refresh != "attention" or wanted.lenience != 1.0 or wanted.tree not in ("auto", "off"))


def comparison(wanted: SpeculationConfig, tiers: Tiers, at: Situation) -> Comparison | None:
    """What the comparison that ``wanted`` names changes in a plan."""
    if not _named(wanted):
        return None
    found: Comparison = import_module("..research.settings", __package__).compare(wanted, tiers, at)
    return found


def parts_for(compared: Comparison | None) -> type[Parts]:
    """What makes a pipeline's parts."""
    if compared is None:
        from .build import Parts

        return Parts
    found: type[Parts] = import_module("..research.parts", __package__).ResearchParts
    return found


def halves_budget(wanted: SpeculationConfig) -> bool:
    """Whether half of what is held are the newest tokens: H2O's own division."""
    return wanted.middle_cache in HEAVY_HITTERS


def needs_no_draft_model(wanted: SpeculationConfig) -> bool:
    """Whether the model drafts for itself."""
    return wanted.small_model == "self-skip"
