"""Trees of drafted tokens, as lists of parents.

``parents[i]`` is the token that token i follows, -1 for what came before them all; parents come before their children,
siblings stand in the order in which they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

_Item = TypeVar("_Item")


def families(parents: Sequence[int]) -> list[list[int]]:
    """Return the children by row: row 0 is what came before, row i + 1 token i."""
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        found[parent + 1].append(node)
    return found


def depths(parents: Sequence[int]) -> list[int]:
    """Return each token's depth: 0 for one that follows what came before."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def ranks(parents: Sequence[int]) -> list[int]:
    """Return each token's rank: how many siblings were drawn before it."""
    older = [0] * (len(parents) + 1)
    found: list[int] = []
    for parent in parents:
        found.append(older[parent + 1])
        older[parent + 1] += 1
    return found


def tails(items: Sequence[_Item], parents: Sequence[int]) -> list[list[_Item]]:
    """Return by row (see ``families``) the items on the way to it, its own last."""
    found: list[list[_Item]] = [[]]
    for item, parent in zip(items, parents, strict=True):
        found.append([*found[parent + 1], item])
    return found


def ancestry(parents: Sequence[int]) -> np.ndarray:
    """Return bool [n, n]: token i follows token j, at any distance, or is it."""
    found = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            found[node] |= found[parent]
    return found


@lru_cache(maxsize=8)
def sees(parents: tuple[int, ...], before: int, device: torch.device) -> tuple[list[int], Tensor]:
    """Return depths (counted from ``before``) of the staged tokens from there on and their mask, bool [n, m] on device.

    See ``KVCache.positions``, ``KVView.staged_mask``. Kept, as the trees of most rounds have one shape."""
    found = [depth - before for depth in depths(parents)[before:]]
    rows = ancestry(parents)[before:]
    for_all = int(rows[:, :before].all(0).cumprod().sum())  # staged tokens that all of these follow
    return found, torch.from_numpy(rows[:, for_all:].copy()).to(device)


def behind(pending: int, parents: Sequence[int]) -> tuple[int, ...]:
    """Return the parents of ``pending`` tokens of the context and of a tree that grows behind the last of them."""
    return (*range(-1, pending - 1), *(pending + parent for parent in parents))
