"""How a tier above reviews trees of one size without the host: a shape's tables in fixed memory on the device.

Letters: n drafted tokens at most, N = n + 1: rows of the reviewing pass, the context's newest token first; among
drafted tokens the last of N stands for none. D levels at most, K siblings.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..speculation import tree
from .tree_schedule import Bounds, TreePlan
from .tree_tensors import OnDevice


# large: each is one of a shape's tables in fixed memory
class TreeTables:
    """children int64 [K, N]: of each row, by rank. parents, depths, slots int64 [N]: of each drafted token the row that
    it follows, its level, and where the tier below has it, counted from its root's slot. exists bool [N]. mask bool
    [N, N] and steps int64 [N]: of the reviewing pass."""

    def __init__(self, bounds: Bounds, device: torch.device) -> None:
        self.rows, self.depth = bounds.size + 1, bounds.depth
        with torch.inference_mode(False):
            def table(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
                return torch.zeros(shape, dtype=dtype, device=device)

            count = self.rows
            self.children = table(bounds.siblings, count)
            self.parents, self.depths, self.slots, self.steps = table(4, count).unbind()
            self.exists = table(count, dtype=torch.bool)
            self.above, self.older, self.mask = table(3, count, count, dtype=torch.bool).unbind()
            self.every = torch.arange(count, device=device)
            self.stop = torch.full((1,), count, device=device)
            self.ahead = torch.arange(1, bounds.depth + 1, device=device)
        self._plan: TreePlan | None = None

    def load(self, plan: TreePlan) -> None:
        """Its tables; nothing to do if they are here."""
        if plan is self._plan:
            return
        self._plan = plan
        n, count = len(plan.parents), self.rows
        families, depths, ranks = tree.families(plan.parents), tree.depths(plan.parents), tree.ranks(plan.parents)
        run = {node: slot for slot, node in enumerate(plan.run, start=1)}
        children = np.full(tuple(self.children.shape), count - 1)
        for row, family in enumerate(families):
            children[: len(family), row] = family
        numbers = np.zeros((4, count), dtype=np.int64)
        numbers[0, :n] = np.array(plan.parents) + 1
        numbers[1, :n] = depths
        # What was not run has no slot: the next draft reads it where it would stand in a chain.
        numbers[2, :n] = [run.get(node, depths[node] + 1) for node in range(n)]
        numbers[3, 1 : n + 1] = np.array(depths) + 1
        above, older = np.eye(count, dtype=np.bool_), np.zeros((count, count), dtype=np.bool_)
        above[:n, :n] = tree.ancestry(plan.parents)
        siblings = numbers[0, :n, None] == numbers[0, None, :n]
        older[:n, :n] = siblings & (np.array(ranks)[:, None] > np.array(ranks)[None, :])
        mask = np.zeros_like(above)
        mask[:, 0] = True
        mask[1 : n + 1, 1 : n + 1] = above[:n, :n]
        for values, to in ((children, self.children), *zip(numbers, (self.parents, self.depths, self.slots, self.steps),
                                                           strict=True),
                           (np.arange(count) < n, self.exists), (above, self.above), (older, self.older),
                           (mask, self.mask)):
            to.copy_(torch.from_numpy(values))

    def shape(self, ranks: int) -> OnDevice:
        """As the verifier sees it, where families have up to ``ranks`` siblings."""
        return OnDevice(tuple((children, self.every) for children in self.children[:ranks]), self.above, self.older)
