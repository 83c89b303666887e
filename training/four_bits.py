"""Rounds an encoder's matrices to four bits a weight, in groups that share a scale."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

GROUP = 64  # weights that share a scale



def packed(weights: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Return weights as ``evidence.encoder`` takes them."""
    stored: dict[str, np.ndarray] = {}
    for name, tensor in weights.items():
        if not is_rounded(tensor):
            stored[name] = tensor.half().numpy()
            continue
        steps, scale = four_bits(tensor)
        halves = (steps + 8).flatten(1).to(torch.uint8)
        stored[name] = (halves[:, ::2] | halves[:, 1::2] << 4).numpy()
        stored[f"{name}.scale"] = scale[..., 0].half().numpy()
    return stored


def is_rounded(weights: Tensor) -> bool:
    """Return whether weights are stored in four bits: a matrix of some size."""
    return weights.ndim == 2 and weights.shape[1] % GROUP == 0 and len(weights) >= GROUP


def four_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return (steps [rows, groups, GROUP] from -7 to 7, scales [rows, groups, 1] that fp16 holds), both fp32.

    Their product stands for the matrix [rows, groups * GROUP]."""
    groups = matrix.float().unflatten(1, (-1, GROUP))
    scale = (groups.abs().amax(-1, keepdim=True) / 7).clamp_min(1e-7).half().float()
    return (groups / scale).round().clamp(-7, 7), scale
