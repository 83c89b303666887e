"""Checkpoint folders whose config.json has a ``quantization_config``: AWQ, GPTQ, FP8, compressed-tensors, bitsandbytes.

Each method stands for exact numbers. Packed integers stay in few bits where there are kernels for them: a weight is
(number - zero) * scale, and becomes step * scale + offset (see ``kernels.Grouped``) without loss, as numbers and zeros
have at most nine bits and a scale of 16 bits has eleven. With scales of fp32 it would not be: such weights with zero
points are numbers at once, and so are those whose inputs belong to groups in any order (act-order). int8 with one scale
for each row stays int8, on CPUs as our own layout, on GPUs as groups as long as rows. All others are computed in fp32
and become the decoder's number type. Activations that a method would round, too, are not. Which matrices a folder has
in few bits is seen from its tensors, not from its lists of modules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import DamagedWeightsError, UnsupportedModelError
from ..kernels import GROUP_SIZES, Grouped
from .weights import Checkpoint, Form, Matrix, Part, WeightSource

_ALLOWED = ("AWQ (gemm) in 4 bits, GPTQ in 4 and 8, FP8, compressed-tensors (int8, symmetric 4 and 8 bits, FP8), "
            "bitsandbytes (int8, nf4, fp4), or weights that are not quantised")
_BESIDE = ("input_scale", "weight_format", "input_zero_point", "g_idx", "output_scale", "k_scale", "v_scale",
           "input_scale_ub")  # tensors of a product that its weight does not depend on


Get = Callable[[str], "Tensor | None"]
Read = Matrix | Grouped | None


@dataclass(frozen=True, slots=True)
class Packing:
    """Describe how a method stores a product, as far as its form in memory depends on it.

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


@dataclass(frozen=True, slots=True)
class Scheme:
    """Hold what a ``quantization_config`` asks for. reads: given a way to the tensors of one product (by what follows
    its name; None: not there) and its shape, the weight; None where this product is not quantised. int8_rows: with one
    scale each, our own layout. packing: of products that can stay in groups of few bits; None: they cannot. mixed: as
    their inputs belong to groups in any order."""

    name: str
    reads: Callable[[Get, tuple[int, int]], Read]
    int8_rows: bool = False
    packing: Packing | None = None
    mixed: bool = False


def read_scheme(raw: Mapping[str, Any]) -> Scheme | None:
    """Read the scheme of a config.json; None: weights are plain. Raises UnsupportedModelError naming the method."""
    given = raw.get("quantization_config") or raw.get("compression_config")
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise UnsupportedModelError("quantization_config in config.json is no object", allowed=_ALLOWED)
    method = given.get("quant_method", "unknown")
    found = {"awq": _awq, "gptq": _gptq, "fp8": _fp8, "fbgemm_fp8": _fp8, "compressed-tensors": _compressed,
             "bitsandbytes": _bitsandbytes}.get(method if isinstance(method, str) else "")
    if found is None:
        raise _unsupported(f"weights quantised with {method}")
    return found(given)


def _unsupported(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"This model has {what}, which is not supported", allowed=_ALLOWED,
                                 remedy="Take one of these forms of the same model, or a GGUF file of it.")


class QuantisedCheckpoint(WeightSource):
    """A ``WeightSource`` over a folder of that kind."""

    def __init__(self, folder: Checkpoint, scheme: Scheme, dtype: torch.dtype, *, keeps_groups: bool = False) -> None:
        """dtype: of matrices that are not kept as they are stored. keeps_groups: the kernels have products with weights
        in groups."""
        self._folder, self._scheme, self._dtype = folder, scheme, dtype
        self._keeps_groups = keeps_groups and (scheme.packing is not None or scheme.int8_rows)

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        return self._folder.tensor(name, shape, part)

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        """See ``Checkpoint.matrix``. A part is cut out of the whole weight."""
        found = self._read(name, shape)
        if found is None:
            return self._folder.matrix(name, shape, part)
        data, scale = (found.numbers(), None) if isinstance(found, Grouped) else (found.data, found.scale)
        data = data.to(self._dtype) if scale is None else data
        if part is None:
            return Matrix(data, scale)
        return Matrix(part.of(data), part.of(scale) if scale is not None and part.axis == 0 else scale)

    def grouped(self, name: str, shape: tuple[int, int]) -> Grouped | None:
        """Raises DamagedWeightsError."""
        found = self._read(name, shape) if self._keeps_groups else None
        if isinstance(found, Matrix):
            return None if found.scale is None else Grouped(8, found.data, found.scale[:, None])
        return None if found is None else kept(found)

    def _read(self, name: str, shape: tuple[int, int]) -> Read:
        """None: this one is not quantised. Raises DamagedWeightsError."""
        stem = name.removesuffix(".weight")
        try:
            found = self._scheme.reads(lambda suffix: self._folder.optional(f"{stem}.{suffix}"), shape)
        except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DamagedWeightsError(f"{stem} is not as {self._scheme.name} writes it: {reason}",
                                      remedy="Fetch the checkpoint again.") from error
        if found is None:
            return None
        for suffix in _BESIDE:
            self._folder.ignore(f"{stem}.{suffix}")
        has = tuple((found.steps if isinstance(found, Grouped) else found.data).shape)
        if has != shape:
            raise DamagedWeightsError(f"{name} has shape {list(has)}", allowed=f"{list(shape)} by config.json")
        return found

    def ignore(self, name: str) -> None:
        self._folder.ignore(name)

    def finish(self) -> None:
        self._folder.finish()


def _group_of(given: Mapping[str, Any]) -> int:
    size = given.get("group_size", 128)
    if not isinstance(size, int) or size == 0:
        raise _unsupported(f"groups of {size!r}")
    return size


def _awq(given: Mapping[str, Any]) -> Scheme:
    """Activation-aware weight quantisation (Lin et al. 2023), as AutoAWQ packs it for its GEMM kernel."""
    bits, version = given.get("bits", given.get("w_bit", 4)), str(given.get("version", "gemm")).lower()
    if bits != 4 or version != "gemm":
        raise _unsupported(f"AWQ weights in {bits} bits, version {version}")
    _group_of(given)
    packing = Packing(4, offsets=bool(given.get("zero_point", True)))
    return Scheme("AWQ", partial(read_awq, packing=packing), packing=packing)


def _gptq(given: Mapping[str, Any]) -> Scheme:
    """GPTQ (Frantar et al. 2022), as AutoGPTQ writes it."""
    bits, form = given.get("bits", 4), given.get("checkpoint_format", "gptq")
    if bits not in (4, 8) or form not in ("gptq", "gptq_v2"):
        raise _unsupported(f"GPTQ weights in {bits} bits, format {form}")
    packing, group = Packing(bits, offsets=not given.get("sym", True)), _group_of(given)
    # Groups of a whole row, or ones that were fixed beforehand, are in order even so.
    mixed = bool(given.get("desc_act")) and not given.get("static_groups") and group > 0
    less = 1 if form == "gptq" else 0  # the first format stores zeros less one
    return Scheme("GPTQ", partial(read_gptq, packing=packing, less=less), packing=None if mixed else packing,
                  mixed=mixed)


def _fp8(given: Mapping[str, Any]) -> Scheme:
    """8-bit floats with a scale for the tensor, for each row, or for each block (DeepSeek-V3's 128 x 128)."""
    block = given.get("weight_block_size")
    if block is not None and (not isinstance(block, list) or len(block) != 2 or min(block) < 1):
        raise _unsupported(f"FP8 weights in blocks of {block!r}")
    return Scheme("FP8", lambda get, shape: _floats(get, shape, block))


def _floats(get: Get, shape: tuple[int, int], block: list[int] | None) -> Matrix | None:
    scale = get("weight_scale_inv")
    scale = get("weight_scale") if scale is None else scale
    if scale is None:
        return None
    data, scale = need(get("weight"), "weight").float(), scale.float()
    if scale.numel() == 1:
        return Matrix(data * scale.reshape(()))
    if scale.numel() == shape[0]:
        return Matrix(data * scale.reshape(-1, 1))
    if block is None:
        raise ValueError(f"scales of shape {list(scale.shape)}")
    if list(scale.shape) != [math.ceil(size / by) for size, by in zip(shape, block, strict=True)]:
        raise ValueError(f"scales of shape {list(scale.shape)} in blocks of {block}")
    wide = scale.repeat_interleave(block[0], 0)[: shape[0]].repeat_interleave(block[1], 1)[:, : shape[1]]
    return Matrix(data * wide)


def _compressed(given: Mapping[str, Any]) -> Scheme:
    """The format of llm-compressor and vLLM: one group of settings for all products."""
    groups = list((given.get("config_groups") or {}).values())
    if len(groups) != 1:
        raise _unsupported(f"compressed-tensors with {len(groups)} groups of settings")
    weights = groups[0].get("weights") or {}
    form = groups[0].get("format") or given.get("format", "")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type", "int"), weights.get("strategy", "tensor")
    what = f"compressed-tensors weights in {bits}-bit {kind}, format {form}"
    if given.get("sparsity_config") not in (None, {}) and given["sparsity_config"].get("format", "dense") != "dense":
        raise _unsupported("sparse compressed-tensors weights")
    if not weights.get("symmetric", True):
        raise _unsupported(f"{what}, not symmetric")
    if kind == "float" and bits == 8:
        block = weights.get("block_structure")
        return Scheme("compressed-tensors", lambda get, shape: _floats(get, shape, block))
    if kind != "int" or (bits, form) not in ((4, "pack-quantized"), (8, "pack-quantized"), (8, "int-quantized")):
        raise _unsupported(what)
    if strategy not in ("tensor", "channel", "group"):
        raise _unsupported(f"{what}, by {strategy}")
    assert bits is not None
    if form == "int-quantized":
        return Scheme("compressed-tensors", _rows_of_int8, int8_rows=True)
    packing = Packing(bits, False, "weight_packed", "weight_scale", "", 1)
    mixed = strategy == "group" and weights.get("actorder") in (True, "group", "dynamic")
    return Scheme("compressed-tensors", partial(read_packed, packing=packing), packing=None if mixed else packing,
                  mixed=mixed)


def _rows_of_int8(get: Get, shape: tuple[int, int], scales: str = "weight_scale", divisor: int = 1) -> Matrix | None:
    """divisor: bitsandbytes stores each row's largest number, which 127 stands for."""
    scale = get(scales)
    if scale is None:
        return None
    get("weight_zero_point")
    data = need(get("weight"), "weight")
    if data.dtype != torch.int8 or scale.numel() not in (1, shape[0]):
        raise ValueError(f"{data.dtype} with {scale.numel()} scales")
    return Matrix(data, (scale.float().reshape(-1) / divisor).expand(shape[0]).contiguous())


def _bitsandbytes(given: Mapping[str, Any]) -> Scheme:
    if given.get("load_in_8bit"):
        return Scheme("bitsandbytes", partial(_rows_of_int8, scales="SCB", divisor=127), int8_rows=True)
    kind = given.get("bnb_4bit_quant_type", "fp4")
    if not given.get("load_in_4bit") or kind not in ("nf4", "fp4"):
        raise _unsupported(f"bitsandbytes weights of the kind {kind}")
    return Scheme("bitsandbytes", lambda get, shape: _four_bit_floats(get, shape, kind))


def _four_bit_floats(get: Get, shape: tuple[int, int], kind: str) -> Matrix | None:
    """QLoRA's (Dettmers et al. 2023): the table is stored beside the weights; scales may be in 8 bits themselves."""
    state = get(f"weight.quant_state.bitsandbytes__{kind}")
    if state is None:
        return None
    about = json.loads(bytes(state.to(torch.uint8).tolist()))
    table, scale = need(get("weight.quant_map"), "quant_map").float(), need(get("weight.absmax"), "absmax")
    nested = get("weight.nested_absmax")
    if nested is not None:
        codes = need(get("weight.nested_quant_map"), "nested_quant_map").float()
        size = int(about["nested_blocksize"])
        blocks = nested.float().repeat_interleave(size)[: scale.numel()]
        scale = codes[scale.long()] * blocks + float(about["nested_offset"])
    packed = need(get("weight"), "weight").flatten()
    numbers = torch.stack((packed >> 4, packed & 15), 1).flatten()
    if packed.dtype != torch.uint8 or numbers.numel() != shape[0] * shape[1] or table.numel() != 16:
        raise ValueError(f"{packed.numel()} bytes of {packed.dtype} for {list(shape)}")
    size = int(about["blocksize"])
    if not 0 < size <= 2**16:
        raise ValueError(f"blocks of {size}")
    return Matrix((table[numbers.long()] * scale.float().repeat_interleave(size)[: numbers.numel()]).view(shape))


def kept(weight: Grouped) -> Grouped | None:
    """Return the weight in groups that our kernels have; None: no such size divides its own."""
    group = _group_of_kernels(weight.group)
    return weight.in_groups_of(group) if group else None


def _group_of_kernels(group: int) -> int:
    return max((size for size in GROUP_SIZES if group % size == 0), default=0)


def need(found: Tensor | None, what: str) -> Tensor:
    if found is None:
        raise KeyError(f"there is no {what}")
    return found


def read_awq(get: Get, shape: tuple[int, int], packing: Packing) -> Read:
    """Return a product [out, in] = shape, by its tensors; None: it is not quantised. This and the next two raise
    KeyError where a tensor is missing, ValueError or RuntimeError where it is not what the method writes."""
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
    """Read compressed-tensors' symmetric weights."""
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
    """Raise ValueError unless it has two axes."""
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
