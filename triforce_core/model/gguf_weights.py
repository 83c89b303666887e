"""A ``WeightSource`` over a GGUF file: its tensors under the names that the decoder asks for.

Weights in few bits stay so where there are kernels for them (``gguf_groups``). Else they become the decoder's number
type as they are read, some rows at a time, exactly as llama.cpp's own Python package dequantises them. Q8_0 whose
blocks of a row share one scale is our int8 layout, and stays int8.
"""

from __future__ import annotations

import math
import re

import numpy as np
import torch
from torch import Tensor

from ..errors import DamagedWeightsError
from ..gguf import GGUFFile, StoredTensor
from ..kernels import Grouped, join_grouped
from .gguf_config import ROPE_DIVISORS, permuted
from .gguf_groups import FORMS, read_groups
from .weights import Matrix, Part

INT8_KEY = "triforce.int8_rows"  # written by our exporter: every Q8_0 matrix has one scale for each row
_AT_ONCE = 1 << 24  # weights dequantised together: 64 MiB of fp32, and a few times that in between
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
# Computed from the metadata, or for other programs.
_DERIVED = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd|rope_factors_(long|short)\.weight")


def stored_name(name: str) -> str:
    """Hugging Face's name of a tensor -> GGUF's."""
    stem, _, kind = name.rpartition(".")
    layer = _LAYER.fullmatch(stem)
    return f"blk.{layer[1]}.{_NAMES[layer[2]]}.{kind}" if layer else f"{_NAMES[stem]}.{kind}"


class GGUFWeights:
    """See ``weights.WeightSource``."""

    def __init__(self, file: GGUFFile, head_dim: int, dtype: torch.dtype, *, keeps_groups: bool = False) -> None:
        """dtype: of matrices that are not kept as they are stored. keeps_groups: the kernels have products with weights
        in groups."""
        self._file, self._head_dim, self._dtype, self._keeps_groups = file, head_dim, dtype, keeps_groups
        self._permuted = permuted(file)
        self._int8 = bool(file.metadata.get(INT8_KEY))
        self._asked = {ROPE_DIVISORS}

    def tensor(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """Matrices in the decoder's type, all else in fp32. Raises DamagedWeightsError naming file and tensor."""
        found = self._find(name, shape)
        rows = (0, self._file.rows(found))
        if part is not None and part.axis == 0 and len(shape) > 1:
            rows, part = (part.start, part.stop), None
        values = self._dequantised(found, *rows)
        whole = self._in_order(name, values if len(shape) > 1 else values.flatten())
        return whole if part is None else part.of(whole)

    def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Matrix:
        """A weight of this shape, or a part. Raises DamagedWeightsError naming file and tensor."""
        found = self._find(name, shape)
        if not self._int8 or found.kind.name != "Q8_0":
            return Matrix(self.tensor(name, shape, part))
        data, scale = self._as_int8(name, found)
        if part is None:
            return Matrix(data, scale)
        return Matrix(part.of(data), part.of(scale) if part.axis == 0 else scale)

    def grouped(self, name: str, shape: tuple[int, int]) -> Grouped | None:
        if not self._keeps_groups or stored_name(name) not in self._file.tensors:
            return None
        found = self._find(name, shape)
        if found.kind.name not in FORMS or (self._int8 and found.kind.name == "Q8_0"):
            return None
        step = max(1, _AT_ONCE // shape[1])
        parts = [read_groups(self._file.raw(found, start, min(step, shape[0] - start)), found.kind.name)
                 for start in range(0, shape[0], step)]
        return join_grouped(parts).in_order(lambda rows: self._in_order(name, rows))

    def ignore(self, name: str) -> None:
        self._asked.add(stored_name(name))

    def finish(self) -> None:
        """Raises DamagedWeightsError if a tensor was never asked for (a different architecture)."""
        extra = [name for name in self._file.tensors if name not in self._asked and not _DERIVED.match(name)]
        if extra:
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise DamagedWeightsError(
                f"{self._file.path.name} holds {extra[0]}{more}, which its architecture does not call for",
                remedy="Take another file of this model.")

    def _find(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        stored = stored_name(name)
        self._asked.add(stored)
        found = self._file.tensors.get(stored)
        if found is None:
            raise DamagedWeightsError(f"{self._file.path.name} holds no tensor {stored}",
                                      remedy="Fetch the file again.")
        if found.shape != shape:
            raise DamagedWeightsError(f"{found.path.name}: {stored} has shape {list(found.shape)}",
                                      allowed=f"{list(shape)} by its metadata", remedy="Fetch the file again.")
        return found

    def _dequantised(self, found: StoredTensor, first: int, last: int) -> Tensor:
        """Rows [first, last)."""
        width = math.prod(found.shape) // self._file.rows(found)
        dtype = self._dtype if len(found.shape) > 1 else torch.float32
        out = torch.empty(last - first, width, dtype=dtype)
        step = max(1, _AT_ONCE // width)
        for start in range(first, last, step):
            stop = min(last, start + step)
            out[start - first : stop - first] = dequantise(self._file.raw(found, start, stop - start), found.kind.name)
        return out

    def _as_int8(self, name: str, found: StoredTensor) -> tuple[Tensor, Tensor]:
        raw = self._file.raw(found)
        blocks = raw.reshape(len(raw), -1, found.kind.nbytes)
        scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0]
        if (scales != scales[:, :1]).any():
            raise DamagedWeightsError(f"{found.path.name}: {found.name} has several scales in a row, though {INT8_KEY} "
                                      "says one", remedy="Export it again.")
        data = np.ascontiguousarray(blocks[:, :, 2:]).reshape(len(raw), -1).view(np.int8)
        scale = torch.from_numpy(scales[:, 0].astype(np.float32))
        return self._in_order(name, torch.from_numpy(data)), self._in_order(name, scale)

    def _in_order(self, name: str, rows: Tensor) -> Tensor:
        """Rows of q and k as the decoder rotates them. rows: those of whole heads."""
        if not self._permuted or not name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")):
            return rows
        heads = rows.shape[0] // self._head_dim
        pairs = rows.view(heads, self._head_dim // 2, 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)


def dequantise(raw: np.ndarray, kind: str) -> Tensor:
    """uint8 [rows, bytes of a row] -> fp32 or the plain type itself, [rows, weights of a row]."""
    if kind in ("F32", "F16", "BF16"):
        plain = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
        return torch.from_numpy(np.array(raw)).view(plain)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    with np.errstate(all="ignore"):  # scales of hostile files
        return torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]))
