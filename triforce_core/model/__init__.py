"""The decoder and how to load one."""

from __future__ import annotations

from pathlib import Path

import torch

from ..device.shard import ALONE, Shard
from .config import ModelConfig, parse_config, read_config
from .llama import Llama
from .locate import find_model
from .weights import Checkpoint, stored_as_int8

__all__ = ["Checkpoint", "Llama", "ModelConfig", "find_model", "load_model", "parse_config", "read_config",
           "stored_as_int8"]


def load_model(folder_or_repo: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
               allow_download: bool = False, shard: Shard = ALONE) -> Llama:
    """A checkpoint folder, or a Hugging Face repo id in the local cache (or fetched, with ``allow_download``) -> Llama.

    shard: load one rank's part of it. Raises ModelNotFoundError, ModelError, UnsupportedModelError,
    DamagedWeightsError, ConfigError (a model that cannot be split so)."""
    folder = find_model(folder_or_repo, allow_download=allow_download)
    config = read_config(folder)
    return Llama(config, Checkpoint(folder), device=device, dtype=dtype, shard=shard)
