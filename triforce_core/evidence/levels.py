"""Say how likely it is that a passage answers a question, and call that found, perhaps or not found.

The weights come with the encoder: ``training/encoder_levels.py`` fits them on questions about documents that training
never saw, and writes them into its file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..events import Level
from .encoder import ENCODER_FILE

_FARTHEST = 8.0  # nats; what another passage is further below counts no more
SHOWN = 8  # passages whose cosines count
# Of an encoder that brings none: from its score alone.
_USUAL = np.array([[-0.70, 0.49, 0.0, 0.0, 0.0, 0.0, 0.72], [-0.70, 0.49, 0.0, 0.0, 0.0, 0.0, 0.36]], np.float32)


def features(scores: Sequence[float], near: Sequence[float]) -> list[float]:
    """Return 1, the score of the first passage, how far the second and the third are below it, the cosine of the first
    with the question, and how far that is below the highest one. scores: nats, of passages, the first shown first;
    near: cosines of them, or of the first few."""
    leads = [min(scores[0] - other, _FARTHEST) for other in (*scores[1:3], -math.inf, -math.inf)[:2]]
    return [1.0, scores[0], *leads, near[0], near[0] - max(near[:SHOWN])]


class Levels:
    """Two logistic regressions over ``features``, each with its edge behind. The chance of the second is that the
    document answers: not found, below the edge. That of the first is that the first passage answers: otherwise found,
    at the edge or above."""

    def __init__(self, weights: np.ndarray | None) -> None:
        """weights: float32 [2, 7]."""
        self._weights = _USUAL if weights is None else weights

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Levels:
        """Return those in the encoder's file."""
        with np.load(ENCODER_FILE) as stored:
            return cls(stored["levels"] if "levels" in stored.files else None)

    def chances(self, scores: Sequence[float], near: Sequence[float]) -> list[float]:
        """Return of each passage the chance, in [0, 1], that it answers. scores: nats, what the encoder says of it, the
        first shown first; near: cosines with the question, of the first or of more; missing ones count as 0."""
        cosines = [*near, *[0.0] * (len(scores) - len(near))]
        others = [[1.0, score, 0.0, 0.0, cosine, min(0.0, cosine - max(near))]
                  for score, cosine in zip(scores[1:], cosines[1:], strict=True)]
        return [self._chance(0, row) for row in (features(scores, near), *others)]

    def level(self, scores: Sequence[float], near: Sequence[float]) -> Level:
        """Return what the first of them is called."""
        row = features(scores, near)
        if self._chance(1, row) < self._weights[1, -1]:
            return "not found"
        return "found" if self._chance(0, row) >= self._weights[0, -1] else "perhaps"

    def _chance(self, row: int, said: Sequence[float]) -> float:
        nats = float(self._weights[row, :-1] @ np.array(said, np.float32))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, nats))))
