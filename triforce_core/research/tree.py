"""Trees of drafted tokens, as lists of parents: numbers in, numbers out.

``parents[i]`` is the token that token i follows, -1 for what came before them all; parents come before their children,
siblings stand in the order in which they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


def families(parents: Sequence[int]) -> list[list[int]]:
    """Children by row: row 0 is what came before, row i + 1 token i."""
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        found[parent + 1].append(node)
    return found


def depths(parents: Sequence[int]) -> list[int]:
    """Of each token: 0 for one that follows what came before."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def ranks(parents: Sequence[int]) -> list[int]:
    """Of each token: how many siblings were drawn before it."""
    older = [0] * (len(parents) + 1)
    found: list[int] = []
    for parent in parents:
        found.append(older[parent + 1])
        older[parent + 1] += 1
    return found


def tails(items: Sequence[_Item], parents: Sequence[int]) -> list[list[_Item]]:
    """By row (see ``families``): the items on the way to it, its own last."""
    found: list[list[_Item]] = [[]]
    for item, parent in zip(items, parents, strict=True):
        found.append([*found[parent + 1], item])
    return found


def ancestry(parents: Sequence[int]) -> np.ndarray:
    """bool [n, n]: token i follows token j, at any distance, or is it."""
    found = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            found[node] |= found[parent]
    return found
