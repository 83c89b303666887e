"""Rows of bytes in Triton (see ``kv_rows``): how other kernels read them, and how they are written and unpacked.

What is read is, to the last bit, what a bfloat16 cache of the numbers that rows stand for would hold; what is written
is what ``kv_rows.to_rows`` makes. A row of 128 numbers is 136 bytes: it is loaded by eights, ahead of its use as
bfloat16 is. Unpacking takes as many instructions as all else that attention does on Hopper.

Letters: n rows of a pass, H KV heads, C slots, D head_dim, W bytes of a row. WIDTH: W, or D where numbers are kept as
they are: rows in 8 bits are wider than D, those in 4 bits narrower.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from .kv_rows import row_bits
from .triton_launch import ASM, early, follow

_HEADS = 8  # per program that writes
_SLOTS = 64  # per program that unpacks
_LEAST = tl.constexpr(1e-30)  # as in kv_rows
_ROUNDER = tl.constexpr(12582912.0)  # 1.5 * 2**23: beside it a float has no room for a fraction


def number_type(kept: Tensor, dim: int) -> torch.dtype:
    """Return the type of the numbers in keys or values [H, C, D or W]."""
    return kept.dtype if kept.shape[2] == dim else torch.bfloat16


def write(rows: Tensor, slots: Tensor, x: Tensor) -> None:
    """See kv_rows.write_rows."""
    heads, capacity, width = rows.shape
    n, _, dim = x.shape
    assert row_bits(width, dim) and x.stride(2) == 1 and rows.is_contiguous(), (rows.shape, x.shape, x.stride())
    _write[(n, triton.cdiv(heads, _HEADS))](x, rows, slots, x.stride(0), x.stride(1), capacity, heads, DIM=dim,
                                            WIDTH=width, HEADS=_HEADS, **early(rows.device), num_warps=4)


def unpack(rows: Tensor, out: Tensor) -> None:
    """See kv_rows.unpack_rows."""
    heads, length, width = rows.shape
    dim = out.shape[2]
    assert row_bits(width, dim) and rows.stride()[1:] == (width, 1) and out.stride()[1:] == (dim, 1)
    _unpack[(triton.cdiv(length, _SLOTS), heads)](rows, out, length, rows.stride(0), out.stride(0), DIM=dim,
                                                  WIDTH=width, SLOTS=_SLOTS, **early(rows.device), num_warps=4)


@triton.jit
def load_tile(at, place, real, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """Keys or values of one head at ``place`` [P] -> [P, DIM], of rows of bytes in bfloat16. MASKED: zeros where not
    ``real``."""
    held: tl.constexpr = DIM if WIDTH >= DIM else DIM // 2  # numbers or bytes before the scales
    where = place[:, None] * WIDTH + tl.arange(0, held)[None, :]
    if MASKED:
        found = tl.load(at + where, mask=real[:, None], other=0)
    else:
        found = tl.load(at + where)
    if WIDTH != DIM:
        groups: tl.constexpr = DIM // 32
        scales = at.to(tl.pointer_type(tl.bfloat16)) + (place[:, None] * (WIDTH // 2) + held // 2
                                                        + tl.arange(0, groups)[None, :])
        if MASKED:
            scale = tl.load(scales, mask=real[:, None], other=0.0)
        else:
            scale = tl.load(scales)
        # The tile takes the scales' shape, not they the tile's: so no number moves to another thread.
        steps = tl.reshape(found, (found.shape[0], groups, held // groups))
        if WIDTH > DIM:
            numbers = _times(steps, scale[:, :, None])
        else:
            low, high = _times_both(steps, scale[:, :, None])
            numbers = tl.join(low, high)
        found = tl.reshape(numbers, (found.shape[0], DIM))
    return found


# Of four bytes, $2: in c, d 128 + the low seven bits of each, in a, b what is to be added: -128 or (of negative
# numbers) -256. All are exact in bfloat16, and so are the sums.
APART = """
            prmt.b32 a, $2, 0, 0x4140;
            prmt.b32 b, $2, 0, 0x4342;
            lop3.b32 c, a, 0x007F007F, 0x43004300, 0xEA;
            lop3.b32 d, b, 0x007F007F, 0x43004300, 0xEA;
            lop3.b32 a, a, 0x00800080, 0xC300C300, 0xEA;
            lop3.b32 b, b, 0x00800080, 0xC300C300, 0xEA;"""
# Those four times their scales: the first two's in $3, the others' in $4.
TIMES = tl.constexpr(f"""{{
            .reg .b32 a, b, c, d, one, none;
            mov.b32 one, 0x3F803F80;
            mov.b32 none, 0x80008000;{APART}
            fma.rn.bf16x2 c, c, one, a;
            fma.rn.bf16x2 d, d, one, b;
            fma.rn.bf16x2 $0, c, $3, none;
            fma.rn.bf16x2 $1, d, $4, none;
            }}""")


@triton.jit
def _times(steps, scale):
    """int8 times bfloat16, rounded once; by assembly without conversions, which a GPU makes slowly."""
    if ASM:
        numbers = tl.inline_asm_elementwise(TIMES, "=&r,=&r,r,r,r", [steps, scale], dtype=tl.bfloat16, is_pure=True,
                                            pack=4)
    else:  # a product of 7 bits and 8 is exact in fp32
        numbers = (steps.to(tl.float32) * scale.to(tl.float32)).to(tl.bfloat16)
    return numbers


@triton.jit
def _times_both(steps, scale):
    """Bytes of two steps times bfloat16, rounded once: of the low halves and of the high ones. By assembly as above:
    128 + a half, less 136, is exact."""
    if ASM:
        firsts, seconds = tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d, low, high, one, least, none;
            mov.b32 one, 0x3F803F80;
            mov.b32 least, 0xC308C308;
            mov.b32 none, 0x80008000;
            and.b32 low, $4, 0x0F0F0F0F;
            shr.u32 high, $4, 4;
            and.b32 high, high, 0x0F0F0F0F;
            prmt.b32 a, low, 0x43434343, 0x4140;
            prmt.b32 b, low, 0x43434343, 0x4342;
            prmt.b32 c, high, 0x43434343, 0x4140;
            prmt.b32 d, high, 0x43434343, 0x4342;
            fma.rn.bf16x2 a, a, one, least;
            fma.rn.bf16x2 b, b, one, least;
            fma.rn.bf16x2 c, c, one, least;
            fma.rn.bf16x2 d, d, one, least;
            fma.rn.bf16x2 $0, a, $5, none;
            fma.rn.bf16x2 $1, b, $6, none;
            fma.rn.bf16x2 $2, c, $5, none;
            fma.rn.bf16x2 $3, d, $6, none;
            }""", "=&r,=&r,=&r,=&r,r,r,r", [steps, scale], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4)
    else:
        by = scale.to(tl.float32)
        firsts = (((steps & 15).to(tl.float32) - 8.0) * by).to(tl.bfloat16)
        seconds = ((((steps >> 4) & 15).to(tl.float32) - 8.0) * by).to(tl.bfloat16)
    return firsts, seconds


@triton.jit
def to_rows(x, HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """x fp32 [HEADS, DIM] -> a row's steps int8 [HEADS, bytes of them], scales' bits int16 [HEADS, DIM / 32]."""
    groups: tl.constexpr = DIM // 32
    grouped = tl.reshape(x, (HEADS, groups, 32))
    high, low = tl.maximum(tl.max(grouped, 2), _LEAST), tl.maximum(tl.max(-grouped, 2), _LEAST)
    wanted = tl.div_rn(tl.maximum(high, low), 127.0 if WIDTH > DIM else 8.0)
    bits = (wanted.to(tl.int32, bitcast=True) + 0xFFFF) >> 16
    scale = (bits << 16).to(tl.float32, bitcast=True)
    if WIDTH < DIM:
        scale = tl.where(high > low, -scale, scale)
        bits = tl.where(high > low, bits | 0x8000, bits)
    exact = tl.div_rn(grouped, tl.broadcast_to(scale[:, :, None], (HEADS, groups, 32)))
    steps = (exact + _ROUNDER) - _ROUNDER  # halves to even, as torch rounds
    if WIDTH < DIM:
        positive = tl.minimum(tl.maximum(steps, -8.0), 7.0) + 8.0
        first, second = tl.split(tl.reshape(positive.to(tl.int32), (HEADS, DIM // 2, 2)))
        found = (first | second << 4).to(tl.int8)
    else:
        found = tl.reshape(steps.to(tl.int8), (HEADS, DIM))
    return found, bits.to(tl.int16)


@triton.jit
def store_rows(rows, row, steps, bits, real, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """To rows ``row`` (int64 [HEADS], counted over all heads), those that are ``real``."""
    groups: tl.constexpr = DIM // 32
    held: tl.constexpr = steps.shape[1]
    tl.store(rows + row[:, None] * WIDTH + tl.arange(0, held)[None, :], steps, mask=real[:, None])
    scales = rows.to(tl.pointer_type(tl.int16)) + (row[:, None] * (WIDTH // 2) + held // 2
                                                   + tl.arange(0, groups)[None, :])
    tl.store(scales, bits, mask=real[:, None])


@triton.jit(do_not_specialize=["capacity"])
def _write(x, rows, slots, token_stride, head_stride, capacity, heads, DIM: tl.constexpr, WIDTH: tl.constexpr,
           HEADS: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    at = x + token * token_stride + head[:, None] * head_stride + tl.arange(0, DIM)[None, :]
    steps, bits = to_rows(tl.load(at, mask=head[:, None] < heads, other=0.0).to(tl.float32), HEADS, DIM, WIDTH)
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
