"""What each page of a document gets of the attention, beyond what any question draws to it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

LEAST_PAGES = 8  # of which the one in the middle tells what is common


def above(shares: Sequence[float], usual: Sequence[float]) -> Sequence[float]:
    """What of each share is more than usual; where ``usual`` is not known, all of it. What most pages have beyond it,
    because another page has less, is no sign of any of them."""
    if not usual or not shares:
        return shares
    more = [share - each for share, each in zip(shares, usual, strict=True)]
    common = max(0.0, median(more)) if len(more) >= LEAST_PAGES else 0.0
    return [max(0.0, each - common) for each in more]
