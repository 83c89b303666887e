"""The engine with its cache in host memory, rehearsed on a CPU: same words as with the ordinary one.
(On a GPU: test_gpu.py.)"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from engine.tiny import document

from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.engine.memory import modes
from triforce_core.engine.plan import Plan, Situation, plan, prefill_chunk
from triforce_core.errors import ConfigError
from triforce_core.events import DocumentOpened, Finished, RoundEvent
from triforce_core.kv_cache.offloaded import OffloadedCache
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig
from triforce_core.speculation.model_drafter import MAX_GUIDED

SETTINGS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 10}
PLAIN = ResearchConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = ResearchConfig(verifier="coupled", **SETTINGS)
LAYERS = 3


def opened(folders, doc=None, **changes) -> tuple[ResearchEngine, DocumentOpened]:
    engine = ResearchEngine(EngineConfig(**{
        "model": str(folders[0]), "draft_model": str(folders[1]), "dtype": "float32", "threads": 1, "mode": "offload",
        "device": "cpu", "resident_layers": 0, **changes}))
    list(engine.load())
    return engine, list(engine.open_document(doc or document()))[-1]


@pytest.fixture(scope="module")
def ordinary(folders):
    return opened(folders, mode="cpu")[0]


@pytest.fixture(scope="module")
def offloaded(folders):
    return opened(folders)[0]


def answer(engine, speculation, *, question="Who found the lamp?", history=(), temperature=0.0, seed=0,
           tokens=48) -> tuple[Finished, list[RoundEvent]]:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=tokens, stop_token_ids=())
    *events, done = engine.ask(question, history, sampling, speculation)
    return done, [event for event in events if isinstance(event, RoundEvent)]


@pytest.fixture(scope="module")
def plainly(ordinary):
    """What plain decoding on the ordinary cache answers, each once."""
    return cache(lambda temperature, seed: answer(ordinary, PLAIN, temperature=temperature, seed=seed)[0])


@pytest.mark.parametrize(("resident", "temperature"), [
    (0, 1.0), (1, 0.0), (LAYERS, 1.0), *(pytest.param(*case, marks=pytest.mark.exhaustive)
                                         for case in ((0, 0.0), (1, 1.0), (LAYERS, 0.0)))])
def test_same_words_as_the_ordinary_cache(folders, plainly, resident, temperature):
    engine, _ = opened(folders, resident_layers=resident)
    assert isinstance(engine._session.full.cache, OffloadedCache) == (resident < LAYERS)
    for seed in range(2 if temperature else 1):  # greedy choices ask for no seed
        plain = plainly(temperature, seed)
        for speculation in (PLAIN, TRIFORCE):
            done, _ = answer(engine, speculation, temperature=temperature, seed=seed)
            assert done.token_ids == plain.token_ids and done.text == plain.text


@pytest.mark.parametrize(("gamma2", "every"), [(1, 1), (24, 1), (48, 3)])
def test_dials_change_the_speed_never_the_words(plainly, offloaded, gamma2, every):
    dials = ResearchConfig(**{**SETTINGS, "verifier": "coupled", "gamma2": gamma2, "refresh_every": every})
    assert answer(offloaded, dials, temperature=0.8)[0].token_ids == plainly(0.8, 0).token_ids


def test_it_drafts_and_attends_as_the_ordinary_one(ordinary, offloaded, monkeypatch):
    """The same chunks are chosen as layers stream by: as many drafts are accepted, the same pages light up."""
    monkeypatch.setattr(ordinary._session, "_usual", None)  # which a cache that streams is not asked for
    dials = ResearchConfig(verifier="coupled", **SETTINGS)
    expected, _ = answer(ordinary, dials, temperature=0.7, tokens=64)
    found, _ = answer(offloaded, dials, temperature=0.7, tokens=64)
    assert found.stats.acceptance["retrieval"].accepted > 0
    assert found.stats.full_passes <= expected.stats.full_passes + 3
    assert found.page_shares == pytest.approx(expected.page_shares, abs=0.05)
    assert {chunk.start for chunk in found.chunks[:4]} & {chunk.start for chunk in expected.chunks[:4]}


def test_every_round_counts_what_it_streamed(ordinary, offloaded):
    done, rounds = answer(offloaded, PLAIN)
    tokens = offloaded._session.full.cache.num_committed
    whole = tokens * offloaded._need_loaded().info.kv_bytes_per_token
    assert all(0.7 * whole < event.streamed_bytes <= whole for event in rounds)
    assert done.stats.streamed_bytes == sum(event.streamed_bytes for event in rounds)
    assert done.stats.streamed_bytes_per_second == done.stats.streamed_bytes / done.stats.decode_seconds
    assert answer(ordinary, PLAIN)[0].stats.streamed_bytes_per_second == 0


def test_an_answer_longer_than_the_room_that_was_reserved(folders, ordinary, monkeypatch):
    monkeypatch.setattr("triforce_core.engine.engine._CONVERSATION", 40)
    engine, _ = opened(folders, prefill_chunk=200)
    slots = engine._session.full.cache.slots
    long = answer(engine, TRIFORCE, tokens=72)[0]
    assert engine._session.full.cache.slots > slots
    assert long.token_ids == answer(ordinary, PLAIN, tokens=72)[0].token_ids


def test_reading_can_be_cancelled_while_memory_is_made_ready(folders):
    engine, _ = opened(folders)
    stream = engine.open_document(document(seed=1))
    assert next(stream).tokens_done == 0
    engine.cancel()
    assert not any(isinstance(event, DocumentOpened) for event in stream)
    assert isinstance([*engine.open_document(document(seed=1))][-1], DocumentOpened)


def test_chunk_means_are_refused(offloaded):
    with pytest.raises(ConfigError, match="host memory"):
        answer(offloaded, ResearchConfig(refresh="chunk-means", **SETTINGS))
    assert answer(offloaded, TRIFORCE)[0].token_ids


def on_a_gpu(*, offloaded: bool, copies: tuple[str, ...] = (), **wanted) -> Plan:
    return plan(ResearchConfig(**wanted), Situation(30_000, True, True, offloaded, copies))


def test_drafts_are_longer_where_a_full_pass_streams():
    usual, streams = (on_a_gpu(offloaded=offloaded) for offloaded in (False, True))
    assert streams.lengths.gamma2 > usual.lengths.gamma2 and streams.lengths.longest > usual.lengths.longest
    # And nothing is kept on the GPU for the small model, which needs the memory for layers.
    assert (streams.draft_cache, usual.draft_cache) == ("streaming", "cross")
    # A direct copy would be the whole of what one stream-through verifies.
    assert (streams.direct, usual.direct) == (0, MAX_GUIDED)
    lengths = replace(streams.lengths, gamma2=usual.lengths.gamma2, gamma2s=usual.lengths.gamma2s)
    alike = {name: getattr(usual, name) for name in ("draft_cache", "window", "direct", "why")}
    assert replace(streams, lengths=lengths, **alike) == usual
    assert on_a_gpu(offloaded=True, gamma2=5).lengths.gamma2 == 5


def test_the_budget_is_the_memory_plans_where_a_full_pass_streams():
    streams = Situation(124_928, True, True, offloaded=True, budget=15 * 1024)
    assert plan(ResearchConfig(), streams).budget == 15 * 1024
    assert plan(ResearchConfig(budget=2048), streams).budget == 2048
    assert plan(ResearchConfig(), replace(streams, budget=0)).budget == 4096
    # Where the cache lies on the GPU, more costs every inner step and is right hardly more often.
    assert plan(ResearchConfig(), replace(streams, offloaded=False)).budget == 4096


def test_an_offloaded_document_is_asked_with_the_planned_budget(offloaded, monkeypatch):
    session = offloaded._session
    planned = session.memory.budget
    assert planned == session.plan(ResearchConfig(), 4000).budget > 0
    monkeypatch.setattr(session, "memory", replace(session.memory, budget=planned + 1024))
    assert session.plan(ResearchConfig(), 4000).budget == planned + 1024


def test_no_copy_of_the_weights_beside_a_cache_that_does_not_fit():
    copies = ("int8", "int4")
    assert on_a_gpu(offloaded=False, copies=copies).retrieval_weights != "same"
    assert on_a_gpu(offloaded=True, copies=copies).retrieval_weights == "same"
    assert on_a_gpu(offloaded=True, copies=copies, retrieval_weights="int8").retrieval_weights == "int8"


def test_reading_takes_passes_that_the_link_can_follow():
    shapes = [prefill_chunk(EngineConfig(), group, on_gpu=True, streams=True) for group in (1, 4, 8)]
    assert shapes == [12288, 4096, 4096]
    assert prefill_chunk(EngineConfig(), 1, on_gpu=True, streams=False) == 2048
    assert prefill_chunk(EngineConfig(prefill_chunk=640), 1, on_gpu=True, streams=True) == 640


@pytest.mark.parametrize(("mode", "on_gpu", "allowed"), [
    ("auto", True, ("on-chip", "offload")), ("on-chip", True, ("on-chip",)), ("offload", True, ("offload",)),
    ("auto", False, ("cpu",)), ("offload", False, ("offload",))])
def test_auto_offloads_only_what_does_not_fit_on_chip(mode, on_gpu, allowed):
    """A plan takes the first mode in which everything fits (tests/device/test_memory_plan.py)."""
    assert modes(EngineConfig(mode=mode), on_gpu) == allowed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_must_be_asked_for_on_the_cpu(folders):
    with pytest.raises(ConfigError, match="no GPU"):
        opened(folders, device="auto")
