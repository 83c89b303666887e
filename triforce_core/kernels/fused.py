"""Products together with what comes right before and after them in a block: at few rows each launch saved is time.

A norm is a number per row and a weight per feature. The weights can be multiplied in by whoever wrote the row, before
its numbers are known, and the number itself by whoever has the next product: ``PreNorm`` is what lies between. So no
kernel of its own ever waits for a whole row. Here the contract and its plain-torch twin.

Letters: n rows, d features, D head_dim, H KV heads, G query heads per KV head, C slots, f the MLP's width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from . import reference
from .reference import Dense


@dataclass(frozen=True, slots=True)
class PreNorm:
    """Rows on their way into a product. values [n, d]: times the norm's weight; squares fp32 [n, any]: parts of each
    row's sum of squares before that. None: values are normed already."""

    values: Tensor
    squares: Tensor | None
    eps: float

    def of_rows(self, rows: slice) -> PreNorm:
        return PreNorm(self.values[rows], None if self.squares is None else self.squares[rows], self.eps)


@runtime_checkable
class FusedLinear(Protocol):
    """A ``Linear`` without bias; which of the four fits is decided by where it stands in a block."""

    def normed(self, x: PreNorm) -> Tensor:
        """The product with the norm: fp32 [n, out]."""
        ...

    def rotated(self, x: PreNorm, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
        """... of the norm, then see reference.rotate_and_write: queries [n, H * G, D] in the type of keys."""
        ...

    def gated(self, x: PreNorm) -> Tensor:
        """... of the norm, then see reference.swiglu: [n, f]."""
        ...

    def added(self, x: Tensor, hidden: Tensor, weight: Tensor, eps: float) -> PreNorm:
        """... of x [n, in], added to ``hidden`` (fp32 [n, d], in place), as the norm with ``weight`` begins."""
        ...


class FusedDense(Dense):
    """The specification."""

    def normed(self, x: PreNorm) -> Tensor:
        return self(_normed(x)).float()

    def rotated(self, x: PreNorm, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
        qkv = self.normed(x).unflatten(-1, (-1, keys.shape[2]))
        return reference.rotate_and_write(qkv, cos, sin, keys, values, slots)

    def gated(self, x: PreNorm) -> Tensor:
        return reference.swiglu(self.normed(x))

    def added(self, x: Tensor, hidden: Tensor, weight: Tensor, eps: float) -> PreNorm:
        hidden += self(x)
        return PreNorm(hidden * weight, hidden.square().sum(-1, keepdim=True), eps)


def _normed(x: PreNorm) -> Tensor:
    if x.squares is None:
        return x.values
    mean = x.squares.sum(-1, keepdim=True) / x.values.shape[-1]
    return x.values.float() * (mean + x.eps).rsqrt()
