"""A Llama with grouped key and value heads over packed rows, its matrices rounded as a Q4_0 file of GGUF holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

GROUP, POSITIONS = 32, 262_144  # weights of a Q4_0 block; tokens that it is made for
MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
NAMES = dict(zip(MATRICES, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), strict=True))
GGUF_NAMES = dict(zip((*MATRICES, "norm1", "norm2"),
                      ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm",
                       "ffn_norm"), strict=True))


@dataclass(frozen=True)
class Shape:
    """The sizes of SmolLM2-135M."""

    layers: int = 30
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    intermediate: int = 1536
    vocabulary: int = 49_152
    theta: float = 100_000.0
    epsilon: float = 1e-5
    head: int = 64


DRAFT = Shape(layers=6, hidden=160, heads=2, kv_heads=1, intermediate=448, theta=10_000.0)


def rounded(weight: Tensor) -> Tensor:
    """A matrix as Q4_0 keeps it: steps from -8 to 7 of a scale in fp16, -8 at the entry of largest size."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scale = largest / -8
    steps = (groups * torch.where(scale == 0, 0.0, 1 / scale) + 8.5).floor().clamp(0, 15) - 8
    return (steps * scale.half().float()).flatten(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of [tokens, heads, width]."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


def block(x: Tensor, cos: Tensor, sin: Tensor, ends: Tensor, longest: int, heads: int, kv_heads: int, epsilon: float,
          w: dict[str, Tensor]) -> Tensor:
    """A layer. x: [tokens, hidden]; ends: int32 [rows + 1], where rows begin and end."""
    size = x.shape[0]
    read = F.rms_norm(x, x.shape[-1:], w["norm1"], epsilon)
    query, key, value = (F.linear(read, w[name]).view(size, -1, 64) for name in "qkv")
    query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    key, value = (part.repeat_interleave(heads // kv_heads, 1) for part in (key, value))
    mixed = varlen_attn(query, key, value, ends, ends, longest, longest, window_size=(-1, 0))
    x = x + F.linear(mixed.reshape(size, -1), w["o"])
    read = F.rms_norm(x, x.shape[-1:], w["norm2"], epsilon)
    return x + F.linear(F.silu(F.linear(read, w["gate"])) * F.linear(read, w["up"]), w["down"])


class Writer(nn.Module):
    """fp32 weights; `working` gives those that a step computes with. learns: whether the embedding is trained too."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor], learns: bool = False) -> None:
        super().__init__()
        self.shape, self.names = shape, [name for name in weights if name != "embedding"]
        self.held = nn.ParameterList([nn.Parameter(weights[name].float()) for name in self.names])
        self.embedding = nn.Parameter(weights["embedding"].float(), requires_grad=learns)
        self.table, self.learns = self.embedding.detach(), learns
        self._now: dict[str, Tensor] = {}
        self.layer = block

    def trained(self) -> list[nn.Parameter]:
        """What the optimiser changes."""
        return [*self.held, *([self.embedding] if self.learns else [])]

    def weights(self) -> dict[str, Tensor]:
        """By name, fp32, not rounded."""
        return {**dict(zip(self.names, self.held, strict=True)), "embedding": self.embedding}

    def working(self, four_bits: bool, train: bool) -> None:
        """Casts the weights, rounded or not, for all that is read until the next call."""
        for name, tensor in zip(self.names, self.held, strict=True):
            value = tensor.detach()
            value = rounded(value) if four_bits and value.ndim == 2 else value
            self._now[name] = value.to(torch.bfloat16, copy=True).requires_grad_(train)
        self.table = self.embedding.detach().to(torch.bfloat16, copy=True).requires_grad_(train and self.learns)

    def collect(self) -> None:
        """Gradients of the working weights, to those that they were rounded from (arXiv 1308.3432)."""
        working = [self._now[name] for name in self.names]
        for now, tensor in zip([*working, *([self.table] if self.learns else [])], self.trained(), strict=True):
            tensor.grad = torch.zeros_like(tensor) if now.grad is None else now.grad.float()
            now.grad = None

    def of_layer(self, number: int) -> dict[str, Tensor]:
        return {name: self._now[f"{number}.{name}"] for name in (*MATRICES, "norm1", "norm2")}

    def read(self, ids: Tensor, positions: Tensor, ends: Tensor, longest: int) -> Tensor:
        """The output of the last layer behind its norm. bf16 [tokens, hidden]"""
        shape = self.shape
        steps = torch.arange(0, shape.head, 2, device=ids.device).float() / shape.head
        angle = (positions.double()[:, None] * shape.theta ** -steps.double()).float()[:, None]
        cos, sin, x = angle.cos(), angle.sin(), F.embedding(ids, self.table)
        for number in range(shape.layers):
            x = self.layer(x, cos, sin, ends, longest, shape.heads, shape.kv_heads, shape.epsilon,
                           self.of_layer(number))
        return F.rms_norm(x, x.shape[-1:], self._now["norm"], shape.epsilon)


def from_gguf(path: Path) -> tuple[Shape, dict[str, Tensor]]:
    """SmolLM2's weights, with the rows of q and k as Hugging Face orders them; the embedding as Q5_0 keeps it, which is
    how it ships."""
    import gguf
    from gguf.quants import dequantize, quantize

    reader, shape, found = gguf.GGUFReader(path), Shape(), dict[str, Tensor]()
    short = {there: here for here, there in GGUF_NAMES.items()}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name == "token_embd.weight":
            kind = gguf.GGMLQuantizationType.Q5_0
            found["embedding"] = torch.from_numpy(dequantize(quantize(values, kind), kind))
        elif tensor.name == "output_norm.weight":
            found["norm"] = torch.from_numpy(values)
        elif tensor.name.startswith("blk."):
            _, number, name, _ = tensor.name.split(".")
            if name in ("attn_q", "attn_k"):  # llama.cpp lays the two halves of a head between each other
                heads = shape.heads if name == "attn_q" else shape.kv_heads
                values = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            found[f"{number}.{short[name]}"] = torch.from_numpy(np.ascontiguousarray(values))
    return shape, found


def small(embedding: Tensor, shape: Shape) -> dict[str, Tensor]:
    """Weights of a draft before any training: chance, but for the embedding, the widest directions of the target's."""
    values, vectors = torch.linalg.eigh(embedding.T.double() @ embedding.double())
    widest = vectors[:, values.argsort(descending=True)[: shape.hidden]].float()
    table = embedding @ widest
    found = {"embedding": table / table.std() / shape.hidden**0.5, "norm": torch.ones(shape.hidden)}
    sizes = {"q": (shape.head * shape.heads, shape.hidden), "k": (shape.head * shape.kv_heads, shape.hidden),
             "v": (shape.head * shape.kv_heads, shape.hidden), "o": (shape.hidden, shape.head * shape.heads),
             "gate": (shape.intermediate, shape.hidden), "up": (shape.intermediate, shape.hidden),
             "down": (shape.hidden, shape.intermediate)}
    for number in range(shape.layers):
        for name, size in sizes.items():
            found[f"{number}.{name}"] = torch.randn(size) * (0.02 if name not in ("o", "down") else 0.005)
        found[f"{number}.norm1"], found[f"{number}.norm2"] = torch.ones(shape.hidden), torch.ones(shape.hidden)
    return found


def save(path: Path, shape: Shape, weights: dict[str, Tensor], embedding: bool = False) -> None:
    """Shape and fp16 weights; the embedding only if asked for, as it is that of the base."""
    kept = {name: tensor.detach().half().cpu() for name, tensor in weights.items() if embedding or name != "embedding"}
    torch.save({"shape": asdict(shape), "weights": kept}, path)


def load(path: Path, embedding: Tensor) -> tuple[Shape, dict[str, Tensor]]:
    """What `save` wrote, in fp32. embedding: the base's, where the file has none."""
    made = torch.load(path, map_location="cpu", weights_only=True)
    weights = {"embedding": embedding, **{name: tensor.float() for name, tensor in made["weights"].items()}}
    return Shape(**made["shape"]), weights


def published(shape: Shape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights by Hugging Face's names; the head is the embedding."""
    state = {"model.embed_tokens.weight": weights["embedding"], "model.norm.weight": weights["norm"]}
    for number in range(shape.layers):
        for name, there in NAMES.items():
            state[f"model.layers.{number}.{there}.weight"] = weights[f"{number}.{name}"]
        state[f"model.layers.{number}.input_layernorm.weight"] = weights[f"{number}.norm1"]
        state[f"model.layers.{number}.post_attention_layernorm.weight"] = weights[f"{number}.norm2"]
    return state


def config_of(shape: Shape) -> dict[str, Any]:
    """What a config.json says of it."""
    return {"architectures": ["LlamaForCausalLM"], "vocab_size": shape.vocabulary, "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head,
            "max_position_embeddings": POSITIONS, "rms_norm_eps": shape.epsilon, "tie_word_embeddings": True,
            "bos_token_id": 1, "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta}}


def to_hugging_face(shape: Shape, weights: dict[str, Tensor]) -> nn.Module:
    """The same model as transformers has it, bf16, for answers written in batches."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model, state = LlamaForCausalLM(LlamaConfig(**config_of(shape))), published(shape, weights)
    state["lm_head.weight"] = weights["embedding"]
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    for parameter in model.parameters():  # not what it turns positions with
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


def answering(source: Path, base: Path, device: str, four_bits: bool = True) -> nn.Module:
    """What `save` wrote, ready to answer, rounded or not. base: SmolLM2's GGUF file."""
    shape, weights = load(source, from_gguf(base)[1]["embedding"])
    if four_bits:
        weights = {name: rounded(tensor) if tensor.ndim == 2 and name != "embedding" else tensor
                   for name, tensor in weights.items()}
    return to_hugging_face(shape, weights).to(device).eval()
