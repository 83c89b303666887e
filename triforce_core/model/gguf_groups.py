"""GGUF's blocks as weights in groups, step * scale + offset, without loss: what our kernels multiply as it is.

Layouts as in the format's own description (ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..kernels import LEVELS, Grouped
from .groups import Form

FORMS = {"Q8_0": Form(8, 32, False), "Q4_0": Form(4, 32, False), "Q4_1": Form(4, 32, True),
         "Q5_0": Form(5, 32, False), "Q5_1": Form(5, 32, True), "Q2_K": Form(4, 16, True, 16),
         "Q3_K": Form(4, 16, False, 16), "Q4_K": Form(4, 32, True, 8), "Q5_K": Form(5, 32, True, 8),
         "Q6_K": Form(6, 16, False, 16), "IQ4_NL": Form(4, 32, False, 1, True),
         "IQ4_XS": Form(4, 32, False, 8, True)}
_IQ4 = np.array(LEVELS, np.int8)
# Steps, scale, offset, subscale, suboffset, as in ``Grouped`` and as far as there are some: [blocks, ...]
_Parts = tuple[np.ndarray, ...]


def read_groups(raw: np.ndarray, kind: str) -> Grouped:
    """uint8 [rows, bytes of a row] of a type in FORMS -> the weight."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    with np.errstate(all="ignore"):  # scales of hostile files
        parts = _READERS[kind](raw.reshape(-1, nbytes))
    form = FORMS[kind]
    steps, scale, *more = (torch.from_numpy(np.ascontiguousarray(part)).view(len(raw), -1) for part in parts)
    offset = more.pop(0) if form.offsets else None
    subscale, suboffset = (*more, None, None)[:2]
    return Grouped(form.bits, steps.to(torch.int8), scale, offset, subscale, suboffset, form.uneven)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """fp32 [blocks, 1]"""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray, width: int) -> np.ndarray:
    """[blocks, bytes] -> of each ``width`` bytes the lower halves, then the upper ones."""
    runs = packed.reshape(len(packed), -1, 1, width)
    return (runs >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15).reshape(len(packed), -1)


def _q8_0(blocks: np.ndarray) -> _Parts:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _half(blocks, 0)


def _q4_0(blocks: np.ndarray) -> _Parts:
    return _nibbles(blocks[:, 2:], 16).astype(np.int8) - 8, _half(blocks, 0)


def _q4_1(blocks: np.ndarray) -> _Parts:
    return _nibbles(blocks[:, 4:], 16), _half(blocks, 0), _half(blocks, 2)


def _fifth(bits: np.ndarray) -> np.ndarray:
    """uint8 [blocks, 4]: one bit for each of 32 steps -> 0 or 16"""
    return np.unpackbits(np.ascontiguousarray(bits), axis=1, bitorder="little") << 4


def _q5_0(blocks: np.ndarray) -> _Parts:
    return (_nibbles(blocks[:, 6:], 16) | _fifth(blocks[:, 2:6])).astype(np.int8) - 16, _half(blocks, 0)


def _q5_1(blocks: np.ndarray) -> _Parts:
    return _nibbles(blocks[:, 8:], 16) | _fifth(blocks[:, 4:8]), _half(blocks, 0), _half(blocks, 2)


def _pairs_of_bits(packed: np.ndarray) -> np.ndarray:
    """[blocks, bytes] -> of each 32 bytes the lowest two bits, then the next two, ..."""
    runs = packed.reshape(len(packed), -1, 1, 32)
    return (runs >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3).reshape(len(packed), -1)


def _q2_k(blocks: np.ndarray) -> _Parts:
    scales = blocks[:, :16]
    return (_pairs_of_bits(blocks[:, 16:80]), _half(blocks, 80), -_half(blocks, 82), (scales & 15).astype(np.int8),
            (scales >> 4).astype(np.int8))


def _q3_k(blocks: np.ndarray) -> _Parts:
    third = blocks[:, :32].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    steps = (_pairs_of_bits(blocks[:, 32:96]) | third.reshape(len(blocks), -1) << 2).astype(np.int8) - 4
    low = _nibbles(blocks[:, 96:104], 8)
    high = blocks[:, 104:108].reshape(-1, 1, 4) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1) & 3
    return steps, _half(blocks, 108), (low | high.reshape(len(blocks), -1) << 4).astype(np.int8) - 32


def _iq4_nl(blocks: np.ndarray) -> _Parts:
    return _IQ4[_nibbles(blocks[:, 2:], 16)], _half(blocks, 0)


def _iq4_xs(blocks: np.ndarray) -> _Parts:
    low = (blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(len(blocks), -1)
    high = (blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(blocks), -1)
    return _IQ4[_nibbles(blocks[:, 8:], 16)], _half(blocks, 0), (low | high << 4).astype(np.int8) - 32


def _scales_of_k(blocks: np.ndarray) -> _Parts:
    """Return the scales of Q4_K and Q5_K: the block's two, and eight subscales and suboffsets of six bits each."""
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    low, high, rest = packed[:, 0], packed[:, 1], packed[:, 2]
    subscale = np.concatenate((low & 63, rest & 15 | low >> 2 & 48), 1)
    suboffset = np.concatenate((high & 63, rest >> 4 | high >> 2 & 48), 1)
    return _half(blocks, 0), -_half(blocks, 2), subscale.astype(np.int8), suboffset.astype(np.int8)


def _q4_k(blocks: np.ndarray) -> _Parts:
    return (_nibbles(blocks[:, 16:], 32), *_scales_of_k(blocks))


def _q5_k(blocks: np.ndarray) -> _Parts:
    fifth = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    return (_nibbles(blocks[:, 48:], 32) | fifth.reshape(len(blocks), -1) << 4, *_scales_of_k(blocks))


def _q6_k(blocks: np.ndarray) -> _Parts:
    low = _nibbles(blocks[:, :128], 64)
    steps = (low | _pairs_of_bits(blocks[:, 128:192]) << 4).astype(np.int8) - 32
    return steps, _half(blocks, 208), np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)


_READERS: dict[str, Callable[[np.ndarray], _Parts]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs}
