"""Files that are damaged, foreign or hostile: each its own clear error. And the compact format."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.model.tiny import VOCAB, tiny_config, tiny_tensors, write_compact
from triforce_core.errors import DamagedWeightsError, ModelError, ModelNotFoundError, UnsupportedModelError
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, Stored, find_model, load_model, stored_form
from triforce_core.model.weights import FORMAT, dequantize, quantize


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    raw = tiny_config()
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file(tiny_tensors(raw), str(tmp_path / "model.safetensors"), metadata={"format": "pt"})
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = tiny_tensors(tiny_config())
    change(tensors)
    save_file(tensors, str(folder / "model.safetensors"))


def logits(model: Llama) -> torch.Tensor:
    c = model.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=64, dtype=model.dtype)
    return model.forward(torch.arange(20), cache, logits_rows=20)


def test_a_sound_checkpoint_loads(folder: Path) -> None:
    model = load_model(folder)
    assert model.config.num_parameters > 0
    assert logits(model).shape == (20, VOCAB)
    assert load_model(str(folder)).config == model.config


@pytest.mark.parametrize(("change", "named"), [
    (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"),
    (lambda t: t.update({"model.layers.7.mlp.up_proj.weight": torch.ones(2, 2)}),
     r"model\.safetensors holds model\.layers\.7\.mlp\.up_proj\.weight"),
    (lambda t: t.update({"model.norm.weight": torch.ones(31)}),
     r"model\.safetensors: model\.norm\.weight has shape \[31\].*\[32\]"),
    (lambda t: t.update({"model.norm.weight": torch.ones(32, dtype=torch.int32)}),
     r"model\.norm\.weight has type torch\.int32")], ids=["missing", "extra", "misshapen", "wrong type"])
def test_wrong_tensors_are_named(folder: Path, change: Callable[[dict[str, torch.Tensor]], object], named: str) -> None:
    rewrite(folder, change)
    with pytest.raises(DamagedWeightsError, match=named):
        load_model(folder)


@pytest.mark.parametrize("more", [
    lambda t: {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)},  # a derived buffer of old exports
    lambda t: {"lm_head.weight": t["model.embed_tokens.weight"].clone()}], ids=["derived", "tied, written twice"])
def test_tensors_that_may_be_there(folder: Path, more: Callable[[dict[str, torch.Tensor]], dict]) -> None:
    rewrite(folder, lambda t: t.update(more(t)))
    load_model(folder)


@pytest.mark.parametrize("left", [0, 3, 100, 1000, 5000])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_half_written(folder: Path, name: str, left: int) -> None:
    path = folder / name
    if path.suffix == ".bin":
        (folder / "model.safetensors").unlink()
        torch.save(tiny_tensors(tiny_config()), path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DamagedWeightsError, match=rf"{name} is damaged"):
        load_model(folder)


def test_missing_shard(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    with pytest.raises(DamagedWeightsError, match=r"names model-1\.safetensors"):
        load_model(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": "../../etc/passwd"}}'])
def test_malformed_index(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(DamagedWeightsError, match=r"index\.json"):
        load_model(folder)


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code ran')",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_wants_to_run_code(folder: Path, zipped: bool) -> None:
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if zipped:
        torch.save({"model.norm.weight": Hostile()}, path)
    else:
        path.write_bytes(pickle.dumps({"model.norm.weight": Hostile()}, protocol=2) + bytes(50_000))
    with pytest.raises(DamagedWeightsError, match=r"more than tensors.*safetensors or GGUF") as caught:
        load_model(folder)
    assert "weights_only" not in str(caught.value) and "torch.load" not in str(caught.value)


@pytest.mark.parametrize(("data", "word"), [
    (b"", "PyTorch's"), (b"not weights " * 170, "PyTorch's"), (pickle.dumps({}) * 100, "by config.json"),
    ({}, "by config.json"), ({"model.norm.weight": torch.ones(32)}, "by config.json"),
    ({"model.norm.weight": Hostile()}, "more than tensors"),
])
def test_a_fake_bin_is_refused_before_it_is_loaded(folder: Path, data: object, word: str) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(tiny_tensors(tiny_config()), path)
    (folder / "model.safetensors").unlink()
    assert stored_form(folder) == Stored()
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        torch.save(data, path)
    with pytest.raises(DamagedWeightsError, match=word):
        stored_form(folder)


def test_bin_that_is_no_table(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save([1, 2], folder / "pytorch_model.bin")
    with pytest.raises(DamagedWeightsError, match="no table of tensors"):
        load_model(folder)


def test_no_weights_and_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="No weights"):
        load_model(folder)
    with pytest.raises(ModelNotFoundError, match="is a file, and it does not begin with GGUF"):
        find_model(folder / "config.json")
    with pytest.raises(ModelNotFoundError, match="no folder"):
        find_model(folder / "nothing here")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError, match=r"not in the local Hugging Face cache.*--allow-download"):
        find_model("nobody-at-all/no-such-model")


def test_repo_id_in_the_local_cache(folder: Path, tmp_path_factory: pytest.TempPathFactory,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.mktemp("hub")
    snapshot = cache / "models--some--model" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    (cache / "models--some--model" / "refs").mkdir()
    (cache / "models--some--model" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    assert find_model("some/model") == snapshot


# --- the compact format ----------------------------------------------------------------------------------------------


def test_quantize_keeps_within_half_a_step_and_bfloat16_scales() -> None:
    weight = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)) * 0.02
    weight[3] = 0
    data, scale = quantize(weight)
    assert data.dtype == torch.int8 and torch.equal(scale.bfloat16().float(), scale)
    assert ((dequantize(data, scale) - weight).abs() <= scale[:, None] * 0.5001).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_compact_model_equals_its_dequantised_twin(tmp_path: Path, dtype: torch.dtype, tied: bool) -> None:
    raw = tiny_config(tie_word_embeddings=tied)
    compact, plain = tmp_path / "compact", tmp_path / "plain"
    for place in (compact, plain):
        place.mkdir()
        (place / "config.json").write_text(json.dumps(raw))
    tensors = tiny_tensors(raw)
    write_compact(tensors, compact)
    twin = {name: dequantize(*quantize(t)) if t.dim() == 2 else t for name, t in tensors.items()}
    save_file(twin, str(plain / "model.safetensors"))
    expected = logits(load_model(plain))
    difference = (logits(load_model(compact, dtype=dtype)) - expected).abs().max()
    assert difference < (1e-4 if dtype == torch.float32 else 0.1 * expected.abs().max())


def test_a_newer_compact_format_is_refused(folder: Path) -> None:
    save_file(tiny_tensors(tiny_config()), str(folder / "model.safetensors"), metadata={"format": "triforce-int4-v2"})
    with pytest.raises(UnsupportedModelError, match=f"triforce-int4-v2.*{FORMAT}"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"'])
def test_malformed_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_model(folder)
