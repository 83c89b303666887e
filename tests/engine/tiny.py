"""A pair small enough to load in a blink, in the built-in pair's own format, with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.config import EngineConfig
from triforce_core.device import memory
from triforce_core.documents.document import Document, Page

TOKENIZER = Path(__file__).with_name("tiny_tokenizer.model")  # 8,192 pieces: scores of few pieces are soon computed


def write_model(folder: Path, *, layers: int, heads: int, seed: int, context: int = 4096,
                unused: int = 0) -> Path:
    """Random Llama weights, large enough that attention and context decide the next token. unused: rows of the
    embedding beyond the tokenizer's pieces."""
    hidden, inner, vocabulary = heads * 32, heads * 64, 8192 + unused
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": heads, "head_dim": 32, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
              "max_position_embeddings": context, "rope_theta": 10000.0, "tie_word_embeddings": True,
              "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(seed)

    def matrix(out: int, width: int, scale: float) -> torch.Tensor:
        return torch.randn(out, width, generator=generator) * scale / width**0.5

    tensors = {"model.embed_tokens.weight": matrix(vocabulary, hidden, 4.0), "model.norm.weight": torch.ones(hidden)}
    for i in range(layers):
        at = f"model.layers.{i}"
        tensors |= {f"{at}.self_attn.{x}_proj.weight": matrix(hidden, hidden, 2.5) for x in "qkvo"}
        tensors |= {f"{at}.mlp.{x}_proj.weight": matrix(inner, hidden, 1.5) for x in ("gate", "up")}
        tensors[f"{at}.mlp.down_proj.weight"] = matrix(hidden, inner, 1.5)
        tensors |= {f"{at}.{x}_layernorm.weight": torch.ones(hidden) for x in ("input", "post_attention")}
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(TOKENIZER, folder / "tokenizer.model")
    for name in ("prompt.json", "generation_config.json", "chat_template.jinja"):
        shutil.copy(BUILTIN_FOLDER / name, folder / name)
    return folder


def pair_config(folders: tuple[Path, Path], **changes: Any) -> EngineConfig:
    """Of the pair in ``folders``, target and draft, on one thread of the CPU."""
    return EngineConfig(**{"model": str(folders[0]), "draft_model": str(folders[1]), "dtype": "float32", "threads": 1,
                           "mode": "cpu", **changes})


def document(sentences: int = 220, seed: int = 0) -> Document:
    """Pages of made-up facts, about ten tokens a sentence."""
    names = ["Adele", "Bruno", "Clara", "Dario", "Edith", "Falko", "Greta", "Henry", "Irma", "Jonas"]
    things = ["lamp", "river", "letter", "garden", "harbour", "mirror", "engine", "violin", "ladder", "window"]
    verbs = ["found", "sold", "painted", "lost", "repaired", "described", "measured", "hid", "carried", "drew"]
    lines = [f"{names[(i * 7 + seed) % 10]} {verbs[(i * 3 + i // 10) % 10]} the {things[(i + seed) % 10]} "
             f"of day {i + seed}." for i in range(sentences)]
    pages = [Page(str(1 + k // 20), " ".join(lines[k : k + 20])) for k in range(0, sentences, 20)]
    return Document("Made-up facts", "txt", tuple(pages), "test")


def free(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Let this machine have so much memory left, of which what we hold does not count."""
    monkeypatch.setattr(memory, "free_host_memory", lambda: nbytes)
    monkeypatch.setattr(memory.psutil.Process, "memory_info", lambda self: SimpleNamespace(rss=0, shared=0))
