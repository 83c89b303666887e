"""GGUF kept in few bits: the very numbers that llama.cpp's own package makes of its blocks, and less memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import in_kind, write_gguf
from model.kept_in_groups import BF16, check_model, needs_library, plain_folder
from model.tiny import VOCAB

from triforce_core.device.shard import ALONE
from triforce_core.engine import loading
from triforce_core.gguf.types import BY_NUMBER
from triforce_core.kernels import REFERENCE, Grouped, compiled
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, checkpoint, load_model, open_weights, read_config, stored_form
from triforce_core.model.gguf_checkpoint import FORMS, read_groups
from triforce_core.native_build import SETTING


@pytest.mark.parametrize("kind", FORMS)
def test_repacked_without_loss(kind: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    values = np.random.default_rng(0).standard_normal((6, 512)).astype(np.float32)
    for raw in (in_kind(values, kind), _any_bytes(kind)):
        weight = read_groups(raw, kind)
        expected = torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]))
        form = (weight.bits, weight.group, weight.offset is not None, weight.super_block, weight.uneven)
        assert form == FORMS[kind]
        assert torch.equal(weight.numbers(), expected)
        if weight.bits < 8:
            assert int(weight.numbered.min()) >= 0 and int(weight.numbered.max()) < 2**weight.bits


def _any_bytes(kind: str) -> np.ndarray:
    """All steps and scales there are; the blocks' own scales are made finite."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    width, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(1).integers(0, 256, (6, 512 // width, nbytes), dtype=np.uint8)
    places = {"Q6_K": (208,), "Q2_K": (80, 82), "Q3_K": (108,),
              **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2))}
    for at in places.get(kind, (0,)):
        blocks[:, :, at : at + 2] = np.frombuffer(np.float16(0.013).tobytes(), np.uint8)
    return blocks.reshape(6, -1)


def file_of(folder: Path, kind: str) -> Path:
    return write_gguf(plain_folder(folder / "whole"), folder / f"{kind}.gguf", kind)


@needs_library
@pytest.mark.parametrize("kind", [*FORMS, "F16"])
def test_a_model_kept_in_few_bits(kind: str, tmp_path: Path) -> None:
    place = file_of(tmp_path, kind)
    check_model(place, kind in FORMS)
    words = stored_form(place)
    assert words.words("bfloat16", True, True) == (f"{kind}, kept in few bits" if kind in FORMS else "")
    assert words.words("float32", False) == (f"{kind}, unpacked to float32" if kind in FORMS else "")


@needs_library
@pytest.mark.parametrize("kind", FORMS)
def test_a_tokens_row_is_read_from_the_file(kind: str, tmp_path: Path) -> None:
    """A table in bfloat16 would take 1 GB of an 8B's memory, and of Gemma 3 270M's more than all else."""
    place = file_of(tmp_path, kind)
    config, kept = read_config(place), load_model(place, dtype=BF16)
    shape = config.vocab_size, config.hidden_size
    whole = open_weights(place, config, BF16).matrix("model.embed_tokens.weight", shape).data
    ids, table = torch.tensor([3, 0, VOCAB - 1, 3]), kept.weights.embedding
    assert not isinstance(table, torch.Tensor) and torch.equal(table(ids), whole[ids])
    weights = loading._weights(place, BF16, torch.device("cpu"), ALONE)
    assert replace(weights, rows_on_disk=False).nbytes - weights.nbytes == whole.nbytes


def test_every_type_in_few_bits_has_a_form() -> None:
    assert {kind.name for kind in BY_NUMBER.values() if kind.weights > 1} == set(FORMS)


@needs_library
def test_other_settings_unpack_it(tmp_path: Path) -> None:
    place = file_of(tmp_path, "Q4_K")
    assert not load_model(place, dtype=torch.float32).in_groups
    assert not load_model(place, dtype=BF16, rounding="int8").in_groups
    assert load_model(place, dtype=BF16, rounding="int4").in_groups  # rounded anew


@pytest.mark.parametrize(("settings", "layers", "head"), [
    ({}, True, True), ({"vocab_size": 72}, True, False), ({"intermediate_size": 544}, False, False)], ids=str)
def test_what_a_gpu_would_keep(settings: dict[str, int], layers: bool, head: bool, tmp_path: Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels take whole blocks of 64 outputs and 128 inputs; by shapes, as no GPU need be there."""
    place = write_gguf(plain_folder(tmp_path / "whole", **settings), tmp_path / "model.gguf", "Q4_0")
    monkeypatch.setattr(checkpoint, "keeps_groups", lambda device, dtype: dtype == BF16)
    monkeypatch.setattr(loading, "groups_missing", lambda device: "")
    counted = loading._weights(place, BF16, torch.device("cuda"), ALONE)
    assert counted.few_bits == (0.625 if layers else 0)
    assert counted.few_bits_head == (0.625 if head else 2 if layers else 0)
    words = loading._weight_words(place, BF16, torch.device("cuda"), "same", ALONE)
    assert words == ("Q4_0, kept in few bits" if layers else "Q4_0, unpacked to bfloat16")
    assert not loading._weights(place, torch.float16, torch.device("cuda"), ALONE).few_bits


@pytest.mark.parametrize(("kind", "bits", "scales"), [("Q4_K", 4, 0.09375), ("Q5_K", 8, 0.09375),
                                                      ("Q6_K", 8, 0.078125), ("IQ4_NL", 8, 0.125),
                                                      ("IQ4_XS", 8, 0.046875)])
def test_a_gpu_multiplies_whole_bytes(kind: str, bits: int, scales: float, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a CPU has five or six bits; and that is counted."""
    place = file_of(tmp_path, kind)
    monkeypatch.setattr(checkpoint, "keeps_groups", lambda device, dtype: True)
    on_cpu, on_gpu = (loading._weights(place, BF16, torch.device(name), ALONE) for name in ("cpu", "cuda"))
    assert on_gpu.few_bits == bits / 8 + scales
    assert on_cpu.few_bits == FORMS[kind].bits / 8 + scales


def test_a_gpu_that_computes_wrongly_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = file_of(tmp_path, "Q4_K")
    monkeypatch.setattr(checkpoint, "keeps_groups", lambda device, dtype: False)
    monkeypatch.setattr(loading, "groups_missing", lambda device: "they failed their check")
    assert not loading._weights(place, BF16, torch.device("cuda"), ALONE).few_bits
    words = loading._weight_words(place, BF16, torch.device("cuda"), "same", ALONE)
    assert words == "Q4_K, unpacked to bfloat16; they failed their check"


@pytest.mark.parametrize("offsets", [False, True])
def test_steps_as_a_gpu_stores_them(offsets: bool) -> None:
    """Two to a byte, in runs of 128 inputs: an input's neighbour is 64 further on."""
    steps = torch.randint(0, 16, (6, 256), dtype=torch.int8) - (0 if offsets else 8)
    scale = torch.rand(6, 8)
    data = Grouped(4, steps, scale, scale if offsets else None).data
    assert data.shape == (6, 128) and data.dtype == torch.uint8
    low, high = ((half.to(torch.int8) - (0 if offsets else 8)).view(6, 2, 64) for half in (data & 15, data >> 4))
    assert torch.equal(torch.cat((low, high), 2).view(6, 256), steps)
    eight = Grouped(8, steps, scale)
    assert eight.data is steps and replace(eight, bits=6).in_bytes().data is steps
    assert REFERENCE.make_grouped(eight, None, torch.float32, 3)(torch.eye(256)).shape == (256, 6)


def test_packed_where_there_are_no_kernels_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits of the unpacked one, and the bytes that are planned; with memory enough it is unpacked: faster."""
    monkeypatch.setenv(SETTING, "torch")
    compiled.cache_clear()
    place, device = file_of(tmp_path, "Q4_K"), torch.device("cpu")
    ids, whole = torch.arange(40) % VOCAB, load_model(place, dtype=torch.float32)
    monkeypatch.setattr(checkpoint, "total_host_memory", lambda: 4 * whole.config.num_parameters)
    packed, counted = load_model(place, dtype=torch.float32), loading._weights(place, torch.float32, device, ALONE)
    monkeypatch.undo()
    compiled.cache_clear()
    assert packed.in_groups and not whole.in_groups and counted.unpacks
    assert counted.few_bits == 0.5 + 0.09375 and counted.read_by_pass() > 4 * counted.matrices

    def logits(model: Llama) -> torch.Tensor:
        c = model.config
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=80, dtype=model.dtype)
        return model.forward(ids, cache, logits_rows=40)

    torch.testing.assert_close(logits(packed), logits(whole), atol=1e-4, rtol=1e-4)
    layer = packed.layers[0]
    assert layer.down.weight.steps.nbytes * 2 == whole.layers[0].down.weight.numel()
