"""Integers that AWQ, GPTQ and compressed-tensors pack into int32, with a scale for each group of inputs.

A weight is (number - zero) * scale, and becomes step * scale + offset (see ``kernels.Grouped``) without loss: numbers
and zeros have at most nine bits and a scale of 16 bits has eleven, so that in fp32 both products are exact, and so is
their difference. With scales of fp32 it would not be: such weights with zero points are numbers at once, and so are
those whose inputs belong to groups in any order (act-order).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import GROUP_SIZES, Grouped
from .groups import Form
from .weights import Matrix

Get = Callable[[str], "Tensor | None"]
Read = Matrix | Grouped | None


@dataclass(frozen=True, slots=True)
class Packing:
    """How a method stores a product, as far as its form in memory depends on it.

    bits: of a number. offsets: zero points may differ from the middle of all numbers, so that there are offsets.
    packed, scales, zeros: the tensors' names; zeros empty: there are none. axis: of scales, along which groups lie."""

    bits: int
    offsets: bool
    packed: str = "qweight"
    scales: str = "scales"
    zeros: str = "qzeros"
    axis: int = 0

    def form(self, header: Callable[[str], tuple[tuple[int, ...], str] | None], inputs: int) -> Form | None:
        """Return the form of a packed product, from shapes and types of its tensors; None where it has none in our
        kernels. ``kept`` makes the same of it, if its zero points are what the settings say."""
        scales = header(self.scales)
        if scales is None:
            return None
        shape, kind = scales
        groups = shape[-self.axis] if shape else 1  # axis 1 is the last one
        offset = self.offsets and header(self.zeros) is not None
        if not groups or inputs % groups or (offset and "16" not in kind):
            return None
        group = _group_of_kernels(inputs // groups)
        return Form(self.bits, group, offset) if group else None


def kept(weight: Grouped) -> Grouped | None:
    """The weight in groups that our kernels have; None: no such size divides its own."""
    group = _group_of_kernels(weight.group)
    return weight.in_groups_of(group) if group else None


def _group_of_kernels(group: int) -> int:
    return max((size for size in GROUP_SIZES if group % size == 0), default=0)


def need(found: Tensor | None, what: str) -> Tensor:
    if found is None:
        raise KeyError(f"there is no {what}")
    return found


def read_awq(get: Get, shape: tuple[int, int], packing: Packing) -> Read:
    """A product [out, in] = shape, by its tensors; None: it is not quantised. This and the next two raise KeyError
    where a tensor is missing, ValueError or RuntimeError where it is not what the method writes."""
    packed = get("qweight")
    if packed is None:
        return None
    scales, zeros = _table(get, "scales"), get("qzeros")
    _check(packed, "qweight")

    def outputs(of: Tensor) -> Tensor:  # an int32 has even columns of eight in its lower half, odd ones in its upper
        return _numbers(of.T, 4).view(*of.T.shape, 2, 4).permute(0, 3, 2, 1).reshape(-1, of.shape[0])

    return _weight(outputs(packed), shape, scales.T, None if zeros is None else outputs(zeros).int(), packing)


def read_gptq(get: Get, shape: tuple[int, int], packing: Packing, less: int) -> Read:
    """less: what zeros are stored less by. Inputs in any order of groups (``g_idx``)."""
    packed = get("qweight")
    if packed is None:
        return None
    scales, zeros = _table(get, "scales"), _numbers(_table(get, "qzeros"), packing.bits).flatten(1).int() + less
    _check(packed, "qweight")
    return _weight(_numbers(packed.T, packing.bits).flatten(1), shape, scales.T, zeros.T, packing, get("g_idx"))


def read_packed(get: Get, shape: tuple[int, int], packing: Packing) -> Read:
    """compressed-tensors' symmetric weights."""
    packed = get("weight_packed")
    if packed is None:
        return None
    get("weight_shape")
    get("weight_zero_point")  # of symmetric weights: zeros
    scale, which = need(get("weight_scale"), "weight_scale"), get("weight_g_idx")
    scale = scale.reshape(-1, scale.shape[-1]) if scale.dim() else scale.view(1, 1)
    if which is not None and (which < 0).any():  # -1: written, but not in use
        which = None
    return _weight(_numbers(packed, packing.bits).flatten(1)[:, : shape[1]], shape, scale, None, packing, which)


def _table(get: Get, name: str) -> Tensor:
    found = need(get(name), name)
    _check(found, name)
    return found


def _check(found: Tensor, name: str) -> None:
    """Raises ValueError unless it has two axes."""
    if found.dim() != 2:
        raise ValueError(f"{name} of shape {list(found.shape)}")


def _numbers(packed: Tensor, bits: int) -> Tensor:
    """int32 [..] -> uint8 [.., 32 / bits], lowest bits first."""
    if packed.dtype != torch.int32:
        raise ValueError(f"the packed numbers have type {packed.dtype}")
    octets = packed.contiguous().unsqueeze(-1).view(torch.uint8)
    return octets if bits == 8 else torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def _weight(numbers: Tensor, shape: tuple[int, int], scale: Tensor, zeros: Tensor | None, packing: Packing,
            which: Tensor | None = None) -> Matrix | Grouped:
    """numbers uint8 [out, in]; scale [out or 1, groups]; zeros int32, as scale (None: the middle); which: group of each
    input (None: in order). Raises ValueError where these do not belong together."""
    inputs, groups = shape[1], scale.shape[1]
    if tuple(numbers.shape) != shape:
        raise ValueError(f"numbers of shape {list(numbers.shape)}")
    in_order = which is None or _is_in_order(which, inputs, groups)
    if in_order and (not groups or inputs % groups):
        raise ValueError(f"{inputs} inputs in {groups} groups")
    if scale.shape[0] not in (1, shape[0]):
        raise ValueError(f"scales for {scale.shape[0]} outputs")
    if zeros is not None and zeros.shape != scale.shape:
        raise ValueError(f"{list(zeros.shape)} zeros for {list(scale.shape)} scales")
    middle, exact = 2 ** (packing.bits - 1), scale.element_size() == 2
    if zeros is not None and not packing.offsets and bool((zeros == middle).all()):
        zeros = None
    scale = scale.float().expand(shape[0], groups)
    if not in_order or not (zeros is None or exact):
        where = torch.arange(inputs) // (inputs // groups) if which is None else which.long()
        return Matrix((numbers.int() - (middle if zeros is None else zeros[:, where])).float() * scale[:, where])
    lift = 0 if zeros is not None and packing.bits == 4 else middle  # of eight bits, steps fill an int8
    steps = (numbers - lift).view(torch.int8).contiguous()  # below zero, both are the same byte
    offset = None if zeros is None else ((lift - zeros).float() * scale).contiguous()
    return Grouped(packing.bits, steps, scale.contiguous(), offset)


def _is_in_order(which: Tensor, inputs: int, groups: int) -> bool:
    return bool(groups) and inputs % groups == 0 and torch.equal(
        which.long(), torch.arange(inputs) // (inputs // groups))
