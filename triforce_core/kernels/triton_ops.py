"""Twins of ``reference``'s small ops in Triton: one launch and one read each. Letters as there; f the MLP's width."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import gpu

_HEADS = 8  # per program
_WIDTH = 1024  # features per program


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """See reference.rotate."""
    n, heads, dim = x.shape
    if dim & (dim - 1):
        return gpu.rotate(x, cos, sin)
    x = x if x.stride(2) == 1 and x.stride(1) == dim else x.contiguous()
    out = torch.empty(n, heads, dim, dtype=torch.float32, device=x.device)
    _rotate[(n, triton.cdiv(heads, _HEADS))](x, cos, sin, out, x.stride(0), heads, DIM=dim, HEADS=_HEADS, num_warps=4)
    return out


def swiglu(gate_up: Tensor) -> Tensor:
    """See reference.swiglu; in the type of its input."""
    n, both = gate_up.shape
    out = gate_up.new_empty((n, both // 2))
    _swiglu[(n, triton.cdiv(both // 2, _WIDTH))](gate_up.contiguous(), out, both // 2, WIDTH=_WIDTH, num_warps=4)
    return out


@triton.jit
def _rotate(x, cos, sin, out, row_stride, num_heads, DIM: tl.constexpr, HEADS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, DIM)
    real = head[:, None] < num_heads
    at = x + row * row_stride + head[:, None] * DIM
    own = tl.load(at + dims[None, :], mask=real, other=0.0).to(tl.float32)
    other = tl.load(at + ((dims + DIM // 2) % DIM)[None, :], mask=real, other=0.0).to(tl.float32)
    turned = own * tl.load(cos + row * DIM + dims)[None, :] + other * tl.load(sin + row * DIM + dims)[None, :]
    tl.store(out + row * num_heads * DIM + head[:, None] * DIM + dims[None, :], turned, mask=real)


@triton.jit
def _swiglu(gate_up, out, width, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    gate = tl.load(gate_up + row * 2 * width + at, mask=at < width, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=at < width, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up, mask=at < width)
