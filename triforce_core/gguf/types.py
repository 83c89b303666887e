"""The number types of GGUF tensors that can be read here: how many weights a block holds, and in how many bytes.

Numbers and sizes as in the format's own list (ggml.h); the ``gguf`` package dequantises them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockType:
    """number: as files write it. weights, nbytes: of one block (plain numbers: blocks of one)."""

    name: str
    number: int
    weights: int
    nbytes: int


_KNOWN = (
    BlockType("F32", 0, 1, 4), BlockType("F16", 1, 1, 2), BlockType("BF16", 30, 1, 2),
    BlockType("Q4_0", 2, 32, 18), BlockType("Q4_1", 3, 32, 20), BlockType("Q5_0", 6, 32, 22),
    BlockType("Q5_1", 7, 32, 24), BlockType("Q8_0", 8, 32, 34),
    BlockType("Q2_K", 10, 256, 84), BlockType("Q3_K", 11, 256, 110), BlockType("Q4_K", 12, 256, 144),
    BlockType("Q5_K", 13, 256, 176), BlockType("Q6_K", 14, 256, 210),
    BlockType("IQ4_NL", 20, 32, 18), BlockType("IQ4_XS", 23, 256, 136),
)
BY_NUMBER = {kind.number: kind for kind in _KNOWN}
SUPPORTED = ", ".join(kind.name for kind in _KNOWN)
_OTHERS = {9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
           29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4"}


def type_name(number: int) -> str:
    """For messages: also of types that are not supported."""
    return BY_NUMBER[number].name if number in BY_NUMBER else _OTHERS.get(number, f"number {number}")
