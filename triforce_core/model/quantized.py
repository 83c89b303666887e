"""The compact format of the built-in models: int8 weights with one scale per output channel, in safetensors.

File metadata ``{"format": "triforce-int8-v1"}``; a quantised matrix NAME is int8 [out, in] beside ``NAME.scale`` fp32
[out], and means NAME.float() * scale[:, None]. Other tensors (norms) are stored as they are.
Scales that bfloat16 can hold exactly lose nothing in bfloat16 mode, where products use them in that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

FORMAT = "triforce-int8-v1"
SCALE_SUFFIX = ".scale"


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] -> int8 [out, in], fp32 scale [out]: symmetric, each scale the next bfloat16 upwards."""
    scale = weight.float().abs().amax(1).clamp_min(1e-12) / 127
    coarse = scale.bfloat16().float()
    scale = torch.where(coarse < scale, (scale * (1 + 2**-8)).bfloat16().float(), coarse)
    return torch.round(weight.float() / scale[:, None]).clamp_(-127, 127).to(torch.int8), scale


def dequantize(data: Tensor, scale: Tensor) -> Tensor:
    """int8 [out, in] and scale [out] -> fp32 [out, in]."""
    return data.float() * scale.float()[:, None]


def save_quantized(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write ``tensors`` (Hugging Face names) in this format: matrices as int8, the rest as fp32."""
    from safetensors.torch import save_file

    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            stored[name], stored[name + SCALE_SUFFIX] = quantize(tensor)
        else:
            stored[name] = tensor.float().contiguous()
    save_file(stored, str(path), metadata={"format": FORMAT})
