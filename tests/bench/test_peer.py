"""The comparison runs ``transformers`` on exactly our weights and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from triforce_core.bench.peer import PeerJob, run_peer
from triforce_core.model.quantized import save_quantized


@pytest.fixture(params=["compact", "plain"])
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


@pytest.mark.slow
def test_peer(checkpoint: Path) -> None:
    found = run_peer(PeerJob(str(checkpoint), tuple(i % 90 for i in range(300)), "float32", "cpu", 1, 128, 6))
    assert found["failed"] == {} and set(found["per_cache"]) == {"dynamic", "static"}
    assert len(found["token_ids"]) == 6 and found["tokens_per_second"] > 0 and found["prefill_seconds"] > 0
    assert found["context_tokens"] == 300
