"""The comparison runs ``transformers`` on exactly our weights and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from engine.tiny import write_model

from triforce_core.bench import grow
from triforce_core.bench.peer import PeerJob, _Clock, _measure_all, measure_peer, run_peer
from triforce_core.bench.peer_model import compare_logits, our_logits, our_model, peer_model
from triforce_core.bench.shapes import Shape
from triforce_core.model.quantized import save_quantized

METHODS = {"generate, dynamic cache", "generate, static cache", "prompt lookup", "assisted generation"}
IDS = tuple(3 + i % 60 for i in range(300))


@pytest.fixture(params=["compact", pytest.param("plain", marks=pytest.mark.exhaustive)])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny random Llama, as int8 with scales or as Hugging Face writes it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, vocab_size=96, tie_word_embeddings=True)
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    if request.param == "compact":
        state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
        save_quantized(state, tmp_path / "model.safetensors")
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"
    return tmp_path


def job(folder: Path, draft: Path | None, shape: str | None = None, max_context: int = 4096) -> PeerJob:
    return PeerJob(str(folder), str(draft) if draft else None, shape, max_context, IDS, "float32", "cpu", 1, 128, 6)


@pytest.mark.slow
def test_a_process_of_its_own(checkpoint: Path) -> None:
    lines: list[str] = []
    found = run_peer(job(checkpoint, checkpoint), lines.append)
    told = {line["method"]: line for line in map(json.loads, lines)}
    assert set(told) == METHODS and all(line["tokens_per_second"] > 0 for line in told.values())
    assert found is not None and found["failed"] == {} and set(found["methods"]) == METHODS
    assert len(found["token_ids"]) == 6 and found["tokens_per_second"] > 0 and found["prefill_seconds"] > 0
    assert found["context_tokens"] == 300 and found["logits"]["max_difference"] < 1e-3
    assert all(method["token_ids"] == found["token_ids"] for method in found["methods"].values())


@pytest.mark.slow
def test_a_process_that_fails_costs_nothing_else(tmp_path: Path) -> None:
    assert run_peer(job(tmp_path, None), print) is None


@pytest.mark.slow
@pytest.mark.parametrize("max_context", [pytest.param(2048, marks=pytest.mark.exhaustive, id="its own context"),
                                         pytest.param(16384, id="interpolated positions")])
def test_a_grown_pair_is_the_same_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_context: int) -> None:
    target = write_model(tmp_path / "target", layers=2, heads=2, seed=1)
    draft = write_model(tmp_path / "draft", layers=1, heads=1, seed=2)
    monkeypatch.setitem(grow.SHAPES, "llama3-8b", Shape(128, 160, 3, 4, 2, 64))
    monkeypatch.setitem(grow.SHAPES, "llama-68m", Shape(96, 128, 2, 3, 3, 32))
    found = measure_peer(job(target, draft, "llama3-8b", max_context))
    assert found["failed"] == {} and set(found["methods"]) == METHODS
    assert found["logits"]["max_difference"] < 1e-3 < found["logits"]["deviation"]
    assert found["logits"]["same_choice"] == 1.0 and found["logits"]["rows"] == 64
    assert all(method["token_ids"] == found["token_ids"] for method in found["methods"].values())


def test_other_weights_are_noticed(tmp_path: Path) -> None:
    one, other = (write_model(tmp_path / str(seed), layers=1, heads=1, seed=seed) for seed in (1, 2))
    ours = our_logits(our_model(one, None, 4096, "cpu", torch.float32), list(IDS[:40]), 8)
    with torch.inference_mode():
        same, wrong = (compare_logits(ours, peer_model(folder, None, 4096, "cpu", torch.float32), list(IDS[:40]))
                       for folder in (one, other))
    assert same["max_difference"] < 1e-3 and same["same_choice"] == 1.0
    assert wrong["max_difference"] > 0.1 and wrong["same_choice"] < 1.0


def test_a_method_whose_tokens_came_at_once_is_told_and_costs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def steady(job: PeerJob) -> dict:
        clock = _Clock()
        clock.arrivals = [(0.0, 300), (1.0, 1), (1.5, 1), (2.0, 1)]
        return {"tokens_per_second": clock.tokens_per_second, "tokens": 3}

    def at_once(job: PeerJob) -> dict:
        clock = _Clock()
        clock.arrivals = [(0.0, 300), (1.0, 6)]
        return {"tokens_per_second": clock.tokens_per_second, "tokens": 6}

    found, failed = _measure_all({"at once": at_once, "steady": steady}, job(tmp_path, None))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "at once" in first["failed"] and second["tokens_per_second"] == 2.0
    assert found == {"steady": {"tokens_per_second": 2.0, "tokens": 3}} and "6 tokens came at once" in failed["at once"]
