"""Comparisons by their settings' names: ``research`` is loaded where a setting names one, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ..config import HEAVY_HITTERS, SpeculationConfig

if TYPE_CHECKING:
    from .build import Parts
    from .plan import Situation, Tiers

_USUAL_CACHES = ("retrieval", "none")
Shown = Mapping[str, int | float | str | bool]
_NOTHING_SHOWN: Shown = {"self_skip": False, "lenience": 1.0, "ngram_tail": 0, "tree": "off", "tree_tier": "none",
                         "tree_size": 0, "tree_depth": 0}


@dataclass(frozen=True)
class Comparison:
    """What a comparison (``research.settings``) changes in a plan; without one, nothing. rests_draft_model: it does not
    write. gamma1, gamma2: fixed by it, or None. paced: lengths may be chosen round by round. lookup: copies are
    reviewed below the other tiers. held: what the intermediate verifier attends, in words, or empty; why: a clause fit
    to show, or empty. lasting: what a step takes depends on the tiers alone. shown: its settings, keys as ever."""

    rests_draft_model: bool = False
    gamma1: int | None = None
    gamma2: int | None = None
    paced: bool = True
    lookup: bool = False
    attends_all: bool = False
    held: str = ""
    why: str = ""
    lasting: bool = True
    shown: Shown = field(default_factory=lambda: _NOTHING_SHOWN)


NO_COMPARISON = Comparison()


def comparison(wanted: SpeculationConfig, tiers: Tiers, at: Situation) -> Comparison:
    """What the comparison that ``wanted`` names changes in a plan."""
    named = wanted.engine == "triforce" and (
        wanted.small_model == "self-skip" or wanted.middle_cache not in _USUAL_CACHES or wanted.ngram == "on"
        or wanted.refresh != "attention" or wanted.lenience != 1.0 or wanted.tree not in ("auto", "off"))
    if not named:
        return NO_COMPARISON
    found: Comparison = import_module("..research.settings", __package__).compare(wanted, tiers, at)
    return found


def parts_for(compared: Comparison) -> type[Parts]:
    """What makes a pipeline's parts."""
    if compared == NO_COMPARISON:
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
