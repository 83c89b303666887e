"""Share a long cache out among the programs of a kernel, in Triton: equal parts, of which none depends on how
wide a pass is. Letters as in ``triton_attention``.

Where parts begin depends on the length at which a pass's first row would be alone. That moves once in about 2,048
tokens, as equal parts must grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]

from .triton_launch import is_hopper, multiprocessors

_GROWTH = 2048  # tokens after which parts begin elsewhere, at least
_LONG = tl.constexpr(32)  # steps of a part from which on it grows by whole ones: then the last is 3 % shorter at most


@dataclass(frozen=True, slots=True)
class Tiles:
    """The way in which one program reads: slots at a time, stages in flight, warps; and programs per multiprocessor."""

    slots: int
    stages: int
    warps: int
    programs: int
    rows: int  # query rows per program; more rows read the keys again

    @classmethod
    def choose(cls, dtype: torch.dtype, device: torch.device) -> Tiles:
        """For keys of a type, the same for passes of any width: see above."""
        if dtype == torch.float32:  # exact products on the scalar units: for comparison, not for speed
            return cls(32, 2, 8, 2, 16)
        if dtype == torch.int8 and is_hopper(device):  # four programs of few rows fit: see ``triton_narrow``
            return cls(64, 3, 4, 4, 64)
        return cls(64, 3, 4, 2, 64)  # on an H200 64 rows take 2 % longer than one, and one as long as in a tile of 16

    def splits(self, device: torch.device, columns: int) -> int:
        """Parts per head: enough programs to fill the device once."""
        fill = max(1, self.programs * multiprocessors(device) // columns)
        even = triton.next_power_of_2(fill + 1) // 2
        return even if even >= 0.9 * fill else fill

    def step(self, parts: int) -> int:
        """Blocks by which long parts grow, all at once."""
        return max(1, _GROWTH // (parts * self.slots))

    def alike(self, length: int, parts: int) -> int:
        """Tokens behind ``length`` cached ones for which parts begin where they do for the first alone."""
        step = self.step(parts)
        size = triton.cdiv(triton.cdiv(length + 1, self.slots), parts)
        if size >= _LONG.value * step:
            size = triton.cdiv(size, step) * step
        return size * parts * self.slots - length


@triton.jit
def part_of(filled, tail_size, SLOTS: tl.constexpr, STEP: tl.constexpr):
    """Return, for a program with axis 2 for parts, its first block, the first that not all rows may see whole, the
    end."""
    part, parts = tl.program_id(2), tl.num_programs(2)
    blocks = tl.cdiv(filled, SLOTS)
    tail = filled - tail_size  # the first slot that not all rows may see
    size = tl.cdiv(tl.cdiv(tl.maximum(tail + 1, 1), SLOTS), parts)
    size = tl.where(size >= _LONG * STEP, tl.cdiv(size, STEP) * STEP, size)
    first = tl.minimum(part * size, blocks)
    stop = tl.where(part == parts - 1, blocks, tl.minimum(first + size, blocks))
    return first, tl.maximum(first, tl.minimum(stop, tail // SLOTS)), stop


@triton.jit
def added_in_pairs(x):
    """[rows, slots] -> [rows]: neighbours first, so in one order wherever numbers lie."""
    WIDE: tl.constexpr = x.shape[1]
    if WIDE > 1:
        left, right = tl.split(tl.reshape(x, (x.shape[0], WIDE // 2, 2)))
        whole = added_in_pairs(left + right)
    else:
        whole = tl.reshape(x, (x.shape[0],))
    return whole
