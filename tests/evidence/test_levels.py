"""What a passage is called."""

from __future__ import annotations

import numpy as np
import pytest

from triforce_core.evidence.levels import Levels, features


def test_a_higher_score_has_a_higher_chance() -> None:
    chances = Levels(None).chances([6.0, 1.0, -6.0], [0.5, 0.5, 0.5])
    assert 1 > chances[0] > 0.9 > chances[1] > 0.1 > chances[2] > 0


@pytest.mark.parametrize(("score", "level"), [(6.0, "found"), (1.0, "perhaps"), (-6.0, "not found")])
def test_a_level_is_that_of_the_best(score: float, level: str) -> None:
    assert Levels(None).level([score, -9.0], [0.5, 0.1]) == level


def test_weights_of_the_encoder_count() -> None:
    weights = np.array([[0, 0, 1, 0, 0, 0, 0.6], [0, 0, 0, 0, 1, 0, 0.6]], np.float32)
    assert Levels(weights).level([3.0, 1.0], [0.9]) == "found", "far above the second"
    assert Levels(weights).level([3.0, 2.9], [0.1]) == "not found"
    assert Levels(weights).level([3.0, 2.9], [0.9]) == "perhaps"
    assert Levels(weights).level([3.0], [0.9]) == "found", "there is no second"
    assert Levels(weights).level([3.0], [0.1]) == "not found", "the document does not answer"


def test_other_passages_count_beside_the_first() -> None:
    assert features([3.0, 2.0, 1.0, 9.0], [0.5, 0.75]) == [1.0, 3.0, 1.0, 2.0, 0.5, -0.25]
    assert features([3.0, 2.0], [0.5]) == [1.0, 3.0, 1.0, 8.0, 0.5, 0.0]
    nearer = np.array([[0, 0, 0, 0, 0, 4, 0.4], [5, 0, 0, 0, 0, 0, 0.5]], np.float32)
    assert Levels(nearer).level([3.0, 2.0], [0.6, 0.5]) == "found"
    assert Levels(nearer).level([3.0, 2.0], [0.5, 0.9]) == "perhaps", "another one is nearer to the question"
    assert len(Levels(nearer).chances([3.0, 2.0, 1.0], [0.6])) == 3
