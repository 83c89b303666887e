"""GGUF files behind the one decoder: the logits of the same weights in a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, RopeScalingType
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.gguf_files import KINDS, add_tensors, write_gguf
from tests.model.test_parity import CONFIGS, write_checkpoint
from training.gguf_export import finish, in_their_order, writer
from triforce_core.device.shard import Shard
from triforce_core.errors import DamagedWeightsError, ModelNotFoundError, UnsupportedModelError
from triforce_core.gguf import open_gguf
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, find_model, load_model, open_weights, read_config
from triforce_core.model.gguf_checkpoint import GGUFWeights, stored_name
from triforce_core.model.rope import RopeConfig, inverse_frequencies
from triforce_core.model.weights import ShardedWeights

WIDE = {"vocab_size": 64, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0}
FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**WIDE), "llama-tied": LlamaConfig(**WIDE, tie_word_embeddings=True),
    "mistral": MistralConfig(**WIDE, sliding_window=None), "qwen2": Qwen2Config(**WIDE),
    "qwen3": Qwen3Config(**WIDE, head_dim=64),
}


def logits(model: Llama, tokens: int = 40) -> torch.Tensor:
    c = model.config
    ids = torch.randint(0, 64, (tokens,), generator=torch.Generator().manual_seed(0))
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=tokens, dtype=model.dtype,
                      device=model.device)
    return model(ids, cache, logits_rows=tokens)


def dequantised(folder: Path, path: Path, out: Path) -> Path:
    """The folder again, with each matrix as the file's types round it, by the ``gguf`` package."""
    raw, file = json.loads((folder / "config.json").read_text()), open_gguf(path)
    tensors = load_file(str(folder / "model.safetensors"))
    for name, tensor in tensors.items():
        stored = file.tensors[stored_name(name)]
        if tensor.dim() != 2 or stored.kind.name == "F32":
            continue
        kind = GGMLQuantizationType[stored.kind.name]
        data = np.array(file.raw(stored))
        rows = torch.from_numpy(dequantize(data.view(np.float16) if kind.name == "F16" else data, kind)).float()
        places = in_their_order(raw, name, torch.arange(len(rows))[:, None].expand(-1, 1).contiguous())[:, 0]
        tensors[name] = torch.empty_like(rows).index_copy_(0, places, rows)
    out.mkdir()
    (out / "config.json").write_text((folder / "config.json").read_text())
    save_file(tensors, str(out / "model.safetensors"))
    return out


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, config in FAMILIES.items():
        made[name] = tmp_path_factory.mktemp(name)
        write_checkpoint(config, made[name])
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_numbers_give_transformers_logits(folders: dict[str, Path], family: str, tmp_path: Path) -> None:
    path = write_gguf(folders[family], tmp_path / "model.gguf")
    model = load_model(path)
    assert torch.equal(logits(model), logits(load_model(folders[family])))
    theirs = AutoModelForCausalLM.from_pretrained(folders[family]).float()
    ids = torch.randint(0, 64, (1, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(logits(model), theirs(ids).logits[0], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_type_gives_the_logits_of_what_it_stands_for(folders: dict[str, Path], kind: str, family: str,
                                                           tmp_path: Path) -> None:
    path = write_gguf(folders[family], tmp_path / "model.gguf", kind)
    expected = logits(load_model(dequantised(folders[family], path, tmp_path / "plain")))
    found = logits(load_model(path))
    assert torch.isfinite(found).all() and torch.equal(found, expected)


def test_transformers_reads_the_same_file_alike(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its own reading of GGUF: an implementation that shares nothing with ours but the ``gguf`` package."""
    path = write_gguf(folders["llama"], tmp_path / "model.gguf", "Q8_0")
    theirs = AutoModelForCausalLM.from_config(FAMILIES["llama"]).float().eval()
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)
    theirs.load_state_dict(read["tensors"])
    ids = torch.randint(0, 64, (1, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(logits(load_model(path)), theirs(ids).logits[0], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["linear", "yarn", "yarn-attention-factor", "llama3-rope"])
def test_ropes(name: str, tmp_path: Path) -> None:
    write_checkpoint(CONFIGS[name], tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    out, rope = writer(tmp_path / "model.gguf", raw), raw["rope_parameters"]
    if rope["rope_type"] == "llama3":
        whole = RopeConfig("llama3", 500000.0, 8.0, 64, low_freq_factor=1.0, high_freq_factor=4.0)
        plain = inverse_frequencies(RopeConfig(theta=500000.0), 12)
        out.add_tensor("rope_freqs.weight", (plain / inverse_frequencies(whole, 12)).numpy())
    else:
        out.add_rope_scaling_type(RopeScalingType(rope["rope_type"]))
        out.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:
            usual = 1 + 0.1 * np.log(rope["factor"])
            out.add_rope_scaling_attn_factors(rope["attention_factor"] / usual)
            out.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            out.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    add_tensors(out, raw, tmp_path, "F32")
    finish(out)
    torch.testing.assert_close(logits(load_model(tmp_path / "model.gguf")), logits(load_model(tmp_path)),
                               atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("which", ["first", "last"])
def test_split_files(folders: dict[str, Path], which: str, tmp_path: Path) -> None:
    write_gguf(folders["llama"], tmp_path / "model.gguf", split_max_tensors=4)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) > 2 and find_model(tmp_path) == parts[0]
    model = load_model(parts[0 if which == "first" else -1])
    assert torch.equal(logits(model), logits(load_model(folders["llama"])))
    parts[1].unlink()
    with pytest.raises(DamagedWeightsError, match="not beside it"):
        load_model(parts[0])


@pytest.mark.parametrize("world", [2])
def test_each_rank_reads_its_part(folders: dict[str, Path], world: int, tmp_path: Path) -> None:
    path = write_gguf(folders["llama"], tmp_path / "model.gguf", "Q4_K")
    config = read_config(path)
    for rank in range(world):
        part = ShardedWeights(open_weights(path, config, torch.float32), Shard(rank, world), config.vocab_size)
        whole = GGUFWeights(open_gguf(path), config, torch.float32)
        for name, rows, width in (("self_attn.q_proj", 256, 256), ("self_attn.o_proj", 256, 256),
                                  ("mlp.down_proj", 256, 512), ("mlp.up_proj", 512, 256)):
            at = f"model.layers.0.{name}.weight"
            axis = 1 if name in ("self_attn.o_proj", "mlp.down_proj") else 0
            shape = (rows // world, width) if axis == 0 else (rows, width // world)
            expected = whole.tensor(at, (rows, width)).chunk(world, axis)[rank]
            assert torch.equal(part.matrix(at, shape).data, expected)


@pytest.mark.parametrize(("key", "value", "kind", "named"), [
    ("llama.expert_count", 8, GGUFValueType.UINT32, "expert_count 8"),
    ("llama.logit_scale", 0.5, GGUFValueType.FLOAT32, "logit_scale"),
    ("llama.rope.dimension_count", 32, GGUFValueType.UINT32, "unequal widths"),
    ("general.type", "adapter", GGUFValueType.STRING, "adapter"),
    ("llama.rope.scaling.type", "dynamic", GGUFValueType.STRING, "dynamic"),
    ("llama.attention.head_count_kv", [2, 4], GGUFValueType.ARRAY, "layer to layer"),
])
def test_other_mathematics_is_refused_by_name(folders: dict[str, Path], key: str, value: Any, kind: GGUFValueType,
                                              named: str, tmp_path: Path) -> None:
    raw = json.loads((folders["llama"] / "config.json").read_text())
    out = writer(tmp_path / "model.gguf", raw)
    out.kv_data[0].pop(key, None)
    out.add_key_value(key, value, kind, GGUFValueType.UINT32 if kind == GGUFValueType.ARRAY else None)
    add_tensors(out, raw, folders["llama"], "F32")
    finish(out)
    with pytest.raises(UnsupportedModelError, match=named):
        read_config(tmp_path / "model.gguf")


@pytest.mark.parametrize("architecture", ["gemma4", "gpt-oss", "llama4", "mamba", "qwen35", "deepseek2"])
def test_other_architectures_are_refused_with_who_can_run_them(architecture: str, tmp_path: Path) -> None:
    out = GGUFWriter(tmp_path / "model.gguf", architecture)
    out.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    finish(out)
    with pytest.raises(UnsupportedModelError, match=rf"{architecture}.*llama, .*qwen3.*llama.cpp or Ollama can run it"):
        read_config(tmp_path / "model.gguf")


def test_several_files_in_a_folder_must_be_named(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_gguf(folders["llama"], tmp_path / name)
    with pytest.raises(ModelNotFoundError, match=r"2 GGUF files.*a\.gguf"):
        find_model(tmp_path)
    assert find_model(tmp_path / "b.gguf") == tmp_path / "b.gguf"
