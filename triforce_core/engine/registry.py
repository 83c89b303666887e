"""Comparisons by their settings' names: ``research`` is loaded where a setting names one, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ..config import SpeculationConfig

if TYPE_CHECKING:
    from .build import Parts
    from .plan import Situation, Tiers

Shown = Mapping[str, int | float | str | bool]
_NOTHING_SHOWN: Shown = {"self_skip": False, "lenience": 1.0, "ngram_tail": 0, "tree": "off", "tree_tier": "none",
                         "tree_size": 0, "tree_depth": 0}


@dataclass(frozen=True)
class Comparison:
    """What a comparison (``research.settings``) changes in a plan beside its tiers; without one, nothing. gamma1,
    gamma2: fixed by it, or None. paced: lengths may be chosen round by round. lookup: copies are reviewed below the
    other tiers. held: what the intermediate verifier attends, in words, or empty; why: a clause fit to show, or empty.
    lasting: what a step takes depends on the tiers alone. shown: its settings, keys as ever."""

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


def compared(wanted: SpeculationConfig, tiers: Tiers, at: Situation) -> tuple[Tiers, Comparison]:
    """What the comparison that ``wanted`` names makes of the tiers, and what else it changes in a plan."""
    found: tuple[Tiers, Comparison] = import_module("..research.settings", __package__).compare(wanted, tiers, at)
    return found


def parts_for(compared: Comparison) -> type[Parts]:
    """What makes a pipeline's parts."""
    if compared == NO_COMPARISON:
        from .build import Parts

        return Parts
    found: type[Parts] = import_module("..research.parts", __package__).ResearchParts
    return found
