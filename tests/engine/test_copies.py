"""A copy of the target's weights in few bits for the retrieval tier: other guesses, the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine.tiny import document, pair_config

from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.device.memory_plan import Room, Weights, Wish, make_plan
from triforce_core.engine import loading, memory, pipeline
from triforce_core.engine.memory import Planner
from triforce_core.engine.plan import Situation, plan
from triforce_core.errors import ConfigError
from triforce_core.kernels import REFERENCE
from triforce_core.model import read_config
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig
from triforce_core.sampling import Sampler

PLAIN = ResearchConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = ResearchConfig(verifier="coupled", ngram="off", budget=128, recent=48, window=32)


def open_engine(folders) -> ResearchEngine:
    engine = ResearchEngine(pair_config(folders))
    list(engine.load())
    list(engine.open_document(document()))
    return engine


@pytest.fixture(scope="module")
def copying_engine(folders):
    """As on a GPU: the specification's products with rounded weights, in float32."""
    engine = open_engine(folders)
    target = engine._need_loaded().target
    target.kernels = replace(target.kernels, quantized_types=(torch.float32,))
    return engine


@pytest.mark.parametrize(("kind", "temperature"), [
    ("int8", 0.8), ("int4", 0.0), *(pytest.param(*case, marks=pytest.mark.exhaustive)
                                    for case in (("int8", 0.0), ("int4", 0.8)))])
def test_same_words_whatever_weights_the_retrieval_tier_has(copying_engine, kind, temperature):
    sampling = SamplingParams(temperature=temperature, seed=4, max_new_tokens=60, stop_token_ids=())
    plain = list(copying_engine.ask("Who found the lamp?", (), sampling, PLAIN))[-1]
    own, copied = (list(copying_engine.ask("Who found the lamp?", (), sampling, speculation)) for speculation in
                   (replace(TRIFORCE, retrieval_weights=at) for at in ("same", kind)))
    assert own[-1].token_ids == copied[-1].token_ids == plain.token_ids
    assert f"a copy of the weights in {kind}" in copied[-1].stats.why and "copy" not in own[-1].stats.why
    loaded = copying_engine._need_loaded()
    assert list(loaded.copies) == [kind]  # the other one has gone


def test_the_retrieval_tier_says_what_its_copy_truly_drew_from(copying_engine):
    """By chance, tokens come with the law of the copy over the retrieved part, not of the target over it."""
    sampling = SamplingParams(temperature=1.0, seed=1, max_new_tokens=1, stop_token_ids=())
    list(copying_engine.ask("Who found the lamp?", (), sampling, replace(TRIFORCE, retrieval_weights="int4")))
    session, loaded = copying_engine._session, copying_engine._need_loaded()
    tier = session.pipeline.drafter
    assert tier.model.model is loaded.copies["int4"]
    tier.gamma1 = 0
    context = [*session.reading.token_ids, 5]
    sampler = Sampler(sampling)
    draft = tier.propose(context, 1, sampler)
    probs = []
    for model in (loaded.copies["int4"], loaded.target):
        tier.settle(context[:-1], committed=False)
        tier.model.model = model
        probs.append(sampler.distributions(tier.model.logits(context, ()), context)[0])
    assert torch.allclose(draft.probs[0], probs[0], atol=1e-6) and not torch.allclose(probs[0], probs[1], atol=1e-3)


def test_without_room_for_a_copy_there_is_none(copying_engine, monkeypatch):
    loaded = copying_engine._need_loaded()
    loaded.copies.clear()
    monkeypatch.setattr(Planner, "unused_bytes", pipeline._HEADROOM + 1000)
    found = pipeline.plan_for(loaded, copying_engine._session.full, replace(TRIFORCE, retrieval_weights="int4"), 4000)
    assert found.retrieval_weights == "same" and "no memory is free for a copy" in found.why


def test_a_copy_gives_way_to_a_document(copying_engine):
    loaded = copying_engine._need_loaded()
    loaded.with_weights("int8")
    plan = loaded.planner.plan(1000)
    loading.full_cache(loaded, replace(plan, weight_copy=1))
    assert loaded.copies
    loading.full_cache(loaded, plan)
    assert not loaded.copies


def test_auto_takes_the_copy_for_which_a_gpu_has_room():
    chosen = {copies: plan(ResearchConfig(budget=128), Situation(4000, True, True, copies=copies)).retrieval_weights
              for copies in ((), ("int8", "int4"), ("int4",))}
    assert chosen == {(): "same", ("int8", "int4"): "int8", ("int4",): "same"}
    short = plan(ResearchConfig(), Situation(200, True, True, copies=("int8",)))
    assert short.retrieval_weights == "same" and "copy" not in short.why


def test_a_copy_is_planned_for_where_kernels_gain_by_it(folders, monkeypatch):
    shape = read_config(folders[0])
    planned = []
    for types in ((), (torch.bfloat16,)):
        kernels = replace(REFERENCE, quantized_types=types)
        monkeypatch.setattr(memory, "choose_kernels", lambda device, kernels=kernels: kernels)
        wish = memory.make_wish(Weights(shape), None, max_context=4096, config=EngineConfig(),
                                  device=torch.device("cuda"), dtype=torch.bfloat16)
        roomy, tight = (make_plan(wish, Room(2**40, free), 4096, ["on-chip"]) for free in (2**36, need(wish) + 2**10))
        planned.append((roomy.weight_copy, tight.weight_copy))
    matrices = shape.num_parameters  # the embedding is the head, too
    assert planned == [(0, 0), (matrices, 0)]


def need(wish: Wish) -> int:
    """Bytes without a copy of the weights, and what is kept free of so much."""
    bare = make_plan(replace(wish, copy_bytes_per_weight=0.0), Room(2**40, 2**36), 4096, ["on-chip"])
    return bare.need - bare.reserve + 512 * 2**20


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_copy_of_the_weights_is_refused_where_it_would_not_help(folders, kind):
    engine = open_engine(folders)
    speculation = replace(TRIFORCE, retrieval_weights=kind)
    with pytest.raises(ConfigError, match=r"retrieval_weights .*auto, same"):
        list(engine.ask("Who?", (), SamplingParams(), speculation))
    assert list(engine.ask("Who?", (), SamplingParams(max_new_tokens=2), TRIFORCE))[-1].stats.why
