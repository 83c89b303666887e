"""How much to draft from what drafting has brought: the i-th token of a draft is worth a^i of a pass.

a is the share of tested tokens that were accepted, so a draft is as long as its last token still pays for being tested
(the horizontal rule of Cascade Speculative Drafting, arXiv 2312.11462, section 3.2: not past the position where a^i
falls below the cost ratio). What never pays is left alone, and tried again seldom.
"""

from __future__ import annotations

from math import floor, log

PRICE = 0.1  # of testing one token more, in passes of the tier above
_HOPE, _WEIGHT = 0.5, 2.0  # what a is taken for before anything was tested, and for how many tests that counts
_FADING = 0.97  # of what is known, with every test: texts change
_RETRY = 0.995  # of it, with every draft that was not made: about one try in thirty


class Gate:
    """Acceptance of several kinds of guesses, each known by a number. Counts only: the same run decides the same."""

    def __init__(self, price: float = PRICE) -> None:
        assert 0 < price < 1
        self._price = price
        self._known: dict[int, tuple[float, float]] = {}  # tested, accepted

    def reset(self) -> None:
        self._known.clear()

    def length(self, kind: int, most: int) -> int:
        """Tokens worth drafting, at most ``most``; 0: none is."""
        tested, accepted = self._known.get(kind, (0.0, 0.0))
        rate = (accepted + _HOPE * _WEIGHT) / (tested + _WEIGHT)
        if rate < self._price:
            self._known[kind] = tested * _RETRY, accepted * _RETRY
            return 0
        return min(most, floor(log(self._price) / log(rate)))

    def learn(self, kind: int, tested: int, accepted: int) -> None:
        """Of a draft's tokens, ``tested`` up to the first refusal and with it."""
        before = self._known.get(kind, (0.0, 0.0))
        self._known[kind] = before[0] * _FADING + tested, before[1] * _FADING + accepted
