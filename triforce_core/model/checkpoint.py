"""A model on disk, whatever its format: a folder of Hugging Face's kind, or a GGUF file (the first, if it is split)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from ..gguf import open_gguf
from ..kernels import in_blocks, keeps_groups
from . import config as folder_config
from .config import ModelConfig
from .gguf_config import gguf_config
from .gguf_groups import FORMS
from .gguf_weights import INT8_KEY, GGUFWeights, stored_name
from .groups import Form, kept_bytes
from .hf_quantised import QuantisedCheckpoint, read_scheme
from .weights import Checkpoint, WeightSource, require_whole_bins, stored_as_int8

_BYTES_AT_LEAST = 2  # of a number in a .bin file


@dataclass(frozen=True, slots=True)
class Stored:
    """How weights lie on disk. int8: our own layout, embedding and head too; int8_rows: of the layers' products alone.
    few_bits: the name of another layout ("Q4_K, Q6_K"), whose weights become the decoder's number type; "" if they are
    plain numbers already.

    groups: bytes of a layers' weight and of the head's where weights in groups are kept so, groups_on_gpu: there; None:
    there are none. (int8 by rows: on a GPU they are groups.) ungrouped: matrices that have no such form, in words."""

    int8: bool = False
    few_bits: str = ""
    int8_rows: bool = False
    groups: tuple[float, float] | None = None
    groups_on_gpu: tuple[float, float] | None = None
    ungrouped: str = ""

    def words(self, dtype: str, keeps_int8: bool, keeps_groups: bool = False) -> str:
        """Say what is loaded, in words fit to show; "" where there is nothing to say. dtype: of products. keeps_int8:
        the device has products with int8, keeps_groups: with weights in groups."""
        if not self.few_bits:
            return ""
        if keeps_groups and self.groups is not None:
            rest = f", but {self.ungrouped} in {dtype}" if self.ungrouped else ""
            return f"{self.few_bits}, kept in few bits{rest}"
        kept = (keeps_int8 and (self.int8 or self.int8_rows)) or (keeps_groups and self.int8_rows)
        return f"{self.few_bits}, kept as int8" if kept else f"{self.few_bits}, unpacked to {dtype}"


def read_config(place: Path) -> ModelConfig:
    """Raises ModelNotFoundError, ModelError, UnsupportedModelError, DamagedWeightsError."""
    return gguf_config(open_gguf(place)) if place.is_file() else folder_config.read_config(place)


def open_weights(place: Path, config: ModelConfig, dtype: torch.dtype, *, keeps_groups: bool = False) -> WeightSource:
    """dtype: of matrices that are not kept as they are stored. keeps_groups: weights in groups are. Raises what
    ``read_config`` raises."""
    if place.is_file():
        return GGUFWeights(open_gguf(place), config.head_dim, dtype, keeps_groups=keeps_groups)
    scheme = read_scheme(folder_config.read_raw(place / "config.json"))
    if scheme is None:
        return Checkpoint(place)
    return QuantisedCheckpoint(Checkpoint(place), scheme, dtype, keeps_groups=keeps_groups)


def stored_form(place: Path) -> Stored:
    """Reads no weights, but opens their table of contents: are they there, and whole?

    Raises what ``read_config`` raises."""
    if not place.is_file():
        return _stored_in_folder(place)
    file = open_gguf(place)
    kinds = [kind for kind in file.kinds if kind not in ("F32", "F16", "BF16")]
    int8 = bool(file.metadata.get(INT8_KEY))
    if int8 or not kinds:
        return Stored(int8, ", ".join(kinds))
    packed: list[Form | None] = []

    def find(name: str) -> tuple[int, Form | None] | None:
        found = file.tensors.get(stored_name(f"{name}.weight"))
        if found is None:
            return None
        packed.append(FORMS.get(found.kind.name))
        return prod(found.shape), packed[-1]

    groups, groups_on_gpu = kept_bytes(find), kept_bytes(find, in_bytes=True)
    return Stored(int8, ", ".join(kinds), groups=groups, groups_on_gpu=groups_on_gpu, ungrouped=_ungrouped(packed))


def _ungrouped(packed: Sequence[Form | None]) -> str:
    """Return, in words, what has no form."""
    return "" if all(packed) else "some matrices"


def _stored_in_folder(place: Path) -> Stored:
    raw = folder_config.read_raw(place / "config.json")
    scheme = read_scheme(raw)
    if scheme is None:
        require_whole_bins(place, _BYTES_AT_LEAST * folder_config.parse_config(raw).num_parameters)
        return Stored(stored_as_int8(place))
    folder, config, packing = Checkpoint(place), folder_config.parse_config(raw), scheme.packing
    if packing is None:
        name = scheme.name + (" with act-order" if scheme.mixed else "")
        rows = _rows_on_gpu(folder, config) if scheme.int8_rows else None
        return Stored(stored_as_int8(place), name, scheme.int8_rows, groups_on_gpu=rows)
    packed: list[Form | None] = []

    def find(name: str) -> tuple[int, Form | None] | None:
        shape = _matrix_shape(config, name)
        if shape is None:
            return None
        if folder.header(f"{name}.{packing.packed}") is None:
            return (prod(shape), None) if folder.header(f"{name}.weight") is not None else None
        packed.append(packing.form(lambda suffix: folder.header(f"{name}.{suffix}"), shape[1]))
        return prod(shape), packed[-1]

    groups, groups_on_gpu = kept_bytes(find), kept_bytes(find, in_bytes=True)
    if not any(packed):
        return Stored(False, scheme.name)
    return Stored(False, scheme.name, groups=groups, groups_on_gpu=groups_on_gpu,
                  ungrouped=_ungrouped(packed))


def _rows_on_gpu(folder: Checkpoint, config: ModelConfig) -> tuple[float, float]:
    """Bytes of a layers' weight and of the head's where int8 rows stay so."""
    def find(name: str) -> tuple[int, Form | None] | None:
        shape, found = _matrix_shape(config, name), folder.header(f"{name}.weight")
        if shape is None or found is None:
            return None
        return prod(shape), Form(8, shape[1], False) if found[1] == "I8" else None

    return kept_bytes(find)


def _matrix_shape(c: ModelConfig, name: str) -> tuple[int, int] | None:
    """Return the shape of a matrix by its name in a folder; None: the decoder has none of that name."""
    if name == "lm_head" and c.tied_embeddings:
        return None
    return _layer_shapes(c).get(name.rpartition(".")[2], (c.vocab_size, c.hidden_size))


def _layer_shapes(c: ModelConfig) -> dict[str, tuple[int, int]]:
    d, f, q, kv = c.hidden_size, c.intermediate_size, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q), "gate_proj": (f, d),
            "up_proj": (f, d), "down_proj": (d, f)}


def in_groups(stored: Stored, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a checkpoint's weights stay in groups of few bits on this device."""
    if device.type == "cpu":
        return stored.groups is not None and keeps_groups(device, dtype)
    fits = all(in_blocks(*shape) for shape in _layer_shapes(config).values())
    return stored.groups_on_gpu is not None and fits and keeps_groups(device, dtype)


def weight_files(place: Path) -> list[Path]:
    """Return the files that decide the model's function."""
    if place.is_file():
        return list(open_gguf(place).parts)
    return [path for path in sorted(place.iterdir()) if path.suffix in (".safetensors", ".bin", ".json")]
