"""The engine with keys and values in few bits: same words with and without speculation, chosen where only that fits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from engine.tiny import document, free, pair_config
from model.tiny import LIKE_A_GPU, tiny_config

from triforce_core.config import EngineConfig, SamplingParams
from triforce_core.device.memory_plan import Room, Weights, Wish, make_plan
from triforce_core.device.shard import ALONE
from triforce_core.engine import memory as planning
from triforce_core.engine.loading import choose, fits, fitting
from triforce_core.engine.memory import Planner, modes
from triforce_core.errors import ConfigError, NotEnoughMemoryError
from triforce_core.events import DocumentOpened, Finished
from triforce_core.kernels import HEAD_KIND, KV_BITS, REFERENCE, Kernels, bytes_per_weight, compiled
from triforce_core.model import parse_config
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig
from triforce_core.speculation.graph_runner import GraphRunner

SETTINGS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 5}
GIB = 2**30
config = partial(pair_config, dtype="bfloat16", kv="int8")
both = pytest.mark.parametrize("kind", KV_BITS)


def opened(folders, *, doc=None, **changes) -> tuple[ResearchEngine, DocumentOpened]:
    engine = ResearchEngine(config(folders, **changes))
    list(engine.load())
    *_, opening = engine.open_document(doc or document())
    assert isinstance(opening, DocumentOpened)
    return engine, opening


def answer(of: ResearchEngine, temperature=0.0, seed=0, question: str | None = "Who found the lamp?",
           **settings) -> Finished:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=48, stop_token_ids=())
    *_, done = of.ask(question, (), sampling, ResearchConfig(**settings))
    assert isinstance(done, Finished)
    return done


@pytest.fixture(scope="module", params=KV_BITS)
def engine(folders, request):
    found = opened(folders, kv=request.param)[0]
    assert found._session.full.cache.kind == request.param
    return found


needs_library = pytest.mark.skipif(compiled().library is None, reason=f"kernels: {compiled().summary}")


TIERS = [{}, {"small_model": "off"}, {"middle_cache": "none"}, {"ngram": "straight"}, {"draft_cache": "cross"},
         {"refresh": "chunk-means"}, {"middle_cache": "h2o"}, {"middle_cache": "top-k", "small_model": "off"},
         {"tree": "sequoia", "gamma1": "auto"}]


@needs_library
@pytest.mark.parametrize(("temperature", "tiers"), [
    (0.0, TIERS[0]), *((0.8, tiers) for tiers in TIERS),
    *(pytest.param(0.0, tiers, marks=pytest.mark.exhaustive) for tiers in TIERS[1:])], ids=str)
def test_speculation_changes_no_word(engine, temperature, tiers):
    """In bfloat16 too: rows of a pass are the same bits in any company, over few bits as over bfloat16."""
    for question in ("Who found the lamp?", None):
        fast = answer(engine, temperature, question=question, verifier="coupled", quotes="off", **{**SETTINGS, **tiers})
        plain = answer(engine, temperature, question=question, quotes="off", engine="autoregressive",
                       verifier="coupled")
        assert fast.token_ids == plain.token_ids
        assert fast.stats.tokens_per_full_pass >= plain.stats.tokens_per_full_pass == 1


def test_rounds_led_by_the_device_write_rows_too(folders):
    """On a CPU with kernels that take what a GPU's take: chosen chunks are attended where they lie."""
    engine = ResearchEngine(config(folders, dtype="float32"))
    list(engine.load())
    for model in (engine._loaded.target, engine._loaded.draft):
        model.kernels = replace(model.kernels, attention=LIKE_A_GPU.attention,
                                indexed_attention=LIKE_A_GPU.indexed_attention, device_lengths=(32,),
                                attends_rows=REFERENCE.attends_rows)
    list(engine.open_document(document()))
    fast = answer(engine, question=None, verifier="coupled", quotes="off", ngram="off",
                  **{**SETTINGS, "budget": 900, "recent": 400})  # random weights need most of it to agree at all
    assert isinstance(engine._session.pipeline.tiers, GraphRunner)
    layers = engine._session.pipeline.parts.part.layers
    assert layers is engine._session.full.cache.layers and layers[0].keys.dtype == torch.int8
    plain = answer(engine, question=None, quotes="off", engine="autoregressive", verifier="coupled")
    assert fast.token_ids == plain.token_ids and fast.stats.tokens_per_full_pass > 1


def test_a_reading_is_of_one_kind(folders, tmp_path):
    """Kept and taken back as it was; a cache of another kind is read anew."""
    sizes = []
    for kind in ("int4", "int8", "same"):
        first, opening = opened(folders, saved_readings=tmp_path, kv=kind)
        again, reopening = opened(folders, saved_readings=tmp_path, kv=kind)
        assert not opening.restored and reopening.restored and again._session.full.cache.kind == kind
        assert answer(again).token_ids == answer(first).token_ids
        sizes.append(max(path.stat().st_size for path in tmp_path.glob("*.kv")))
    assert sizes[0] < 0.6 * sizes[1] < 0.36 * sizes[2]


def test_int8_is_chosen_where_only_that_fits_and_told(folders, monkeypatch):
    free(monkeypatch, 2 * GIB)
    auto = choose(config(folders, kv="auto"))
    whole = auto.planner.plan(4096)
    assert whole.kv_kind == "same" and auto.info.plan.kv_kind == "same"
    rounded = choose(config(folders)).planner.plan(4096)
    assert rounded.kv_kind == "int8" and rounded.kv * 2 > whole.kv > rounded.kv * 1.8 and "int8" in rounded.why
    free(monkeypatch, whole.need - (whole.kv - rounded.kv) // 2)
    info = choose(config(folders, kv="auto")).info
    assert info.plan.kv_kind == "int8" and info.plan.context == 4096 and "do not fit" in info.why
    assert info.kv_bytes_per_token == info.plan.kv_per_token == rounded.kv_per_token
    with pytest.raises(NotEnoughMemoryError, match="--kv int8"):
        choose(config(folders, kv="same", max_context=4096))
    kinds = {(fit.weights, fit.context): fit.kv for fit in fitting(config(folders, kv="auto"), (512, 4096), 0)
             if fit.mode}
    assert kinds[("same", 512)] == "same" and kinds[("same", 4096)] == "int8"


def test_each_document_gets_what_fits(folders, monkeypatch):
    """A short one unrounded, a long one in int8, and none takes the other's keys and values for its own."""
    free(monkeypatch, 2 * GIB)
    engine = ResearchEngine(config(folders, kv="auto"))
    list(engine.load())
    short, long = document(40), document(200)
    list(engine.open_document(short))
    assert engine._session.full.cache.kind == "same" and "int8" not in engine.facts().why
    plans = [choose(config(folders, kv=kind)).planner.plan(4096) for kind in ("same", "int8")]
    free(monkeypatch, sum(plan.need for plan in plans) // 2)
    *_, opening = engine.open_document(long)
    assert isinstance(opening, DocumentOpened) and opening.reused == 0
    assert engine._session.full.cache.kind == "int8" and "int8" in engine.facts().why
    assert answer(engine, **SETTINGS).token_ids


@pytest.mark.parametrize(("changes", "told"), [
    ({"kv": "int8", "mode": "offload", "device": "cpu"}, "--mode offload"), ({"kv": "fp8"}, "kv is 'fp8'.*Take int8"),
    ({"kv": "int4", "mode": "offload", "device": "cpu"}, "kv is 'int4' with --mode offload"),
    ({"kv": "int3"}, "auto, same, int8, int4"), ({"kv": ""}, "kv is ''"), ({"kv": None}, "kv is None"),
    ({"kv": 8}, "kv is 8"), ({"kv": "INT8"}, "kv is 'INT8'")], ids=str)
def test_what_cannot_be_is_refused_by_name(folders, changes, told):
    with pytest.raises(ConfigError, match=told):
        choose(config(folders, **changes))


ON_A_GPU = replace(REFERENCE, attends_rows=lambda dtype, *_: True, device_lengths=(32, 64, 128))


def gpu_wish(monkeypatch: pytest.MonkeyPatch, kernels: Kernels = ON_A_GPU, dtype=torch.bfloat16, weights=None,
             **settings) -> Wish:
    """As planned for a GPU with these kernels. weights: of shapes alone."""
    monkeypatch.setattr(planning, "choose_kernels", lambda device: kernels)
    weights = weights or Weights(parse_config(tiny_config(hidden_size=128, head_dim=32, num_hidden_layers=16)))
    return planning.make_wish(weights, None, max_context=250_000, config=EngineConfig(**settings),
                              device=torch.device("cuda"), dtype=dtype)


@both
def test_a_gpu_takes_it_where_it_is_asked_for(monkeypatch, kind):
    assert gpu_wish(monkeypatch).kv_kinds == ("same",)
    wish = gpu_wish(monkeypatch, kv=kind)
    assert wish.kv_kinds == (kind,) and wish.unpacking == 2
    assert modes(EngineConfig(kv=kind), True) == ("on-chip",) and modes(EngineConfig(), True)[1] == "offload"
    assert modes(EngineConfig(kv=kind), False) == ("cpu",)
    plan = make_plan(wish, Room(2**40, 2**36), 250_000, ["on-chip"])
    bare = make_plan(replace(wish, unpacking=0), Room(2**40, 2**36), 250_000, ["on-chip"])
    assert plan.kv_kind == kind and "as chosen" in plan.why
    assert plan.kv == 250_000 * wish.target.kv_per_token_in(kind)
    # One layer's numbers in bfloat16; a layer is never unpacked while it grows.
    assert plan.workspace - bare.workspace == (250_000 * wish.target.kv_per_token - plan.kv) // 16


@pytest.mark.parametrize(("changes", "told"), [
    ({"dtype": torch.float32}, "with float32 products on a GPU"), ({"dtype": torch.float16}, "it is for bfloat16"),
    ({"kernels": REFERENCE}, "without Triton"), ({"gpus": 2}, "on several GPUs"),
    ({"kernels": replace(ON_A_GPU, device_lengths=(64, 128))}, "for heads of 32: it is for those of 64, 128"),
    ({"mode": "offload"}, "with --mode offload")], ids=["fp32", "fp16", "no-triton", "gpus", "heads", "offload"])
def test_where_a_gpu_cannot_it_is_refused_by_name(monkeypatch, changes, told):
    for kind in KV_BITS:
        with pytest.raises(ConfigError, match=f"kv is {kind!r} .*{told}"):
            gpu_wish(monkeypatch, kv=kind, **changes)
    wish = gpu_wish(monkeypatch, **changes)
    assert wish.kv_kinds == ("same",) and wish.kv_offers == ()


def test_what_does_not_fit_a_gpu_is_offered_in_few_bits(monkeypatch):
    """In as many as fit."""
    wish = gpu_wish(monkeypatch)
    needs = [make_plan(replace(wish, kv_kinds=(kind,)), Room(2**40, 2**36), 250_000, ["on-chip"])
             for kind in ("same", *KV_BITS)]
    for larger, smaller in itertools.pairwise(needs):
        free = (larger.need - larger.reserve + smaller.need - smaller.reserve) // 2 + GIB // 2
        with pytest.raises(NotEnoughMemoryError, match=rf"\(--kv {smaller.kv_kind}\)") as told:
            make_plan(wish, Room(GIB, free), 250_000, ["on-chip", "offload"])
        assert str(told.value).count("--kv") == 1
    rounded = replace(wish, kv_kinds=("int8",), kv_offers=())
    with pytest.raises(NotEnoughMemoryError, match="--mode offload --kv same"):
        make_plan(rounded, Room(2**40, needs[1].need // 2), 250_000, ["on-chip"])


def test_what_fits_a_gpu_is_told_with_rounded_keys_too_and_with_speeds(monkeypatch):
    """Where a cache would stream or does not fit, and it need not, rounded."""
    raw = tiny_config(vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32,
                      num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False,
                      max_position_embeddings=262_144)
    weights = Weights(parse_config(raw), few_bits=bytes_per_weight("int4"), few_bits_head=bytes_per_weight(HEAD_KIND))
    planner = Planner(gpu_wish(monkeypatch, weights=weights), ("on-chip", "offload"), torch.device("cuda"), None, ALONE,
                      "")
    for host, modes_ in ((2**40, ["offload", "on-chip"]), (GIB, ["", "on-chip"])):
        monkeypatch.setattr(planning, "read_room", lambda *_, host=host: Room(host, 24 * GIB))
        short, *long = fits(planner, "int4", (8192, 200_000), 1e12)
        assert (short.mode, short.kv, short.context) == ("on-chip", "same", 8192)
        assert [(fit.mode, fit.kv) for fit in long] == list(zip(modes_, ("same", "int8"), strict=True))
        assert short.tokens_per_second > long[1].tokens_per_second > 5 * long[0].tokens_per_second
    assert not any(fit.tokens_per_second for fit in fits(planner, "int4", (8192,), 0))


@both
def test_float32_products_over_few_bits(folders, kind):
    """Another number type of products, where the cache is smaller still; the words are plain decoding's."""
    engine, _ = opened(folders, dtype="float32", kv=kind)
    fast = answer(engine, verifier="coupled", **SETTINGS)
    assert fast.token_ids == answer(engine, engine="autoregressive", verifier="coupled").token_ids
