"""The decoder and how to load one."""

from __future__ import annotations

from pathlib import Path

import torch

from .config import ModelConfig, parse_config, read_config
from .llama import Llama
from .locate import find_model
from .weights import Checkpoint

__all__ = ["Checkpoint", "Llama", "ModelConfig", "find_model", "load_model", "parse_config", "read_config"]


def load_model(folder_or_repo: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
               allow_download: bool = False) -> Llama:
    """A checkpoint folder, or a Hugging Face repo id in the local cache (or fetched, with ``allow_download``) -> Llama.

    Raises ModelNotFoundError, ModelError, UnsupportedModelError, DamagedWeightsError."""
    folder = find_model(folder_or_repo, allow_download=allow_download)
    config = read_config(folder)
    return Llama(config, Checkpoint(folder), device=device, dtype=dtype)
