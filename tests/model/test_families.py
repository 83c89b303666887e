"""Every family over every cache: GGUF names, texts of models that see pictures, weights in few bits, offload.

``test_parity`` has each against ``transformers`` over the full cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from transformers import (
    AutoModelForImageTextToText,
    Gemma3Config,
    Mistral3Config,
    PretrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen3VLConfig,
)

from tests.gguf_files import write_gguf
from tests.model.test_parity import CONFIGS, FAMILIES, LENGTH, SMALL, assert_parity, expected_logits, write_checkpoint
from tests.model.tiny import VOCAB
from triforce_core.kernels import compiled
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.model import Llama, families, load_model, open_weights, read_config, stored_form
from triforce_core.model.gguf_checkpoint import stored_name

TOKENS = torch.randint(VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1))
EYES = {"depth": 1, "hidden_size": 16, "embed_dim": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 48,
        "deepstack_visual_indexes": [0], "fullatt_block_indexes": [0], "patch_size": 4, "num_position_embeddings": 16}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}
SEEING: dict[str, PretrainedConfig] = {
    "qwen2-vl": Qwen2VLConfig(text_config={**SMALL, "rope_parameters": MROPE}, vision_config=EYES),
    "qwen2.5-vl": Qwen2_5_VLConfig(text_config={**SMALL, "rope_parameters": MROPE}, vision_config=EYES),
    "qwen3-vl": Qwen3VLConfig(text_config={**SMALL, "head_dim": 12, "rope_parameters": MROPE}, vision_config=EYES),
    "mistral-small": Mistral3Config(text_config={**SMALL, "model_type": "mistral", "head_dim": 12},
                                    vision_config={"model_type": "pixtral", "hidden_size": 16, "num_hidden_layers": 1,
                                                   "num_attention_heads": 2, "intermediate_size": 16, "head_dim": 8},
                                    tie_word_embeddings=False),
    "gemma3-4b": Gemma3Config(text_config={**SMALL, "head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16},
                              vision_config={"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                                             "intermediate_size": 16, "image_size": 28, "patch_size": 14},
                              mm_tokens_per_image=4),
}


@pytest.mark.parametrize("name", SEEING)
def test_the_text_of_models_that_see_pictures(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = AutoModelForImageTextToText.from_config(SEEING[name]).eval().float()
    with torch.no_grad():
        for own, parameter in theirs.named_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2) if parameter.dim() == 1 else parameter.mul_(
                1 if "embed" in own else 6)
    theirs.save_pretrained(tmp_path)
    assert stored_form(tmp_path).sees  # the page says that they are left out
    assert_parity(load_model(tmp_path), theirs)


@pytest.mark.parametrize("name", FAMILIES)
def test_parts_of_the_context_and_layers_that_stream(name: str, tmp_path: Path) -> None:
    """A retrieval cache that holds everything, and an offloaded one, give what ``transformers`` gives."""
    theirs = write_checkpoint(CONFIGS[name], tmp_path)
    ours, expected = load_model(tmp_path), expected_logits(theirs, TOKENS)
    c = ours.config
    sizes = c.num_layers, c.num_kv_heads, c.head_dim
    for cache in (FullCache(*sizes, max_tokens=256, dtype=ours.dtype, windows=c.windows),
                  OffloadedCache(*sizes, max_tokens=256, dtype=ours.dtype, tail=8, windows=c.windows)):
        ours.forward(TOKENS[:70], cache, logits_rows=0)
        cache.commit()
        part = RetrievalCache(cache, budget=96, chunk_size=4, recent=16)
        assert (ours.forward(TOKENS[70:80], part, logits_rows=10) - expected[70:80]).abs().max() < 1e-4
        part.keep(range(4))
        assert (ours.forward(TOKENS[70:], cache, logits_rows=26) - expected[70:]).abs().max() < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_gguf_gives_the_logits_of_the_folder(name: str, tmp_path: Path) -> None:
    write_checkpoint(CONFIGS[name], tmp_path)
    path = write_gguf(tmp_path, tmp_path / "model.gguf")
    expected, found = (logits(load_model(place)) for place in (tmp_path, path))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.skipif(compiled().library is None, reason="our own kernels multiply them")
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
@pytest.mark.parametrize("name", FAMILIES)
def test_weights_kept_in_few_bits_stand_for_their_numbers(name: str, kind: str, tmp_path: Path) -> None:
    config, more = FAMILIES[name]
    wide = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
    if name == "phi4-mini":
        wide["rope_parameters"] = {**more["rope_parameters"], "partial_rotary_factor": 12 / 32}
    if name == "qwen3-moe":
        wide["moe_intermediate_size"] = 64
    write_checkpoint(config(**{**SMALL, **more, **wide}), tmp_path)
    path = write_gguf(tmp_path, tmp_path / "model.gguf", kind)
    shape = read_config(path)
    kept = Llama(shape, open_weights(path, shape, torch.bfloat16, keeps_groups=True), dtype=torch.bfloat16)
    assert kept.in_groups and (kept._native is None) == bool(shape.experts)
    expected = logits(load_model(path))
    near = (logits(kept) - expected).abs().amax(1) < 0.05 * expected.abs().max()
    in_one_call = logits(kept)
    kept._native = None
    assert (logits(kept) - in_one_call).abs().max() < 0.01 * expected.abs().max()
    assert near.all() or (shape.experts and near.float().mean() > 0.8)  # rounding may choose another expert


def logits(model: Llama) -> torch.Tensor:
    c = model.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=256, dtype=model.dtype, windows=c.windows)
    return model.forward(TOKENS, cache, logits_rows=LENGTH)


def test_a_short_context_turns_by_the_near_factors(tmp_path: Path) -> None:
    """Keys are turned once: which factors a longrope takes follows from the longest context that is asked for."""
    theirs = write_checkpoint(CONFIGS["phi4-mini"], tmp_path)
    near = load_model(tmp_path, context=32)
    assert (logits(near)[:32] - expected_logits(theirs, TOKENS[:32])).abs().max() < 1e-4
    assert (logits(load_model(tmp_path)) - expected_logits(theirs, TOKENS)).abs().max() < 1e-4


@pytest.mark.parametrize("architecture", [name for name, family in families.FAMILIES.items() if family.gguf])
def test_names_are_those_of_the_gguf_package(architecture: str) -> None:
    family = families.FAMILIES[architecture]
    for arch in (arch for arch, name in MODEL_ARCH_NAMES.items() if name in family.gguf):
        table = get_tensor_name_map(arch, 1)
        for name in names_of(family):
            assert stored_name(f"model.layers.0.{name}.weight", family.norms) == (
                f"{table.get_name(f'model.layers.0.{name}')}.weight"), (arch, name)


def names_of(family: families.Family) -> list[str]:
    names = ["self_attn.o_proj", "mlp.gate" if family.mixes else "mlp.down_proj"]
    names += ["input_layernorm"] if family.norms != "after" else []
    names += ["post_attention_layernorm"]
    names += ["post_feedforward_layernorm"] if family.norms != "before" else []
    names += ["pre_feedforward_layernorm"] if family.norms == "around" else []
    names += ["self_attn.q_norm", "self_attn.k_norm"] if family.qk_norm else []
    if family.mixes:
        return [*names, "mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj"]
    return names + (["self_attn.qkv_proj", "mlp.gate_up_proj"] if family.fused else [
        f"self_attn.{name}_proj" for name in "qkv"] + ["mlp.gate_proj", "mlp.up_proj"])
