"""Twins of ``reference``'s ops in few calls of torch's own: for GPUs without Triton, and as parts of other twins.

torch's fused attention never shows its probabilities, so the mass of the last rows is computed again.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import wide_attention
from .reference import chunk_mass, probabilities, visible


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See reference.rms_norm; torch's own, one launch."""
    return F.rms_norm(x.float(), weight.shape, weight, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """See reference.rotate."""
    x = x.float()
    return x.roll(x.shape[-1] // 2, -1).mul_(sin).addcmul_(x, cos)


def swiglu(gate_up: Tensor) -> Tensor:
    """See reference.swiglu; stays in the type of its input."""
    half = gate_up.shape[-1] // 2
    return F.silu(gate_up[:, :half]).mul_(gate_up[:, half:])


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None = None,
    mass_rows: int = 0, chunk_size: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """See reference.attention; the result has the type of keys."""
    n, num_heads, dim = queries.shape
    heads = keys.shape[0]
    rounded = queries.to(keys.dtype)
    if n > 1 and staged_mask is None and keys.is_cuda and keys.dtype != torch.float32:
        out = wide_attention.attention(rounded, keys, values, length).reshape(n, num_heads * dim)
    else:
        seen = visible(n, length, staged_mask, queries.device) if n > 1 or staged_mask is not None else None
        out = F.scaled_dot_product_attention(
            rounded.transpose(0, 1)[None], keys[None, :, :length], values[None, :, :length], attn_mask=seen,
            enable_gqa=num_heads != heads)[0].transpose(0, 1).reshape(n, num_heads * dim)
    if not mass_rows:
        return out, None
    probs = probabilities(queries, keys, length, staged_mask, min(n, mass_rows))
    return out, chunk_mass(probs, (length - n) // chunk_size, chunk_size)
