"""The fast twins of ``reference`` for CPUs, float32 or bfloat16 products.

What was measured (2 cores Zen 5, AVX-512 bf16) and decides the shapes here: batched products reach memory speed
only over *whole* contiguous buffers (on a slice of a bf16 buffer they copy it first), so unfilled slots are masked,
not cut off; the last softmax axis must be contiguous; torch's own attention is several times slower for 1-32 query rows.
Norms, softmax sums and the residual stream stay fp32: only the inputs of products are rounded.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import Linear, visible

_INT8_ROWS = 16  # up to here the int8 product beats the bf16 one (it reads half the bytes)
_BLOCK_SCORES = 1 << 22  # score elements per block of query rows in wide passes: keeps them in L3


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See reference.rms_norm."""
    return F.rms_norm(x if x.dtype == torch.float32 else x.float(), weight.shape, weight, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """See reference.rotate. Fewer, larger operations."""
    half = x.shape[-1] // 2
    turned = x.roll(half, -1) if x.dtype == torch.float32 else x.float().roll(half, -1)
    cos, sin = cos[:, None], sin[:, None].clone()
    sin[..., :half].neg_()
    return turned.mul_(sin).addcmul_(x, cos)


def swiglu(gate_up: Tensor) -> Tensor:
    """See reference.swiglu; stays in the type of its input."""
    half = gate_up.shape[-1] // 2
    return F.silu(gate_up[:, :half]).mul_(gate_up[:, half:])


def make_linear(data: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """See reference.make_linear. int8 weights with bf16 products keep both forms: int8 for few rows, bf16 for many."""
    if scale is None or dtype != torch.bfloat16 or bias is not None:
        weight = (data.float() * scale.float()[:, None] if scale is not None else data).to(dtype).contiguous()
        bias = None if bias is None else bias.to(dtype)
        return lambda x: F.linear(x.to(dtype), weight, bias)
    small, wide, factor = _padded(data), data.to(dtype), scale.to(dtype).contiguous()

    def linear(x: Tensor) -> Tensor:
        x = x.to(dtype)
        if x.shape[0] <= _INT8_ROWS:
            return torch._weight_int8pack_mm(x, small, factor)
        return F.linear(x, wide).mul_(factor)

    return linear


def _padded(data: Tensor) -> Tensor:
    """A copy with room behind it: the int8 product reads a little past its end (seen: SIGSEGV on a mapped file)."""
    room = torch.empty(data.numel() + 4096, dtype=data.dtype)
    room[: data.numel()] = data.flatten()
    return room[: data.numel()].view(data.shape)


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None = None,
    mass_rows: int = 0, chunk_size: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """See reference.attention. Unfilled slots must hold finite numbers (caches allocate zeros)."""
    n, num_heads, dim = queries.shape
    heads, capacity = keys.shape[:2]
    group = num_heads // heads
    packed = (queries * dim**-0.5).to(keys.dtype).view(n, heads, group, dim)
    rows = max(1, min(n, _BLOCK_SCORES // (num_heads * capacity)))
    out = torch.empty(n, num_heads * dim, dtype=torch.float32)
    mass: Tensor | None = None
    for start in range(0, n, rows):
        stop = min(n, start + rows)
        block = packed[start:stop].permute(1, 2, 0, 3).reshape(heads, group * (stop - start), dim)
        scores = torch.bmm(block, keys.transpose(1, 2)).view(heads, group, stop - start, capacity)
        if length < capacity:
            scores[..., length:] = float("-inf")
        if n > 1:
            seen = visible(n, n, staged_mask, keys.device)[start:stop]
            scores[..., length - n : length].masked_fill_(~seen, float("-inf"))
        probs = torch.softmax(scores, -1).view(heads, group * (stop - start), capacity)
        mixed = torch.bmm(probs, values).view(heads, group, stop - start, dim)
        out[start:stop] = mixed.permute(2, 0, 1, 3).reshape(stop - start, num_heads * dim)
        if mass_rows and stop > n - mass_rows:
            part = _mass(probs.view(heads, group, stop - start, capacity)[:, :, max(0, n - mass_rows - start) :],
                         (length - n) // chunk_size, chunk_size)
            mass = part if mass is None else mass + part
    return out, mass


def _mass(probs: Tensor, chunks: int, chunk_size: int) -> Tensor:
    """probs [H, G, r, C] -> fp32 [H, chunks]. Rows first: the long axis stays vectorised."""
    per_slot = probs[..., : chunks * chunk_size].sum((1, 2), dtype=torch.float32)
    return per_slot.view(probs.shape[0], chunks, chunk_size).sum(-1)
