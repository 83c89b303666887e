"""GGUF kept in few bits: the very numbers that llama.cpp's own package makes of its blocks, and less memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import in_kind, write_gguf
from model.kept_in_groups import BF16, check_model, needs_library, plain_folder

from triforce_core.model import load_model, stored_form
from triforce_core.model.gguf_groups import FORMS, read_groups
from triforce_core.model.gguf_weights import dequantise


@pytest.mark.parametrize("kind", FORMS)
def test_repacked_without_loss(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((6, 512)).astype(np.float32)
    for raw in (in_kind(values, kind), _any_bytes(kind)):
        weight, expected = read_groups(raw, kind), dequantise(raw, kind)
        bits, group, offsets = FORMS[kind]
        assert (weight.bits, weight.group, weight.offset is not None) == (bits, group, offsets)
        assert torch.equal(weight.numbers(), expected)
        low, high = int(weight.steps.min()), int(weight.steps.max())
        assert bits == 8 or (low >= 0 and high < 16 if offsets else low >= -8 and high < 8)


def _any_bytes(kind: str) -> np.ndarray:
    """All steps and scales there are; the blocks' own scales are made finite."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    width, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(1).integers(0, 256, (6, 512 // width, nbytes), dtype=np.uint8)
    for at in {"Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,)}.get(kind, (0, 2)):
        blocks[:, :, at : at + 2] = np.frombuffer(np.float16(0.013).tobytes(), np.uint8)
    return blocks.reshape(6, -1)


def file_of(folder: Path, kind: str) -> Path:
    return write_gguf(plain_folder(folder / "whole"), folder / f"{kind}.gguf", kind)


@needs_library
@pytest.mark.parametrize("kind", [*FORMS, "Q5_0"])
def test_a_model_kept_in_few_bits(kind: str, tmp_path: Path) -> None:
    place = file_of(tmp_path, kind)
    check_model(place, kind in FORMS)
    told = stored_form(place).words("bfloat16", True, True)
    assert told == (f"{kind}, kept in few bits" if kind in FORMS else f"{kind}, unpacked to bfloat16")


@needs_library
def test_other_settings_unpack_it(tmp_path: Path) -> None:
    place = file_of(tmp_path, "Q4_K")
    assert not load_model(place, dtype=torch.float32).in_groups
    assert not load_model(place, dtype=BF16, rounding="int8").in_groups
    assert load_model(place, dtype=BF16, rounding="int4").in_groups  # rounded anew
