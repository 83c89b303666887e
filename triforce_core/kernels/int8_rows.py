"""Keys and values in int8: how a head's vector of one token becomes a row of bytes, and what that row stands for.

A row is D numbers in int8, then one bfloat16 scale for each GROUP of them (the last group may be shorter). It stands
for bfloat16 numbers: int8 times scale, rounded. So attention over rows is, to the last bit, attention over a bfloat16
cache that holds those numbers: kernels may unpack rows block by block, as ``native`` and ``triton_rows`` do, or all at
once. (Of ours in Triton that is true of a GPU's Hopper generation; on others products sum in another order.)

Groups along the head, as KIVI (arXiv 2402.02750) has them for values: with one scale per token and head, a few large
channels of the keys take the steps of all others.

Letters: D head_dim, W bytes of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32  # a scale is two bytes of 34
_LEAST = 1e-30  # of a group's largest number: scales stay normal numbers


def row_bytes(dim: int) -> int:
    """W of heads of ``dim`` numbers."""
    return dim + 2 * -(-dim // GROUP)


def to_rows(x: Tensor) -> Tensor:
    """x [..., D], finite, in any float type -> int8 [..., W]. Scales are the next bfloat16 up: nothing is cut off."""
    *others, dim = x.shape
    grouped = torch.nn.functional.pad(x.float(), (0, -dim % GROUP)).unflatten(-1, (-1, GROUP))
    # By a tensor: by a number of the host's, torch multiplies with its reciprocal on a GPU, which rounds twice.
    wanted = grouped.abs().amax(-1).clamp_min_(_LEAST) / grouped.new_full((), 127.0)
    # Upwards: all bits below a bfloat16's carry into it.
    scale = ((wanted.contiguous().view(torch.int32) + 0xFFFF) >> 16).to(torch.int16)
    steps = torch.round(grouped / _scales(scale)[..., None]).to(torch.int8)
    return torch.cat((steps.flatten(-2)[..., :dim], scale.view(torch.int8).view(*others, -1)), -1)


def from_rows(rows: Tensor, dim: int) -> Tensor:
    """int8 [..., W] -> bfloat16 [..., D]."""
    scale = rows[..., dim:].contiguous().view(torch.int16)
    by = _scales(scale).repeat_interleave(GROUP, -1)[..., :dim]
    return (rows[..., :dim].float() * by).bfloat16()


def write_rows(rows: Tensor, slots: Tensor, x: Tensor) -> None:
    """x [n, H, D] to ``slots`` (int64 [n], on the device) of rows [H, C, W]."""
    rows.index_copy_(1, slots, to_rows(x).transpose(0, 1))


def unpack_rows(rows: Tensor, out: Tensor) -> None:
    """The numbers that rows [H, m, W] stand for -> out bfloat16 [H, m, D]."""
    out.copy_(from_rows(rows, out.shape[2]))


def _scales(stored: Tensor) -> Tensor:
    """bfloat16 by its bits, int16 -> fp32."""
    return stored.view(torch.bfloat16).float()
