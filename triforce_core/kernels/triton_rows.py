"""Rows of int8 in Triton (see ``int8_rows``): how other kernels read them, and how they are written and unpacked.

What is read is, to the last bit, what a bfloat16 cache of the numbers that rows stand for would hold; what is written
is what ``int8_rows.to_rows`` makes. A row of 128 numbers is 136 bytes: it is loaded by eights, ahead of its use as
bfloat16 is. Unpacking takes as many instructions as all else that attention does on Hopper.

Letters: n rows of a pass, H KV heads, C slots, D head_dim, W bytes of a row.
"""

from __future__ import annotations

import os

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from .int8_rows import row_bytes
from .triton_launch import early, follow

_HEADS = 8  # per program that writes
_SLOTS = 64  # per program that unpacks
_ASM = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET") != "1")
_LEAST = tl.constexpr(1e-30)  # as in int8_rows
_ROUNDER = tl.constexpr(12582912.0)  # 1.5 * 2**23: beside it a float has no room for a fraction


def number_type(kept: Tensor, dim: int) -> torch.dtype:
    """Of the numbers in keys or values [H, C, D or W]."""
    return torch.bfloat16 if kept.shape[2] > dim else kept.dtype


def write(rows: Tensor, slots: Tensor, x: Tensor) -> None:
    """See int8_rows.write_rows."""
    heads, capacity, width = rows.shape
    n, _, dim = x.shape
    assert width == row_bytes(dim) and x.stride(2) == 1 and rows.is_contiguous(), (rows.shape, x.shape, x.stride())
    _write[(n, triton.cdiv(heads, _HEADS))](x, rows, slots, x.stride(0), x.stride(1), capacity, heads, DIM=dim,
                                            WIDTH=width, HEADS=_HEADS, **early(rows.device), num_warps=4)


def unpack(rows: Tensor, out: Tensor) -> None:
    """See int8_rows.unpack_rows."""
    heads, length, width = rows.shape
    dim = out.shape[2]
    assert width == row_bytes(dim) and rows.stride()[1:] == (width, 1) and out.stride()[1:] == (dim, 1)
    _unpack[(triton.cdiv(length, _SLOTS), heads)](rows, out, length, rows.stride(0), out.stride(0), DIM=dim,
                                                  WIDTH=width, SLOTS=_SLOTS, **early(rows.device), num_warps=4)


@triton.jit
def load_tile(at, place, real, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """Keys or values of one head at ``place`` [P] -> [P, DIM]. WIDTH: DIM, or more, of rows of bytes, whose numbers are
    bfloat16. MASKED: zeros where not ``real``."""
    where = place[:, None] * WIDTH + tl.arange(0, DIM)[None, :]
    if MASKED:
        found = tl.load(at + where, mask=real[:, None], other=0)
    else:
        found = tl.load(at + where)
    if WIDTH > DIM:
        groups: tl.constexpr = DIM // 32
        scales = at.to(tl.pointer_type(tl.bfloat16)) + (place[:, None] * (WIDTH // 2) + DIM // 2
                                                        + tl.arange(0, groups)[None, :])
        if MASKED:
            scale = tl.load(scales, mask=real[:, None], other=0.0)
        else:
            scale = tl.load(scales)
        # The tile takes the scales' shape, not they the tile's: so no number moves to another thread.
        steps = tl.reshape(found, (found.shape[0], groups, 32))
        if _ASM:
            numbers = _times(steps, scale[:, :, None])
        else:  # a product of 7 bits and 8 is exact in fp32: it is rounded once
            numbers = (steps.to(tl.float32) * scale.to(tl.float32)[:, :, None]).to(tl.bfloat16)
        found = tl.reshape(numbers, (found.shape[0], DIM))
    return found


@triton.jit
def _times(steps, scale):
    """int8 times bfloat16, rounded once, without conversions, which a GPU makes slowly: 128 + the low seven bits, and
    that less 128 or (of negative numbers) 256, are exact in bfloat16."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d, one, none;
        mov.b32 one, 0x3F803F80;
        mov.b32 none, 0x80008000;
        prmt.b32 a, $2, 0, 0x4140;
        prmt.b32 b, $2, 0, 0x4342;
        lop3.b32 c, a, 0x007F007F, 0x43004300, 0xEA;
        lop3.b32 d, b, 0x007F007F, 0x43004300, 0xEA;
        lop3.b32 a, a, 0x00800080, 0xC300C300, 0xEA;
        lop3.b32 b, b, 0x00800080, 0xC300C300, 0xEA;
        fma.rn.bf16x2 c, c, one, a;
        fma.rn.bf16x2 d, d, one, b;
        fma.rn.bf16x2 $0, c, $3, none;
        fma.rn.bf16x2 $1, d, $4, none;
        }""", "=&r,=&r,r,r,r", [steps, scale], dtype=tl.bfloat16, is_pure=True, pack=4)


@triton.jit
def to_rows(x, HEADS: tl.constexpr, DIM: tl.constexpr):
    """x fp32 [HEADS, DIM] -> steps int8 [HEADS, DIM], scales' bits int16 [HEADS, DIM / 32]."""
    groups: tl.constexpr = DIM // 32
    grouped = tl.reshape(x, (HEADS, groups, 32))
    wanted = tl.div_rn(tl.maximum(tl.max(tl.abs(grouped), 2), _LEAST), 127.0)
    bits = (wanted.to(tl.int32, bitcast=True) + 0xFFFF) >> 16
    scale = (bits << 16).to(tl.float32, bitcast=True)
    exact = tl.div_rn(grouped, tl.broadcast_to(scale[:, :, None], (HEADS, groups, 32)))
    steps = ((exact + _ROUNDER) - _ROUNDER).to(tl.int8)  # halves to even, as torch rounds
    return tl.reshape(steps, (HEADS, DIM)), bits.to(tl.int16)


@triton.jit
def store_rows(rows, row, steps, bits, real, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """To rows ``row`` (int64 [HEADS], counted over all heads), those that are ``real``."""
    groups: tl.constexpr = DIM // 32
    tl.store(rows + row[:, None] * WIDTH + tl.arange(0, DIM)[None, :], steps, mask=real[:, None])
    scales = rows.to(tl.pointer_type(tl.int16)) + (row[:, None] * (WIDTH // 2) + DIM // 2
                                                   + tl.arange(0, groups)[None, :])
    tl.store(scales, bits, mask=real[:, None])


@triton.jit(do_not_specialize=["capacity"])
def _write(x, rows, slots, token_stride, head_stride, capacity, heads, DIM: tl.constexpr, WIDTH: tl.constexpr,
           HEADS: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    at = x + token * token_stride + head[:, None] * head_stride + tl.arange(0, DIM)[None, :]
    steps, bits = to_rows(tl.load(at, mask=head[:, None] < heads, other=0.0).to(tl.float32), HEADS, DIM)
    store_rows(rows, head.to(tl.int64) * capacity + tl.load(slots + token), steps, bits, head < heads, DIM, WIDTH)


@triton.jit(do_not_specialize=["length"])
def _unpack(rows, out, length, row_stride, out_stride, DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr,
            EARLY: tl.constexpr):
    follow(EARLY)
    head = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    found = load_tile(rows + head * row_stride, place, place < length, DIM, WIDTH, True)
    tl.store(out + head * out_stride + place[:, None] * DIM + tl.arange(0, DIM)[None, :], found,
             mask=place[:, None] < length)
