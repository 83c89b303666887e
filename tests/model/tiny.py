"""A decoder of a few thousand random weights, without files."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from triforce_core.kernels import REFERENCE, Kernels
from triforce_core.model import Checkpoint, Llama, parse_config
from triforce_core.model.weights import FORMAT, SCALE_SUFFIX, quantize

VOCAB = 64
torch.set_num_threads(1)  # products this small only wait for each other


def tiny_config(**changes: Any) -> dict[str, Any]:
    """config.json of a Llama with small parts."""
    return {
        "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, **changes,
    }


def tiny_tensors(raw: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights by Hugging Face's names; large enough for attention to be far from uniform."""
    g = torch.Generator().manual_seed(seed)
    d, f = raw["hidden_size"], raw["intermediate_size"]
    dim = raw.get("head_dim", d // raw["num_attention_heads"])
    q, kv = raw["num_attention_heads"] * dim, raw["num_key_value_heads"] * dim
    shapes = {"model.embed_tokens.weight": (raw["vocab_size"], d), "model.norm.weight": (d,)}
    for i in range(raw["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (d,), at + "post_attention_layernorm.weight": (d,),
                   at + "self_attn.q_proj.weight": (q, d), at + "self_attn.k_proj.weight": (kv, d),
                   at + "self_attn.v_proj.weight": (kv, d), at + "self_attn.o_proj.weight": (d, q),
                   at + "mlp.gate_proj.weight": (f, d), at + "mlp.up_proj.weight": (f, d),
                   at + "mlp.down_proj.weight": (d, f)}
    if not raw["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (raw["vocab_size"], d)
    return {name: (1 + 0.1 * torch.randn(shape, generator=g)) if len(shape) == 1
            else torch.randn(shape, generator=g) * (0.3 if "embed" not in name else 1.0)
            for name, shape in shapes.items()}


def write_compact(tensors: dict[str, Tensor], folder: Path) -> None:
    """Write weights in the built-in models' format: matrices as int8, the rest as fp32."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            stored[name], stored[name + SCALE_SUFFIX] = quantize(tensor)
        else:
            stored[name] = tensor.float().contiguous()
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": FORMAT})


def tiny_llama(dtype: torch.dtype = torch.float32, *, seed: int = 0, kernels: Kernels | None = None,
               rounding: str = "same",
               **changes: Any) -> Llama:
    raw = tiny_config(**changes)
    with tempfile.TemporaryDirectory() as folder:
        save_file(tiny_tensors(raw, seed), str(Path(folder) / "model.safetensors"))
        return Llama(parse_config(raw), Checkpoint(Path(folder)), dtype=dtype, kernels=kernels, rounding=rounding)


def attention(queries: Tensor, keys: Tensor, values: Tensor, length: int | Tensor, staged_mask: Tensor | None = None,
              mass_rows: int = 0, chunk_size: int = 1) -> tuple[Tensor, Tensor | None]:
    """The reference with a length that may lie on the device; mass then has room for a full cache, as in Triton."""
    out, mass = REFERENCE.attention(queries, keys, values, int(length), staged_mask, min(len(queries), mass_rows),
                                    chunk_size)
    if mass is not None and isinstance(length, Tensor):
        mass = torch.nn.functional.pad(mass, (0, keys.shape[1] // chunk_size - mass.shape[1]))
    return out, mass


def indexed_attention(queries: Tensor, keys: Tensor, values: Tensor, length: int | Tensor, *rest: Any) -> Tensor:
    assert REFERENCE.indexed_attention is not None
    return REFERENCE.indexed_attention(queries, keys, values, int(length), *rest)


class Watch:
    """An observer that keeps what it is shown."""

    mass_rows, chunk_size = 2, 4

    def __init__(self) -> None:
        self.seen: list[tuple[int, Tensor, Tensor]] = []

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        assert mass is not None
        self.seen.append((layer, queries, mass))


# What a GPU's kernels can do, by the reference's arithmetic.
LIKE_A_GPU = replace(REFERENCE, attention=attention, indexed_attention=indexed_attention, device_lengths=(8, 32, 64))
