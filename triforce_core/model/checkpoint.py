"""A model on disk, whatever its format: a folder of Hugging Face's kind, or a GGUF file (the first, if it is split)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ..gguf import open_gguf
from . import config as folder_config
from .config import ModelConfig
from .gguf_config import gguf_config
from .gguf_weights import INT8_KEY, GGUFWeights
from .weights import Checkpoint, WeightSource, stored_as_int8


@dataclass(frozen=True, slots=True)
class Stored:
    """How weights lie on disk. int8: our own layout, kept in memory. few_bits: the name of another one ("Q4_K, Q6_K"),
    whose weights become the decoder's number type; "" if they are plain numbers already."""

    int8: bool = False
    few_bits: str = ""

    def words(self, dtype: str) -> str:
        """What is loaded, in words fit to show; "" where there is nothing to say. dtype: of products."""
        if not self.few_bits:
            return ""
        return f"{self.few_bits}, kept as int8" if self.int8 else f"{self.few_bits}, unpacked to {dtype}"


def read_config(place: Path) -> ModelConfig:
    """Raises ModelNotFoundError, ModelError, UnsupportedModelError, DamagedWeightsError."""
    return gguf_config(open_gguf(place)) if place.is_file() else folder_config.read_config(place)


def open_weights(place: Path, config: ModelConfig, dtype: torch.dtype) -> WeightSource:
    """dtype: of matrices that are not kept as they are stored. Raises what ``read_config`` raises."""
    if place.is_file():
        return GGUFWeights(open_gguf(place), config.head_dim, dtype)
    return Checkpoint(place)


def stored_form(place: Path) -> Stored:
    """Reads no weights, but opens their table of contents: are they there, and whole?

    Raises what ``read_config`` raises."""
    if not place.is_file():
        return Stored(stored_as_int8(place))
    file = open_gguf(place)
    kinds = [kind for kind in file.kinds if kind not in ("F32", "F16", "BF16")]
    return Stored(bool(file.metadata.get(INT8_KEY)), ", ".join(kinds))


def weight_files(place: Path) -> list[Path]:
    """What decides the model's function."""
    if place.is_file():
        return list(open_gguf(place).parts)
    return [path for path in sorted(place.iterdir()) if path.suffix in (".safetensors", ".bin", ".json")]
