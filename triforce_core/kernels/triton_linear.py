"""Products of few rows with weights in 8 or 4 bits, in Triton: the weights are read once, in one stream per program.

At 1 to 64 rows a product costs what reading its weights costs. A program takes BLOCK outputs and one of S parts of the
inputs; its weights lie in one piece. Whoever of the S parts is done last adds them up, in fixed order: results do not
depend on who that was. Whoever adds up also does what comes next to the sums (see ``fused``); for that, outputs used in
pairs lie side by side.

Weights are the first operand of the tensor cores' products, rows of x, eight at a time, the second. So few rows waste
little, and a row gets the same bits in a pass of any width; more than ALIKE_ROWS are taken in parts, each of which
reads the weights again. The bytes are those of ``quantized``, in the order in which a thread multiplies them
(``_in_fragments``): they become bf16 in the registers from which they are multiplied. Sums are fp32; scales are applied
to sums. Four bits n become 128 + n, in one instruction for two; what that is too large by, and a checkpoint's own
offsets (``Grouped``; GGUF, AWQ, GPTQ), are multiplied with the sum of the group's inputs, a product with ones.

Measured on an H200, torch 2.11, 26 November 2026, the four products of a llama3-8b layer one after another, us for 1,
16 and 32 rows: int4 50, 62, 86 (27 by the copy's bandwidth), Q4_K 65, 85, 114 (31), int8 67, 77, 124 (51), Q6_K 84,
124, 167 (55). With rows as the first operand, 16 at a time: int4 60, 67, 86; Q4_K 250, 268, 322. Each of the four
launches takes some 5 us beyond its bytes. Fetching a program's first weights before the kernel before it ends: 53 us
for 50.

Letters: n rows, S parts. A unit: 64 bytes of an output, 128 inputs in four bits, 64 in eight.
"""

# mypy: disable-error-code="assignment"
# Tuples grow in kernels, by one tensor for each eight rows.

from __future__ import annotations

from collections.abc import Sequence

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
from .triton_rows import APART

_ENDS = ("cos", "sin", "keys", "cache", "slots", "hidden", "weight", "found")  # tensors that some ends have
_BY_ROW = ("cos", "sin", "slots", "hidden", "found")  # of _ENDS
MAX_ROWS = 64  # at once; wider passes are limited by arithmetic: the weights are unpacked for them
ALIKE_ROWS = 32  # that a program takes: their sums are held in registers
# As measured on an H200: units on their way to a program, fewer at more rows, whose part of x lies beside them, and
# programs per multiprocessor, at most: all are at work at once, so that they share the memory evenly.
STAGES, WIDE_STAGES, WARPS = 5, 3, 4
_PROGRAMS = 3
_MOST_PARTS = 8  # of the inputs: who adds them up holds all at once
_UNIT = 64  # bytes of an output: with four bits 128 inputs, with eight 64


class QuantizedLinear:
    """A ``FusedLinear`` with a weight in few bits in the order in which programs read it. Not for two streams at
    once."""

    def __init__(self, weight: Rounded | Grouped, bias: Tensor | None, pair: int = 0) -> None:
        """weight [out, in], see ``fits`` and ``fits_groups``, on the device. pair: of each 2 * pair outputs, i and
        i + pair are used together."""
        data, scales, subs = weight.data, [weight.scale, None], []
        if isinstance(weight, Rounded):
            bits, share, above = quantized.KINDS[weight.kind], GROUP if weight.kind == "int4" else 0, 1
        elif _has_a_scale_per_row(weight):
            bits, share, above, scales = 8, 0, 1, [weight.scale[:, 0].contiguous(), None]
        else:
            most = GROUP if weight.subscale is None else _UNIT * 8 // weight.bits
            weight = weight.in_groups_of(min(weight.group, most))
            bits, share, above = weight.bits, weight.group, weight.super_block
            scales = [weight.scale, weight.offset]
            subs = [each for each in (weight.subscale, weight.suboffset) if each is not None]
        self.outputs, self.inputs = data.shape[0], data.shape[1] * 8 // bits
        self.bias, self._pair, self._form = bias, pair, {"BITS": bits, "SHARE": share, "ABOVE": above}
        self._block = block = block_of(self.outputs)
        if pair:
            order = torch.arange(self.outputs, device=data.device).view(-1, 2, pair).transpose(1, 2).flatten()
            data, scales = data[order], [None if each is None else each[order] for each in scales]
            subs = [each[order] for each in subs]
        self._data = _in_fragments(data, block)
        # Scales, offsets: [out], or [blocks, groups or super-blocks, BLOCK]. Subscales and suboffsets: by fours in a
        # word, those of a unit together, [blocks, units * words, BLOCK].
        self._scales = [each if each is None or not share else _in_columns(each, block) for each in scales]
        self._scales.append(_in_words(subs, _UNIT * 8 // bits // share, block) if subs else None)
        self._parts = _parts(self.outputs // block, self.inputs // GROUP, multiprocessors(data.device))
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
        out = torch.empty(self.outputs, self.inputs, dtype=torch.bfloat16, device=self._data.device)
        units = self._form["BITS"] * self.inputs // (_UNIT * 8)
        _unpack[(self.outputs // self._block, units)](
            self._data, *self._scales, out, units, self._pair, BLOCK=self._block, **self._form, PAIRED=self._pair > 0,
            num_warps=WARPS)
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
        squares = hidden.new_empty((len(x), self.outputs // self._block))
        out = self._launch("add", x, x.new_empty((len(x), self.outputs)), hidden=hidden, weight=weight, found=squares)
        return PreNorm(out, squares, eps)

    def _launch(self, end: str, x: Tensor, out: Tensor, norm: PreNorm | None = None, **also: Tensor | int) -> Tensor:
        n, parts, groups = x.shape[0], self._parts, self.inputs // GROUP
        if n > ALIKE_ROWS:
            for start in range(0, n, ALIKE_ROWS):
                some = slice(start, start + ALIKE_ROWS)
                own = None if norm is None else norm.of_rows(some)
                self._launch(end, x[some], out[some], own, **{
                    name: one[some] if name in _BY_ROW and isinstance(one, Tensor) else one
                    for name, one in also.items()})
            return out
        assert n <= MAX_ROWS and x.dtype == torch.bfloat16 and x.is_contiguous() and x.shape[1] == self.inputs
        partial = None
        if parts > 1 or end == "add":
            partial = x.new_empty((parts, n, self.outputs), dtype=torch.float32)
        squares = None if norm is None else norm.squares
        sums = 0 if squares is None else squares.shape[1]
        ends: dict[str, Tensor | int | None] = dict.fromkeys(_ENDS) | {"capacity": 0, "kv_heads": 0} | also
        _product[(self.outputs // self._block, parts)](
            x, self._data, *self._scales, out, partial, self._tickets, n, self.outputs, groups, self._pair, squares,
            sums, norm.eps if norm else 0.0, **ends, END=end, SUMS=triton.next_power_of_2(sums),
            PAIRED=self._pair > 0, TILES=triton.cdiv(n, 8), BLOCK=self._block, **self._form,
            PARTS=parts, STAGES=STAGES if n <= 16 else WIDE_STAGES, **early(x.device), num_warps=WARPS)
        return out


def fits(weight: Tensor, kind: str) -> bool:
    """Return whether these kernels take a weight: bf16, whole blocks of outputs, whole groups of inputs."""
    return weight.dtype == torch.bfloat16 and quantized.fits(weight, kind) and in_blocks(*weight.shape)


def fits_groups(weight: Grouped) -> bool:
    """Return whether they take a checkpoint's own groups."""
    return in_blocks(*weight.steps.shape) and (_has_a_scale_per_row(weight) or (
        weight.group in GROUPS and (weight.subscale is None or weight.group * weight.super_block % GROUP == 0)))


def _has_a_scale_per_row(weight: Grouped) -> bool:
    """As ``Rounded`` in int8 has."""
    return weight.bits == 8 and weight.group == weight.steps.shape[1] and weight.offset is weight.subscale is None


def quantize_linear(linear: Dense, kind: str, pair: int = 0) -> Linear:
    """See reference.quantize_linear."""
    if not fits(linear.weight, kind):
        return linear
    return QuantizedLinear(quantized.quantize(linear.weight, kind), linear.bias, pair)


def block_of(outputs: int) -> int:
    """Outputs of a program."""
    return 128 if outputs % 128 == 0 else 64


def _parts(blocks: int, groups: int, processors: int) -> int:
    """Count parts of the inputs: as many as give every multiprocessor the same number of programs, or nearly."""

    def even(parts: int) -> float:
        programs = blocks * parts
        return round(programs / (triton.cdiv(programs, processors) * processors), 2)

    most = max(1, min(_MOST_PARTS, groups // 2, _PROGRAMS * processors // blocks))
    return max(range(1, most + 1), key=lambda parts: (even(parts), parts))


def _in_columns(values: Tensor, block: int) -> Tensor:
    """[out, any] -> [blocks, any, BLOCK]"""
    return values.view(-1, block, values.shape[1]).transpose(1, 2).contiguous()


def _in_words(subs: Sequence[Tensor], count: int, block: int) -> Tensor:
    """One or two of int8 [out, groups], ``count`` of each in a unit, as int32 [blocks, units * words, BLOCK]."""
    by_unit = torch.cat([each.view(len(each), -1, count) for each in subs], 2)
    return _in_columns(F.pad(by_unit, (0, -by_unit.shape[2] % 4)).flatten(1).contiguous().view(torch.int32), block)


def _in_fragments(data: Tensor, block: int) -> Tensor:
    """data bytes [out, in], as ``quantized`` has them -> [blocks, units of 64 bytes an output, BLOCK, 64], in the order
    in which ``_in_rows`` finds each thread's: of an output a quarter of the bytes, those that it multiplies."""
    units = data.view(len(data) // block, block // 64, 4, 2, 8, -1, 4, 2, 4, 2)
    return units.permute(0, 5, 1, 3, 2, 4, 8, 6, 7, 9).reshape(len(data) // block, -1, block, 64)


@triton.jit
def _nibbles(packed):
    """Bytes -> 128 + low half, 128 + high half, as bf16: there a half is in the last bits."""
    if ASM:  # called impure, so that compilers do not order x as they would for bytes, in fours
        low, high = tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d;
            prmt.b32 a, $4, 0, 0x4140;
            prmt.b32 b, $4, 0, 0x4342;
            shr.u32 c, a, 4;
            shr.u32 d, b, 4;
            lop3.b32 $0, a, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $1, b, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $2, c, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $3, d, 0x000F000F, 0x43004300, 0xEA;
            }""", "=&r,=&r,=&r,=&r,r", [packed], dtype=(tl.bfloat16, tl.bfloat16), is_pure=False, pack=4)
    else:
        low, high = (packed & 15).to(tl.float32) + 128.0, (packed >> 4).to(tl.float32) + 128.0
        low, high = low.to(tl.bfloat16), high.to(tl.bfloat16)
    return low, high


_BYTES = tl.constexpr(f"""{{
            .reg .b32 a, b, c, d, one;
            mov.b32 one, 0x3F803F80;{APART}
            fma.rn.bf16x2 $0, c, one, a;
            fma.rn.bf16x2 $1, d, one, b;
            }}""")


@triton.jit
def _bytes(steps):
    """int8 -> bf16."""
    if ASM:  # as above
        numbers = tl.inline_asm_elementwise(_BYTES, "=&r,=&r,r", [steps], dtype=tl.bfloat16, is_pure=False, pack=4)
    else:
        numbers = steps.to(tl.bfloat16)
    return numbers


@triton.jit
def _in_order(outs, pair):
    """Which outputs lie at these places, where those used in pairs lie side by side."""
    return outs // 2 // pair * 2 * pair + outs % 2 * pair + outs // 2 % pair


@triton.jit
def _unpack(weights, scales, offsets, subs, out, units, pair, BLOCK: tl.constexpr, BITS: tl.constexpr,
            SHARE: tl.constexpr, ABOVE: tl.constexpr, PAIRED: tl.constexpr):
    """One unit of BLOCK outputs; see QuantizedLinear for the order of weights, scales."""
    HELD: tl.constexpr = 512 // BITS  # inputs of a unit
    block, unit = tl.program_id(0), tl.program_id(1)
    column, at = tl.arange(0, BLOCK), tl.arange(0, 64)
    weights += (block.to(tl.int64) * units + unit) * BLOCK * 64
    some = _in_rows(tl.load(weights + column[:, None] * 64 + at[None, :]), BLOCK)
    outs = block * BLOCK + column
    to = _in_order(outs, pair) if PAIRED else outs
    out += to.to(tl.int64)[:, None] * units * HELD + unit * HELD + at[None, :]
    first = (block * units + unit) * HELD
    if BITS == 4:
        less: tl.constexpr = 8 if offsets is None else 0
        low, high = (some & 15).to(tl.float32) - less, (some >> 4).to(tl.float32) - less
        tl.store(out, _number(low, scales, offsets, subs, first, column, HELD, SHARE, ABOVE, BLOCK))
        tl.store(out + 64, _number(high, scales, offsets, subs, first + 64, column, HELD, SHARE, ABOVE, BLOCK))
    elif SHARE == 0:
        tl.store(out, some.to(tl.float32) * tl.load(scales + outs)[:, None])
    else:
        tl.store(out, _number(some.to(tl.float32), scales, offsets, subs, first, column, HELD, SHARE, ABOVE, BLOCK))


@triton.jit
def _number(steps, scales, offsets, subs, first, column, HELD: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr,
            BLOCK: tl.constexpr):
    """Return the numbers of steps [BLOCK, 64], whose inputs are those from ``first`` on, counted over all blocks."""
    RUNS: tl.constexpr = 64 // SHARE if SHARE < 64 else 1
    group = first // SHARE + tl.arange(0, RUNS)
    at = (group // ABOVE * BLOCK)[None, :] + column[:, None]
    scale = tl.load(scales + at)
    if subs is not None:
        scale *= _subs_of(subs, group, 0, column, HELD // SHARE, offsets is not None, BLOCK)
    numbers = tl.reshape(steps, (BLOCK, RUNS, 64 // RUNS)) * scale[:, :, None]
    if offsets is not None:
        offset = tl.load(offsets + at)
        if subs is not None:
            offset *= _subs_of(subs, group, HELD // SHARE, column, HELD // SHARE, True, BLOCK)
        numbers += offset[:, :, None]
    return tl.reshape(numbers, (BLOCK, 64))


@triton.jit
def _subs_of(subs, group, BEHIND: tl.constexpr, column, GROUPS: tl.constexpr, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """Subscales of groups, or what is BEHIND them, as fp32 [BLOCK, groups]; see ``_words``."""
    count: tl.constexpr = (GROUPS * (2 if BOTH else 1) + 3) // 4
    which = group % GROUPS + BEHIND
    at = (group // GROUPS * count + which // 4)[None, :] * BLOCK + column[:, None]
    return (tl.load(subs + at) << (24 - which % 4 * 8)[None, :] >> 24).to(tl.float32)


@triton.jit
def _words(subs, unit, column, GROUPS: tl.constexpr, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """A unit's subscales and, if BOTH, suboffsets behind them: int8, by fours in words [BLOCK]."""
    words = ()
    if subs is not None:
        count: tl.constexpr = (GROUPS * (2 if BOTH else 1) + 3) // 4
        for word in tl.static_range(count):
            words += (tl.load(subs + (unit * count + word) * BLOCK + column),)
    return words


@triton.jit
def _sub(words, AT: tl.constexpr):
    """One of the int8 in words, as fp32."""
    return (words[AT // 4] << (24 - AT % 4 * 8) >> 24).to(tl.float32)


@triton.jit
def _of_group(scales, offsets, words, unit, WHICH: tl.constexpr, column, HELD: tl.constexpr, SHARE: tl.constexpr,
              ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """Scale and offset (0: none) of a unit's group, [BLOCK, 1]: its own, or a super-block's times its own."""
    # A unit lies within one super-block, whose scale is loaded once.
    at = (unit * HELD // SHARE + WHICH if len(words) == 0 else unit * HELD // (SHARE * ABOVE)) * BLOCK + column
    scale, offset = tl.load(scales + at)[:, None], 0.0
    if offsets is not None:
        offset = tl.load(offsets + at)[:, None]
    if len(words) > 0:
        scale *= _sub(words, WHICH)[:, None]
        if offsets is not None:
            offset *= _sub(words, HELD // SHARE + WHICH)[:, None]
    return scale, offset


@triton.jit
def is_last(ticket, PARTS: tl.constexpr):
    """Return whether all PARTS programs have stored their sums; then the ticket is as new."""
    tl.debug_barrier()  # all threads' sums are written before one thread says so
    last = tl.atomic_add(ticket, 1, sem="acq_rel") == PARTS - 1
    if last:
        tl.store(ticket, 0)
    return last


@triton.jit
def add_up(partial, to, real, size, PARTS: tl.constexpr):
    """All parts' sums, in fixed order."""
    acc = tl.zeros(to.shape, tl.float32)
    for other in tl.static_range(PARTS):
        acc += tl.load(partial + other * size + to, mask=real, other=0.0, cache_modifier=".cg")
    return acc


@triton.jit
def _in_rows(unit, BLOCK: tl.constexpr):
    """A unit's numbers as they lie -> [outputs, inputs], see ``_in_fragments``; none moves to another thread."""
    unit = tl.reshape(unit, (BLOCK // 64, 2, 4, 8, 4, 4, 2, 2))
    return tl.reshape(tl.permute(unit, (0, 2, 1, 3, 5, 6, 4, 7)), (BLOCK, 64))


@triton.jit
def _halves(numbers):
    """[outputs, inputs] -> of the first half of the inputs, of the second."""
    both = tl.reshape(numbers, (numbers.shape[0], 2, numbers.shape[1] // 2))
    return tl.split(tl.permute(both, (0, 2, 1)))


@triton.jit
def _rows(x, rows, inputs, INPUTS: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, TILES: tl.constexpr):
    """TILES times eight rows of x, INPUTS of each from where x points, zeros but FROM to TO: [INPUTS, 8]."""
    tiles = ()
    at = tl.arange(0, INPUTS)
    for tile in tl.static_range(TILES):
        row = tile * 8 + tl.arange(0, 8)
        real = row[:, None] < rows
        if FROM > 0 or TO < INPUTS:
            real = real & ((at >= FROM) & (at < TO))[None, :]
        tiles += (tl.trans(tl.load(x + row[:, None] * inputs + at[None, :], mask=real, other=0.0)),)
    return tiles


@triton.jit
def _run(accs, numbers, x, scale, offset, MORE: tl.constexpr, LESS: tl.constexpr):
    """accs, each [BLOCK, 8 rows], and numbers [BLOCK, inputs], one or two of them, times x: inputs that share a scale.
    MORE: whether there is an offset; LESS: what the numbers are too large by."""
    new = ()
    if LESS:
        offset -= LESS * scale
    for tile in tl.static_range(len(accs)):
        product = tl.dot(numbers[0], x[0][tile])
        if len(numbers) > 1:
            product = tl.dot(numbers[1], x[1][tile], product)
        acc = accs[tile] + product * scale
        if MORE or LESS:
            ones = tl.full(numbers[0].shape, 1.0, tl.float32).to(tl.bfloat16)
            total = tl.dot(ones, x[0][tile])
            if len(numbers) > 1:
                total = tl.dot(ones, x[1][tile], total)
            acc += total * offset
        new += (acc,)
    return new


@triton.jit
def _runs(accs, numbers, x, rows, inputs, scales, offsets, words, unit, WHICH: tl.constexpr, column, LESS: tl.constexpr,
          HELD: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """As ``_run``: numbers from a unit's group WHICH on, in runs that share a scale; x from where it points. Groups
    of 16 are multiplied by twos, each with zeros for the other's inputs."""
    WIDE: tl.constexpr = numbers.shape[1]
    if WIDE > SHARE and WIDE > 32:
        left, right = _halves(numbers)
        accs = _runs(accs, left, x, rows, inputs, scales, offsets, words, unit, WHICH, column, LESS, HELD, SHARE, ABOVE,
                     BLOCK)
        accs = _runs(accs, right, x + WIDE // 2, rows, inputs, scales, offsets, words, unit, WHICH + WIDE // 2 // SHARE,
                     column, LESS, HELD, SHARE, ABOVE, BLOCK)
    else:
        LONG: tl.constexpr = WIDE if WIDE < SHARE else SHARE
        for run in tl.static_range(WIDE // LONG):
            some = _rows(x, rows, inputs, WIDE, run * LONG, run * LONG + LONG, len(accs))
            scale, offset = _of_group(scales, offsets, words, unit, WHICH + run, column, HELD, SHARE, ABOVE, BLOCK)
            accs = _run(accs, (numbers,), (some,), scale, offset, offsets is not None, LESS)
    return accs


@triton.jit
def _unit(accs, weights, x, rows, inputs, scales, offsets, subs, unit, column, TILES: tl.constexpr, BITS: tl.constexpr,
          SHARE: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """accs and a unit's numbers times x, both from where they point. SHARE 0: without the scale."""
    HELD: tl.constexpr = 512 // BITS  # inputs of a unit
    LESS: tl.constexpr = 136 if offsets is None else 128
    words = _words(subs, unit, column, HELD // SHARE if SHARE else 0, offsets is not None, BLOCK)
    data = tl.load(weights)
    if SHARE == 0:
        new, numbers, tiles = (), _in_rows(_bytes(data), BLOCK), _rows(x, rows, inputs, 64, 0, 64, TILES)
        for tile in tl.static_range(TILES):
            new += (tl.dot(numbers, tiles[tile], accs[tile]),)
        accs = new
    elif BITS == 8:
        accs = _runs(accs, _in_rows(_bytes(data), BLOCK), x, rows, inputs, scales, offsets, words, unit, 0, column, 0,
                     HELD, SHARE, ABOVE, BLOCK)
    else:
        low, high = _nibbles(data)
        low, high = _in_rows(low, BLOCK), _in_rows(high, BLOCK)
        if SHARE == 128:
            left, right = _rows(x, rows, inputs, 64, 0, 64, TILES), _rows(x + 64, rows, inputs, 64, 0, 64, TILES)
            scale, offset = _of_group(scales, offsets, words, unit, 0, column, HELD, SHARE, ABOVE, BLOCK)
            accs = _run(accs, (low, high), (left, right), scale, offset, offsets is not None, LESS)
        else:
            accs = _runs(accs, low, x, rows, inputs, scales, offsets, words, unit, 0, column, LESS, HELD, SHARE, ABOVE,
                         BLOCK)
            accs = _runs(accs, high, x + 64, rows, inputs, scales, offsets, words, unit, 64 // SHARE, column, LESS,
                         HELD, SHARE, ABOVE, BLOCK)
    return accs


@triton.jit(do_not_specialize=["rows", "capacity"])
def _product(x, weights, scales, offsets, subs, out, partial, tickets, rows, outputs, groups, pair,
             squares, sums, eps, cos, sin, keys, cache, slots, hidden, weight, found, capacity, kv_heads,
             END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
             BITS: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
             EARLY: tl.constexpr):
    """BLOCK outputs of x [n, in] over one part of the inputs; see QuantizedLinear for the order of weights, scales."""
    block, part = tl.program_id(0), tl.program_id(1)
    UNITS: tl.constexpr = BITS // 4  # of a group
    first, stop = part * groups // PARTS * UNITS, (part + 1) * groups // PARTS * UNITS
    column, at = tl.arange(0, BLOCK), tl.arange(0, 64)
    weights += (block.to(tl.int64) * groups * UNITS + first) * (BLOCK * 64) + column[:, None] * 64 + at[None, :]
    wait(EARLY)
    inputs = groups * 128
    accs = ()
    for _ in tl.static_range(TILES):
        accs += (tl.zeros((BLOCK, 8), tl.float32),)
    for unit in tl.range(first, stop, num_stages=STAGES):
        accs = _unit(accs, weights + (unit - first) * (BLOCK * 64), x + unit * (512 // BITS), rows, inputs, scales,
                     offsets, subs, block * groups * UNITS + unit, column, TILES, BITS, SHARE, ABOVE, BLOCK)
    lead(EARLY)
    outs = block * BLOCK + column
    if SHARE == 0:
        scale = tl.load(scales + outs)[:, None]
        new = ()
        for tile in tl.static_range(TILES):
            new += (accs[tile] * scale,)
        accs = new
    if PARTS > 1 or END == "add":  # there rows' squares are added up, in the order of what comes from memory
        size = rows * outputs
        for tile in tl.static_range(TILES):
            row = tile * 8 + tl.arange(0, 8)
            tl.store(partial + part * size + outs[:, None] + row[None, :] * outputs, accs[tile],
                     mask=row[None, :] < rows)
        if is_last(tickets + block, PARTS):
            accs = _added_up(partial, outs, rows, outputs, PARTS, TILES)
            _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots,
                    hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED, BLOCK)
    else:
        _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots, hidden,
                weight, found, capacity, kv_heads, END, SUMS, PAIRED, BLOCK)


@triton.jit
def _added_up(partial, outs, rows, outputs, PARTS: tl.constexpr, TILES: tl.constexpr):
    """All parts' sums of each eight rows: [BLOCK, 8]."""
    accs = ()
    for tile in tl.static_range(TILES):
        row = tile * 8 + tl.arange(0, 8)
        accs += (add_up(partial, outs[:, None] + row[None, :] * outputs, row[None, :] < rows, rows * outputs, PARTS),)
    return accs


@triton.jit
def _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots, hidden,
            weight, found, capacity, kv_heads, END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr,
            BLOCK: tl.constexpr):
    """Each eight rows' sums."""
    for tile in tl.static_range(len(accs)):
        _finish_rows(accs[tile], out, block, tile * 8 + tl.arange(0, 8), rows, outputs, groups, pair, squares, sums,
                     eps, cos, sin, keys, cache, slots, hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED,
                     BLOCK)


@triton.jit
def _finish_rows(acc, out, block, row, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots,
                 hidden, weight, found, capacity, kv_heads, END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr,
                 BLOCK: tl.constexpr):
    """Finish whole sums [BLOCK, 8 rows]; see FusedLinear."""
    real = row[None, :] < rows
    if squares is not None:
        every = tl.arange(0, SUMS)
        some = tl.load(squares + row[:, None] * sums + every[None, :],
                       mask=(row[:, None] < rows) & (every < sums)[None, :], other=0.0)
        acc *= (1.0 / tl.sqrt_rn(tl.sum(some, 1) / (groups * 128) + eps))[None, :]
    outs = block * BLOCK + tl.arange(0, BLOCK)
    if END == "plain":
        if PAIRED:
            outs = _in_order(outs, pair)
        tl.store(out + row[None, :] * outputs + outs[:, None], acc, mask=real)
    elif END == "add":
        at = row[None, :] * outputs + outs[:, None]
        acc += tl.load(hidden + at, mask=real, other=0.0)
        tl.store(hidden + at, acc, mask=real)
        tl.store(out + at, acc * tl.load(weight + outs)[:, None], mask=real)
        tl.store(found + row * (outputs // BLOCK) + block, tl.sum(acc * acc, 0), mask=row < rows)
    else:
        one, other = tl.split(tl.permute(tl.reshape(acc, (BLOCK // 2, 2, acc.shape[1])), (0, 2, 1)))
        both = block * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        if END == "gate":
            tl.store(out + row[None, :] * pair + both[:, None], one * tl.sigmoid(one) * other, mask=real)
        else:
            _rotate(one, other, both // pair, both % pair, out, row, rows, outputs // (2 * pair), pair, cos, sin, keys,
                    cache, slots, capacity, kv_heads)


@triton.jit
def _rotate(one, other, head, dim, queries, row, rows, num_heads, half, cos, sin, keys, values, slots, capacity,
            kv_heads):
    """Both halves of pieces of heads -> rotated queries; rotated keys, and values as they are, at their slots."""
    real = row[None, :] < rows
    of_queries = num_heads - 2 * kv_heads
    key, value = head - of_queries, head - of_queries - kv_heads
    turned = real & (value < 0)[:, None]
    at = row[None, :] * 2 * half + dim[:, None]
    near, far = tl.load(cos + at, mask=turned, other=1.0), tl.load(cos + at + half, mask=turned, other=1.0)
    left = one * near + other * tl.load(sin + at, mask=turned, other=0.0)
    right = other * far + one * tl.load(sin + at + half, mask=turned, other=0.0)
    asks = real & (key < 0)[:, None]
    to = queries + (row[None, :] * of_queries + head[:, None]) * 2 * half + dim[:, None]
    tl.store(to, left, mask=asks)
    tl.store(to + half, right, mask=asks)
    slot = tl.load(slots + row, mask=row < rows, other=0)[None, :]
    is_key, is_value = real & ((key >= 0) & (value < 0))[:, None], real & (value >= 0)[:, None]
    there = keys + (key.to(tl.int64)[:, None] * capacity + slot) * 2 * half + dim[:, None]
    tl.store(there, left, mask=is_key)
    tl.store(there + half, right, mask=is_key)
    there = values + (value.to(tl.int64)[:, None] * capacity + slot) * 2 * half + dim[:, None]
    tl.store(there, left, mask=is_value)
    tl.store(there + half, right, mask=is_value)
