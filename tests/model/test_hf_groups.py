"""AWQ, GPTQ and packed integers kept in few bits: the very numbers that they stand for, and less memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model.kept_in_groups import BF16, check_bytes, check_model, needs_library, plain_folder
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.model import quantised_folders
from tests.model.quantised_folders import write_form
from triforce_core.device.shard import ALONE, Shard
from triforce_core.engine import loading
from triforce_core.kernels import Grouped
from triforce_core.model import checkpoint, in_groups, load_model, open_weights, read_config, stored_form
from triforce_core.model.hf_quantised import Packing, kept, read_awq, read_gptq
from triforce_core.model.weights import Form, Matrix

# Bits of the steps, and whether there are offsets.
KEPT = {"awq": (4, True), "awq-sym": (4, False), "gptq": (4, True), "gptq-v2": (4, True), "gptq-sym": (4, False),
        "gptq-8-bits": (8, True), "compressed-w4a16": (4, False), "compressed-w8a16": (8, False)}
NAMES = {"awq": "AWQ", "gptq": "GPTQ", "compressed": "compressed-tensors"}
AWQ_COLUMNS = (0, 4, 1, 5, 2, 6, 3, 7)  # where in an int32 each of eight columns is


def bits_of(packed: Tensor, at: int, bits: int) -> Tensor:
    return (packed.long() >> bits * at) & 2**bits - 1


def any_bits(bits: int, kind: torch.dtype, method: str) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
    """All numbers and zeros there are, scales of all sizes: tensors of 256 inputs in eight groups and 64 outputs; and
    numbers [out, in], zeros and scales [out, groups]."""
    chance, per = torch.Generator().manual_seed(0), 32 // bits

    def words(*shape: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, shape, generator=chance).int()

    scales = (torch.randn(8, 64, generator=chance) * 10.0 ** torch.randint(-9, 4, (8, 64), generator=chance)).to(kind)
    stored = {"qzeros": words(8, 64 // per), "scales": scales}
    where = AWQ_COLUMNS if method == "awq" else range(per)
    zeros = torch.stack([bits_of(stored["qzeros"], at, bits) for at in where], 2).flatten(1)
    if method == "awq":
        stored["qweight"] = words(256, 8)
        numbers = torch.stack([bits_of(stored["qweight"], at, bits) for at in where], 2).flatten(1)
    else:
        stored["qweight"] = words(256 // per, 64)
        numbers = torch.stack([bits_of(stored["qweight"], at, bits) for at in where], 1).flatten(0, 1)
    return stored, numbers.T, zeros.T, scales.T


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("method", "bits", "less"), [("awq", 4, 0), ("gptq", 4, 1), ("gptq", 4, 0), ("gptq", 8, 1)])
def test_repacked_without_loss(method: str, bits: int, less: int, kind: torch.dtype) -> None:
    """(number - zero) * scale in fp64 is what step * scale + offset is in fp32."""
    stored, numbers, zeros, scales = any_bits(bits, kind, method)
    packing = Packing(bits, offsets=True)
    found = (read_awq(stored.get, (64, 256), packing) if method == "awq"
             else read_gptq(stored.get, (64, 256), packing, less))
    assert isinstance(found, Grouped) and found.group == 32 and found.bits == bits and found.offset is not None
    exact = (numbers.view(64, 8, 32) - zeros[..., None] - less).double() * scales[..., None].double()
    assert torch.equal(found.numbers().double(), exact.view(64, 256))
    assert bits == 8 or (int(found.steps.min()) == 0 and int(found.steps.max()) == 15)


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_wide_scales_and_hostile_ones(method: str) -> None:
    """With scales of fp32 and zero points, products in groups would round otherwise: they are numbers at once."""
    stored, numbers, zeros, scales = any_bits(4, torch.float32, method)
    reads: Callable[..., Any] = read_awq if method == "awq" else read_gptq
    more = {} if method == "awq" else {"less": 0}
    found = reads(stored.get, (64, 256), Packing(4, True), **more)
    assert isinstance(found, Matrix)
    assert torch.equal(found.data, ((numbers.view(64, 8, 32) - zeros[..., None]) * scales[..., None]).view(64, 256))
    for bad in (float("nan"), float("inf"), 0.0):
        stored["scales"] = torch.full((8, 64), bad).half()
        found = reads(stored.get, (64, 256), Packing(4, True), **more)
        assert isinstance(found, Grouped) and found.numbers().shape == (64, 256)
    stored["scales"] = torch.ones(0, 64).half()
    with pytest.raises(ValueError, match="256 inputs in 0 groups"):
        reads(stored.get, (64, 256), Packing(4, True), **more)


@pytest.mark.parametrize(("group", "taken"), [(128, 128), (512, 256), (384, 128), (48, 16), (8, 0), (40, 0)])
def test_groups_become_those_of_the_kernels(group: int, taken: int) -> None:
    steps = torch.randint(0, 16, (4, 2 * group), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    weight = Grouped(4, steps, torch.rand(4, 2), torch.rand(4, 2))
    found = kept(weight)
    assert (found.group if found else 0) == taken
    assert found is None or torch.equal(found.numbers(), weight.numbers())
    header = {"scales": ((2, 4), "F16"), "qzeros": ((2, 1), "I32")}.get
    assert Packing(4, True).form(header, 2 * group) == (Form(4, taken, True) if taken else None)


def folder_of(folder: Path, form: str, **settings: Any) -> Path:
    write_form(plain_folder(folder / "whole", **settings), form, folder / "few", folder / "plain")
    return folder / "few"


def set_config(place: Path, **changes: Any) -> None:
    raw = json.loads((place / "config.json").read_text())
    raw["quantization_config"] |= changes
    (place / "config.json").write_text(json.dumps(raw))


def change(place: Path, name: str, by: Callable[[Tensor], Tensor]) -> None:
    tensors = load_file(str(place / "model.safetensors"))
    tensors[name] = by(tensors[name])
    save_file(tensors, str(place / "model.safetensors"))


@needs_library
@pytest.mark.parametrize("form", KEPT)
def test_a_model_kept_in_few_bits(form: str, tmp_path: Path) -> None:
    """Every matrix is the unpacked one, to the last bit; and see ``check_model``."""
    place = folder_of(tmp_path, form)
    model = check_model(place)
    assert stored_form(place).words("bfloat16", True, True) == f"{NAMES[form.split('-')[0]]}, kept in few bits"
    config = read_config(place)
    held, whole = (open_weights(place, config, torch.float32, keeps_groups=keeps) for keeps in (True, False))
    bits, offsets = KEPT[form]
    for name, shape in (("self_attn.k_proj", (128, 256)), ("mlp.down_proj", (256, 512))):
        name = f"model.layers.1.{name}.weight"
        found = held.grouped(name, shape)
        assert found is not None and (found.bits, found.offset is not None) == (bits, offsets)
        assert torch.equal(found.numbers(), whole.matrix(name, shape).data)
        assert torch.equal(held.matrix(name, shape).data, whole.matrix(name, shape).data)
        assert whole.grouped(name, shape) is None
    assert model.layers[0].qkv.struct.bits == bits, "joined, they need no more"  # type: ignore[attr-defined]


@needs_library
def test_act_order_is_unpacked(tmp_path: Path) -> None:
    place = folder_of(tmp_path, "gptq-act-order")
    check_model(place, in_groups=False)
    words = stored_form(place).words("bfloat16", True, True)
    assert words == "GPTQ with act-order, unpacked to bfloat16"
    set_config(place, desc_act=False)  # a file that is not what its settings say
    assert not load_model(place, dtype=BF16).in_groups
    for changes in ({"static_groups": True}, {"group_size": -1}):  # in order even so
        place = folder_of(tmp_path / next(iter(changes)), "gptq")
        set_config(place, desc_act=True, **changes)
        check_model(place)
    set_config(place, desc_act=True, group_size=32)
    assert stored_form(place).groups is None and not load_model(place, dtype=BF16).in_groups


@needs_library
def test_an_odd_zero_point_costs_memory_alone(tmp_path: Path) -> None:
    """In a symmetric file: the product has steps of six bits then, and the same numbers."""
    place = folder_of(tmp_path, "gptq-sym")
    change(place, "model.layers.0.self_attn.k_proj.qzeros", lambda zeros: zeros ^ 1)
    kept, whole = load_model(place, dtype=BF16), load_model(place)
    assert kept.layers[0].qkv.struct.bits == 6 and kept.layers[1].qkv.struct.bits == 4  # type: ignore[attr-defined]
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(0)).to(BF16)
    found, expected = kept.layers[0].qkv(x), whole.layers[0].qkv(x.float())
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


@needs_library
def test_what_has_no_form_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of eight have none; a product of which a part is plain has none together."""
    monkeypatch.setattr(quantised_folders, "GROUP", 8)
    place = folder_of(tmp_path / "a", "awq")
    assert stored_form(place).words("bfloat16", True, True) == "AWQ, unpacked to bfloat16"
    check_model(place, in_groups=False)
    monkeypatch.setattr(quantised_folders, "GROUP", 64)
    place = folder_of(tmp_path / "b", "compressed-w4a16", tie_word_embeddings=False, intermediate_size=448)
    assert stored_form(place).words("bfloat16", True, True) == "compressed-tensors, kept in few bits"
    check_model(place)
    tensors, plain = (load_file(str(where / "model.safetensors")) for where in (place, tmp_path / "b" / "plain"))
    for layer in range(2):
        stem = f"model.layers.{layer}.self_attn.v_proj."
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(stem)}
        tensors[f"{stem}weight"] = plain[f"{stem}weight"]
    save_file(tensors, str(place / "model.safetensors"))
    check_model(place)


@needs_library
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_in_few_bits(tied: bool, tmp_path: Path) -> None:
    """GPTQ's may be; of a tied one, the embedding counts."""
    place = folder_of(tmp_path, "gptq", tie_word_embeddings=False)
    tensors = load_file(str(place / "model.safetensors"))
    stored, _ = quantised_folders.gptq(tensors.pop("lm_head.weight"))
    tensors |= {f"lm_head.{suffix}": tensor.contiguous() for suffix, tensor in stored.items()}
    if tied:
        raw = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(raw | {"tie_word_embeddings": True}))
        tensors = {name: tensor for name, tensor in tensors.items() if "lm_head" not in name}
    save_file(tensors, str(place / "model.safetensors"))
    kept = check_model(place)
    head = kept.weights.head.struct.bits  # type: ignore[attr-defined]
    assert head == (0 if tied else 4)
    check_bytes(place, kept)


@pytest.mark.parametrize(("form", "method"), [("compressed-int8", "compressed-tensors"), ("bnb-int8", "bitsandbytes")])
def test_a_gpu_keeps_int8_rows(form: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As groups that are as long as rows; several share their layers out, and unpack them. No GPU need be there."""
    place, at, gpu = tmp_path / "few", "model.layers.0.mlp.up_proj.weight", torch.device("cuda")
    write_form(plain_folder(tmp_path / "whole"), form, place, tmp_path / "plain")
    monkeypatch.setattr(checkpoint, "keeps_groups", lambda device, dtype: dtype == BF16)
    monkeypatch.setattr(loading, "groups_missing", lambda device: "")
    config, meant = read_config(place), load_file(str(tmp_path / "plain" / "model.safetensors"))[at]
    assert in_groups(stored_form(place), config, gpu, BF16)
    found = open_weights(place, config, BF16, keeps_groups=True).grouped(at, (512, 256))
    assert found is not None and (found.bits, found.group) == (8, 256)
    torch.testing.assert_close(found.numbers(), meant, atol=1e-7, rtol=1e-6)
    counted = loading._weights(place, BF16, gpu, ALONE)
    assert counted.few_bits == pytest.approx(1, abs=4 / 256) and counted.few_bits_head == 2
    assert loading._weights(place, BF16, gpu, Shard(0, 2)).few_bits == 2
    words = {shard: loading._weight_words(place, BF16, gpu, "same", shard) for shard in (ALONE, Shard(0, 2))}
    assert list(words.values()) == [f"{method}, kept as int8", f"{method}, unpacked to bfloat16"]
