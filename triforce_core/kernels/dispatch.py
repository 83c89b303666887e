"""Chooses, once per model, which implementation of each op runs: the only import for other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from . import cpu, kv_rows, native, reference, torch_ops
from .library import compiled
from .reference import AddNorm, Linear


class AttentionObserver(Protocol):
    """Looks on while a pass attends. Given to ``Llama.forward``; None costs nothing.

    mass_rows: how many of the pass's last query rows to sum attention over; 0: queries only.
    chunk_size: slots per chunk of ``mass``.
    """

    mass_rows: int
    chunk_size: int

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        """After one layer's attention. queries: rotated, [n, query_heads, D]. mass: fp32 [kv_heads, chunks], the
        softmax probabilities of the last ``mass_rows`` rows summed over rows, the group's query heads and the slots of
        each whole chunk before the staged tail; None if mass_rows is 0. Both may be kept: nobody else writes them."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """One implementation of each op; signatures as in ``reference``."""

    name: str
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: AddNorm
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor], Tensor]
    make_linear: Callable[[Tensor, Tensor | None, Tensor | None, torch.dtype], Linear]
    attention: Callable[..., tuple[Tensor, Tensor | None]]
    geglu: Callable[[Tensor], Tensor] = reference.geglu
    device_lengths: tuple[int, ...] = ()  # values of head_dim for which attention takes a length on the device
    max_rows: int = 0  # rows of a pass up to which it does
    indexed_attention: Callable[..., Tensor] | None = None  # None: chosen chunks are faster copied together
    rotate_and_write: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = reference.rotate_and_write
    quantize_linear: Callable[..., Linear] = reference.quantize_linear
    quantized_types: tuple[torch.dtype, ...] = ()  # of products that weights in few bits make faster
    look_ahead: Callable[[Tensor], Tensor] = reference.look_ahead
    probs: Callable[[Tensor, Tensor], Tensor] | None = None  # None: as sampling.DeviceSampling has it
    pick: Callable[[Tensor, Tensor], Tensor] | None = None  # None: as sampling.DrawnChance has it
    reject: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None  # None: as speculation.verifier has it
    probs_width: int = 0  # of a vocabulary, up to which those three are faster
    confidence: Callable[[Tensor], Tensor] | None = None  # None: as sampling has it
    make_grouped: Callable[..., Linear] = reference.make_grouped
    # (type of products, rows = 1, masked = False, indexed = False): whether such a pass, over all slots or (indexed)
    # chosen chunks, attends keys and values in rows of bytes as they are; others attend what ``unpack_rows`` makes
    attends_rows: Callable[..., bool] = lambda dtype, rows=1, masked=False, indexed=False: False
    unpack_rows: Callable[[Tensor, Tensor], None] = kv_rows.unpack_rows
    # (cached tokens, KV heads, type of keys, device) -> rows that a pass behind them computes as passes of one row do
    batch_invariant_rows: Callable[[int, int, torch.dtype, torch.device], int] | None = None


REFERENCE = Kernels("reference", reference.rms_norm, reference.adding(reference.rms_norm), reference.rotate,
                    reference.swiglu, reference.make_linear, reference.attention,
                    indexed_attention=reference.indexed_attention)


def choose_kernels(device: torch.device) -> Kernels:
    """The fastest implementation for ``device``; the CPU's has scratch memory of its own: one per model."""
    if device.type == "cpu":
        return Kernels(
            "cpu", rms_norm=cpu.rms_norm, add_rms_norm=reference.adding(cpu.rms_norm), rotate=torch_ops.rotate,
            swiglu=torch_ops.swiglu, make_linear=native.make_linear, attention=native.Attention(),
            attends_rows=native.attends_rows, make_grouped=native.make_grouped,
            probs=native.probs if compiled().library is not None else None, probs_width=sys.maxsize)
    if device.type == "cuda" and find_spec("triton") is not None:
        from . import (
            triton_attention,
            triton_dense,
            triton_indexed,
            triton_linear,
            triton_ops,
            triton_probs,
            triton_rows,
        )

        return Kernels(
            "triton", rms_norm=torch_ops.rms_norm, add_rms_norm=triton_ops.add_rms_norm, rotate=triton_ops.rotate,
            swiglu=triton_ops.swiglu, make_linear=triton_dense.make_linear, attention=triton_attention.attention,
            device_lengths=triton_attention.HEAD_DIMS, max_rows=triton_attention.MAX_ROWS,
            indexed_attention=triton_indexed.attention, rotate_and_write=triton_ops.rotate_and_write,
            quantize_linear=triton_linear.quantize_linear,
            quantized_types=(torch.bfloat16,) if _rounds(device) else (), look_ahead=triton_ops.look_ahead,
            probs=triton_probs.probs, pick=triton_probs.pick, reject=triton_probs.reject,
            probs_width=triton_probs.MOST, confidence=triton_probs.confidence, make_grouped=triton_dense.make_grouped,
            attends_rows=triton_attention.attends_rows, unpack_rows=triton_rows.unpack,
            batch_invariant_rows=triton_attention.batch_invariant_rows)
    return Kernels("torch", rms_norm=torch_ops.rms_norm, add_rms_norm=reference.adding(torch_ops.rms_norm),
                   rotate=torch_ops.rotate, swiglu=torch_ops.swiglu, make_linear=reference.make_linear,
                   attention=torch_ops.attention)


def heaviest(scores: Tensor, wanted: int) -> Tensor:
    """See reference.heaviest."""
    return (native if scores.device.type == "cpu" else reference).heaviest(scores, wanted)


def gather_chunks(own: Tensor, source: Tensor, chunks: Tensor, chunk_size: int) -> None:
    """See reference.gather_chunks."""
    (native if source.device.type == "cpu" else reference).gather_chunks(own, source, chunks, chunk_size)


def write_rows(rows: Tensor, slots: Tensor, x: Tensor) -> None:
    """See kv_rows.write_rows: the same bits, on a GPU in one launch where that can be."""
    if rows.is_cuda and x.shape[2] in _row_dims():
        from . import triton_rows

        triton_rows.write(rows, slots, x)
    else:
        kv_rows.write_rows(rows, slots, x)


@cache
def _row_dims() -> tuple[int, ...]:
    """Values of head_dim that a GPU's own kernels have rows of."""
    if find_spec("triton") is None:
        return ()
    from .triton_attention import HEAD_DIMS

    return HEAD_DIMS


def keeps_groups(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether ``make_grouped`` multiplies weights as they lie in groups, for products in ``dtype``."""
    return dtype == torch.bfloat16 and not groups_missing(device)


def groups_missing(device: torch.device) -> str:
    """Return why it does not on this device, in a few words; empty: it does."""
    if device.type == "cpu":
        return "" if compiled().library is not None else f"kernels: {compiled().summary}"
    if device.type != "cuda" or find_spec("triton") is None or not _multiplies_bfloat16(device):
        return "no Triton for this GPU"
    from .triton_check import wrong_groups

    mistake = wrong_groups(device)
    return f"the kernels for few bits failed their check on this GPU: {mistake}" if mistake else ""


def _rounds(device: torch.device) -> bool:
    """Return whether a GPU multiplies weights that this app rounded."""
    from .triton_check import wrong

    return _multiplies_bfloat16(device) and not wrong(device)


def _multiplies_bfloat16(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def values_transposed(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether ``attention`` reads values faster from memory laid out [H, D, C] (seen through a transposed
    view)."""
    return device.type == "cpu" and dtype == torch.bfloat16 and compiled().library is None
