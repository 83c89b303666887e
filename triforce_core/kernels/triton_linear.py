"""Products of few rows with weights in 8 or 4 bits, in Triton: the weights are read once, in one stream per program.

At 1 to 64 rows a product costs what reading its weights costs. A program takes BLOCK outputs and one of S parts of the
inputs; its weights lie in one piece. Whoever of the S parts is done last adds them up, in fixed order: results do not
depend on who that was. The bytes are those of ``quantized``; they become bf16 in registers, exactly, sums are fp32, and
scales are applied to sums. Whoever adds up also does what comes next to the sums (see ``fused``); for that, outputs
used in pairs lie side by side. A row's result does not depend on the other rows of its pass: more than ALIKE_ROWS are
taken in parts, each of which reads the weights again.

A checkpoint's own groups (``Grouped``; GGUF, AWQ, GPTQ) are multiplied as they are: each group's sum has its scale, and
an offset is multiplied with the sum of the group's inputs, a product with ones.

Measured on an H200, torch 2.11, the four products of a llama2-7b layer and the small kernels between them, 4 rows:
int4 61 us, int8 74 us, cuBLAS bf16 121 us; torch's _weight_int4pack_mm 94 us, _scaled_mm (fp8 by rows) 125 us,
_weight_int8pack_mm 3 ms. The six launches of a layer with its attention over a retrieved part, int8, 3 rows: 91 us;
with a launch for each norm, rotation and gate 100 us; fetching the first weights into the L2 early 92 to 101 us.

Letters: n rows, S parts. Inputs go by runs of GROUP; those that share a scale may be fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import quantized
from .fused import PreNorm
from .quantized import GROUP, GROUPS, Grouped, Rounded, in_blocks
from .reference import Dense, Linear
from .triton_launch import ASM, early, lead, multiprocessors, wait

_ENDS = ("cos", "sin", "keys", "cache", "slots", "hidden", "weight", "found")  # tensors that some ends have
_MOST_PARTS = 8  # of the inputs: who adds them up holds all at once
MAX_ROWS = 64  # at once; wider passes are limited by arithmetic: the weights are unpacked for them
ALIKE_ROWS = 32  # of a tile; Hopper multiplies a wider one by other instructions, which add up in another order
_BY_ROW = ("cos", "sin", "slots", "hidden", "found")  # of _ENDS


@dataclass(frozen=True, slots=True)
class Plan:
    """How a product of one shape runs. outputs: per program; stages: groups on their way (fewer at more rows, whose
    part of x lies beside them); programs: per multiprocessor, at most: all are at work at once, so that they share the
    memory evenly."""

    outputs: int
    stages: int
    warps: int
    programs: int

    @classmethod
    def choose(cls, outputs: int, bits: int, processors: int) -> Plan:
        """As measured on an H200."""
        if bits == 4:
            return cls(128 if outputs % 128 == 0 else 64, 5, 4, 4)
        # Six stages leave no room for a fourth program: one of the next kernel would crowd in where it finds some.
        return cls(64, 6 if outputs // 64 <= 3 * processors else 5, 4, 3)

    def parts(self, outputs: int, groups: int, device: torch.device) -> int:
        """As many as give every multiprocessor the same number of programs, or nearly."""
        blocks, processors = outputs // self.outputs, multiprocessors(device)

        def even(parts: int) -> float:
            programs = blocks * parts
            return round(programs / (triton.cdiv(programs, processors) * processors), 2)

        most = max(1, min(_MOST_PARTS, groups // 2, self.programs * processors // blocks))
        return max(range(1, most + 1), key=lambda parts: (even(parts), parts))


class QuantizedLinear:
    """A ``FusedLinear`` with a weight in few bits in the order in which programs read it. Not for two streams at
    once."""

    def __init__(self, weight: Rounded | Grouped, bias: Tensor | None, pair: int = 0, plan: Plan | None = None) -> None:
        """weight [out, in], see ``fits`` and ``fits_groups``, on the device. pair: of each 2 * pair outputs, i and
        i + pair are used together."""
        data, scales = weight.data, [weight.scale, None, None, None]
        if isinstance(weight, Rounded):
            bits, share, above = quantized.KINDS[weight.kind], GROUP if weight.kind == "int4" else 0, 1
        else:
            weight = weight.in_groups_of(min(weight.group, GROUP))
            bits, share, above = weight.bits, weight.group, weight.super_block
            scales = [weight.scale, weight.offset, weight.subscale, weight.suboffset]
        self.outputs, self.inputs = data.shape[0], data.shape[1] * 8 // bits
        self.bias, self._pair, self._form = bias, pair, {"BITS": bits, "SHARE": share, "ABOVE": above}
        self._plan = plan or Plan.choose(self.outputs, bits, multiprocessors(data.device))
        if pair:
            order = torch.arange(self.outputs, device=data.device).view(-1, 2, pair).transpose(1, 2).flatten()
            data, scales = data[order], [None if each is None else each[order] for each in scales]
        groups, block = self.inputs // GROUP, self._plan.outputs
        self._data = data.view(self.outputs // block, block, groups, -1).transpose(1, 2).contiguous()
        # Scales, offsets, subscales, suboffsets: [out], or [blocks, groups that share them, BLOCK].
        self._scales = scales if not share else [
            None if each is None else each.view(-1, block, each.shape[1]).transpose(1, 2).contiguous()
            for each in scales]
        self._parts = self._plan.parts(self.outputs, groups, data.device)
        self._tickets = torch.zeros(self.outputs // block, dtype=torch.int32, device=data.device)

    def __call__(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if n > MAX_ROWS:  # a prefill's: one look at the weights costs less than its products
            return F.linear(x.to(torch.bfloat16), self.unpacked(), self.bias)
        x = x.to(torch.bfloat16).contiguous()
        out = self._launch("plain", x, x.new_empty((n, self.outputs)))
        return out if self.bias is None else out.add_(self.bias)

    def unpacked(self) -> Tensor:
        """The weight that the bytes stand for, rounded once more: bf16 [out, in]."""
        block, groups = self._plan.outputs, self.inputs // GROUP
        out = torch.empty(self.outputs, self.inputs, dtype=torch.bfloat16, device=self._data.device)
        _unpack[(self.outputs // block, groups)](self._data, *self._scales, out, groups, self._pair, BLOCK=block,
                                                 **self._form, PAIRED=self._pair > 0, num_warps=8)
        return out

    def normed(self, x: PreNorm) -> Tensor:
        """See FusedLinear; at most MAX_ROWS rows, as with the others."""
        out = x.values.new_empty((len(x.values), self.outputs), dtype=torch.float32)
        return self._launch("plain", x.values, out, x)

    def rotated(self, x: PreNorm, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
        """See FusedLinear."""
        heads, capacity, dim = keys.shape
        assert dim == 2 * self._pair and keys.is_contiguous() and values.is_contiguous()
        queries = keys.new_empty((len(x.values), self.outputs // dim - 2 * heads, dim))
        return self._launch("rotate", x.values, queries, x, cos=cos, sin=sin, keys=keys, cache=values, slots=slots,
                            capacity=capacity, kv_heads=heads)

    def gated(self, x: PreNorm) -> Tensor:
        """See FusedLinear."""
        assert self.outputs == 2 * self._pair
        return self._launch("gate", x.values, x.values.new_empty((len(x.values), self._pair)), x)

    def added(self, x: Tensor, hidden: Tensor, weight: Tensor, eps: float) -> PreNorm:
        """See FusedLinear."""
        squares = hidden.new_empty((len(x), self.outputs // self._plan.outputs))
        out = self._launch("add", x, x.new_empty((len(x), self.outputs)), hidden=hidden, weight=weight, found=squares)
        return PreNorm(out, squares, eps)

    def _launch(self, end: str, x: Tensor, out: Tensor, norm: PreNorm | None = None, **also: Tensor | int) -> Tensor:
        n, plan, parts, groups = x.shape[0], self._plan, self._parts, self.inputs // GROUP
        if n > ALIKE_ROWS:
            for start in range(0, n, ALIKE_ROWS):
                some = slice(start, start + ALIKE_ROWS)
                own = None if norm is None else norm.of_rows(some)
                self._launch(end, x[some], out[some], own, **{
                    name: one[some] if name in _BY_ROW and isinstance(one, Tensor) else one
                    for name, one in also.items()})
            return out
        assert n <= MAX_ROWS and x.dtype == torch.bfloat16 and x.is_contiguous() and x.shape[1] == self.inputs
        partial = x.new_empty((parts, n, self.outputs), dtype=torch.float32) if parts > 1 else None
        squares = None if norm is None else norm.squares
        sums = 0 if squares is None else squares.shape[1]
        ends: dict[str, Tensor | int | None] = dict.fromkeys(_ENDS) | {"capacity": 0, "kv_heads": 0} | also
        _product[(self.outputs // plan.outputs, parts)](
            x, self._data, *self._scales, out, partial, self._tickets, n, self.outputs, groups, self._pair, squares,
            sums, norm.eps if norm else 0.0, **ends, END=end, SUMS=triton.next_power_of_2(sums),
            PAIRED=self._pair > 0, ROWS=max(16, triton.next_power_of_2(n)), BLOCK=plan.outputs, **self._form,
            PARTS=parts, STAGES=plan.stages if n <= 16 else 3, **early(x.device), num_warps=plan.warps)
        return out


def fits(weight: Tensor, kind: str) -> bool:
    """Whether these kernels take a weight: bf16, whole blocks of outputs, whole groups of inputs."""
    return weight.dtype == torch.bfloat16 and quantized.fits(weight, kind) and in_blocks(*weight.shape)


def fits_groups(weight: Grouped) -> bool:
    """Whether they take a checkpoint's own groups."""
    return in_blocks(*weight.steps.shape) and weight.group in GROUPS


def quantize_linear(linear: Dense, kind: str, pair: int = 0) -> Linear:
    """See reference.quantize_linear."""
    if not fits(linear.weight, kind):
        return linear
    return QuantizedLinear(quantized.quantize(linear.weight, kind), linear.bias, pair)


_NIBBLES = """{
        .reg .b32 a, b, c, d, one, off;
        mov.b32 one, 0x3F803F80;
        mov.b32 off, OFF;
        prmt.b32 a, $4, 0, 0x4140;
        prmt.b32 b, $4, 0, 0x4342;
        shr.u32 c, a, 4;
        shr.u32 d, b, 4;
        lop3.b32 a, a, 0x000F000F, 0x43004300, 0xEA;
        lop3.b32 b, b, 0x000F000F, 0x43004300, 0xEA;
        lop3.b32 c, c, 0x000F000F, 0x43004300, 0xEA;
        lop3.b32 d, d, 0x000F000F, 0x43004300, 0xEA;
        fma.rn.bf16x2 $0, a, one, off;
        fma.rn.bf16x2 $1, b, one, off;
        fma.rn.bf16x2 $2, c, one, off;
        fma.rn.bf16x2 $3, d, one, off;
        }"""
_LESS_8 = tl.constexpr(_NIBBLES.replace("OFF", "0xC308C308"))
_LESS_0 = tl.constexpr(_NIBBLES.replace("OFF", "0xC300C300"))


@triton.jit
def _nibbles(packed, LESS: tl.constexpr):
    """Bytes -> (low half, high half) - LESS (8 or 0) as bf16: 128 + n has n in its last bits, minus 136 is exact."""
    if ASM:
        low, high = tl.inline_asm_elementwise(
            _LESS_8 if LESS == 8 else _LESS_0, "=r,=r,=r,=r,r", [packed], dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True, pack=4)
    else:
        low = ((packed & 15).to(tl.float32) - LESS).to(tl.bfloat16)
        high = ((packed >> 4).to(tl.float32) - LESS).to(tl.bfloat16)
    return low, high


@triton.jit
def _in_order(outs, pair):
    """Which outputs lie at these places, where those used in pairs lie side by side."""
    return outs // 2 // pair * 2 * pair + outs % 2 * pair + outs // 2 % pair


@triton.jit
def _unpack(weights, scales, offsets, subscales, suboffsets, out, groups, pair, BLOCK: tl.constexpr, BITS: tl.constexpr,
            SHARE: tl.constexpr, ABOVE: tl.constexpr, PAIRED: tl.constexpr):
    """One group of BLOCK outputs; see QuantizedLinear for the order of weights, scales."""
    BYTES: tl.constexpr = 64 if BITS == 4 else 128
    block, group = tl.program_id(0), tl.program_id(1)
    column, at = tl.arange(0, BLOCK), tl.arange(0, BYTES)
    weights += (block.to(tl.int64) * groups + group) * BLOCK * BYTES
    some = tl.load(weights + column[:, None] * BYTES + at[None, :])
    outs = block * BLOCK + column
    to = _in_order(outs, pair) if PAIRED else outs
    out += to.to(tl.int64)[:, None] * groups * 128 + group * 128 + at[None, :]
    if SHARE == 0:
        tl.store(out, some.to(tl.float32) * tl.load(scales + outs)[:, None])
    else:
        first = (block * groups + group) * (128 // SHARE)
        if BITS == 4:
            LESS: tl.constexpr = 8 if offsets is None else 0
            low, high = (some & 15).to(tl.float32) - LESS, (some >> 4).to(tl.float32) - LESS
            tl.store(out, _number(low, scales, offsets, subscales, suboffsets, first, at, column, SHARE, ABOVE, BLOCK))
            tl.store(out + 64, _number(high, scales, offsets, subscales, suboffsets, first, at + 64, column, SHARE,
                                       ABOVE, BLOCK))
        else:
            tl.store(out, _number(some.to(tl.float32), scales, offsets, subscales, suboffsets, first, at, column, SHARE,
                                  ABOVE, BLOCK))


@triton.jit
def _number(steps, scales, offsets, subscales, suboffsets, first, at, column, SHARE: tl.constexpr, ABOVE: tl.constexpr,
            BLOCK: tl.constexpr):
    """Of steps [BLOCK, inputs], where input ``at`` of a run of 128 has scale and offset number ``at // SHARE``."""
    if SHARE == 128:
        group, outputs = first, column[:, None]
    else:
        group, outputs = (first + at // SHARE)[None, :], column[:, None]
    steps *= _of_group(scales, subscales, group, outputs, ABOVE, BLOCK)
    if offsets is not None:
        steps += _of_group(offsets, suboffsets, group, outputs, ABOVE, BLOCK)
    return steps


@triton.jit
def _of_group(values, subvalues, group, column, ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """Scales or offsets of a block's outputs; with subscales, of super-blocks of ABOVE groups times the group's own."""
    if subvalues is None:
        found = tl.load(values + group * BLOCK + column)
    else:
        found = tl.load(values + group // ABOVE * BLOCK + column)
        found *= tl.load(subvalues + group * BLOCK + column).to(tl.float32)
    return found


@triton.jit
def hand_in(acc, partial, ticket, part, to, real, size, PARTS: tl.constexpr):
    """Store one part's sums; whether all PARTS of them, ``size`` numbers each, are there now."""
    tl.store(partial + part * size + to, acc, mask=real)
    tl.debug_barrier()  # all threads' parts are written before one thread says so
    return tl.atomic_add(ticket, 1, sem="acq_rel") == PARTS - 1


@triton.jit
def add_up(partial, ticket, to, real, size, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """All parts' sums [ROWS, BLOCK], in fixed order; the ticket is as new."""
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for other in tl.static_range(PARTS):
        acc += tl.load(partial + other * size + to, mask=real, other=0.0, cache_modifier=".cg")
    tl.store(ticket, 0)
    return acc


@triton.jit
def _scaled(acc, product, left, right, scales, offsets, subscales, suboffsets, which, column, ABOVE: tl.constexpr,
            BLOCK: tl.constexpr):
    """acc [ROWS, BLOCK] and one group's product, scaled; where there are offsets, times the sum of the inputs."""
    acc += product * _of_group(scales, subscales, which, column, ABOVE, BLOCK)[None, :]
    if offsets is not None:
        ones = tl.full((left.shape[1], BLOCK), 1.0, tl.float32).to(tl.bfloat16)
        total = tl.dot(left, ones)
        if right is not None:
            total = tl.dot(right, ones, total)
        acc += total * _of_group(offsets, suboffsets, which, column, ABOVE, BLOCK)[None, :]
    return acc


@triton.jit(do_not_specialize=["rows", "capacity"])
def _product(x, weights, scales, offsets, subscales, suboffsets, out, partial, tickets, rows, outputs, groups, pair,
             squares, sums, eps, cos, sin, keys, cache, slots, hidden, weight, found, capacity, kv_heads,
             END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
             BITS: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
             EARLY: tl.constexpr):
    """BLOCK outputs of x [n, in] over one part of the inputs; see QuantizedLinear for the order of weights, scales."""
    block, part = tl.program_id(0), tl.program_id(1)
    BYTES: tl.constexpr = 64 if BITS == 4 else 128  # of an output's group
    first, stop = part * groups // PARTS, (part + 1) * groups // PARTS
    weights += (block.to(tl.int64) * groups + first) * BLOCK * BYTES
    wait(EARLY)
    row, column = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    PIECE: tl.constexpr = SHARE if SHARE > 0 and SHARE < BYTES else BYTES  # of an output that are multiplied at once
    at = tl.arange(0, PIECE)
    tile = at[:, None] + column[None, :] * BYTES
    real = row[:, None] < rows
    x += row[:, None] * (groups * 128) + first * 128 + at[None, :]
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in tl.range(0, stop - first, num_stages=STAGES):
        for piece in tl.static_range(BYTES // PIECE):
            some = tl.load(weights + step * (BLOCK * BYTES) + piece * PIECE + tile)
            which = (block * groups + first + step) * (128 // SHARE if SHARE else 1) + piece
            if BITS == 4:
                low, high = _nibbles(some, 8 if offsets is None else 0)
                left = tl.load(x + step * 128 + piece * PIECE, mask=real, other=0.0)
                right = tl.load(x + step * 128 + 64 + piece * PIECE, mask=real, other=0.0)
                if SHARE == 128:
                    product = tl.dot(left, low)
                    product = tl.dot(right, high, product)
                    acc = _scaled(acc, product, left, right, scales, offsets, subscales, suboffsets, which, column,
                                  ABOVE, BLOCK)
                else:
                    acc = _scaled(acc, tl.dot(left, low), left, None, scales, offsets, subscales, suboffsets, which,
                                  column, ABOVE, BLOCK)
                    acc = _scaled(acc, tl.dot(right, high), right, None, scales, offsets, subscales, suboffsets,
                                  which + 64 // SHARE, column, ABOVE, BLOCK)
            else:
                left = tl.load(x + step * 128 + piece * PIECE, mask=real, other=0.0)
                if SHARE:
                    product = tl.dot(left, some.to(tl.bfloat16))
                    acc = _scaled(acc, product, left, None, scales, offsets, subscales, suboffsets, which, column,
                                  ABOVE, BLOCK)
                else:
                    acc = tl.dot(left, some.to(tl.bfloat16), acc)
    lead(EARLY)
    outs = block * BLOCK + column
    if SHARE == 0:
        acc *= tl.load(scales + outs)[None, :]
    if PARTS > 1:
        to = row[:, None] * outputs + outs[None, :]
        if hand_in(acc, partial, tickets + block, part, to, real, rows * outputs, PARTS):
            acc = add_up(partial, tickets + block, to, real, rows * outputs, ROWS, BLOCK, PARTS)
            _finish(acc, out, block, row, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache,
                    slots, hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED, ROWS, BLOCK)
    else:
        _finish(acc, out, block, row, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache,
                slots, hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED, ROWS, BLOCK)


@triton.jit
def _finish(acc, out, block, row, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots, hidden,
            weight, found, capacity, kv_heads, END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr,
            ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """What is done to whole sums [ROWS, BLOCK]; see FusedLinear."""
    real = row[:, None] < rows
    if squares is not None:
        every = tl.arange(0, SUMS)
        some = tl.load(squares + row[:, None] * sums + every[None, :], mask=real & (every < sums)[None, :], other=0.0)
        acc *= (1.0 / tl.sqrt_rn(tl.sum(some, 1) / (groups * 128) + eps))[:, None]
    outs = block * BLOCK + tl.arange(0, BLOCK)
    if END == "plain":
        if PAIRED:
            outs = _in_order(outs, pair)
        tl.store(out + row[:, None] * outputs + outs[None, :], acc, mask=real)
    elif END == "add":
        at = row[:, None] * outputs + outs[None, :]
        acc += tl.load(hidden + at, mask=real, other=0.0)
        tl.store(hidden + at, acc, mask=real)
        tl.store(out + at, acc * tl.load(weight + outs)[None, :], mask=real)
        tl.store(found + row[:, None] * (outputs // BLOCK) + block, tl.sum(acc * acc, 1)[:, None], mask=real)
    else:
        one, other = tl.split(tl.reshape(acc, (ROWS, BLOCK // 2, 2)))
        both = block * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        if END == "gate":
            tl.store(out + row[:, None] * pair + both[None, :], one * tl.sigmoid(one) * other, mask=real)
        else:
            _rotate(one, other, both // pair, both % pair, out, row, rows, outputs // (2 * pair), pair, cos, sin, keys,
                    cache, slots, capacity, kv_heads)


@triton.jit
def _rotate(one, other, head, dim, queries, row, rows, num_heads, half, cos, sin, keys, values, slots, capacity,
            kv_heads):
    """Both halves of pieces of heads -> rotated queries; rotated keys, and values as they are, at their slots."""
    real = row[:, None] < rows
    of_queries = num_heads - 2 * kv_heads
    key, value = head - of_queries, head - of_queries - kv_heads
    turned = real & (value < 0)[None, :]
    at = row[:, None] * 2 * half + dim[None, :]
    near, far = tl.load(cos + at, mask=turned, other=1.0), tl.load(cos + at + half, mask=turned, other=1.0)
    left = one * near + other * tl.load(sin + at, mask=turned, other=0.0)
    right = other * far + one * tl.load(sin + at + half, mask=turned, other=0.0)
    asks = real & (key < 0)[None, :]
    to = queries + (row[:, None] * of_queries + head[None, :]) * 2 * half + dim[None, :]
    tl.store(to, left, mask=asks)
    tl.store(to + half, right, mask=asks)
    slot = tl.load(slots + row, mask=row < rows, other=0)[:, None]
    is_key, is_value = real & ((key >= 0) & (value < 0))[None, :], real & (value >= 0)[None, :]
    there = keys + (key.to(tl.int64)[None, :] * capacity + slot) * 2 * half + dim[None, :]
    tl.store(there, left, mask=is_key)
    tl.store(there + half, right, mask=is_key)
    there = values + (value.to(tl.int64)[None, :] * capacity + slot) * 2 * half + dim[None, :]
    tl.store(there, left, mask=is_value)
    tl.store(there + half, right, mask=is_value)
