"""Memory: plans agree with what is really allocated, what cannot fit is refused unread, running out is survived."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

import pytest
import torch
from engine.tiny import document, free, pair_config

from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.device import memory
from triforce_core.device.memory_plan import Room
from triforce_core.engine import loading
from triforce_core.engine import memory as engine_memory
from triforce_core.engine.engine import Engine
from triforce_core.engine.loading import Loaded, choose, full_cache, load
from triforce_core.engine.pipeline import plan_for
from triforce_core.errors import ConfigError, NotEnoughMemoryError
from triforce_core.events import DocumentOpened, Finished, LoadProgress, MachineInfo, ModelInfo
from triforce_core.kernels.native import NativeLinear
from triforce_core.kv_cache import base
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache

GIB = 2**30
config = partial(pair_config, kv="same")
SAMPLING = SamplingParams(max_new_tokens=24, stop_token_ids=())
SPECULATION = SpeculationConfig(budget=128, recent=48, window=32)


def answer(engine: Engine) -> Finished:
    *_, done = engine.ask("Who found the lamp?", (), SAMPLING, SPECULATION)
    assert isinstance(done, Finished)
    return done


def tensors(thing: Any) -> Iterator[torch.Tensor]:
    """Everything a model holds, in closures too."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from tensors(one)
    elif isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            yield from tensors(cell.cell_contents)
    elif isinstance(thing, NativeLinear):
        yield from tensors(thing._held)
    elif hasattr(thing, "__slots__"):
        for name in thing.__slots__:
            yield from tensors(getattr(thing, name))


def weight_bytes(model: Any) -> int:
    held = tensors([model.layers, model.weights.embedding, model.weights.head])
    storages = {one.untyped_storage().data_ptr(): one.numel() * one.element_size() for one in held}
    return sum(storages.values())


@pytest.mark.parametrize(("model", "dtype"), [("tiny", "float32"), ("tiny", "bfloat16"), ("builtin", "float32"),
                                              ("builtin", "bfloat16")])
def test_the_plan_is_what_is_allocated(folders, model, dtype):
    """Weights to 2 % (norms and scales are not counted), caches to the byte."""
    chosen = {"model": "builtin", "draft_model": "builtin"} if model == "builtin" else {}
    *_, loaded = load(config(folders, dtype=dtype, **chosen))
    assert isinstance(loaded, Loaded) and loaded.draft is not None
    plan = loaded.planner.plan(3000)
    assert weight_bytes(loaded.target) == pytest.approx(plan.weights, rel=0.02)
    assert weight_bytes(loaded.draft) == pytest.approx(plan.draft_weights, rel=0.02)
    full = full_cache(loaded, plan)
    assert full.cache.nbytes == plan.kv == plan.resident_kv == 3000 * plan.kv_per_token
    usual = plan_for(loaded, full, SpeculationConfig(), 3000)
    assert usual.middle_cache == "retrieval" and usual.draft_model
    assert RetrievalCache(full.cache, budget=usual.budget, recent=usual.recent).nbytes == plan.retrieval
    c = loaded.draft.config
    small = StreamingCache(c.num_layers, c.num_kv_heads, c.head_dim, sinks=usual.sinks, window=usual.window,
                           frequencies=loaded.draft.rope.frequencies, dtype=loaded.draft.dtype)
    assert small.nbytes == plan.draft_cache


def test_on_a_gpu_the_draft_model_reads_where_the_plan_has_room(folders, monkeypatch):
    """What is free behind a reading is also for graphs and passes that are not made yet."""
    *_, loaded = load(config(folders))
    wish = replace(loaded.planner.wish, draft_reads=True)
    planner = replace(loaded.planner, wish=wish, device=torch.device("cuda"), modes=("on-chip",))
    reads = wish.draft.kv_per_token * 3000

    def may_read(nbytes: int) -> bool:
        monkeypatch.setattr(engine_memory, "read_room", lambda *_: Room(GIB, nbytes))
        return planner.draft_may_read(3000, reads)

    assert may_read(4 * GIB)
    plan = planner.plan(3000)
    enough = plan.need + plan.reserve
    assert may_read(enough) and not may_read(enough - 1)
    assert not may_read(GIB // 2)  # less than the plan takes by itself


def test_checking_reads_no_weights(folders, monkeypatch):
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: pytest.fail("weights were read"))
    machine, model = Engine(config(folders)).check()
    assert isinstance(machine, MachineInfo) and isinstance(model, ModelInfo)
    plan = model.plan
    assert plan is not None and plan.mode == model.mode == "cpu" and plan.why in model.why
    assert plan.context == model.max_context == 4096 and plan.need <= plan.have


def test_what_cannot_fit_is_refused_before_it_is_read(folders, monkeypatch):
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: pytest.fail("weights were read"))
    free(monkeypatch, GIB // 2)
    for wanted in ("auto", 4096):
        steps = load(config(folders, max_context=wanted))
        assert isinstance(next(steps), LoadProgress)
        with pytest.raises(NotEnoughMemoryError, match=r"need .* of memory .* and 512 MiB are free"):
            next(steps)


def test_the_longest_context_follows_from_memory_unless_it_was_asked_for(folders, monkeypatch):
    free(monkeypatch, GIB)
    whole = choose(config(folders)).planner.plan(4096)
    free(monkeypatch, whole.need - whole.kv // 2)
    info = choose(config(folders)).info
    assert info.plan is not None and 1000 < info.plan.context < 4096 == info.max_context
    with pytest.raises(NotEnoughMemoryError, match=f"{info.plan.context:,} tokens fit"):
        choose(config(folders, max_context=4096))


def test_a_document_too_large_for_memory_leaves_the_open_one(folders, monkeypatch):
    engine = Engine(config(folders))
    list(engine.load())
    list(engine.open_document(document(sentences=40)))
    before = answer(engine)
    small, large = document(sentences=60, seed=3), document(sentences=200, seed=3)
    assert engine.measure(large).fits and engine.measure(large).limited_by == "context"
    free(monkeypatch, GIB)
    free(monkeypatch, engine._need_loaded().planner.plan(3200).need)
    fit = engine.measure(large)
    assert not fit.fits and fit.limited_by == "memory" and engine.measure(small).fits
    with pytest.raises(NotEnoughMemoryError, match=r"hoose fewer pages .*\(3,2\d\d tokens fit\)"):
        list(engine.open_document(large))
    assert answer(engine).token_ids == before.token_ids
    assert isinstance(list(engine.open_document(small))[-1], DocumentOpened)


class Failing:
    """Every allocation of keys and values for the ``nth`` time on fails; ``alive`` are those that succeeded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int, error: Exception) -> None:
        self.left, self.alive = nth, weakref.WeakSet()  # type: ignore[var-annotated]
        real = base.LayerBuffers.__init__

        def allocate(buffer: base.LayerBuffers, *sizes: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise error
            real(buffer, *sizes)
            self.alive.add(buffer.keys)

        monkeypatch.setattr(base.LayerBuffers, "__init__", allocate)


ERRORS = [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free."),
          MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")]


@pytest.mark.parametrize(("doing", "error"), [
    ("reading", ERRORS[0]), ("answering", ERRORS[1]), ("answering", ERRORS[2]),
    *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in (
        ("reading", ERRORS[1]), ("reading", ERRORS[2]), ("answering", ERRORS[0])))
], ids=lambda given: given if isinstance(given, str) else type(given).__name__)
def test_running_out_is_told_and_survived(folders, monkeypatch, doing, error):
    engine = Engine(config(folders))
    list(engine.load())
    list(engine.open_document(document()))
    expected = answer(engine)
    with monkeypatch.context() as patch:
        list(engine.open_document(document(sentences=40) if doing == "reading" else document()))
        copies = engine._need_loaded().copies
        copies["int8"] = engine._need_loaded().target
        # Of the full cache's 3 layers; of the small and the retrieval cache of settings that nobody has prepared.
        failing = Failing(patch, 2 if doing == "reading" else 1, error)
        with pytest.raises(NotEnoughMemoryError, match=f"Memory ran out while {doing}.*tokens need about .* free now"):
            if doing == "reading":
                list(engine.open_document(document()))
            list(engine.ask("Who found the lamp?", (), SAMPLING, replace(SPECULATION, window=48)))
        gc.collect()
        assert failing.left < 0 and not failing.alive and not copies  # what had been allocated was given back
    list(engine.open_document(document()))
    assert answer(engine).token_ids == expected.token_ids


def test_other_errors_are_not_taken_for_it(folders, monkeypatch):
    engine = Engine(config(folders))
    list(engine.load())
    Failing(monkeypatch, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        list(engine.open_document(document()))


def test_running_out_while_loading(folders, monkeypatch):
    held = weakref.WeakSet()
    real = loading.load_model

    def second_fails(folder, **settings):
        if held:
            raise ERRORS[0]
        model = real(folder, **settings)
        held.add(model)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(loading, "load_model", second_fails)
        engine = Engine(config(folders))
        with pytest.raises(NotEnoughMemoryError, match="while loading the model"):
            list(engine.load())
        gc.collect()
        assert not held
    assert isinstance(list(engine.load())[-1], ModelInfo)


# -- a GPU that is not there: choosing and planning need none


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """One of 80 GiB, 2 of them taken by others. Returns what fractions torch was held to."""
    fractions: list[float] = []
    for name, value in {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "mem_get_info": lambda *_: (78 * GIB, 80 * GIB),
        "memory_reserved": lambda *_: 0, "get_device_name": lambda *_: "A GPU",
        "get_device_capability": lambda *_: (8, 0),
        "get_device_properties": lambda *_: type("Properties", (), {"total_memory": 80 * GIB}),
        "set_per_process_memory_fraction": lambda fraction, device: fractions.append(fraction),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return fractions


def test_a_gpu_is_planned_for(folders, gpu):
    info = choose(config(folders, mode="auto", dtype="auto")).info
    assert (info.mode, info.device, info.dtype) == ("on-chip", "A GPU", "bfloat16")
    assert info.plan is not None and info.plan.have == 78 * GIB and info.plan.longest_on_chip == 4096
    assert gpu == [1.0]


def test_the_limit_is_planned_with_and_enforced(folders, gpu):
    chosen = choose(config(folders, mode="auto", gpu_memory_limit=24))
    assert chosen.info.plan is not None and chosen.info.plan.have == 24 * GIB and gpu == [0.3]
    assert chosen.planner.limit == 24 * GIB
    with pytest.raises(ConfigError, match=r"gpu_memory_limit is 81.*at most 80\.0 GiB"):
        choose(config(folders, mode="auto", gpu_memory_limit=81))


def test_a_limit_without_a_gpu_is_refused(folders):
    with pytest.raises(ConfigError, match="gpu_memory_limit is 24 and the engine does not run on a GPU"):
        choose(config(folders, gpu_memory_limit=24))


def test_the_next_document_may_have_what_the_open_one_holds(folders, gpu, monkeypatch):
    """In host memory too, where an offloaded cache lies."""
    free(monkeypatch, 10 * GIB)
    planner = choose(config(folders, mode="auto")).planner
    assert planner.plan(4096, 57 * GIB).host_have > 60 * GIB > 10 * GIB > planner.plan(4096).host_have


def test_facts_on_a_gpu(folders, gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 20 * GIB)
    device = torch.device("cuda")
    assert memory.read_use(device, None).device_free == 78 * GIB
    use = memory.read_use(device, 24 * GIB)
    assert (use.device_used, use.device_free) == (20 * GIB, 4 * GIB)


def test_facts(folders):
    engine = Engine(config(folders))
    assert engine.facts() is None
    *_, info = engine.load()
    facts = engine.facts()
    assert facts is not None and (facts.mode, facts.why) == ("cpu", info.why)
    assert facts.host_used > 0 and facts.host_free > 0 and facts.device_used is facts.device_free is None
    list(engine.open_document(document(sentences=20)))
    assert engine.facts().why != info.why  # of this document
