"""AWQ, GPTQ, FP8, compressed-tensors, bitsandbytes: the logits of what the stored numbers stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, Qwen2Config

from tests.model.quantised_folders import FORMS, write_form
from tests.model.test_gguf import WIDE, logits
from tests.model.test_parity import write_checkpoint
from triforce_core.errors import ModelError, UnsupportedModelError
from triforce_core.model import Llama, load_model, open_weights, parse_config, read_config, stored_form
from triforce_core.model.hf_quantised import QuantisedCheckpoint
from triforce_core.model.weights import Part

SIZES = {**WIDE, "intermediate_size": 320}  # no whole number of 128 x 128 blocks


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, config in (("llama", LlamaConfig(**SIZES)), ("qwen2", Qwen2Config(**SIZES))):
        made[name] = tmp_path_factory.mktemp(name)
        write_checkpoint(config, made[name])
    return made


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("form", FORMS)
def test_logits_are_those_of_the_weights_that_it_stands_for(folders: dict[str, Path], form: str, family: str,
                                                            tmp_path: Path) -> None:
    write_form(folders[family], form, tmp_path / "few", tmp_path / "plain")
    expected, found = logits(load_model(tmp_path / "plain")), logits(load_model(tmp_path / "few"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(expected, logits(load_model(folders[family])), atol=1e-4), "rounding shows"


@pytest.mark.parametrize("form", FORMS)
def test_weights_themselves_whole_and_in_parts(folders: dict[str, Path], form: str, tmp_path: Path) -> None:
    write_form(folders["llama"], form, tmp_path / "few", tmp_path / "plain")
    config = read_config(tmp_path / "few")
    source = open_weights(tmp_path / "few", config, torch.float32)
    assert isinstance(source, QuantisedCheckpoint)
    for name, meant in load_file(str(tmp_path / "plain" / "model.safetensors")).items():
        if "_proj.weight" not in name:
            continue
        for part in (None, Part(0, 64, 128), Part(1, 64, 128)):
            found = source.matrix(name, tuple(meant.shape), part)
            data = found.data.float() if found.scale is None else found.data * found.scale[:, None]
            torch.testing.assert_close(data, meant if part is None else part.of(meant), atol=1e-7, rtol=1e-6)
    stored = stored_form(tmp_path / "few")
    assert stored.few_bits and stored_form(tmp_path / "plain").few_bits == ""
    assert stored.int8_rows == (form in ("compressed-int8", "bnb-int8")) == (found.scale is not None)
    if stored.int8_rows:
        assert found.data.dtype == torch.int8
        words = [stored.words("bfloat16", keeps) for keeps in (True, False)]
        assert words == [f"{stored.few_bits}, kept as int8", f"{stored.few_bits}, unpacked to bfloat16"]


@pytest.mark.parametrize(("about", "named"), [
    ({"quant_method": "hqq"}, "hqq"), ({"quant_method": "quip"}, "quip"), ({"quant_method": "mxfp4"}, "mxfp4"),
    ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "gemv"), ({"quant_method": "awq", "bits": 3}, "3 bits"),
    ({"quant_method": "gptq", "bits": 3}, "3 bits"), ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "groups"),
    ({"quant_method": "bitsandbytes"}, "bitsandbytes"), ({"quant_method": "compressed-tensors"}, "0 groups"),
    ({"quant_method": "compressed-tensors", "format": "marlin-24",
      "config_groups": {"a": {"weights": {"num_bits": 4}}}}, "marlin-24"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"a": {"weights": {"num_bits": 4, "symmetric": False}}}}, "not symmetric"),
    ("int8", "no object"),
])
def test_what_is_not_supported_is_refused_by_name(folders: dict[str, Path], about: Any, named: str) -> None:
    raw = json.loads((folders["llama"] / "config.json").read_text())
    with pytest.raises(UnsupportedModelError, match=named):
        parse_config(raw | {"quantization_config": about})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("harm", ["missing", "short", "type"])
def test_damage_is_one_clear_line(folders: dict[str, Path], form: str, harm: str, tmp_path: Path) -> None:
    write_form(folders["llama"], form, tmp_path / "few", tmp_path / "plain")
    path = tmp_path / "few" / "model.safetensors"
    tensors = load_file(str(path))
    stem = "model.layers.0.mlp.up_proj."
    name = next(stem + suffix for suffix in ("scales", "weight_scale", "weight_scale_inv", "SCB", "weight.absmax")
                if stem + suffix in tensors)
    if harm == "missing":
        del tensors[name]
    elif harm == "short":
        tensors[name] = torch.ones(3, dtype=tensors[name].dtype)
    else:
        other = next(stem + suffix for suffix in ("qweight", "weight_packed", "weight") if stem + suffix in tensors)
        tensors[other] = tensors[other].double()[:5].clone()
    save_file(tensors, str(path))
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path / "few")
    assert "\n" not in str(caught.value) and "up_proj" in str(caught.value)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_rounding_when_loaded(folders: dict[str, Path], kind: str, family: str) -> None:
    """The logits are those of the rounded weights, computed apart."""
    from triforce_core.kernels import quantized as groups
    from triforce_core.model import Checkpoint
    from triforce_core.model import weights as rows

    config = read_config(folders[family])

    class Rounded(Checkpoint):
        def matrix(self, name: str, shape: tuple[int, int], part: Part | None = None) -> Any:
            from triforce_core.model.weights import Matrix

            data = super().matrix(name, shape, part).data
            if "embed" in name:
                return Matrix(data)
            if kind == "int8" or "lm_head" in name:
                return Matrix(rows.dequantize(*rows.quantize(data)))
            if not groups.fits(data, kind):
                return Matrix(data)
            return Matrix(groups.dequantize(groups.quantize(data, kind)))

    expected = logits(Llama(config, Rounded(folders[family])))
    found = logits(load_model(folders[family], rounding=kind))
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)
    assert not torch.allclose(found, logits(load_model(folders[family])), atol=1e-3)
