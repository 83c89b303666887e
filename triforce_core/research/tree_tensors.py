"""A tree's shape as numbers on a device, sent there once as long as rounds have trees of that shape, and its review.

Letters: n drafted tokens; row 0 is what came before them, row i + 1 token i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..sampling import TensorChance
from ..speculation import tree


@dataclass(frozen=True, slots=True)
class OnDevice:
    """by_rank: of all first, all second ... siblings the tokens and the rows that they follow, int64 each.

    above, older: bool [n, n], whether token i follows token j or is it, and whether j is an older sibling of i."""

    by_rank: tuple[tuple[Tensor, Tensor], ...]
    above: Tensor
    older: Tensor

    @staticmethod
    @lru_cache(maxsize=16)
    def of(parents: tuple[int, ...], device: torch.device) -> OnDevice:
        """See ``tree``."""
        above, ranks = np.array(parents), np.array(tree.ranks(parents))
        older = (above[:, None] == above[None, :]) & (ranks[:, None] > ranks[None, :])
        members = [np.flatnonzero(ranks == rank) for rank in range(ranks.max() + 1)]
        with torch.inference_mode(False):  # kept from one round to the next
            return OnDevice(tuple((torch.from_numpy(nodes).to(device), torch.from_numpy(above[nodes] + 1).to(device))
                                  for nodes in members),
                            torch.from_numpy(tree.ancestry(parents)).to(device), torch.from_numpy(older).to(device))

    def walk(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """kept [n]: of each token, whether it is if its turn comes. -> bool [n], which ones are on the path, and
        int64 [1], the row at which it ends."""
        first = kept & ~(self.older & kept).any(1)
        path = ~(self.above & ~first).any(1)
        rows = torch.arange(1, len(path) + 1, device=path.device)
        return path, (path * rows).amax(0, keepdim=True)


def reject_tree_on_tensors(drafted: Tensor, shape: OnDevice, probs: Tensor, target: Tensor,
                           chance: TensorChance) -> tuple[Tensor, Tensor]:
    """``reject`` of a tree, all families side by side: drafted [n] from probs [n, V] against target [n + 1, V]; -1 for
    what was not drafted.

    -> bool [n], whether each is kept if its turn comes, and [n + 1, V], what each row's own token is drawn from when
    all its children are refused. As in ``reject_on_tensors``, every test is made."""
    odds, residuals = target.new_zeros(len(drafted)), target.clone()
    for nodes, rows in shape.by_rank:
        p, q, token = residuals[rows], probs[nodes], drafted[nodes]
        there, at = token >= 0, token.clamp_min(0)[:, None]
        odds[nodes] = torch.where(there, (p.gather(1, at) / q.gather(1, at)).squeeze(1).clamp_max(1.0), 0.0)
        left = (p - q).clamp_min(0.0)
        total = left.sum(1, keepdim=True)
        residuals[rows] = torch.where(there[:, None] & (total > 0.0), left / total, p)
    return chance.happens(odds), residuals
