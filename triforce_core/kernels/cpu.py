"""The fast twins of ``reference`` for CPUs, with float32 or bfloat16 products.

What was measured (2 cores Zen 5, AVX-512 bf16, torch 2.13) and decides the shapes here:
batched products reach memory speed over *whole* contiguous buffers only (a slice of a bf16 buffer is copied first), so
unfilled slots are masked, not cut off; probabilities times values is a third faster if values are stored [H, D, C];
the last softmax axis must be contiguous; fresh multi-megabyte results cost more in page faults than in arithmetic, so
scores live in a scratch buffer; torch's own attention is several times slower for 1-32 query rows.
Norms, softmax sums and the residual stream are fp32: only inputs and outputs of products are rounded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference, torch_ops
from .quantized import GROUP, Grouped, from_halves
from .reference import Linear, chunk_mass, visible

_INT8_WIDTH = 16  # the int8 product reads so many inputs at a time (seen: SIGSEGV where they are no multiple)
# Up to here int8 products: faster to 9 rows, a little slower after, but each row is what it would be alone.
BATCH_INVARIANT_ROWS = 32
_BLOCK_SCORES = 1 << 26  # scores per block of query rows in wide passes: larger is faster, 128 MiB is enough
_UNPACKED = 64  # outputs whose weights are unpacked at a time: what is multiplied is still in the core's own cache
_FUSED_ROWS = 64  # float32: from here torch's fused attention wins (in bfloat16 it never does)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See reference.rms_norm. hypot(|x|, sqrt(d eps)) / sqrt(d) is the root of mean square plus eps, in few calls."""
    width = x.shape[-1]
    norm = torch.linalg.vector_norm(x, 2, -1, True, dtype=torch.float32)
    return (x / norm.hypot_(_number((width * eps) ** 0.5)).mul_(width**-0.5)).mul_(weight)


@lru_cache(maxsize=64)
def _number(value: float) -> Tensor:
    return torch.tensor(value)


def make_linear(data: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """See reference.make_linear. int8 weights with bf16 products keep both forms: int8 for few rows, bf16 for many.

    The int8 form gives each row the same result however many rows there are: verification agrees with decoding.
    It takes scales in bf16; where that rounds them, what is missing is multiplied in afterwards."""
    if scale is None or dtype != torch.bfloat16 or bias is not None or data.shape[1] % _INT8_WIDTH:
        return reference.make_linear(data, scale, bias, dtype)
    small, wide, factor = _padded(data), data.to(dtype), scale.to(dtype).contiguous()
    missing = None if torch.equal(factor.float(), scale) else scale / factor.float()

    def linear(x: Tensor) -> Tensor:
        x = x.to(dtype)
        few = x.shape[0] <= BATCH_INVARIANT_ROWS
        y = torch._weight_int8pack_mm(x, small, factor) if few else F.linear(x, wide).mul_(factor)
        return y if missing is None else y * missing

    return linear


def _padded(data: Tensor) -> Tensor:
    """A copy with room behind it: the int8 product reads a little past its end (seen: SIGSEGV on a mapped file)."""
    room = torch.zeros(data.numel() + 4096, dtype=data.dtype)
    room[: data.numel()] = data.flatten()
    return room[: data.numel()].view(data.shape)


class PackedLinear:
    """A ``Linear`` over weights in groups that stay in four bits, or in eight, and are unpacked in passing."""

    def __init__(self, weight: Grouped, bias: Tensor | None, dtype: torch.dtype) -> None:
        whole = weight.steps.shape[1] % GROUP == 0
        weight = weight.in_bytes() if whole else replace(weight, bits=8, uneven=False)
        self._least = weight.least if weight.bits == 4 else 0
        self.weight = replace(weight, steps=weight.data)
        self._bias, self._dtype = None if bias is None else bias.to(dtype), dtype

    def __call__(self, x: Tensor) -> Tensor:
        x, outputs = x.to(self._dtype), len(self.weight.steps)
        y = torch.empty(len(x), outputs, dtype=self._dtype)
        for at in range(0, outputs, _UNPACKED):
            y[:, at : at + _UNPACKED] = F.linear(x, self._numbers(at).to(self._dtype))
        return y if self._bias is None else y.add_(self._bias)

    def _numbers(self, first: int) -> Tensor:
        some = self.weight.in_order(lambda part: part[first : first + _UNPACKED])
        if some.bits == 4:
            some = replace(some, steps=from_halves(some.steps).add_(self._least))
        return some.numbers()


class Attention:
    """See reference.attention; the result has the type of keys.

    Unfilled slots must hold finite numbers (caches allocate zeros).

    An object only for its scratch memory, which no result shares; one per model, not for two threads at once."""

    def __init__(self) -> None:
        self._scratch: dict[torch.dtype, Tensor] = {}

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None = None,
        mass_rows: int = 0, chunk_size: int = 1,
    ) -> tuple[Tensor, Tensor | None]:
        n, num_heads, dim = queries.shape
        if keys.dtype == torch.float32 and n >= _FUSED_ROWS:
            return torch_ops.attention(queries, keys, values, length, staged_mask, mass_rows, chunk_size)
        heads, slots = keys.shape[:2]
        group = num_heads // heads
        scaled = (queries * dim**-0.5).to(keys.dtype).view(n, heads, group, dim)
        tail = n if staged_mask is None else staged_mask.shape[1]
        seen = visible(n, tail, staged_mask, keys.device) if tail > 1 else None
        rows = max(1, min(n, _BLOCK_SCORES // (num_heads * slots)))
        outs, mass = [], None
        for start in range(0, n, rows):
            stop = min(n, start + rows)
            m = stop - start
            block = scaled[start:stop].permute(1, 2, 0, 3).reshape(heads, group * m, dim)
            scores = self._room(heads, group * m, slots, keys.dtype)
            torch.bmm(block, keys.transpose(1, 2), out=scores)
            by_head = scores.view(heads, group, m, slots)
            if length < slots:
                by_head[..., length:] = float("-inf")
            if seen is not None:
                by_head[..., length - tail : length].masked_fill_(~seen[start:stop], float("-inf"))
            torch.softmax(scores, -1, out=scores)
            mixed = self._mix(scores, values).reshape(heads, group, m, dim)
            outs.append(mixed.permute(2, 0, 1, 3).reshape(m, num_heads * dim))
            if mass_rows and stop > n - mass_rows:
                looked_at = by_head[:, :, max(0, n - mass_rows - start) :]
                part = chunk_mass(looked_at, (length - n) // chunk_size, chunk_size)
                mass = part if mass is None else mass + part
        return outs[0] if len(outs) == 1 else torch.cat(outs), mass

    def _mix(self, probs: Tensor, values: Tensor) -> Tensor:
        """probs [H, r, C] times values [H, C, D]. One bf16 row alone would be summed in another order than among
        others (the only product here of which that is so); in company of itself, decoding agrees with verification."""
        if probs.shape[1] > 1 or probs.dtype != torch.bfloat16:
            return torch.bmm(probs, values)
        return torch.bmm(probs.expand(-1, 2, -1).contiguous(), values)[:, :1]

    def _room(self, heads: int, rows: int, slots: int, dtype: torch.dtype) -> Tensor:
        size = heads * rows * slots
        room = self._scratch.get(dtype)
        if room is None or room.numel() < size:
            self._scratch.pop(dtype, None)
            room = self._scratch[dtype] = torch.empty(size + size // 8, dtype=dtype)
        return room[:size].view(heads, rows, slots)
