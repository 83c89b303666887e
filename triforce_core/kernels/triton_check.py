"""A GPU's products with weights in few bits, against the numbers these stand for: a card that computes them wrongly, or
another release of Triton that does, is found here and not in an answer. Weights stay as they are then."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from .quantized import GROUP, KINDS, Grouped, Rounded, dequantize, quantize
from .triton_linear import QuantizedLinear

_OUTPUTS, _INPUTS = 128, 4 * GROUP
# Bits, inputs of a group, whether there are offsets, groups of a super-block: Q4_0, Q4_K, AWQ, Q6_K, Q5_K, int8 rows.
_FORMS = ((4, 32, False, 1), (4, 32, True, 8), (4, GROUP, True, 1), (8, 16, False, 16), (8, 32, True, 8),
          (8, _INPUTS, False, 1))
_ROWS = 9  # two tiles


@cache
def wrong(device: torch.device) -> str:
    """Name the first of this app's own forms that is computed wrongly; empty: none. Once a process; the first time
    on a machine its kernels are compiled for it, which takes seconds."""
    weight = torch.randn(_OUTPUTS, _INPUTS, generator=torch.Generator().manual_seed(0)).bfloat16()
    for kind in KINDS:
        rounded = quantize(weight, kind)
        there = Rounded(kind, rounded.data.to(device), rounded.scale.to(device))
        if not _multiplied(there, dequantize(rounded).double(), device):
            return kind
    return ""


@cache
def wrong_groups(device: torch.device) -> str:
    """Name the first form of a checkpoint's own groups that is computed wrongly; empty: none."""
    g = torch.Generator().manual_seed(0)
    for bits, group, offsets, super_block in _FORMS:
        low, high = (0, 16) if offsets and bits == 4 else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        groups = _INPUTS // group
        parts = torch.rand(2, _OUTPUTS, groups // super_block, generator=g) + 0.5
        subs = torch.randint(1, 64, (2, _OUTPUTS, groups), generator=g, dtype=torch.int8)
        weight = Grouped(bits, torch.randint(low, high, (_OUTPUTS, _INPUTS), generator=g, dtype=torch.int8),
                         parts[0] / high, parts[1] if offsets else None, subs[0] if super_block > 1 else None,
                         subs[1] if offsets and super_block > 1 else None)
        if not _multiplied(weight.in_order(lambda part: part.to(device)), weight.numbers().double(), device):
            return f"{bits} bits in groups of {group}" + (" with offsets" if offsets else "")
    return ""


def _multiplied(weight: Rounded | Grouped, exact: Tensor, device: torch.device) -> bool:
    """Return whether products with a weight, and what it is unpacked to, are near those with ``exact``, and a row's the
    same alone and in company."""
    x = torch.randn(_ROWS, _INPUTS, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.inference_mode():
        linear = QuantizedLinear(weight, None)
        found = linear(x.to(device))
        return (_near(found, x.double() @ exact.T) and _near(linear.unpacked(), exact)
                and torch.equal(linear(x[:1].to(device)), found[:1]))


def _near(found: Tensor, exact: Tensor) -> bool:
    """Return whether numbers are as near as bfloat16 is."""
    return float((found.double().cpu() - exact).norm() / exact.norm()) < 5e-3
