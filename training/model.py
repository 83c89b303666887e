"""A plain Llama: the same weights' names and the same arithmetic as Hugging Face's LlamaForCausalLM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelShape:
    """The sizes that make one model."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int = 24_576
    theta: float = 500_000.0
    epsilon: float = 1e-5
    max_positions: int = 262_144

    @property
    def head(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    def to_config(self) -> dict:
        """The content of `config.json`."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "dtype": "float32",
            "eos_token_id": 2,
            "head_dim": self.head,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.max_positions,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.heads,
            "pad_token_id": None,
            "pretraining_tp": 1,
            "rms_norm_eps": self.epsilon,
            "rope_parameters": {"rope_theta": self.theta, "rope_type": "default"},
            "rope_scaling": None,
            "rope_theta": self.theta,
            "tie_word_embeddings": True,
            "use_cache": True,
            "vocab_size": self.vocabulary,
        }

    @staticmethod
    def from_config(config: dict) -> ModelShape:
        """The shape that a `config.json` states."""
        return ModelShape(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            theta=config["rope_theta"],
            epsilon=config["rms_norm_eps"],
            max_positions=config["max_position_embeddings"],
        )


TARGET = ModelShape(hidden=512, layers=8, heads=8, intermediate=1408)
DRAFT = ModelShape(hidden=256, layers=2, heads=4, intermediate=704)
SHAPES = {"target": TARGET, "draft": DRAFT}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, the two halves of a head turned against each other."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


class Attention(nn.Module):
    """Multi-head attention without biases."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.width = shape.heads, shape.head
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [batch, head, token, width], queries and keys already turned."""
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, self.width).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def merge(self, mixed: Tensor) -> Tensor:
        """The heads' results put together again."""
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The feed-forward part of a layer."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.epsilon)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal attention over the whole row, then the feed-forward part."""
        q, k, v = self.self_attn.project(self.input_layernorm(x), cos, sin)
        return self.after_attention(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def after_attention(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows once the attention is known."""
        x = x + self.self_attn.merge(mixed)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.epsilon)


class Llama(nn.Module):
    """A Llama with tied embeddings."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * shape.layers) if deep else 1.0))

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rotary angles, with an axis for the heads: [..., 1, token, width / 2]."""
        steps = torch.arange(0, self.shape.head, 2, device=positions.device).float() / self.shape.head
        angle = positions.float()[..., None] * self.shape.theta**-steps
        return angle.cos().unsqueeze(-3), angle.sin().unsqueeze(-3)

    def blocks(self) -> list[Layer]:
        """The decoder layers."""
        return [layer for layer in self.model.layers if isinstance(layer, Layer)]

    def hidden(self, ids: Tensor, positions: Tensor) -> Tensor:
        """The last layer's output, before the norm."""
        cos, sin = self.angles(positions)
        x = self.model.embed_tokens(ids)
        for layer in self.blocks():
            x = layer(x, cos, sin)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Scores of the next token, from the last layer's output."""
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Scores of every next token."""
        return self.logits(self.hidden(ids, positions))
