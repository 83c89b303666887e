"""Twins of ``reference``'s small ops in Triton: one launch and one read each. Letters as there; f the MLP's width."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import reference, torch_ops
from .triton_launch import early, follow
from .triton_rows import number_type, store_rows, to_rows

_HEADS = 8  # per program
_WIDTH = 1024  # features per program


def add_rms_norm(hidden: Tensor, addend: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """See reference.adding; the norm comes in ``dtype``."""
    n, width = hidden.shape
    out = torch.empty(n, width, dtype=dtype, device=hidden.device)
    _add_rms_norm[(n,)](hidden, hidden if addend is None else addend.contiguous(), weight, out, width, eps,
                        WIDTH=triton.next_power_of_2(width), ADD=addend is not None, **early(hidden.device),
                        num_warps=8)
    return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """See reference.rotate."""
    n, heads, dim = x.shape
    if dim & (dim - 1):
        return torch_ops.rotate(x, cos, sin)
    x = x if x.stride(2) == 1 and x.stride(1) == dim else x.contiguous()
    out = torch.empty(n, heads, dim, dtype=torch.float32, device=x.device)
    _rotate[(n, triton.cdiv(heads, _HEADS))](x, cos, sin, out, x.stride(0), heads, DIM=dim, HEADS=_HEADS,
                                             **early(x.device), num_warps=4)
    return out


def rotate_and_write(qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """See reference.rotate_and_write."""
    n, all_heads, dim = qkv.shape
    heads, capacity, width = keys.shape
    if dim & (dim - 1) or not (qkv.is_contiguous() and keys.is_contiguous() and values.is_contiguous()):
        return reference.rotate_and_write(qkv, cos, sin, keys, values, slots)
    queries = torch.empty(n, all_heads - 2 * heads, dim, dtype=number_type(keys, dim), device=qkv.device)
    _rotate_and_write[(n, triton.cdiv(all_heads, _HEADS))](
        qkv, cos, sin, queries, keys, values, slots, capacity, all_heads, heads, DIM=dim, WIDTH=width, HEADS=_HEADS,
        **early(qkv.device), num_warps=4)
    return queries


def swiglu(gate_up: Tensor) -> Tensor:
    """See reference.swiglu; in the type of its input."""
    n, both = gate_up.shape
    out = gate_up.new_empty((n, both // 2))
    _swiglu[(n, triton.cdiv(both // 2, _WIDTH))](gate_up.contiguous(), out, both // 2, WIDTH=_WIDTH,
                                                 **early(gate_up.device), num_warps=4)
    return out


def look_ahead(mass: Tensor, chunks: int = 4, fade: float = 0.9) -> Tensor:
    """See reference.look_ahead."""
    mass = mass.contiguous()
    out, columns = torch.empty_like(mass), mass.shape[-1]
    _look_ahead[(mass.numel() // columns, triton.cdiv(columns, _WIDTH))](mass, out, columns, CHUNKS=chunks, FADE=fade,
                                                                         WIDTH=_WIDTH, num_warps=4)
    return out


@triton.jit
def _add_rms_norm(hidden, addend, weight, out, width, eps, WIDTH: tl.constexpr, ADD: tl.constexpr,
                  EARLY: tl.constexpr):
    at = tl.arange(0, WIDTH)
    real = at < width
    scale = tl.load(weight + at, mask=real, other=0.0)
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64) * width + at
    x = tl.load(hidden + row, mask=real, other=0.0)
    if ADD:
        x += tl.load(addend + row, mask=real, other=0.0).to(tl.float32)
        tl.store(hidden + row, x, mask=real)
    inverse = 1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / width + eps)
    tl.store(out + row, x * inverse * scale, mask=real)


@triton.jit
def _rotate(x, cos, sin, out, row_stride, num_heads, DIM: tl.constexpr, HEADS: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64)
    head, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, DIM)
    real = head[:, None] < num_heads
    turned = _turned(x + row * row_stride + head[:, None] * DIM, cos + row * DIM, sin + row * DIM, dims, real, DIM)
    tl.store(out + row * num_heads * DIM + head[:, None] * DIM + dims[None, :], turned, mask=real)


@triton.jit
def _turned(at, cos, sin, dims, real, DIM: tl.constexpr):
    own = tl.load(at + dims[None, :], mask=real, other=0.0).to(tl.float32)
    other = tl.load(at + ((dims + DIM // 2) % DIM)[None, :], mask=real, other=0.0).to(tl.float32)
    # Said which product is rounded: kernels that write elsewhere must not find other bits.
    return tl.fma(own, tl.broadcast_to(tl.load(cos + dims)[None, :], own.shape), other * tl.load(sin + dims)[None, :])


@triton.jit(do_not_specialize=["capacity"])
def _rotate_and_write(qkv, cos, sin, queries, keys, values, slots, capacity, num_heads, kv_heads, DIM: tl.constexpr,
                      WIDTH: tl.constexpr, HEADS: tl.constexpr, EARLY: tl.constexpr):
    """WIDTH: of what is written; other than DIM: rows of bytes."""
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64)
    head, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, DIM)
    of_queries = num_heads - 2 * kv_heads
    at = qkv + (row * num_heads + head[:, None]) * DIM
    turned = _turned(at, cos + row * DIM, sin + row * DIM, dims, head[:, None] < num_heads - kv_heads, DIM)
    tl.store(queries + (row * of_queries + head[:, None]) * DIM + dims[None, :], turned,
             mask=head[:, None] < of_queries)
    slot = tl.load(slots + row)
    key, value = head - of_queries, head - of_queries - kv_heads
    is_key, is_value = (key >= 0) & (key < kv_heads), (value >= 0) & (value < kv_heads)
    as_is = tl.load(at + dims[None, :], mask=is_value[:, None], other=0.0)
    key, value = key.to(tl.int64) * capacity + slot, value.to(tl.int64) * capacity + slot
    if WIDTH != DIM:
        steps, bits = to_rows(tl.where(is_value[:, None], as_is.to(tl.float32), turned), HEADS, DIM, WIDTH)
        store_rows(keys, key, steps, bits, is_key, DIM, WIDTH)
        store_rows(values, value, steps, bits, is_value, DIM, WIDTH)
    else:
        tl.store(keys + key[:, None] * DIM + dims[None, :], turned, mask=is_key[:, None])
        tl.store(values + value[:, None] * DIM + dims[None, :], as_is, mask=is_value[:, None])


@triton.jit
def _swiglu(gate_up, out, width, WIDTH: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    gate = tl.load(gate_up + row * 2 * width + at, mask=at < width, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=at < width, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up, mask=at < width)


@triton.jit
def _look_ahead(mass, out, columns, CHUNKS: tl.constexpr, FADE: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64) * columns, tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    most = tl.load(mass + row + at, mask=at < columns, other=0.0)
    for distance in tl.static_range(1, CHUNKS + 1):
        lent = tl.load(mass + row + at - distance, mask=(at >= distance) & (at < columns), other=0.0)
        most = tl.maximum(most, lent * FADE**distance)
    tl.store(out + row + at, most, mask=at < columns)
