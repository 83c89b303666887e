"""The decoder and how to load one. A model is a folder of Hugging Face's kind, or a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ..device.shard import ALONE, Shard
from .checkpoint import Stored, find_model, in_groups, open_weights, read_config, stored_form, weight_files
from .config import ModelConfig, local_config, parse_config
from .llama import Llama
from .weights import Checkpoint

__all__ = ["Checkpoint", "Llama", "ModelConfig", "Stored", "find_model", "in_groups", "load_model", "local_config",
           "open_weights", "parse_config", "read_config", "stored_form", "weight_files"]


def load_model(folder_or_repo: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
               allow_download: bool = False, shard: Shard = ALONE, rounding: str = "same",
               context: int | None = None) -> Llama:
    """A checkpoint folder, a GGUF file, or a Hugging Face repo id in the local cache (or fetched, with
    ``allow_download``) -> Llama.

    rounding: of its matrices to few bits (see ``Llama``). shard: load one rank's part of it. context: the longest that
    it will read, None for its own longest. Raises ModelNotFoundError,
    ModelError, UnsupportedModelError, DamagedWeightsError, ConfigError (a model that cannot be split so)."""
    place = find_model(folder_or_repo, allow_download=allow_download)
    config = read_config(place)
    config = replace(config, rope=config.rope.at(context or config.max_context))
    as_stored = rounding == "same" and shard.world == 1
    kept = as_stored and in_groups(stored_form(place), config, torch.device(device), dtype)
    return Llama(config, open_weights(place, config, dtype, keeps_groups=kept), device=device, dtype=dtype, shard=shard,
                 rounding=rounding)
