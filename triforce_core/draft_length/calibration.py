"""How sure a tier was of the tokens it handed up, and how often the full cache then agreed.

Confidence is the greatest probability of the distribution that a token came from, at temperature 1 and before any mask:
known as soon as the token is drafted, without the full cache. Drafts that stop where it has become too low are longer
where the text is easy and shorter where it is not (AdaEDL, arXiv 2410.18351, by entropy; SpecDec++, arXiv 2405.19715,
by a trained head). Here what a confidence is worth is learnt while answering: a table, from a prior on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import prod

_EDGES = (0.3, 0.5, 0.7, 0.9, 0.98)  # of the table's rows
_FADING = 0.97  # of what is known, with every round: texts change
_TRUST = 12.0  # tests that a row's doubt counts for, as it was hoped to be and as the whole table has moved since
_STEADY = 0.5  # refusals that the hoped level of all doubts counts for

ErrorRates = tuple[float, ...]  # by row, least sure first: the share of tokens that is refused


class Calibration:
    """Of tokens that were really drafted; forced ones are always right and never told."""

    def __init__(self, hoped: ErrorRates) -> None:
        assert len(hoped) == len(_EDGES) + 1
        self._hoped = hoped
        self._tested, self._refused = [0.0] * len(hoped), [0.0] * len(hoped)

    def learn(self, confidence: Sequence[float], num_tested: int, num_accepted: int) -> None:
        """One round's: of each token, and how many of them were tested and accepted, from the first."""
        self._tested = [_FADING * count for count in self._tested]
        self._refused = [_FADING * count for count in self._refused]
        for number, sure in enumerate(confidence[:num_tested]):
            row = bisect_right(_EDGES, sure)
            self._tested[row] += 1
            self._refused[row] += number >= num_accepted

    @property
    def error_rates(self) -> ErrorRates:
        """By row."""
        expected = sum(doubt * count for doubt, count in zip(self._hoped, self._tested, strict=True))
        level = (sum(self._refused) + _STEADY) / (expected + _STEADY)
        return tuple(min(1.0, (refused + _TRUST * level * doubt) / (tested + _TRUST))
                     for doubt, tested, refused in zip(self._hoped, self._tested, self._refused, strict=True))


def survival(error_rates: ErrorRates, confidence: Sequence[float]) -> float:
    """The chance that all of these are right."""
    return prod(1.0 - error_rates[bisect_right(_EDGES, sure)] for sure in confidence)
