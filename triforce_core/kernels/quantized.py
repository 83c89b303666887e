"""Weights in few bits: what rounding does to them, and how they are stored. Plain torch; ``triton_linear`` multiplies.

- int8: one fp32 scale per output; weight = data * scale[:, None], data int8 [out, in].
- int4: one fp32 scale per output and GROUP inputs; data uint8 [out, in / 2], two to a byte. Within a group the low half
  of byte j is input j and the high half input j + GROUP / 2; a half n means (n - 8) * scale.

For a tier whose tokens are verified: rounding costs acceptance, never exactness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

KINDS = {"int8": 8, "int4": 4}  # bits
HEAD_KIND = "int8"  # of the logits' product, whatever the others have: its errors are seen by every token
GROUP = 128
GROUPS = (16, 32, 64, 128, 256)  # inputs of a checkpoint's own groups that have kernels
_BLOCK = 64  # outputs of the smallest block that a GPU's program takes
_TOGETHER = 4096  # outputs rounded at a time: what lies between is several times their size
LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of uneven steps, as IQ4 has them
_NUMBERS = np.zeros(256, np.int8)  # of LEVELS, by a step's byte
_NUMBERS[np.array(LEVELS, np.int8).view(np.uint8)] = np.arange(len(LEVELS))
_SHRINK = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)  # of a group's range: cutting off its extreme may leave less error in all


@dataclass(frozen=True, slots=True)
class Rounded:
    """A weight [out, in]; see the module for data and scale."""

    kind: str
    data: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class Grouped:
    """A weight [out, in] as a checkpoint in few bits has it: steps * scale + offset, for each group of inputs.

    bits: 8, steps from -128 to 127; 6: from -32 to 31; 5 or 4: from 0 to 31 or 15 with offsets, from -16 or -8 to 15 or
    7 without. uneven: steps are of LEVELS, in 4 bits the number of one. A GPU multiplies 5, 6 and uneven ones as 8, see
    ``in_bytes``. steps: int8 [out, in], not packed; scale, offset: fp32 [out, in / group]. With subscales and, where
    there are offsets, suboffsets, int8 [out, in / group], scale and offset are those of super-blocks of several groups,
    and a group's are the products (GGUF's K-quants)."""

    bits: int
    steps: Tensor
    scale: Tensor
    offset: Tensor | None = None
    subscale: Tensor | None = None
    suboffset: Tensor | None = None
    uneven: bool = False

    @property
    def group(self) -> int:
        return self.steps.shape[1] // (self.scale if self.subscale is None else self.subscale).shape[1]

    @property
    def least(self) -> int:
        """Return the least of all even steps that there can be."""
        return 0 if self.bits < 6 and self.offset is not None else -(2 ** (self.bits - 1))

    @property
    def super_block(self) -> int:
        """Groups of one."""
        return 1 if self.subscale is None else self.subscale.shape[1] // self.scale.shape[1]

    def numbers(self) -> Tensor:
        """The weight, fp32 [out, in]."""
        own = self.without_subscales()
        grouped = own.steps.float().view(*own.scale.shape, -1) * own.scale[..., None]
        return (grouped if own.offset is None else grouped + own.offset[..., None]).view(own.steps.shape)

    def without_subscales(self) -> Grouped:
        """Return the same weight, each group with its own scale and offset."""
        if self.subscale is None:
            return self

        def product(of_blocks: Tensor | None, of_groups: Tensor | None) -> Tensor | None:
            if of_blocks is None or of_groups is None:
                return None
            return of_blocks.repeat_interleave(self.super_block, 1) * of_groups

        scale = product(self.scale, self.subscale)
        assert scale is not None
        return Grouped(self.bits, self.steps, scale, product(self.offset, self.suboffset), uneven=self.uneven)

    def in_groups_of(self, size: int) -> Grouped:
        """Return the same weight, each group cut into smaller ones. size: inputs of one, which divides the group's."""
        times = self.group // size

        def spread(values: Tensor | None) -> Tensor | None:
            return None if values is None else values.repeat_interleave(times, 1)

        if times == 1:
            return self
        if self.subscale is not None:  # super-blocks stay as they are
            return replace(self, subscale=spread(self.subscale), suboffset=spread(self.suboffset))
        return replace(self, scale=self.scale.repeat_interleave(times, 1), offset=spread(self.offset))

    def in_order(self, order: Callable[[Tensor], Tensor]) -> Grouped:
        """With its outputs in another order, or some of them; or elsewhere."""

        def ordered(part: Tensor | None) -> Tensor | None:
            return None if part is None else order(part)

        return replace(self, steps=order(self.steps), scale=order(self.scale), offset=ordered(self.offset),
                       subscale=ordered(self.subscale), suboffset=ordered(self.suboffset))

    @property
    def data(self) -> Tensor:
        """Steps, of eight or four bits, as ``Rounded`` has them; of four each as 0 to 15, in whole GROUPs."""
        if self.bits == 8:
            return self.steps
        return _in_halves(self.numbered.to(torch.uint8))

    def in_bytes(self) -> Grouped:
        """Return the same weight where there are kernels for eight and four bits alone."""
        return self if self.bits == 4 and not self.uneven else replace(self, bits=8, uneven=False)

    @property
    def numbered(self) -> Tensor:
        """Steps of less than 8 bits from 0 on, int8 [out, in]; uneven ones on CPUs alone, as they are kept there."""
        if not self.uneven:
            return self.steps - self.least
        return torch.from_numpy(_NUMBERS[self.steps.numpy().view(np.uint8)])  # a seventh of torch.bucketize's time


def grouped_bytes(bits: int, group: int, offset: bool, super_block: int = 1) -> float:
    """Return the bytes of a weight. super_block: groups of one; 1: there are no subscales."""
    scales = 2 if offset else 1
    return bits / 8 + scales * (4 / group if super_block == 1 else 1 / group + 4 / (group * super_block))


def join_grouped(parts: Sequence[Grouped]) -> Grouped:
    """Their outputs one after another, without loss: in the smallest groups of any and as few bits as hold all."""
    if len(parts) == 1:
        return parts[0]
    bits, uneven = max(part.bits for part in parts), {part.uneven for part in parts}
    if len(uneven) > 1:
        bits = 8
    if len({part.offset is None for part in parts}) > 1:
        bits = max(6, bits)  # steps from 0 and from -8 are not of one kind
    if any(part.subscale is None for part in parts) or len({part.super_block * part.group for part in parts}) > 1:
        parts = [part.without_subscales() for part in parts]
    group = min(part.group for part in parts)
    parts = [part.in_groups_of(group) for part in parts]
    scales, subscales = [part.scale for part in parts], [part.subscale for part in parts]
    return Grouped(bits, _joined([part.steps for part in parts]), _joined(scales),
                   _in_turn([part.offset for part in parts], scales), _in_turn(subscales, []),
                   _in_turn([part.suboffset for part in parts], subscales), uneven == {True})


def _in_turn(values: Sequence[Tensor | None], like: Sequence[Tensor | None]) -> Tensor | None:
    """One after another; zeros where there are none, as many as in ``like``. None: there are none at all."""
    if all(each is None for each in values):
        return None
    return _joined([torch.zeros_like(like[at]) if each is None else each  # type: ignore[arg-type]
                    for at, each in enumerate(values)])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """By NumPy, in this thread alone: on a busy machine torch's threads wait for each other longer than copying takes,
    and a model of experts joins 12,000 of these."""
    return torch.from_numpy(np.concatenate([part.numpy() for part in parts]))


def to_groups(weight: Tensor) -> Grouped:
    """weight [out, in], see ``fits``, rounded to four bits."""
    data, scale = _groups(weight)
    halves = torch.stack((data & 15, data >> 4)).view(2, len(data), -1, GROUP // 2)
    return Grouped(4, (halves.permute(1, 2, 0, 3).reshape(len(data), -1).to(torch.int8) - 8), scale)


def fits(weight: Tensor, kind: str) -> bool:
    """Return whether a weight has a form in this kind: whole groups along its inputs."""
    return kind in KINDS and weight.shape[1] % GROUP == 0


def in_blocks(outputs: int, inputs: int) -> bool:
    """Return whether a GPU's kernels for few bits take a weight of this shape: whole blocks of outputs, whole
    GROUPs."""
    return outputs % _BLOCK == 0 and inputs % GROUP == 0


def bytes_per_weight(kind: str) -> float:
    """Scales included (int8: they are a rounding error)."""
    return 0.5 + 4 / GROUP if kind == "int4" else 1.0


def quantize(weight: Tensor, kind: str) -> Rounded:
    """weight [out, in] in any float type."""
    return Rounded(kind, *(_channels(weight) if kind == "int8" else _groups(weight)))


def dequantize(rounded: Rounded) -> Tensor:
    """fp32 [out, in]."""
    if rounded.kind == "int8":
        return rounded.data.float() * rounded.scale[:, None]
    outputs = rounded.data.shape[0]
    whole = from_halves(rounded.data).view(outputs, -1, GROUP) - 8
    return (whole * rounded.scale[:, :, None]).view(outputs, -1)


def from_halves(data: Tensor) -> Tensor:
    """Numbers two to a byte, as ``Rounded`` has them -> fp32 [out, in], from 0 to 15."""
    whole = torch.empty(len(data), data.shape[1] // (GROUP // 2), 2, GROUP // 2, device=data.device)
    halves = data.view(len(data), -1, GROUP // 2)
    whole[:, :, 0], whole[:, :, 1] = halves & 15, halves >> 4
    return whole.view(len(data), -1)


def _channels(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.abs().amax(1).float().clamp_min(1e-12) / 127
    return torch.round(weight.float() / scale[:, None]).clamp_(-127, 127).to(torch.int8), scale


def _groups(weight: Tensor) -> tuple[Tensor, Tensor]:
    parts = [_some_groups(part) for part in weight.split(_TOGETHER)]
    return torch.cat([data for data, _ in parts]), torch.cat([scale for _, scale in parts])


def _some_groups(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Signed scales: a group's extreme becomes -8, so that all sixteen steps are used; of several ranges the one with
    the least squared error."""
    outputs = weight.shape[0]
    grouped = weight.float().view(outputs, -1, GROUP)
    extreme = grouped.gather(2, grouped.abs().argmax(2, keepdim=True))
    least = torch.full_like(extreme, float("inf"))
    scale = torch.ones_like(extreme)
    for shrink in _SHRINK:
        wanted = extreme * (shrink / -8)
        wanted = torch.where(wanted == 0, torch.ones_like(wanted), wanted)
        error = (_steps(grouped, wanted) * wanted - grouped).square_().sum(2, keepdim=True)
        better = error < least
        least, scale = torch.where(better, error, least), torch.where(better, wanted, scale)
    return _in_halves((_steps(grouped, scale) + 8).to(torch.uint8).view(outputs, -1)), scale.squeeze(2)


def _in_halves(steps: Tensor) -> Tensor:
    low, high = steps.view(len(steps), -1, GROUP).chunk(2, dim=2)
    return (low | (high << 4)).reshape(len(steps), -1)


def _steps(grouped: Tensor, scale: Tensor) -> Tensor:
    return torch.round(grouped / scale).clamp_(-8, 7)
