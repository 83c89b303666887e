"""How much to draft from what drafting has brought: the i-th token of a draft is worth a^i of a pass.

a is the share of tested tokens that were accepted, so a draft is as long as its last token still pays for being tested
(the horizontal rule of Cascade Speculative Drafting, arXiv 2312.11462, section 3.2: not past the position where a^i
falls below the cost ratio). What never pays is left alone, and tried again seldom.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log

from ..kv_cache import shared_prefix

PRICE = 0.1  # of testing one token more, in passes of the tier above
_HOPE, _WEIGHT = 0.5, 2.0  # what a is taken for before anything was tested, and for how many tests that counts
_DOUBT = 4.0  # refusals that might have come besides
_FADING = 0.97  # of what is known, with every test: texts change
_RETRY = 0.995  # of it, with every draft that was not made: about one try in thirty


class AcceptanceEstimator:
    """Acceptance of several kinds of guesses, each known by a number, the more promising the higher. Counts only: the
    same run decides the same."""

    def __init__(self, price: float = PRICE) -> None:
        assert 0 < price < 1
        self._price = price
        self._known: dict[int, tuple[float, float]] = {}  # tested, accepted

    def reset(self) -> None:
        self._known.clear()

    def rate(self, kind: int) -> float:
        """The share of tested tokens that is accepted, as far as is known. A kind that is new is hoped to be as good as
        the one before it, at least: kinds are numbered from the least promising on."""
        if kind not in self._known:
            below = max((known for known in self._known if known < kind), default=None)
            return _HOPE if below is None else max(_HOPE, self.rate(below))
        tested, accepted = self._known[kind]
        return (accepted + _HOPE * _WEIGHT) / (tested + _WEIGHT)

    def surely(self, kind: int) -> float:
        """``rate`` as far as it is proven: what was never tested is 0, and a few tests prove little. For whoever gives
        up something known to be good for this kind. A new kind is as good as the one before it."""
        known = max((other for other in self._known if other <= kind), default=None)
        if known is None:
            return 0.0
        tested, accepted = self._known[known]
        return accepted / (tested + _DOUBT)

    def length(self, kind: int, most: int) -> int:
        """Tokens worth drafting, at most ``most``; 0: none is."""
        rate = self.rate(kind)
        if rate < self._price:
            tested, accepted = self._known[kind]
            self._known[kind] = tested * _RETRY, accepted * _RETRY
            return 0
        return min(most, floor(log(self._price) / log(rate)))

    def learn(self, kind: int, tested: int, accepted: int) -> None:
        """Of a draft's tokens, ``tested`` up to the first refusal and with it."""
        if tested:
            before = self._known.get(kind, (0.0, 0.0))
            self._known[kind] = before[0] * _FADING + tested, before[1] * _FADING + accepted


def fared(guess: Sequence[int], start: int, context: Sequence[int]) -> tuple[int, int]:
    """Of a guess at what ``context`` has from ``start`` on: tokens tested and accepted.

    A verdict may end before the guess begins, or an answer within it: of what lies behind nothing is known."""
    accepted = shared_prefix(guess, context[start:])
    return max(0, min(len(guess), accepted + 1, len(context) - start)), accepted
