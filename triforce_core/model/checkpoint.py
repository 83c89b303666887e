"""A model on disk, whatever its format: a folder of Hugging Face's kind, or a GGUF file (the first, if it is split).

A repo id of Hugging Face is looked up in the local cache. Nothing is fetched unless ``allow_download``; then only the
files that are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from math import prod
from pathlib import Path
from typing import Any

import torch

from ..config import is_repo_id
from ..device.capability import total_host_memory
from ..errors import ModelNotFoundError
from ..gguf import is_gguf, open_gguf
from ..kernels import compiled, grouped_bytes, in_blocks, keeps_groups
from . import config as folder_config
from .config import ModelConfig
from .gguf_checkpoint import FORMS, GGUFWeights, gguf_config, stored_name
from .hf_quantised import QuantisedCheckpoint, read_scheme
from .weights import Checkpoint, Form, WeightSource, require_whole_bins, stored_as_int8

_BYTES_AT_LEAST = 2  # of a number in a .bin file
UNPACKED = 2.0  # bytes of a weight
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf\Z")
_SMALL = ("*.json", "tokenizer.model", "*.txt", "*.jinja")
# Matrices of one product, as the decoder joins them.
_PRODUCTS = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",),
             ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))
_FUSED = (("self_attn.qkv_proj",), ("self_attn.o_proj",), ("mlp.gate_up_proj",), ("mlp.down_proj",))


@dataclass(frozen=True, slots=True)
class Stored:
    """Say how weights lie on disk. int8: our own layout, embedding and head too; int8_rows: the layers' products alone.
    few_bits: the name of another layout ("Q4_K, Q6_K"), whose weights become the decoder's number type; "" if they are
    plain numbers already.

    groups: bytes of a layers' weight and of the head's where weights in groups are kept so, groups_on_gpu: there; None:
    there are none. (int8 by rows: on a GPU they are groups.) ungrouped: matrices that have no such form, in words.
    sees: weights for pictures are there too, and are left out. rows: those of the embedding can be read one by one
    where weights stay in groups on a CPU."""

    int8: bool = False
    few_bits: str = ""
    int8_rows: bool = False
    groups: tuple[float, float] | None = None
    groups_on_gpu: tuple[float, float] | None = None
    ungrouped: str = ""
    sees: bool = False
    rows: bool = False

    def words(self, dtype: str, keeps_int8: bool, keeps_groups: bool = False) -> str:
        """Say what is loaded, in words fit to show; "" where there is nothing to say. dtype: of products. keeps_int8:
        the device has products with int8, keeps_groups: with weights in groups."""
        if not self.few_bits:
            return ""
        if keeps_groups and self.groups is not None:
            rest = f", but {self.ungrouped} in {dtype}" if self.ungrouped else ""
            return f"{self.few_bits}, kept in few bits{rest}"
        kept = self.int8_rows and (keeps_int8 or keeps_groups)
        return f"{self.few_bits}, kept as int8" if kept else f"{self.few_bits}, unpacked to {dtype}"


def find_model(folder_or_repo: str | Path, *, allow_download: bool = False) -> Path:
    """Return the folder of a checkpoint, or its GGUF file: one by its bytes or its name, so that reading it says what
    is wrong. Raises ModelNotFoundError (nothing there, several GGUF files in one folder, not in the cache, or the
    download failed)."""
    path = Path(folder_or_repo).expanduser()
    if path.is_dir():
        return _within(path)
    if path.is_file() and (path.suffix.lower() == ".gguf" or is_gguf(path)):
        return path
    repo = str(folder_or_repo)
    if path.exists():
        raise ModelNotFoundError(f"{path} is a file, and it does not begin with GGUF",
                                 allowed="a folder with config.json and weights, or a GGUF file")
    if not is_repo_id(repo):
        raise ModelNotFoundError(f"There is no folder or file {path}",
                                 allowed="a folder, a GGUF file, or a Hugging Face repo id")
    from huggingface_hub import list_repo_files, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if not allow_download:
            return _within(Path(snapshot_download(repo, local_files_only=True)))
        return _within(Path(snapshot_download(repo, allow_patterns=wanted_files(list_repo_files(repo)))))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        if allow_download:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelNotFoundError(f"{repo} could not be fetched: {reason}") from error
        raise ModelNotFoundError(f"{repo} is not in the local Hugging Face cache",
                                 remedy="Pass --allow-download to fetch it, or give a folder.") from error


def gguf_files(folder: Path) -> list[Path]:
    """Return the models among a folder's GGUF files: a split one's first part; no projectors for images."""
    found = [path for path in sorted(folder.glob("*.gguf")) if not path.name.startswith("mmproj")]
    return [path for path in found if _LATER_PART.search(path.name) is None]


def _within(folder: Path) -> Path:
    """Return the folder itself, or the one GGUF model that it holds."""
    found = [] if (folder / "config.json").is_file() else gguf_files(folder)
    if len(found) > 1:
        raise ModelNotFoundError(f"{folder} holds {len(found)} GGUF files", allowed="one",
                                 remedy=f"Give one of them, such as {found[0]}")
    return found[0] if found else folder


def wanted_files(names: Sequence[str]) -> list[str]:
    """Return those of a repo's files that are read here: weights in safetensors if it has them, otherwise pickles;
    never both (the same weights twice)."""
    safe = any(name.endswith(".safetensors") for name in names)
    patterns = (*_SMALL, "model*.safetensors" if safe else "pytorch_model*.bin")
    return [name for name in names if "/" not in name and any(fnmatch(name, pattern) for pattern in patterns)]


def weight_files(place: Path) -> list[Path]:
    """Return the files that decide the model's function."""
    if place.is_file():
        return list(open_gguf(place).parts)
    return [path for path in sorted(place.iterdir()) if path.suffix in (".safetensors", ".bin", ".json")]


def read_config(place: Path) -> ModelConfig:
    """Raises ModelNotFoundError, ModelError, UnsupportedModelError, DamagedWeightsError."""
    return gguf_config(open_gguf(place)) if place.is_file() else folder_config.read_config(place)


def open_weights(place: Path, config: ModelConfig, dtype: torch.dtype, *, keeps_groups: bool = False) -> WeightSource:
    """dtype: of matrices that are not kept as they are stored. keeps_groups: weights in groups are. Raises what
    ``read_config`` raises."""
    if place.is_file():
        return GGUFWeights(open_gguf(place), config, dtype, keeps_groups=keeps_groups)
    scheme = read_scheme(folder_config.read_raw(place / "config.json"))
    if scheme is None:
        return Checkpoint(place)
    return QuantisedCheckpoint(Checkpoint(place), scheme, dtype, keeps_groups=keeps_groups)


def stored_form(place: Path) -> Stored:
    """Reads no weights, but opens their table of contents: are they there, and whole?

    Raises what ``read_config`` raises."""
    if not place.is_file():
        raw = folder_config.read_raw(place / "config.json")
        return replace(_stored_in_folder(place, raw), sees="vision_config" in raw)
    file = open_gguf(place)
    kinds = [kind for kind in file.kinds if kind not in ("F32", "F16", "BF16")]
    if not kinds:
        return Stored()
    lacking: list[str] = []
    config = gguf_config(file)

    def form_of(name: str, shape: tuple[int, int]) -> Form | None:
        found = file.tensors.get(stored_name(f"{name}.weight"))
        form = None if found is None else FORMS.get(found.kind.name)
        if form is None:
            lacking.append(name)
        return form

    table = file.tensors.get(stored_name("model.embed_tokens.weight"))
    return replace(_in_groups(", ".join(kinds), config, form_of, lacking),
                   rows=table is not None and table.kind.name in FORMS)


def _stored_in_folder(place: Path, raw: dict[str, Any]) -> Stored:
    scheme, config = read_scheme(raw), folder_config.parse_config(raw)
    if scheme is None:
        require_whole_bins(place, _BYTES_AT_LEAST * config.num_parameters)
        return Stored(stored_as_int8(place))
    folder, packing = Checkpoint(place), scheme.packing
    lacking: list[str] = []

    def form_of(name: str, shape: tuple[int, int]) -> Form | None:
        if packing is None:
            found = folder.header(f"{name}.weight")
            return Form(8, shape[1], False) if found is not None and found[1] == "I8" else None
        if folder.header(f"{name}.{packing.packed}") is None:
            return None
        form = packing.form(lambda suffix: folder.header(f"{name}.{suffix}"), shape[1])
        if form is None:
            lacking.append(name)
        return form

    if packing is not None:
        return _in_groups(scheme.name, config, form_of, lacking)
    name = scheme.name + (" with act-order" if scheme.mixed else "")
    rows = _kept_bytes(*_forms(config, form_of)) if scheme.int8_rows else None
    return Stored(False, name, scheme.int8_rows, groups_on_gpu=rows)


_Products = list[tuple[int, list[Form | None]]]  # weights of each, and the forms of its matrices


def _forms(config: ModelConfig,
           form_of: Callable[[str, tuple[int, int]], Form | None]) -> tuple[_Products, Form | None]:
    """Return the products of all layers, and the form of the head."""
    shapes, products = _layer_shapes(config), []
    for layer in range(config.num_layers):
        for names, times in _products(config):
            sizes = [shapes[name.rpartition(".")[2]] for name in names]
            forms = [form_of(f"model.layers.{layer}.{name}", size) for name, size in zip(names, sizes, strict=True)]
            products.append((times * sum(map(prod, sizes)), forms))
    head = "model.embed_tokens" if config.tied_embeddings else "lm_head"
    return products, form_of(head, (config.vocab_size, config.hidden_size))


def _products(config: ModelConfig) -> list[tuple[tuple[str, ...], int]]:
    """Return a layer's products, and how many there are of each: of experts, the first stands for all."""
    e, own = config.experts, _FUSED if config.fused else _PRODUCTS
    if e is None:
        return [(names, 1) for names in own]
    return [(tuple(name.replace("mlp.", "mlp.experts.0.") for name in names), e.count if "mlp" in names[0] else 1)
            for names in own]


def _in_groups(name: str, config: ModelConfig, form_of: Callable[[str, tuple[int, int]], Form | None],
               lacking: list[str]) -> Stored:
    """lacking: matrices in few bits that have no form, filled by ``form_of``."""
    products, head = _forms(config, form_of)
    if head is None and not any(form for _, forms in products for form in forms):
        return Stored(False, name)
    groups, groups_on_gpu = (_kept_bytes(products, head, in_bytes=in_bytes) for in_bytes in (False, True))
    return Stored(False, name, groups=groups, groups_on_gpu=groups_on_gpu,
                  ungrouped="some matrices" if lacking else "")


def _kept_bytes(products: _Products, head: Form | None, *, in_bytes: bool = False) -> tuple[float, float]:
    """Return the bytes of a layers' weight, and of one of the head's, where what has a form is kept in it: those that
    are one product take one form together (see ``kernels.join_grouped``), and what has none takes two bytes.

    in_bytes: as on a GPU, see ``Grouped.in_bytes``."""
    weights = sum(count for count, _ in products)
    taken = sum(count * joined_bytes(forms, in_bytes) for count, forms in products)
    return taken / max(1, weights), joined_bytes([head], in_bytes)


def joined_bytes(given: Sequence[Form | None], in_bytes: bool = False) -> float:
    """Return the bytes of a weight of matrices in these forms that are joined into one product."""
    forms = [form for form in given if form is not None]
    if len(forms) < len(given):
        return UNPACKED
    offsets, group = {form.offsets for form in forms}, min(form.group for form in forms)
    above = {form.group * form.super_block for form in forms}
    same = len(above) == 1 and all(form.super_block > 1 for form in forms)
    bits, uneven = max(*(form.bits for form in forms), 6 if len(offsets) > 1 else 0), {form.uneven for form in forms}
    if len(uneven) > 1 or (in_bytes and (bits > 4 or True in uneven)):
        bits = 8
    return grouped_bytes(bits, group, any(offsets), max(above) // group if same else 1)


def _layer_shapes(c: ModelConfig) -> dict[str, tuple[int, int]]:
    f = c.experts.width if c.experts else c.intermediate_size
    d, q, kv = c.hidden_size, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    if c.fused:
        return {"qkv_proj": (q + 2 * kv, d), "o_proj": (d, q), "gate_up_proj": (2 * f, d), "down_proj": (d, f)}
    return {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q), "gate_proj": (f, d),
            "up_proj": (f, d), "down_proj": (d, f)}


def packs(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Return whether a CPU without our kernels keeps weights in few bits and unpacks them in each pass. That takes 4 to
    14 times as long for a token, so it is for models whose numbers would fill more than half of the memory."""
    return compiled().library is None and 2 * config.num_parameters * dtype.itemsize > total_host_memory()


def in_groups(stored: Stored, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a checkpoint's weights stay in groups of few bits on this device."""
    if device.type == "cpu":
        return stored.groups is not None and (
            keeps_groups(device, dtype) or (not stored.ungrouped and packs(config, dtype)))
    fits = all(in_blocks(*shape) for shape in _layer_shapes(config).values())
    return stored.groups_on_gpu is not None and fits and keeps_groups(device, dtype)
