"""Count what weights that stay in groups of few bits take, from the forms of a checkpoint's matrices alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..kernels import grouped_bytes


class Form(NamedTuple):
    """How a matrix in few bits lies in memory. bits: of its steps; group: weights that share a scale; super_block:
    groups whose scales are multiples of one (1: they are not); uneven: see ``Grouped``."""

    bits: int
    group: int
    offsets: bool
    super_block: int = 1
    uneven: bool = False


# Matrices of one product, as the decoder joins them.
_PRODUCTS = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",),
             ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))
UNPACKED = 2.0  # bytes of a weight


def kept_bytes(find: Callable[[str], tuple[int, Form | None] | None], *, in_bytes: bool = False) -> tuple[float, float]:
    """Bytes of a layers' weight, and of one of the head's, where what has a form is kept in it: those that are one
    product take one form together (see ``kernels.join_grouped``), and what has none takes two bytes.

    find: given a matrix's name, how many weights it has and their form; None where there is no such matrix.
    in_bytes: as on a GPU, see ``Grouped.in_bytes``."""
    taken = weights = 0.0
    layer = 0
    while find(f"model.layers.{layer}.{_PRODUCTS[0][0]}") is not None:
        for names in _PRODUCTS:
            found = [part for name in names if (part := find(f"model.layers.{layer}.{name}")) is not None]
            count = sum(part[0] for part in found)
            weights += count
            taken += count * _joined([part[1] for part in found], in_bytes)
        layer += 1
    head = find("lm_head") or find("model.embed_tokens")
    return taken / max(1.0, weights), _joined([head[1]], in_bytes) if head else UNPACKED


def _joined(given: Sequence[Form | None], in_bytes: bool = False) -> float:
    forms = [form for form in given if form is not None]
    if not forms or len(forms) < len(given):
        return UNPACKED
    offsets, group = {form.offsets for form in forms}, min(form.group for form in forms)
    above = {form.group * form.super_block for form in forms}
    same = len(above) == 1 and all(form.super_block > 1 for form in forms)
    bits, uneven = max(*(form.bits for form in forms), 6 if len(offsets) > 1 else 0), {form.uneven for form in forms}
    if len(uneven) > 1 or (in_bytes and (bits > 4 or True in uneven)):
        bits = 8
    return grouped_bytes(bits, group, any(offsets), max(above) // group if same else 1)
