"""Products of few rows with weights in 8 or 4 bits, in Triton: the weights are read once, in one stream per program.

At 1 to 64 rows a product costs what reading its weights costs. A program takes BLOCK outputs and one of S parts of the
inputs; its weights lie in one piece. Whoever of the S parts is done last adds them up, in fixed order: results do not
depend on who that was. The bytes are those of ``quantized``; they become bf16 in registers, exactly, sums are fp32, and
scales are applied to sums.

Measured on an H200, torch 2.11, the four products of a llama2-7b layer and the small kernels between them, 4 rows:
int4 61 us, int8 74 us, cuBLAS bf16 121 us; torch's _weight_int4pack_mm 94 us, _scaled_mm (fp8 by rows) 125 us,
_weight_int8pack_mm 3 ms. Fetching the first weights into the L2 while the kernel before still runs cost 4 us.

Letters: n rows, S parts. Inputs go by groups of GROUP.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import quantized
from .quantized import GROUP
from .reference import Dense, Linear
from .triton_launch import early, multiprocessors, wait

_MOST_PARTS = 8  # of the inputs: who adds them up holds all at once
MAX_ROWS = 64  # at once; wider passes take several turns, and are rare


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
    def choose(cls, outputs: int, kind: str) -> Plan:
        """As measured on an H200."""
        return cls(128 if kind == "int4" and outputs % 128 == 0 else 64, 5, 4, 4 if kind == "int4" else 3)

    def parts(self, outputs: int, groups: int, device: torch.device) -> int:
        """As many as give every multiprocessor the same number of programs, or nearly."""
        blocks, processors = outputs // self.outputs, multiprocessors(device)

        def even(parts: int) -> float:
            programs = blocks * parts
            return round(programs / (triton.cdiv(programs, processors) * processors), 2)

        most = max(1, min(_MOST_PARTS, groups // 2, self.programs * processors // blocks))
        return max(range(1, most + 1), key=lambda parts: (even(parts), parts))


class QuantizedLinear:
    """A ``Linear`` with a rounded weight in the order in which programs read it. Not for two streams at once."""

    def __init__(self, weight: Tensor, bias: Tensor | None, kind: str, plan: Plan | None = None) -> None:
        """weight [out, in], see ``fits``."""
        self.outputs, self.inputs = weight.shape
        self.kind, self.bias = kind, bias
        self._plan = plan or Plan.choose(self.outputs, kind)
        groups, block = self.inputs // GROUP, self._plan.outputs
        rounded = quantized.quantize(weight, kind)
        tiles = rounded.data.view(self.outputs // block, block, groups, -1)
        self._data = tiles.transpose(1, 2).contiguous()  # [out / block, groups, block, bytes of a group]
        self._scale = rounded.scale
        if kind == "int4":
            self._scale = rounded.scale.view(-1, block, groups).transpose(1, 2).contiguous()
        self._parts = self._plan.parts(self.outputs, groups, weight.device)
        self._tickets = torch.zeros(self.outputs // block, dtype=torch.int32, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if n > MAX_ROWS:
            return torch.cat([self(part) for part in x.split(MAX_ROWS)])
        x = x.to(torch.bfloat16).contiguous()
        out = x.new_empty((n, self.outputs))
        plan, parts = self._plan, self._parts
        partial = x.new_empty((parts, n, self.outputs), dtype=torch.float32) if parts > 1 else None
        _product[(self.outputs // plan.outputs, parts)](
            x, self._data, self._scale, out, partial, self._tickets, n, self.outputs, self.inputs // GROUP,
            ROWS=max(16, triton.next_power_of_2(n)), BLOCK=plan.outputs, BITS=quantized.KINDS[self.kind],
            PARTS=parts, STAGES=plan.stages if n <= 16 else 3, **early(x.device), num_warps=plan.warps)
        return out if self.bias is None else out.add_(self.bias)


def fits(weight: Tensor, kind: str) -> bool:
    """Whether these kernels take a weight: bf16, whole blocks of outputs, whole groups of inputs."""
    return weight.dtype == torch.bfloat16 and quantized.fits(weight, kind) and weight.shape[0] % 64 == 0


def quantize_linear(linear: Dense, kind: str) -> Linear:
    """See reference.quantize_linear."""
    return QuantizedLinear(linear.weight, linear.bias, kind) if fits(linear.weight, kind) else linear


@triton.jit
def _nibbles(packed):
    """Bytes -> (low half, high half) - 8 as bf16: 128 + n has n in its last bits, minus 136 is exact."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 a, b, c, d, one, off;
        mov.b32 one, 0x3F803F80;
        mov.b32 off, 0xC308C308;
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
        }""", "=r,=r,=r,=r,r", [packed], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4)


@triton.jit(do_not_specialize=["rows"])
def _product(x, weights, scales, out, partial, tickets, rows, outputs, groups, ROWS: tl.constexpr, BLOCK: tl.constexpr,
             BITS: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr):
    """BLOCK outputs of x [n, in] over one part of the inputs; see QuantizedLinear for the order of weights, scales."""
    block, part = tl.program_id(0), tl.program_id(1)
    BYTES: tl.constexpr = 64 if BITS == 4 else 128  # of an output's group
    first, stop = part * groups // PARTS, (part + 1) * groups // PARTS
    weights += (block.to(tl.int64) * groups + first) * BLOCK * BYTES
    wait(EARLY)
    row, column = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    at = tl.arange(0, BYTES)
    tile = at[:, None] + column[None, :] * BYTES
    real = row[:, None] < rows
    x += row[:, None] * (groups * 128) + first * 128 + at[None, :]
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in tl.range(0, stop - first, num_stages=STAGES):
        some = tl.load(weights + step * (BLOCK * BYTES) + tile)
        if BITS == 4:
            low, high = _nibbles(some)
            left = tl.load(x + step * 128, mask=real, other=0.0)
            right = tl.load(x + step * 128 + 64, mask=real, other=0.0)
            found = tl.dot(left, low)
            found = tl.dot(right, high, found)
            scale = tl.load(scales + (block * groups + first + step) * BLOCK + column)
            acc += found * scale[None, :]
        else:
            left = tl.load(x + step * 128, mask=real, other=0.0)
            acc = tl.dot(left, some.to(tl.bfloat16), acc)
    outs = block * BLOCK + column
    if BITS == 8:
        acc *= tl.load(scales + outs)[None, :]
    to = row[:, None] * outputs + outs[None, :]
    if PARTS > 1:
        tl.store(partial + part * rows * outputs + to, acc, mask=real)
        tl.debug_barrier()  # all threads' parts are written before one thread says so
        if tl.atomic_add(tickets + block, 1, sem="acq_rel") == PARTS - 1:
            acc = tl.zeros((ROWS, BLOCK), tl.float32)
            for other in tl.static_range(PARTS):
                acc += tl.load(partial + other * rows * outputs + to, mask=real, other=0.0, cache_modifier=".cg")
            tl.store(out + to, acc, mask=real)
            tl.store(tickets + block, 0)
    else:
        tl.store(out + to, acc, mask=real)
