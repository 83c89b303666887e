"""H2O's accounts: attention summed over every query of a context, kept over questions; and what cannot be combined."""

from __future__ import annotations

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.engine.pipeline import AttentionMass
from triforce_core.errors import ConfigError
from triforce_core.events import PrefillProgress
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import load_model
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.h2o import AccumulatedMass
from triforce_core.research.settings import ResearchConfig
from triforce_core.speculation.model_drafter import ModelOnCache

# The lengths are given: a model of random weights would soon draft nothing.
LENGTHS = {"gamma1": 2, "gamma2": 10}
HEAVY = {**LENGTHS, "verifier": "coupled", "budget": 128, "window": 32, "quotes": "off"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return write_model(tmp_path_factory.mktemp("model") / "target", layers=2, heads=2, seed=1)


def opened(folder, **changes) -> ResearchEngine:
    settings = {"model": str(folder), "draft_model": "none", "dtype": "float32", "threads": 1, "mode": "cpu"}
    engine = ResearchEngine(EngineConfig(**{**settings, **changes}))
    list(engine.load())
    list(engine.open_document(document(120)))
    return engine


def ask(engine: ResearchEngine, speculation: ResearchConfig, question="Who found the lamp?", temperature=0.0):
    sampling = SamplingParams(temperature=temperature, max_new_tokens=40, stop_token_ids=())
    events = list(engine.ask(question, (), sampling, speculation))
    return events[-1], sum(isinstance(event, PrefillProgress) for event in events)


def test_attention_is_summed_over_passes_and_taken_back(folder):
    """One token a pass: nothing is left out, so the sums are those of one causal attention matrix."""
    model = load_model(folder)
    c = model.config
    sums = AccumulatedMass(AttentionMass(8, 16), c.num_heads, 40)
    full = ModelOnCache(model, FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=100, dtype=model.dtype))
    full.observer = sums
    tokens = torch.randint(3, 8192, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    seen = []
    for count, token in enumerate(tokens, start=1):
        full.feed([token], 1)
        full.commit()
        seen.append(sums.sums)
        if count == 25:
            sums.keep(count)
    # A query's probabilities sum to 1; what it gives itself is not counted.
    assert bool((seen[-1].sum(-1) < len(tokens)).all()) and seen[-1].shape == (2, 2, 39)
    assert bool((seen[-1][..., :38] >= seen[-2]).all())
    shown = sums.shown.latest
    torch.testing.assert_close(shown, (seen[-1] - torch.nn.functional.pad(seen[-2], (0, 1)))
                               [..., :32].unflatten(-1, (4, 8)).sum(-1), atol=1e-5, rtol=1e-4)
    assert sums.rewind(30) == 25
    torch.testing.assert_close(sums.sums, seen[24])
    full.truncate(25)
    for token in tokens[25:]:
        full.feed([token], 1)
        full.commit()
    torch.testing.assert_close(sums.sums, seen[-1])
    assert sums.rewind(24) == 0


@pytest.mark.parametrize("kind", ["h2o", "streaming-h2o"])
def test_the_document_is_read_again_once_for_all_questions(folder, kind):
    engine = opened(folder, prefill_chunk=256)
    speculation = ResearchConfig(middle_cache=kind, **HEAVY)
    first, passes = ask(engine, speculation)
    assert passes > 3 and first.stats.reused_tokens == 0
    plain = ResearchConfig(engine="autoregressive", verifier="coupled", quotes="off")
    assert first.token_ids == ask(engine, plain)[0].token_ids
    again, passes = ask(engine, speculation)
    assert passes <= 2 and again.stats.reused_tokens > 1000
    assert (again.token_ids, again.stats.acceptance) == (first.token_ids, first.stats.acceptance)
    going_on, passes = ask(engine, ResearchConfig(middle_cache=kind, refresh_every=3, **HEAVY), None, 0.8)
    assert passes <= 2 and going_on.stats.acceptance[kind].tested
    assert going_on.token_ids == ask(engine, plain, None, 0.8)[0].token_ids


@pytest.mark.parametrize("kind", ["h2o", "streaming-h2o", "top-k"])
def test_what_cannot_be_combined_is_said(folder, kind):
    with pytest.raises(ConfigError, match="refresh is 'chunk-means'"):
        ResearchConfig(middle_cache=kind, refresh="chunk-means")
    engine = opened(folder, mode="offload", device="cpu", resident_layers=1)
    with pytest.raises(ConfigError, match=f"middle_cache is '{kind}' and the cache is in host memory"):
        ask(engine, ResearchConfig(middle_cache=kind, budget=64))
