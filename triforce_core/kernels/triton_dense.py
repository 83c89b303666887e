"""Products of few rows with weights as they are, in Triton: a row's result is the same bits in any company.

Libraries choose another kernel for another number of rows, and so round otherwise: on an H200 cuBLAS did so from the
17th row on, or the 64th, in some of the shapes of llama2-7b and llama3-8b. Then a verified draft and plain decoding may
part where two tokens are nearly equally likely. Here a row's sums are taken in one order whatever the width: inputs in
ascending order within each of S parts, then the parts. Wider passes than MAX_ROWS are prefill, which everyone shares.

Measured on an H200, torch 2.11, the four products of a layer, us of one row and of 64, cuBLAS in brackets: llama2-7b
112 (117) and 127 (119), llama3-8b 115 (119) and 130 (129).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import reference
from .quantized import Grouped
from .reference import Dense, Linear
from .triton_attention import MAX_ROWS
from .triton_launch import early, lead, multiprocessors, wait
from .triton_linear import QuantizedLinear, fits_groups
from .triton_products import add_up, is_last

_BLOCK, _STEP = 64, 128  # outputs of a program, inputs that it takes at once
_FILLED = 1.4  # programs per multiprocessor that are enough
_MOST_PARTS = 8  # of the inputs: who adds them up holds all at once


@dataclass(frozen=True, slots=True)
class SteadyLinear(Dense):
    """A ``Linear`` whose rows do not depend on how many there are, up to MAX_ROWS. Not for two streams at once."""

    tickets: Tensor = field(init=False, repr=False, compare=False)
    parts: int = field(init=False)
    stages: int = field(init=False)  # of few rows; more rows take their memory

    def __post_init__(self) -> None:
        outputs, inputs = self.weight.shape
        blocks, steps, processors = outputs // _BLOCK, inputs // _STEP, multiprocessors(self.weight.device)
        parts = 1
        while blocks * parts < _FILLED * processors and 2 * parts <= min(_MOST_PARTS, steps):
            parts *= 2
        object.__setattr__(self, "stages", 4 if parts == 1 and blocks <= 3 * processors else 5)  # measured on an H200
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "tickets", torch.zeros(blocks, dtype=torch.int32, device=self.weight.device))

    def __call__(self, x: Tensor) -> Tensor:
        n, (outputs, inputs) = x.shape[0], self.weight.shape
        if n > MAX_ROWS:
            return F.linear(x.to(self.weight.dtype), self.weight, self.bias)
        x = x.to(self.weight.dtype).contiguous()
        out = x.new_empty((n, outputs))
        partial = x.new_empty((self.parts, n, outputs), dtype=torch.float32) if self.parts > 1 else None
        _product[(outputs // _BLOCK, self.parts)](
            x, self.weight, self.bias, out, partial, self.tickets, n, outputs, inputs, PARTS=self.parts,
            ROWS=max(16, triton.next_power_of_2(n)), BLOCK=_BLOCK, STEP=_STEP, STAGES=self.stages if n <= 16 else 3,
            **early(x.device), num_warps=4)
        return out


def make_linear(data: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """See reference.make_linear. Shapes that are no whole blocks, and fp32, are torch's own."""
    linear = reference.make_linear(data, scale, bias, dtype)
    assert isinstance(linear, Dense)
    weight = linear.weight
    fits = weight.shape[0] % _BLOCK == 0 and weight.shape[1] % _STEP == 0 and weight.dtype != torch.float32
    return SteadyLinear(weight, linear.bias) if fits and weight.is_cuda else linear


def make_grouped(weight: Grouped, bias: Tensor | None, dtype: torch.dtype, pair: int = 0) -> Linear:
    """See reference.make_grouped: as it is stored where there is a form for that, else of its numbers."""
    if dtype == torch.bfloat16 and fits_groups(weight):
        return QuantizedLinear(weight.in_bytes(), None if bias is None else bias.to(dtype), pair)
    return make_linear(weight.numbers(), None, bias, dtype)


@triton.jit(do_not_specialize=["rows"])
def _product(x, weight, bias, out, partial, tickets, rows, outputs, inputs, PARTS: tl.constexpr, ROWS: tl.constexpr,
             BLOCK: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr):
    """BLOCK outputs of x [n, in] over one part of the inputs; whoever of the parts is done last adds them up."""
    block, part = tl.program_id(0), tl.program_id(1)
    steps = inputs // STEP
    first, stop = part * steps // PARTS, (part + 1) * steps // PARTS
    row, column, at = tl.arange(0, ROWS), tl.arange(0, BLOCK), tl.arange(0, STEP)
    outs = block * BLOCK + column
    weight += outs[None, :].to(tl.int64) * inputs + first * STEP + at[:, None]
    wait(EARLY)
    real = row[:, None] < rows
    x += row[:, None] * inputs + first * STEP + at[None, :]
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in tl.range(0, stop - first, num_stages=STAGES):
        some = tl.load(weight + step * STEP)
        left = tl.load(x + step * STEP, mask=real, other=0.0)
        acc = tl.dot(left, some, acc)
    lead(EARLY)
    to = row[:, None] * outputs + outs[None, :]
    if PARTS > 1:
        tl.store(partial + part * rows * outputs + to, acc, mask=real)
        if is_last(tickets + block, PARTS):
            acc = add_up(partial, to, real, rows * outputs, PARTS)
            _write(acc, bias, out, to, outs, real)
    else:
        _write(acc, bias, out, to, outs, real)


@triton.jit
def _write(acc, bias, out, to, outs, real):
    if bias is not None:
        acc += tl.load(bias + outs)[None, :]
    tl.store(out + to, acc, mask=real)
