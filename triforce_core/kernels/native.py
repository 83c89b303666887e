"""The CPU's own kernels (``native/``, compiled by ``library``) as twins of ``reference``, for bfloat16.

Each row of a pass of up to 64 rows is the same bits as in a pass of its own: sums run in one order however
many rows there are. What they have no form for (other types, odd widths), torch computes: see ``cpu``.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int64, c_void_p

import torch
from torch import Tensor

from . import cpu, reference
from .kv_rows import from_rows, row_bits
from .library import compiled
from .quantized import GROUPS, Grouped
from .reference import Linear, chunk_mass, probabilities

PANEL = 64  # outputs of one panel of weights
BLOCK = 128  # keys of a block: chunks whose mass is asked for must fill it
PART = 4096  # slots of one share of a pass of few rows
LANES = 16
_LONGEST_HEAD = 1024  # head_dim


class LinearStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("weight", "scale", "bias", "offset", "subscale", "suboffset")] + [
        (name, c_int64) for name in ("outputs", "inputs", "group", "bits", "bounded", "shift", "uneven")]


class LayerStruct(Structure):
    _fields_ = [(name, LinearStruct) for name in ("qkv", "output", "gate_up", "down")] + [
        (name, c_void_p) for name in ("input_norm", "post_norm", "q_norm", "k_norm", "attention_norm", "mlp_norm")] + [
        (name, c_int64) for name in ("rope", "query_rope", "whole")]


class PlaceStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("keys", "values", "mask")] + [
        (name, c_int64) for name in ("slots", "first_slot", "length", "masked", "row", "bits", "noted")]


class AttentionStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("queries", "keys", "values", "out", "mass", "mask")] + [
        (name, c_int64) for name in (
            "stride", "row", "bits", "n", "heads", "group", "dim", "length", "masked", "mass_rows", "chunk", "chunks",
            "parts", "blocks", "row_blocks", "rows_of_block", "mass_blocks")] + [
        (name, c_void_p) for name in ("partial", "chunk_sums", "tops")]


class PassStruct(Structure):
    _fields_ = [("layers", POINTER(LayerStruct)), ("head", POINTER(LinearStruct)), *(
        (name, c_void_p) for name in ("final_norm", "cos", "sin", "hidden", "logits", "places", "mass", "queries",
                                      "narrow", "wide")), *(
        (name, c_int64) for name in (
            "num_layers", "n", "width", "heads", "group", "dim", "inner", "mass_rows", "chunk", "chunks", "logits_rows",
            "keeps_queries", "threads", "gelu")),
                ("eps", c_float)]


class LawsStruct(Structure):
    _fields_ = [("logits", c_void_p), ("out", c_void_p), ("width", c_int64), ("top_k", c_int64),
                ("temperature", c_float), ("top_p", c_double)]


class HeaviestStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("scores", "chosen")] + [
        (name, c_int64) for name in ("stride", "count", "wanted")]


class GatheringStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("to", "source", "chunks")] + [
        (name, c_int64) for name in ("to_stride", "from_stride", "k", "run")]


class PanelsStruct(Structure):
    _fields_ = [(name, c_void_p) for name in ("source", "to")] + [
        (name, c_int64) for name in ("rows", "count", "size", "bits", "least")]


class NativeLinear:
    """A ``Linear`` over weights in panels: [outputs / 64, inputs / 2, 64, 2], int8 with scales or bfloat16."""

    _held: tuple[Tensor | None, ...]  # weight, scale, bias, offset, subscale, suboffset: what the struct points to

    def __init__(self, library: ctypes.CDLL, data: Tensor, scale: Tensor | None, bias: Tensor | None) -> None:
        self.library = library
        self.outputs, self.inputs = data.shape
        self._held = (panels(library, data if scale is not None else data.to(torch.bfloat16)),
                      None if scale is None else scale.float().contiguous(),
                      None if bias is None else bias.float().contiguous(), None, None, None)
        self.struct = LinearStruct(*map(address, self._held), self.outputs, self.inputs, 0, 0 if scale is None else 8,
                                   scale is not None and bounded(data), 0, False)
        self._settle()

    @classmethod
    def of_groups(cls, library: ctypes.CDLL, weight: Grouped, bias: Tensor | None) -> NativeLinear:
        """Make the product of weights in groups, which stay so: see ``takes``."""
        own = cls.__new__(cls)
        own.library = library
        own.outputs, own.inputs = weight.steps.shape
        own._held = (panels(library, weight.steps) if weight.bits == 8 else panels_of_few(library, weight),
                     _group_panels(library, weight.scale), None if bias is None else bias.float().contiguous(),
                     *(_group_panels(library, part) for part in (weight.offset, weight.subscale, weight.suboffset)))
        own.struct = LinearStruct(*map(address, own._held), own.outputs, own.inputs, weight.group // 2, weight.bits,
                                  weight.bits == 8 and bounded(weight.steps), weight.super_block.bit_length() - 1,
                                  weight.uneven)
        own._settle()
        return own

    def _settle(self) -> None:
        weight = self._held[0]
        assert weight is not None
        self.library.triforce_settle(c_void_p(weight.data_ptr()), c_int64(weight.nbytes))

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(torch.bfloat16).contiguous()
        y = torch.empty(x.shape[0], self.outputs)
        no_memory(self.library.triforce_linear(byref(self.struct), c_void_p(x.data_ptr()), c_void_p(y.data_ptr()),
                                                c_int64(x.shape[0]), c_int64(torch.get_num_threads())))
        return y


def bounded(steps: Tensor) -> bool:
    """Return whether no number of 8 bits is -128, which has no counterpart."""
    return bool(steps.numpy().min(initial=0) > -128)


def panels(library: ctypes.CDLL, data: Tensor, together: int = 2) -> Tensor:
    """[out, n] with outputs filled up to whole panels -> [panels, n / together, PANEL, together]."""
    outputs, inputs = data.shape
    given = data.contiguous()
    filled = data.new_empty((-(-outputs // PANEL), inputs // together, PANEL, together))
    _fill(library, given, filled, PanelsStruct(count=inputs // together, size=given.element_size() * together))
    return filled


def panels_of_few(library: ctypes.CDLL, weight: Grouped) -> Tensor:
    """Steps [out, in] of four to six bits -> uint8 [panels, in / 8, PANEL bits]: of each eight inputs the lowest
    four bits of their numbers, then what is above; see ``native/linear.h``."""
    given = (weight.numbered if weight.uneven else weight.steps).contiguous()
    outputs, inputs = given.shape
    filled = torch.empty((-(-outputs // PANEL), inputs // 8, PANEL * weight.bits), dtype=torch.uint8)
    _fill(library, given, filled, PanelsStruct(count=inputs, bits=weight.bits,
                                               least=0 if weight.uneven else weight.least))
    return filled


def _fill(library: ctypes.CDLL, given: Tensor, filled: Tensor, how: PanelsStruct) -> None:
    how.source, how.to, how.rows = given.data_ptr(), filled.data_ptr(), len(given)
    library.triforce_panels(byref(how), c_int64(torch.get_num_threads()))


def _group_panels(library: ctypes.CDLL, values: Tensor | None) -> Tensor | None:
    """[out, groups] -> [panels, groups, PANEL]."""
    return None if values is None else panels(library, values, 1).squeeze(-1)


def takes(group: int, inputs: int) -> bool:
    """Return whether weights in such groups stay so."""
    return group in GROUPS and inputs % group == 0


def make_grouped(weight: Grouped, bias: Tensor | None, dtype: torch.dtype, pair: int = 0) -> Linear:
    """See reference.make_grouped: as it is stored where there is a form for that, else of its numbers."""
    library = compiled().library
    if library is None:
        return cpu.PackedLinear(weight, bias, dtype)
    if dtype != torch.bfloat16 or not takes(weight.group, weight.steps.shape[1]):
        return make_linear(weight.numbers().to(dtype), None, bias, dtype)
    if weight.group * weight.super_block not in GROUPS:  # unpacked together, too
        weight = weight.without_subscales()
    return NativeLinear.of_groups(library, weight, bias)


def probs(logits: Tensor, parameters: Tensor) -> Tensor:
    """See sampling.DeviceSampling.distributions; fp32. Tokens as likely as the last one that stays all stay. Where
    top-p is at work torch needs eight times as long: it sorts, or looks for the likeliest."""
    library = compiled().library
    assert library is not None
    temperature, top_k, top_p = parameters.tolist()
    return probs_by(library, logits, temperature, int(top_k), top_p)


def probs_by(library: ctypes.CDLL, logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """See ``sampling.Sampler.parameters``."""
    rows = logits.float().contiguous()
    out = torch.empty_like(rows)
    given = LawsStruct(rows.data_ptr(), out.data_ptr(), rows.shape[1], top_k, temperature, top_p)
    no_memory(library.triforce_laws(byref(given), c_int64(len(rows)), c_int64(torch.get_num_threads())))
    return out


def heaviest(scores: Tensor, wanted: int) -> Tensor:
    """See reference.heaviest. Ascending; of equal ones the first."""
    library = compiled().library
    if library is None or scores.dtype != torch.float32 or not 0 < wanted <= scores.shape[-1]:
        return reference.heaviest(scores, wanted)
    return heaviest_by(library, scores, wanted)


def heaviest_by(library: ctypes.CDLL, scores: Tensor, wanted: int) -> Tensor:
    rows = scores.reshape(-1, scores.shape[-1])  # a view, of a cut of whole rows
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    chosen = torch.empty(*scores.shape[:-1], wanted, dtype=torch.int64)
    given = HeaviestStruct(rows.data_ptr(), chosen.data_ptr(), rows.stride(0), rows.shape[1], wanted)
    no_memory(library.triforce_heaviest(byref(given), c_int64(len(rows))))
    return chosen


def gather_chunks(own: Tensor, source: Tensor, chunks: Tensor, chunk_size: int) -> None:
    """See reference.gather_chunks."""
    library = compiled().library
    if library is None or not (own.is_contiguous() and source.is_contiguous()):
        reference.gather_chunks(own, source, chunks, chunk_size)
    else:
        gather_by(library, own, source, chunks, chunk_size)


def gather_by(library: ctypes.CDLL, own: Tensor, source: Tensor, chunks: Tensor, chunk_size: int) -> None:
    heads, k = chunks.shape
    assert own.dtype == source.dtype and own.shape[1] >= k * chunk_size and own.shape[2] == source.shape[2]
    slot, chunks = source.shape[2] * source.element_size(), chunks.contiguous()
    given = GatheringStruct(own.data_ptr(), source.data_ptr(), chunks.data_ptr(), own.shape[1] * slot,
                            source.shape[1] * slot, k, chunk_size * slot)
    library.triforce_gather(byref(given), c_int64(heads))


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def no_memory(failed: int) -> None:
    if failed:
        raise MemoryError("No memory for the sums of a pass")


def make_linear(data: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """See reference.make_linear."""
    library = compiled().library if dtype == torch.bfloat16 and data.shape[1] % 2 == 0 else None
    if library is None:
        return cpu.make_linear(data, scale, bias, dtype)
    return NativeLinear(library, data, scale, bias)


class Attention(cpu.Attention):
    """See reference.attention; the result has the type of keys. They may be rows of bytes too (see ``kv_rows``): the
    result is bfloat16 then, as from a cache of the numbers they stand for."""

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None = None,
        mass_rows: int = 0, chunk_size: int = 1,
    ) -> tuple[Tensor, Tensor | None]:
        library = compiled().library if keys.dtype in (torch.bfloat16, torch.int8) else None
        fits = attends(queries.shape[2]) and keys.is_contiguous() and values.is_contiguous()
        if library is None or not fits:
            if keys.dtype == torch.int8:
                keys, values = (from_rows(part[:, :length], queries.shape[2]) for part in (keys, values))
            return super().__call__(queries, keys, values, length, staged_mask, mass_rows, chunk_size)
        return attention(library, queries, keys, values, length, staged_mask, mass_rows, chunk_size)


def attends(dim: int) -> bool:
    """Return whether there is a form for heads of this size."""
    return dim % LANES == 0 and dim <= _LONGEST_HEAD


def row_of(kept: Tensor, dim: int) -> tuple[int, int]:
    """Return, for keys or values [H, C, D or W], the bytes of a slot of one head and the bits of a number."""
    width = kept.shape[2]
    return width * kept.element_size(), row_bits(width, dim) if kept.dtype == torch.int8 else 16


def attends_rows(dtype: torch.dtype, rows: int = 1, masked: bool = False, indexed: bool = False) -> bool:
    """See Kernels. Ours read them faster than torch unpacks them, so also where products are made in float32."""
    return not indexed and (dtype == torch.bfloat16 or compiled().library is not None)


def notes_mass(chunk_size: int) -> bool:
    """Return whether the mass of such chunks is a by-product of attention."""
    return BLOCK % chunk_size == 0


def mass_again(queries: Tensor, keys: Tensor, length: int, staged_mask: Tensor | None, mass_rows: int,
               chunk_size: int) -> Tensor:
    """Compute attention mass where it is no by-product: see reference.attention."""
    n = queries.shape[0]
    if keys.dtype == torch.int8:
        keys = from_rows(keys[:, :length], queries.shape[2])
    probs = probabilities(queries, keys, length, staged_mask, min(n, mass_rows))
    return chunk_mass(probs, (length - n) // chunk_size, chunk_size)


def attention(library: ctypes.CDLL, queries: Tensor, keys: Tensor, values: Tensor, length: int,
              staged_mask: Tensor | None, mass_rows: int, chunk_size: int) -> tuple[Tensor, Tensor | None]:
    """See reference.attention; keys and values contiguous bfloat16 or rows of bytes, see ``attends``."""
    n, num_heads, dim = queries.shape
    heads, slots = keys.shape[:2]
    assert n <= length <= slots and num_heads % heads == 0, (queries.shape, keys.shape, length)
    asked = queries.to(torch.bfloat16).contiguous()
    out = torch.empty(n, num_heads * dim, dtype=torch.bfloat16)
    row, bits = row_of(keys, dim)
    chunks = (length - n) // chunk_size if mass_rows and notes_mass(chunk_size) else 0
    mass = torch.zeros(heads, chunks) if mass_rows else None
    mask = None if staged_mask is None else staged_mask.to(torch.uint8).contiguous()
    given = AttentionStruct(
        *map(address, (asked, keys, values, out)), address(mass) if chunks else None, address(mask), slots * row, row,
        bits, n, heads, num_heads // heads, dim, length, 0 if mask is None else mask.shape[1], min(n, mass_rows),
        chunk_size, chunks)
    no_memory(library.triforce_attention(byref(given), c_int64(torch.get_num_threads())))
    if mass_rows and not notes_mass(chunk_size):
        mass = mass_again(asked, keys, length, staged_mask, mass_rows, chunk_size)
    return out, mass
