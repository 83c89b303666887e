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

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import triton  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import quantized
from .fused import PreNorm
from .quantized import GROUP, GROUPS, Grouped, Rounded, in_blocks
from .reference import Dense, Linear
from .triton_launch import early, multiprocessors
from .triton_products import product, unpack

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
        unpack[(self.outputs // self._block, units)](
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
        product[(self.outputs // self._block, parts)](
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
    """Return whether it has one scale per row, as ``Rounded`` in int8 has."""
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
    in which ``triton_products`` finds each thread's: of an output a quarter of the bytes, those that it multiplies."""
    units = data.view(len(data) // block, block // 64, 4, 2, 8, -1, 4, 2, 4, 2)
    return units.permute(0, 5, 1, 3, 2, 4, 8, 6, 7, 9).reshape(len(data) // block, -1, block, 64)
