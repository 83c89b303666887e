"""Every format through the whole engine: drafts, retrieval and an offloaded cache change no word of plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch

from tests.engine.tiny import document, write_model
from tests.gguf_files import KINDS, write_gguf
from tests.model.quantised_folders import FORMS, write_form
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.events import Finished
from triforce_core.kernels import compiled

QUICK = {"Q8_0", "Q4_K", "gptq-act-order", "bnb-int8"}  # one of each way in; the others are exhaustive
KEPT = ("awq", "Q4_K", "gptq-sym", "gptq-8-bits", "compressed-w4a16", "compressed-w8a16")  # in few bits, in bfloat16
SETTINGS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 6, "verifier": "coupled"}
WAYS = {"drafts": SpeculationConfig(middle_cache="none", **SETTINGS),
        "retrieval": SpeculationConfig(small_model="off", **SETTINGS),
        "both": SpeculationConfig(**SETTINGS)}
PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled")


def gguf(kind: str) -> Callable[[Path, Path], Path]:
    return lambda folder, out: write_gguf(folder, out.with_suffix(".gguf"), kind)


def quantised(form: str) -> Callable[[Path, Path], Path]:
    def write(folder: Path, out: Path) -> Path:
        write_form(folder, form, out, out.with_name("plain"))
        return out

    return write


FORMATS = {**{kind: gguf(kind) for kind in KINDS}, **{form: quantised(form) for form in FORMS}}
CASES = [
    *(pytest.param(name, "float32", marks=() if name in QUICK else pytest.mark.exhaustive) for name in FORMATS),
    *(pytest.param(name, "bfloat16", marks=() if name == KEPT[0] else pytest.mark.exhaustive) for name in KEPT)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, lengths_given: None) -> tuple[Path, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=2, heads=8, seed=1),
            write_model(root / "draft", layers=1, heads=8, seed=2))


def answer(engine: Engine, speculation: SpeculationConfig, temperature: float) -> Finished:
    sampling = SamplingParams(temperature=temperature, seed=3, max_new_tokens=24, stop_token_ids=())
    *_, done = engine.ask("Who found the lamp?", (), sampling, speculation)
    assert isinstance(done, Finished)
    return done


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_no_way_changes_a_word(folders: tuple[Path, Path], name: str, dtype: Literal["float32", "bfloat16"],
                               tmp_path: Path) -> None:
    if dtype == "bfloat16" and compiled().library is None:
        pytest.skip(f"kernels: {compiled().summary}")
    target = FORMATS[name](folders[0], tmp_path / "target")
    draft = write_gguf(folders[1], tmp_path / "draft.gguf", "Q8_0")
    expected = {}
    for mode in ("cpu", "offload"):
        engine = Engine(EngineConfig(model=str(target), draft_model=str(draft), dtype=dtype, threads=1, mode=mode,
                                     device="cpu", resident_layers=0 if mode == "offload" else "auto"))
        list(engine.load())
        assert engine._loaded is not None and engine._loaded.target.in_groups == (dtype == "bfloat16")
        assert engine._loaded.info.weights.endswith(", kept in few bits") == (dtype == "bfloat16")
        list(engine.open_document(document(60)))
        for temperature in (0.0, 0.8):
            plain = answer(engine, PLAIN, temperature).token_ids
            assert expected.setdefault(temperature, plain) == plain
            for speculation in WAYS.values():
                assert answer(engine, speculation, temperature).token_ids == plain


def test_rounded_weights_answer_as_plain_decoding_of_themselves(folders: tuple[Path, Path]) -> None:
    """And keys and values that were saved of other weights are not theirs."""
    prints = set()
    for weights in ("same", "int8", "int4"):
        engine = Engine(EngineConfig(model=str(folders[0]), draft_model=str(folders[1]), dtype="float32", threads=1,
                                     mode="cpu", weights=weights))
        list(engine.load())
        list(engine.open_document(document(60)))
        prints.add(engine._loaded.fingerprint)
        words = engine._loaded.info.weights
        assert words == ("" if weights == "same" else f"{weights} by this app: not the published weights")
        plain = answer(engine, PLAIN, 0.8).token_ids
        assert answer(engine, WAYS["both"], 0.8).token_ids == plain
    assert len(prints) == 3
