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

_FARTHEST = 8.0  # nats; what a second passage is further below counts no more
# Of an encoder that brings none: from its score alone. See ``chances``.
_USUAL = np.array([[-0.70, 0.49, 0.0, 0.0, 0.72], [-0.70, 0.49, 0.0, 0.0, 0.36]], np.float32)


class Levels:
    """Two logistic regressions over 1, the score of the best passage, how far below it the second is, and the cosine of
    the best, each with its edge behind. The chance of the second is that the document answers: not found, below the
    edge. That of the first is that the best passage answers: otherwise found, at the edge or above."""

    def __init__(self, weights: np.ndarray | None) -> None:
        """weights: float32 [2, 5]."""
        self._weights = _USUAL if weights is None else weights

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Levels:
        """Return those in the encoder's file."""
        with np.load(ENCODER_FILE) as stored:
            return cls(stored["levels"] if "levels" in stored.files else None)

    def chances(self, scores: Sequence[float], near: Sequence[float]) -> list[float]:
        """Return of each passage the chance, in [0, 1], that it answers. scores: nats, what the encoder says of it, the
        best first; near: its cosine with the question."""
        return [self._chance(0, score, _lead(scores) if not place else 0.0, near[place])
                for place, score in enumerate(scores)]

    def level(self, scores: Sequence[float], near: Sequence[float]) -> Level:
        """Return what the best of them is called."""
        if self._chance(1, scores[0], _lead(scores), near[0]) < self._weights[1, 4]:
            return "not found"
        return "found" if self._chance(0, scores[0], _lead(scores), near[0]) >= self._weights[0, 4] else "perhaps"

    def _chance(self, row: int, score: float, lead: float, near: float) -> float:
        nats = float(self._weights[row, :4] @ np.array([1.0, score, lead, near], np.float32))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, nats))))


def _lead(scores: Sequence[float]) -> float:
    second = max(scores[1:], default=-math.inf)
    return min(scores[0] - second, _FARTHEST)
