"""How far two texts begin alike: so much of what was read of one is true of the other."""

from __future__ import annotations

from collections.abc import Iterable


def shared_prefix(one: Iterable[object], other: Iterable[object]) -> int:
    """Tokens (or digests of tokens) with which both begin."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
