"""The settings that name a comparison, and the tiers of its plan."""

from __future__ import annotations

import pytest

from triforce_core.config import SpeculationConfig
from triforce_core.engine import plan as usual
from triforce_core.engine.plan import Situation
from triforce_core.research.plan import ResearchPlan, plan
from triforce_core.research.settings import ResearchConfig

ON_A_CPU = Situation(30_000, has_draft=True, on_gpu=False)
COMPARISONS = [{"small_model": "self-skip"}, {"middle_cache": "streaming"}, {"middle_cache": "h2o"},
               {"middle_cache": "top-k"}, {"ngram": "on"}, {"refresh": "chunk-means"}, {"lenience": 2.0},
               {"tree": "sequoia"}, {"tree": "specinfer"}]
USUAL = [{}, {"middle_cache": "none"}, {"ngram": "straight"}, {"draft_cache": "cross"},
         {"small_model": "off"}, {"gamma1": 3, "gamma2": 5}]


@pytest.mark.parametrize("settings", COMPARISONS, ids=str)
def test_what_exists_to_be_compared_says_so(settings):
    assert ResearchConfig(**settings).compares
    assert isinstance(plan(ResearchConfig(**settings), ON_A_CPU), ResearchPlan)
    without = ResearchConfig(engine="autoregressive", **settings)
    assert not without.compares and not isinstance(plan(without, ON_A_CPU), ResearchPlan)


@pytest.mark.parametrize("settings", USUAL, ids=str)
def test_the_usual_ways_are_no_comparisons(settings):
    assert not ResearchConfig(**settings).compares
    found = plan(ResearchConfig(**settings), ON_A_CPU)
    assert found == usual.plan(SpeculationConfig(**settings), ON_A_CPU)


def test_a_comparison_changes_the_tiers():
    alone = Situation(30_000, has_draft=False, on_gpu=False)
    assert not plan(ResearchConfig(), alone).draft_model
    skips = plan(ResearchConfig(small_model="self-skip"), alone)
    assert skips.draft_model and "without a part of its layers" in skips.why
    grown = plan(ResearchConfig(tree="sequoia", tree_tier="middle"), ON_A_CPU)
    assert not grown.draft_model and grown.why.startswith("no small model: ") and "grown by the part" in grown.why
