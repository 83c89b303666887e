"""The curated list: its file holds together, its models are ones that the decoder loads, and what it says of a machine
follows from the memory plan."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from triforce_core.config import EngineConfig
from triforce_core.device.bandwidth import modelled_rate
from triforce_core.device.memory_plan import Room, Weights, Wish, longest_plan
from triforce_core.engine import memory
from triforce_core.events import CuratedModel, GGUFDownload
from triforce_core.kernels import compiled
from triforce_core.model.families import FAMILIES
from triforce_core.models import curated, survey
from triforce_core.models.command import _suggestion
from triforce_core.models.curated import FILE, Entry, curated_list, find, recommended

DATE, _, ENTRIES = curated_list()
KEYS = {"name", "licence", "gated", "parameters", "good_at", "drafter", "drafts_only", "download", "config"}
OPEN = {"Apache-2.0", "MIT"}
GIB = 2**30


def test_the_file_has_its_form() -> None:
    raw = json.loads(FILE.read_text())
    assert set(raw) == {"date", "classes", "models"} and date.fromisoformat(raw["date"]) >= date(2026, 11, 22)
    for one in raw["models"]:
        assert set(one) - {"gguf"} == KEYS, one["name"]
        assert one["gated"] is not (one["licence"] in OPEN), "community licences are accepted on the hub first"
        assert "bf16" in one["download"]
        for way in one["download"].values():
            assert set(way) == {"repo", "gigabytes"} and re.fullmatch(r"[\w-]+/[\w.-]+", way["repo"])
    for kind in raw["classes"]:
        assert set(kind) == {"name", "gpu_gib", "host_gib", "gigabytes_per_second"}
    names = [entry.name for entry in ENTRIES] + [entry.repo for entry in ENTRIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_shapes_say_what_the_list_says(entry: Entry) -> None:
    """A number mistyped in a shape changes the count of its weights, which the publishers state."""
    shape = entry.shape
    assert shape.architecture in FAMILIES
    assert shape.num_parameters == pytest.approx(entry.parameters, rel=4e-4), "norms and biases are left out"
    assert shape.max_context >= 8192
    stored = {entry.parameters}  # some repos store a tied head too
    if shape.tied_embeddings:
        stored.add(entry.parameters + shape.vocab_size * shape.hidden_size)
    if shape.architecture == "Gemma3ForCausalLM":
        stored = {entry.parameters + 420_000_000}  # the repo has the eyes too
    assert any(2 * count == pytest.approx(entry.nbytes, rel=0.05, abs=2e7) for count in stored)
    bits = {kind: 8 * nbytes / entry.parameters for kind, (_, nbytes) in entry.ggufs.items()}
    assert not bits or (4.6 < bits["Q4_K_M"] < 5.4 and 8.4 < bits["Q8_0"] < 8.6), "a size mistyped"


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.drafter], ids=lambda entry: entry.name)
def test_a_drafter_is_smaller_and_of_the_family(entry: Entry) -> None:
    drafter = find(entry.drafter)
    assert drafter is not None and drafter.repo == entry.drafter
    assert survey._SMALLER * drafter.parameters <= entry.parameters
    assert drafter.repo.split("/")[0] == entry.repo.split("/")[0]
    family = re.match(r"Qwen3-|Qwen2\.5-|Llama-3\.|SmolLM2-", entry.repo.split("/")[1])
    assert family and drafter.repo.split("/")[1].startswith(family[0]), "one vocabulary"
    # Embedding tables are padded differently, the vocabulary is the same.
    assert abs(drafter.shape.vocab_size - entry.shape.vocab_size) < 256


def test_names_are_found_however_they_are_typed() -> None:
    for name in ("qwen3 8b", "Qwen/Qwen3-8B", "qwen3-8b", " Qwen3-8B "):
        assert curated.repo_of(name) == "Qwen/Qwen3-8B", name
    assert curated.repo_of("some/model") == "some/model"


def test_modelled_speed_is_near_what_was_measured() -> None:
    """llama3-8b at 124,928 tokens on one H200, whose copies move 4.2 TB/s: 119 tokens/s (docs/measurements.md)."""
    llama = find("Llama 3.1 8B Instruct")
    weights = Weights(llama.shape)
    plan = longest_plan(Wish(weights, 124_928), Room(GIB, 139 * GIB), ["on-chip"])
    assert modelled_rate(weights, plan, 124_928, 4.19e12) == pytest.approx(119, rel=0.1)
    away = replace(plan, resident_layers=0)
    assert modelled_rate(weights, away, 124_928, 4.16e12) < 2, "16 GB a token come through the link"


def judged(monkeypatch: pytest.MonkeyPatch, rate: float, *, free: int = 24, products: float = 1e12,
           here: Collection[str] = (), dtype: Any = "bfloat16") -> list[CuratedModel]:
    """The list as a CPU with so many GiB free has it. rate: bytes per second; products: additions and products."""
    monkeypatch.setattr(memory, "read_room", lambda *_: Room(host_free=free * GIB))
    monkeypatch.setattr(curated, "product_rate", lambda device, dtype: products)
    return list(curated.suggestions(EngineConfig(mode="cpu", dtype=dtype), here, rate))


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[CuratedModel]:
    """Judged for a machine of 24 GiB free whose memory moves 40 GB/s."""
    return judged(monkeypatch, 40e9, here={"Qwen/Qwen3-1.7B"}, dtype="float32")


def test_this_machine_is_judged_by_the_plan(offered: list[CuratedModel]) -> None:
    by_name = {model.name: model for model in offered}
    assert len(by_name) == len(ENTRIES) and {model.dated for model in offered} == {DATE}
    small, large = by_name["Qwen3 1.7B"], by_name["Qwen3 14B"]
    assert small.here and small.plan.weights == 4 * 1_720_451_072 and small.plan.context == 40_960
    assert large.plan is None and "24.0 GiB are free" in large.problem and not large.tokens_per_second
    assert small.disk_free > 0 and small.folder
    with_drafter = by_name["Qwen3 4B Instruct 2507"]
    assert with_drafter.plan.draft_weights == 4 * 595_984_384
    assert (with_drafter.drafter_name, with_drafter.drafter_nbytes) == ("Qwen3 0.6B", 1_520_000_000)


def test_what_is_recommended_comes_first(offered: list[CuratedModel]) -> None:
    first = [model.name for model in offered if model.recommended]
    assert 1 <= len(first) <= 3
    assert [model.recommended for model in offered] == sorted((model.recommended for model in offered), reverse=True)
    assert not any(model.drafts_only for model in offered if model.recommended)
    for slow in ({"tokens_per_second": 0.5}, {"read_per_second": 20.0}):
        assert recommended([replace(model, **slow) for model in offered]) == [], "what nobody would wait for"


@pytest.mark.skipif(compiled().library is None, reason="weights in few bits stay so with the app's own kernels only")
def test_first_models_are_few_of_different_sizes_and_fast_where_any_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 GB/s and 24 GiB an 8B is fast enough; where nothing is, the smallest is all there is to choose."""
    offered = judged(monkeypatch, 80e9)
    first = [model for model in offered if model.first]
    sizes = sorted((model.parameters for model in first), reverse=True)
    assert 1 < len(first) <= 3 and all(model.gguf for model in first) and min(sizes) >= 1.5e9
    assert all(small <= large * 2 / 3 for large, small in pairwise(sizes))
    assert all(model.gguf.tokens_per_second >= curated.USABLE_RATE for model in first)
    slow = [replace(model, read_per_second=20.0) for model in offered]
    assert [model.name for model in curated.first_models(slow)] == ["Qwen3 1.7B"]
    assert curated.first_models([replace(model, gguf=None) for model in offered]) == []
    with_gguf = {model.name for model in offered if model.gguf}
    drafts = {model.name: model.gguf.drafter for model in offered if model.gguf}
    assert drafts["Qwen3 8B"] == "unsloth/Qwen3-0.6B-GGUF:Q4_K_M" and drafts["Qwen3 1.7B"] == ""
    assert drafts["Llama 3.2 3B Instruct"] == "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"
    assert {"SmolLM3 3B", "Gemma 3 4B Instruct", "Llama 3.2 3B Instruct", "Qwen3 8B"} <= with_gguf
    assert all(model.form is model.gguf for model in offered if model.gguf), "half the bytes, and twice the speed"
    assert {model.name for model in offered if model.recommended} >= {"Qwen3 8B"}
    here = {f"{repo}/any/{repo.split('/')[1]}-Q8_0.gguf" for repo in ("unsloth/Qwen3-1.7B-GGUF", "other/Qwen3-8B-GGUF")}
    assert [model.name for model in judged(monkeypatch, 80e9, here=here) if model.here] == ["Qwen3 1.7B"]


@pytest.mark.skipif(compiled().library is None, reason="weights in few bits stay so with the app's own kernels only")
def test_an_open_licence_is_preferred_among_first_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one about as large with terms of its makers' own, not to one that is half as large."""
    offered = {model.name: model for model in judged(monkeypatch, 80e9)}
    llama, open_one, small = (offered[name] for name in ("Llama 3.1 8B Instruct", "Qwen3 8B", "SmolLM3 3B"))
    assert llama.gguf is not None and llama.gguf.repo == "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q8_0"
    smaller = replace(open_one, parameters=llama.parameters - 1_000_000_000)
    assert curated.first_models([llama, smaller, small]) == [smaller, small]
    assert curated.first_models([llama, small]) == [llama, small]


def test_terms_are_named_where_they_must_be_accepted(offered: list[CuratedModel]) -> None:
    """Of the published weights; who made a GGUF file asks for none."""
    llama = replace(next(model for model in offered if model.name == "Llama 3.1 8B Instruct"), gguf=None)
    file = GGUFDownload("some/model:Q8_0", "Q8_0", 8, 4096, 5.0)
    for gguf, asks in ((None, True), (file, True), (replace(file, preferred=True), False)):
        words = "\n".join(_suggestion(replace(llama, gguf=gguf)))
        assert ("Llama 3.1 Community License, terms to accept" in words) == asks


def test_a_listed_model_is_fetched_as_a_gguf_file_too() -> None:
    assert curated.repo_of("Qwen3 8B:q4_k_m") == "unsloth/Qwen3-8B-GGUF:Q4_K_M"
    assert curated.repo_of("some/model:Q8_0") == "some/model:Q8_0"
    assert curated.repo_of("Qwen3 14B:Q4_K_M") == "Qwen3 14B:Q4_K_M", "which is no repo: refused as such"


def test_the_best_that_was_measured_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy moment lowers nothing that was measured before; it waits for a quiet one, but not for ever."""
    busy = iter([90.0, 80.0, 5.0, *[99.0] * 100])
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: next(busy))
    assert curated.best_so_far(tmp_path / "new", "memory", lambda: 40e9) == 40e9
    assert next(busy) == 99.0, "it looked until there was little to do"
    assert curated.best_so_far(tmp_path / "new", "memory", lambda: 3e9) == 40e9
    assert curated.best_so_far(tmp_path / "new", "memory", lambda: 60e9) == 60e9
    assert curated.best_so_far(tmp_path / "new", "products", lambda: 1e9) == 1e9
    for harm in ("{", "[]", '{"x": "y"}'):
        (tmp_path / "new" / curated.RATES).write_text(harm)
        assert curated.best_so_far(tmp_path / "new", "memory", lambda: 3e9) == 3e9
    assert curated.best_so_far(None, "memory", lambda: 2e9) == 2e9


@pytest.mark.skipif(compiled().library is None, reason="rounded weights stay small with the app's own kernels only")
def test_a_model_too_large_as_it_is_is_offered_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 10 GiB free whose memory moves 60 GB/s: 1.7B as it is, 4B in int8; 8B in int4, which would read too slowly."""
    found = {model.name: model for model in judged(monkeypatch, 60e9, free=10, products=0.5e12)}
    small, middle, large = (found[name] for name in ("Qwen3 1.7B", "Qwen3 8B", "Qwen3 32B"))
    assert small.weights == "same" and small.plan.context > 8192
    assert found["Qwen3 4B Instruct 2507"].weights == "int8" and found["Qwen3 4B Instruct 2507"].recommended
    assert middle.weights == "int4" and middle.tokens_per_second > 4 and middle.plan.weights < 6e9
    assert middle.read_per_second == pytest.approx(0.5e12 / 2 / 8.19e9, rel=0.01) and not middle.recommended
    assert large.plan is None and large.problem.startswith("In int4, 256 tokens of context need 22")


def test_reading_is_modelled_by_products_of_this_machine() -> None:
    rates = [curated.product_rate(torch.device("cpu"), dtype) for dtype in (torch.float32, torch.bfloat16)]
    assert all(1e9 < rate < 1e14 for rate in rates)
