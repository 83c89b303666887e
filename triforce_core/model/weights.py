"""Checkpoint files -> named tensors: which files there are, what is in them, and that they are what they should be.

Safetensors (one file, or shards with an index) are memory-mapped: a tensor is read when it is asked for, so the peak
is the model plus one matrix. ``.bin`` files are unpickled with ``weights_only=True`` and nothing else: a pickle
that wants more is refused. Knows no shapes of its own; the decoder asks for names with shapes.

The built-in models are in a compact format, file metadata ``{"format": "triforce-int8-v1"}``: a matrix NAME is int8
[out, in] beside ``NAME.scale`` fp32 [out], and means NAME.float() * scale[:, None]. Scales that bfloat16 can hold
exactly lose nothing in bfloat16 mode, where products use them in that type.
"""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..device.shard import Shard
from ..errors import DamagedWeightsError, ModelNotFoundError, UnsupportedModelError
from ..kernels import Grouped

FORMAT = "triforce-int8-v1"
SCALE_SUFFIX = ".scale"
_AGAIN = "Fetch the checkpoint again."
_DERIVED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "attn.masked_bias")
# How models that see pictures name the text's tensors, and the others, which are left out.
_OF_TEXT = re.compile(r"(?:model\.)?language_model\.(?:model\.)?(?!lm_head)|(?:model\.)?language_model\.(?=lm_head)")
_OF_PICTURES = re.compile(r"(?:model\.)?(?:visual|vision_tower|vision_model|multi_modal_projector)\.")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight [out, in]. scale fp32 [out] if data is int8 (then the weight is data * scale[:, None])."""

    data: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows (axis 0) or columns (axis 1) [start, stop) of a tensor: what one of several ranks needs of it."""

    axis: int
    start: int
    stop: int

    @property
    def index(self) -> tuple[slice, ...]:
        return (*[slice(None)] * self.axis, slice(self.start, self.stop))

    def of(self, whole: Tensor) -> Tensor:
        """Return a copy: the whole may go."""
        return whole[self.index].clone(memory_format=torch.contiguous_format)


class Form(NamedTuple):
    """Describe how a matrix in few bits lies in memory. bits: of its steps; group: weights that share a scale;
    super_block: groups whose scales are multiples of one (1: they are not); uneven: see ``Grouped``."""

    bits: int
    group: int
    offsets: bool
    super_block: int = 1
    uneven: bool = False


Rows = Callable[[Tensor], Tensor]  # numbers of rows, int64 [n] -> [n, in]


class WeightSource(Protocol):
    """Give the tensors that a decoder is built from; see ``Checkpoint`` for the usual one. shape: always the whole
    tensor's."""

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor: ...

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix: ...

    def grouped(self, name: str, shape: tuple[int, int]) -> Grouped | None:
        """Return the ``matrix`` of weights that are stored in groups and shall stay so; None: they are not."""
        return None

    def rows(self, name: str, shape: tuple[int, int]) -> Rows | None:
        """Return how rows of a ``matrix`` that stays on disk are read; None: it shall be read whole."""
        return None

    def ignore(self, name: str) -> None: ...

    def finish(self) -> None: ...


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] -> int8 [out, in], fp32 scale [out]: symmetric, each scale the next bfloat16 upwards."""
    scale = weight.float().abs().amax(1).clamp_min(1e-12) / 127
    coarse = scale.bfloat16().float()
    scale = torch.where(coarse < scale, (scale * (1 + 2**-8)).bfloat16().float(), coarse)
    return torch.round(weight.float() / scale[:, None]).clamp_(-127, 127).to(torch.int8), scale


def dequantize(data: Tensor, scale: Tensor) -> Tensor:
    """int8 [out, in] and scale [out] -> fp32 [out, in]."""
    return data.float() * scale.float()[:, None]


class Checkpoint(WeightSource):
    """The tensors of one checkpoint folder, each read when asked for. ``finish`` checks that none was left over."""

    def __init__(self, folder: Path) -> None:
        """Opens every file's table of contents. Raises ModelNotFoundError, DamagedWeightsError."""
        self.folder = folder
        self._where: dict[str, Path] = {}
        self._stored: dict[str, str] = {}  # a text's tensor in a model that sees pictures -> as the file names it
        self._open: dict[Path, Any] = {}
        self._asked: set[str] = set()
        for path in _files(folder):
            self._open[path] = _open_safetensors(path) if path.suffix == ".safetensors" else _open_bin(path)
            for stored in self._open[path].keys():
                name = plain_name(stored)
                if name in self._where:
                    raise DamagedWeightsError(f"{path.name} and {self._where[name].name} both hold {name}")
                if not _OF_PICTURES.match(stored):
                    self._where[name], self._stored[name] = path, stored

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """Return a float tensor of this shape, or a part of it. Raises DamagedWeightsError naming file and tensor."""
        found = self._read(name, shape, part)
        if found.dtype not in _FLOATS:
            raise DamagedWeightsError(f"{self._where[name].name}: {name} has type {found.dtype}",
                                      allowed="float32, float16 or bfloat16")
        return found

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        """Return a weight of this shape, or a part. Raises DamagedWeightsError naming file and tensor."""
        if name + SCALE_SUFFIX not in self._where:
            return Matrix(self.tensor(name, shape, part))
        rows = part if part is not None and part.axis == 0 else None  # a scale belongs to a row
        data, scale = self._read(name, shape, part), self._read(name + SCALE_SUFFIX, shape[:1], rows)
        if data.dtype != torch.int8 or scale.dtype != torch.float32:
            raise DamagedWeightsError(f"{self._where[name].name}: {name} is not int8 with a float32 scale")
        return Matrix(data, scale)

    def optional(self, name: str) -> Tensor | None:
        """Return a tensor of any shape and type; None where there is none. Raises DamagedWeightsError."""
        header = self.header(name)
        return None if header is None else self._read(name, header[0])

    def header(self, name: str) -> tuple[tuple[int, ...], str] | None:
        """Return a tensor's shape, and its type as the file names it; None: there is none. Reads no numbers."""
        if name not in self._where:
            return None
        source, stored = self._open[self._where[name]], self._stored[name]
        if isinstance(source, dict):
            return tuple(source[stored].shape), str(source[stored].dtype)
        about = source.get_slice(stored)
        return tuple(about.get_shape()), about.get_dtype()

    def ignore(self, name: str) -> None:
        """Have ``finish`` not mind this tensor."""
        self._asked.update((name, name + SCALE_SUFFIX))

    def finish(self) -> None:
        """Close the files. Raises DamagedWeightsError if a tensor was never asked for (a different architecture)."""
        self._open.clear()
        extra = [name for name in self._where if name not in self._asked and not name.endswith(_DERIVED)]
        if extra:
            raise DamagedWeightsError(f"{self._where[extra[0]].name} holds {extra[0]}{and_more(extra)}, which "
                                      "config.json does not call for")

    def _read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        self._asked.add(name)
        path = self._where.get(name)
        if path is None:
            raise DamagedWeightsError(f"{self.folder} holds no tensor {name}", remedy=_AGAIN)
        source, stored = self._open[path], self._stored[name]
        try:
            has = source[stored].shape if isinstance(source, dict) else source.get_slice(stored).get_shape()
            if tuple(has) != shape:
                raise DamagedWeightsError(f"{path.name}: {name} has shape {list(has)}",
                                          allowed=f"{list(shape)} by config.json")
            if isinstance(source, dict):
                return source[stored] if part is None else part.of(source[stored])
            return source.get_tensor(stored) if part is None else source.get_slice(stored)[part.index]
        except (SafetensorError, RuntimeError, OSError, ValueError) as error:
            raise DamagedWeightsError(f"{path.name}: {name} cannot be read: {error}", remedy=_AGAIN) from error


class ShardedWeights(WeightSource):
    """A ``WeightSource`` that is asked for one rank's shapes and reads that rank's part of each tensor and no more, as
    Megatron-LM splits a decoder (Shoeybi et al. 2019, arXiv 1909.08053, section 3).

    q, k, v, gate and up are split by rows (a rank's heads and MLP features), o_proj and down by the columns that read
    them; the ranks' outputs of those two add up to the whole one's. The head is split by rows and its logits gathered;
    the embedding is whole everywhere. int8 scales belong to output channels: rows take theirs along, columns keep all,
    and every part scaled by them adds up to the whole scaled."""

    def __init__(self, whole: WeightSource, shard: Shard, vocab_size: int) -> None:
        self._whole, self._shard, self._vocab_size = whole, shard, vocab_size

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        return self._whole.tensor(name, *self._part(name, shape))

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        (rows, columns), part = self._part(name, shape)
        return self._whole.matrix(name, (rows, columns), part)

    def ignore(self, name: str) -> None:
        self._whole.ignore(name)

    def finish(self) -> None:
        self._whole.finish()

    def _part(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Part | None]:
        """Return the whole tensor's shape, and what of it is this rank's (None: all)."""
        if name == "lm_head.weight":
            return (self._vocab_size, *shape[1:]), Part(0, *self._shard.span(self._vocab_size))
        axis = {**dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), 0), "o_proj": 1,
                "down_proj": 1}.get(name.split(".")[-2])
        if not self._shard.splits_layers or axis is None:
            return shape, None
        size = shape[axis] * self._shard.world
        return (*shape[:axis], size, *shape[axis + 1 :]), Part(axis, *self._shard.span(size))


def plain_name(stored: str) -> str:
    """Return how a model of text alone names a tensor."""
    found = _OF_TEXT.match(stored)
    if found is None:
        return stored
    rest = stored[found.end() :]
    return rest if rest.startswith("lm_head.") else f"model.{rest}"


def and_more(names: list[str]) -> str:
    """Return how many names there are beside the first, as words behind it; "" where there is one."""
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def stored_as_int8(folder: Path) -> bool:
    """Return whether a checkpoint is in the compact format; reads no tensor.

    Raises ModelNotFoundError, DamagedWeightsError."""
    first = next(_files(folder))
    return first.suffix == ".safetensors" and (_open_safetensors(first).metadata() or {}).get("format") == FORMAT


def require_whole_bins(folder: Path, least: int) -> None:
    """Check whether ``.bin`` files can be what config.json calls for; reads no tensor. least: bytes of all their
    numbers.

    Raises ModelNotFoundError, DamagedWeightsError."""
    bins = [path for path in _files(folder) if path.suffix != ".safetensors"]
    for path in bins:
        if _is_zip(path):  # an older one would be read whole
            _open_bin(path)
    size = sum(path.stat().st_size for path in bins)
    if bins and size < least:
        raise DamagedWeightsError(f"{bins[0].name} is damaged or incomplete: the weights take {size:,} bytes",
                                  allowed=f"at least {least:,} by config.json", remedy=_AGAIN)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the weight files of a folder: safetensors before pickles, shards as their index lists them."""
    for single, index in (("model.safetensors", "model.safetensors.index.json"),
                          ("pytorch_model.bin", "pytorch_model.bin.index.json")):
        if (folder / index).is_file():
            names = _shards(folder / index)
            missing = [name for name in names if not (folder / name).is_file()]
            if missing:
                raise DamagedWeightsError(f"{index} names {missing[0]}, which is not in {folder}", remedy=_AGAIN)
            yield from (folder / name for name in names)
            return
        if (folder / single).is_file():
            yield folder / single
            return
    raise ModelNotFoundError(f"No weights in {folder}",
                             allowed="model.safetensors or pytorch_model.bin, whole or in shards with an index")


def _shards(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedWeightsError(f"{index.name} cannot be read: {error}", remedy=_AGAIN) from error
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DamagedWeightsError(f"{index.name} names files outside its folder, or none", remedy=_AGAIN)
    return names


def _open_safetensors(path: Path) -> Any:
    try:
        source = safe_open(str(path), framework="pt", device="cpu")
        metadata = source.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedWeightsError(f"{path.name} is damaged or incomplete: {error}", remedy=_AGAIN) from error
    if metadata.get("format", "pt").startswith("triforce") and metadata["format"] != FORMAT:
        raise UnsupportedModelError(f"{path.name} is in format {metadata['format']}", allowed=FORMAT,
                                    remedy="Update the app.")
    return source


def _open_bin(path: Path) -> dict[str, Tensor]:
    """Read a table of tensors: weights_only refuses code; mmap keeps them on disk until used, but not in files before
    torch 1.6."""
    is_zip = _is_zip(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except (pickle.UnpicklingError, RuntimeError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):  # PyTorch says how to open it
            raise DamagedWeightsError(
                f"{path.name} holds more than tensors: it could run code when opened, so it is not opened",
                remedy="Take a safetensors or GGUF version of the model.") from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedWeightsError(f"{path.name} is damaged or incomplete: {reason}", remedy=_AGAIN) from error
    if not isinstance(found, dict) or not all(isinstance(item, Tensor) for item in found.values()):
        raise DamagedWeightsError(f"{path.name} is no table of tensors")
    return found


def _is_zip(path: Path) -> bool:
    """Tell a zip, which torch writes since 1.6, from a pickle. Raises DamagedWeightsError: it is neither."""
    try:
        if zipfile.is_zipfile(path):
            return True
        with path.open("rb") as file:
            begins = file.read(1)
    except OSError as error:
        raise DamagedWeightsError(f"{path.name} cannot be read: {error.strerror}") from error
    if begins != pickle.PROTO:
        raise DamagedWeightsError(f"{path.name} is damaged or incomplete: it does not begin as PyTorch's files do",
                                  remedy=_AGAIN)
    return False
