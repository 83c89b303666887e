"""A mixture of experts in the place of an MLP: each token goes through the few that its router chooses (arXiv
2101.03961). Only the weights of chosen experts are read.

Each row of a pass of few rows is the same bits as in a pass of its own: it is routed by itself, and what its experts
give is added in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device.streams import sent
from ..kernels import BATCH_INVARIANT_ROWS, Linear


@dataclass(frozen=True, slots=True)
class Mixture:
    """router: fp32 [E, d]. gate_up, down: of each expert. used: experts of a token. normalised: their weights add up
    to one."""

    router: Tensor
    gate_up: tuple[Linear, ...]
    down: tuple[Linear, ...]
    used: int
    normalised: bool

    def __call__(self, x: Tensor, gated: Callable[[Tensor], Tensor]) -> Tensor:
        """x [n, d], normed -> fp32 [n, d]. gated: see ``kernels.reference.swiglu``."""
        shares, chosen = self._routes(x)
        chosen, columns = chosen.sort(-1)
        numbers = chosen.flatten().cpu()  # a device is waited for here only: which products follow is data
        counts = numbers.bincount(minlength=len(self.down)).tolist()
        order = sent(numbers.argsort(stable=True), x.device)
        pieces = x[order.div(self.used, rounding_mode="floor")].split(counts)
        given = torch.empty(len(order), x.shape[1], device=x.device)
        given[order] = torch.cat([self.down[expert](gated(self.gate_up[expert](piece))).float()
                                  for expert, piece in enumerate(pieces) if len(piece)])
        given = given.view(*chosen.shape, -1) * shares.gather(-1, columns)[..., None]
        return reduce(torch.add, given.unbind(1))

    def _routes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and numbers of each row's experts, [n, used]."""
        rows = x.float()
        alone = len(rows) <= BATCH_INVARIANT_ROWS and not rows.is_cuda
        scores = torch.stack([self.router @ row for row in rows]) if alone else F.linear(rows, self.router)
        shares, chosen = scores.softmax(-1).topk(self.used, dim=-1)
        return (shares / shares.sum(-1, keepdim=True) if self.normalised else shares), chosen

    def with_products(self, change: Callable[[Linear], Linear]) -> Mixture:
        return replace(self, gate_up=tuple(map(change, self.gate_up)), down=tuple(map(change, self.down)))
