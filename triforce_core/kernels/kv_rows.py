"""Keys and values in 8 or 4 bits: how a head's vector of one token becomes a row of bytes, and what it stands for.

A row is D steps, then one bfloat16 scale for each GROUP of them (the last group may be shorter). It stands for bfloat16
numbers: step times scale, rounded. So attention over rows is attention over a bfloat16 cache that holds those numbers,
on CPUs to the last bit: kernels may unpack rows block by block, as ``native`` and ``triton_rows`` do, or all at once.
(Ours in Triton sum in another order: on Hopper over other parts of the cache, elsewhere within products.)

- 8 bits: steps from -127 to 127, one byte each, scales above zero.
- 4 bits: steps from -8 to 7, stored as 0 to 15, two to a byte, the first in the low half; D is even. A group's extreme
  is step -8, so scales have its sign: all sixteen steps are used (Q4_0 of llama.cpp does the same).

Groups along the head, as KIVI (arXiv 2402.02750) has them for values: with one scale per token and head, a few large
channels of the keys take the steps of all others.

Letters: D head_dim, W bytes of a row, which tell its bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

BITS = {"int8": 8, "int4": 4}  # of a number, by the kind of cache
GROUP = 32  # a scale is two bytes of 34, or of 18
_LEAST = 1e-30  # of a group's largest number: scales stay normal numbers


def row_bytes(dim: int, bits: int) -> int:
    """W of heads of ``dim`` numbers."""
    return dim * bits // 8 + 2 * -(-dim // GROUP)


def row_bits(width: int, dim: int) -> int:
    """Return the bits of a number in rows of ``width`` bytes."""
    return {row_bytes(dim, bits): bits for bits in BITS.values()}[width]


def to_rows(x: Tensor, bits: int) -> Tensor:
    """x [..., D], finite, in any float type -> int8 [..., W]. Scales are the next bfloat16 away from zero: in 8 bits
    nothing is cut off, in 4 bits at most half a step of numbers that lie opposite to a group's extreme."""
    *others, dim = x.shape
    assert dim * bits % 8 == 0, (dim, bits)
    grouped = torch.nn.functional.pad(x.float(), (0, -dim % GROUP)).unflatten(-1, (-1, GROUP))
    high, low = (end.clamp_min_(_LEAST) for end in (grouped.amax(-1), -grouped.amin(-1)))
    # By a tensor: by a number of the host's, torch multiplies with its reciprocal on a GPU, which rounds twice.
    wanted = torch.maximum(high, low) / grouped.new_full((), 127.0 if bits == 8 else 8.0)
    # Upwards: all bits below a bfloat16's carry into it.
    scale = ((wanted.contiguous().view(torch.int32) + 0xFFFF) >> 16).to(torch.int16)
    if bits == 4:
        scale = torch.where(high > low, scale | -0x8000, scale)
    steps = torch.round(grouped / _scales(scale)[..., None]).flatten(-2)[..., :dim]
    if bits == 4:
        low_half, high_half = (steps.clamp_(-8, 7) + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
        steps = (low_half | high_half << 4).view(torch.int8)
    return torch.cat((steps.to(torch.int8), scale.view(torch.int8).view(*others, -1)), -1)


def from_rows(rows: Tensor, dim: int) -> Tensor:
    """int8 [..., W] -> bfloat16 [..., D]."""
    bits = row_bits(rows.shape[-1], dim)
    steps, scale = rows.split((dim * bits // 8, 2 * -(-dim // GROUP)), -1)
    if bits == 4:
        packed = steps.view(torch.uint8)
        steps = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).view(torch.int8) - 8
    by = _scales(scale.contiguous().view(torch.int16)).repeat_interleave(GROUP, -1)[..., :dim]
    return (steps.float() * by).bfloat16()


def write_rows(rows: Tensor, slots: Tensor, x: Tensor) -> None:
    """x [n, H, D] to ``slots`` (int64 [n], on the device) of rows [H, C, W]."""
    rows.index_copy_(1, slots, to_rows(x, row_bits(rows.shape[2], x.shape[2])).transpose(0, 1))


def unpack_rows(rows: Tensor, out: Tensor) -> None:
    """The numbers that rows [H, m, W] stand for -> out bfloat16 [H, m, D]."""
    out.copy_(from_rows(rows, out.shape[2]))


def _scales(stored: Tensor) -> Tensor:
    """bfloat16 by its bits, int16 -> fp32."""
    return stored.view(torch.bfloat16).float()
