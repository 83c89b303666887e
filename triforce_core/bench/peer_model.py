"""Our weights in a ``transformers`` model, and whether both compute the same logits.

A grown model's weights follow from its seed, so they are made again here, matrix by matrix in place: nothing of a 7B
model's 13 GB is written to disk or held twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..kv_cache.full import FullCache
from ..model import Checkpoint, Llama, read_config
from ..model.quantized import dequantize
from ..model.weights import WeightSource
from .grow import GrownWeights, grow, grown_config, published_names
from .shapes import SHAPES


def our_model(folder: Path, shape: str | None, max_context: int, device: str, dtype: torch.dtype) -> Llama:
    """As the engine loads it, or grows it."""
    if shape:
        return grow(folder, SHAPES[shape], device=device, dtype=dtype, max_context=max_context)
    return Llama(read_config(folder), Checkpoint(folder), device=device, dtype=dtype)


def peer_model(folder: Path, shape: str | None, max_context: int, device: str, dtype: torch.dtype) -> Any:
    """``transformers``' model of the same config, holding the same weights in ``dtype`` (norms too, as it does)."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config: Any = AutoConfig.from_pretrained(folder)
    small = read_config(folder)
    weights: WeightSource = Checkpoint(folder)
    if shape:
        large = grown_config(small, SHAPES[shape], max_context)
        for theirs, value in published_names(large).items():
            setattr(config, theirs, value)
        if large.rope.kind == "linear":
            config.rope_parameters = {"rope_type": "linear", "rope_theta": large.rope.theta,
                                      "factor": large.rope.factor}
        weights = GrownWeights(folder, small, large, torch.device(device), dtype, seed=0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_value(weights, name, tuple(parameter.shape)))
    if small.tied_embeddings and not shape:
        weights.ignore("lm_head.weight")
    weights.finish()
    return model.eval()


def _value(weights: WeightSource, name: str, shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 1:
        return weights.tensor(name, shape)
    found = weights.matrix(name, (shape[0], shape[1]))
    return found.data if found.scale is None else dequantize(found.data, found.scale)


@torch.inference_mode()
def our_logits(model: Llama, token_ids: list[int], rows: int) -> Tensor:
    """fp32 [rows, V] of the last tokens, on the host."""
    c = model.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=len(token_ids), dtype=model.dtype,
                      device=model.device)
    return model.forward(torch.tensor(token_ids), cache, logits_rows=rows).float().cpu()


@torch.inference_mode()
def compare_logits(ours: Tensor, model: Any, token_ids: list[int]) -> dict[str, float]:
    """max_difference; deviation of our logits (what to measure it by); same_choice: share of rows with one argmax."""
    rows = len(ours)
    ids = torch.tensor([token_ids], device=model.device)
    theirs = model(input_ids=ids, logits_to_keep=rows).logits[0].float().cpu()
    return {"rows": rows, "max_difference": float((ours - theirs).abs().max()), "deviation": float(ours.std()),
            "same_choice": float((ours.argmax(-1) == theirs.argmax(-1)).float().mean())}
