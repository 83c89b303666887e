"""Layers that attend windows, and experts, on a GPU: what fp32 computes on the CPU, and with drafts the words of plain
decoding. On the CPU the same comparisons run in bfloat16, so that what they compare is known to be right."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from engine.families import KINDS, WINDOW, write_family
from engine.tiny import document

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.kv_cache import window
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.model import Llama, load_model

GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(),
                                                                      reason="torch sees no GPU")])
PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = SpeculationConfig(verifier="coupled", budget=128, recent=48, window=32, gamma1=2, gamma2=10)
LENGTH = 700  # beyond a window, its slack, and the widest pass that is one of few rows


@pytest.fixture(autouse=True)
def short_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "SLACK", 64)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, lengths_given: None) -> dict[str, tuple[Path, Path]]:
    """A target and a draft of each kind."""
    root = tmp_path_factory.mktemp("families")
    return {kind: (write_family(root / kind, kind, seed=1),
                   write_family(root / f"{kind}-draft", kind, layers=2, seed=2)) for kind in KINDS}


def passes(model: Llama, tokens: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Return all logits of passes of these sizes, on the CPU."""
    cache, rows = new_cache(model), []
    for piece in tokens.split(sizes):
        rows.append(model.forward(piece.to(model.device), cache, logits_rows=len(piece)).cpu())
        cache.commit()
    return torch.cat(rows)


def new_cache(model: Llama) -> FullCache:
    c = model.config
    return FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=1024, dtype=model.dtype, device=model.device,
                     slots=16, windows=c.windows)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return what nine of ten rows stay below, as a share of the row: rounding may choose a token another expert."""
    return float(((found - expected).norm(dim=1) / expected.norm(dim=1)).quantile(0.9))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("device", "dtype", "bound"), [
    ("cpu", torch.bfloat16, 0.05),
    pytest.param(*GPU.values, torch.bfloat16, 0.05, marks=GPU.marks),
    pytest.param(*GPU.values, torch.float32, 1e-3, marks=GPU.marks)])
def test_passes_of_any_width_give_what_fp32_gives_on_the_cpu(models: dict[str, tuple[Path, Path]], kind: str,
                                                             device: str, dtype: torch.dtype, bound: float) -> None:
    """Prefill, chunked prefill, decoding, and a part of the context that holds all of it."""
    tokens = torch.randint(3, 8192, (LENGTH,), generator=torch.Generator().manual_seed(0))
    expected = passes(load_model(models[kind][0]), tokens, [LENGTH])
    model = load_model(models[kind][0], device=device, dtype=dtype)
    for sizes in ([LENGTH], [333, 256, 64, 40, 7], [660] + [1] * 40):
        assert error(passes(model, tokens, sizes), expected) < bound, sizes
    cache = new_cache(model)
    model.forward(tokens[:640].to(device), cache, logits_rows=0)
    cache.commit()
    part = RetrievalCache(cache, budget=LENGTH, chunk_size=4, recent=16)
    few = model.forward(tokens[640:660].to(device), part, logits_rows=20).cpu()
    assert error(few, expected[640:660]) < bound
    part.keep(range(7))
    whole = model.forward(tokens[640:].to(device), cache, logits_rows=60).cpu()
    assert error(whole, expected[640:]) < bound


def answers(pair: tuple[Path, Path], device: str, how: SpeculationConfig, **sampling: float) -> tuple[int, ...]:
    engine = Engine(EngineConfig(model=str(pair[0]), draft_model=str(pair[1]), dtype="float32", threads=1,
                                 mode="cpu" if device == "cpu" else "on-chip"))
    list(engine.load())
    list(engine.open_document(document()))
    asked = SamplingParams(**{"temperature": 0.0, "seed": 3, "max_new_tokens": 48, "stop_token_ids": (), **sampling})
    found = []
    for _ in range(1 if device == "cpu" else 2):  # before and after what a GPU captures between answers
        done = list(engine.ask("Who found the lamp?", (), asked, how))[-1]
        found.append(done.token_ids)
        list(engine.prepare())
    assert len(set(found)) == 1 and done.stats.engine == how.engine
    return found[0]


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_leave_the_words_of_plain_decoding(models: dict[str, tuple[Path, Path]], kind: str, device: str,
                                                  temperature: float) -> None:
    """In fp32: see ``test_gpu``. On a GPU they are the CPU's, too."""
    plain = answers(models[kind], device, PLAIN, temperature=temperature)
    assert answers(models[kind], device, TRIFORCE, temperature=temperature) == plain and len(plain) == 48
    if device != "cpu":
        assert answers(models[kind], "cpu", PLAIN, temperature=temperature) == plain


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("kind", KINDS)
def test_which_passes_are_captured(models: dict[str, tuple[Path, Path]], kind: str, device: str) -> None:
    """None: a window's tokens change places, and the host says which experts are multiplied. A Llama's are."""
    assert load_model(models[kind][0], device=device, dtype=torch.bfloat16).graphs is None


@pytest.mark.parametrize("device", [GPU])
def test_the_host_waits_once_for_the_experts_of_a_layer(models: dict[str, tuple[Path, Path]], device: str) -> None:
    model = load_model(models["experts"][0], device=device, dtype=torch.bfloat16)
    tokens = torch.arange(3, 12, device=device)
    cache = new_cache(model)
    for _ in range(2):  # the second time nothing is compiled or measured
        cache.truncate(0)
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                model.forward(tokens, cache, logits_rows=1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert 0 < sum("synchroni" in str(each.message) for each in waits) <= model.config.num_layers


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_window_takes_no_memory_that_grows(models: dict[str, tuple[Path, Path]], device: str) -> None:
    model = load_model(models["windows"][0], device=device, dtype=torch.bfloat16)
    cache, wide = new_cache(model), 100
    for piece in torch.arange(3, 1003, device=device).split(wide):
        model.forward(piece, cache, logits_rows=1)
        cache.commit()
    held = [layer.keys.shape[1] for layer in cache.layers]
    assert held[0] == held[2] <= WINDOW + 3 * window.SLACK + wide < 1000 <= held[1]
    cache.check_integrity()
