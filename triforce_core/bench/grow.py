"""The built-in pair in the size of published models (see ``model.grown``), as the engine loads it."""

from __future__ import annotations

from dataclasses import replace

from ..assets import BUILTIN_FOLDER
from ..config import EngineConfig
from ..device.memory_plan import Weights, Wish
from ..device.shard import ALONE, Shard
from ..engine.loading import Loaded, load
from ..model import Llama, local_config, read_config
from ..model.grown import Shape, grow, grown_config
from ..research.engine import ResearchEngine
from .rows import DRAFT, SIZES

SHAPES = {name: Shape(*sizes) for name, sizes in SIZES.items()}


def grown_engine(name: str, config: EngineConfig, shard: Shard = ALONE) -> ResearchEngine:
    """Return an engine over ``grown_pair``, as a worker process makes it of
    "triforce_core.bench.grow:grown_engine:NAME"."""
    return ResearchEngine(config, grown_pair(config, name, shard))


def grown_pair(config: EngineConfig, name: str, shard: Shard = ALONE) -> Loaded:
    """Return the built-in target in a named shape and its draft model in the size of llama-68m, for ``Engine``.

    config.max_context may go beyond the built-in target's own; the draft model's streaming cache never does. Raises
    what ``grow`` raises, and NotEnoughMemoryError before it grows what does not fit."""
    context = None if config.max_context == "auto" else config.max_context
    small = next(step for step in load(replace(config, max_context="auto"), shard) if isinstance(step, Loaded))

    def large(role: str, like: Llama, shape: str, longest: int | None = None, rounding: str = "same") -> Llama:
        return grow(BUILTIN_FOLDER / role, SHAPES[shape], device=like.device, dtype=like.dtype, max_context=longest,
                    shard=like.shard, rounding=rounding)

    planner = replace(small.planner, wish=_grown_wish(small, name, context))
    plan = planner.plan(context, together=True)
    target = large("target", small.target, name, context, config.weights)
    draft = None if small.draft is None else large("draft", small.draft, DRAFT)
    c, size = grown_config(read_config(BUILTIN_FOLDER / "target"), SHAPES[name], context), target.dtype.itemsize
    info = replace(small.info, name=f"built-in, grown to {name}", max_context=c.max_context, mode=plan.mode, plan=plan,
                   draft_name="none" if draft is None else f"built-in draft, grown to {DRAFT}",
                   model_bytes=c.num_parameters * size, kv_bytes_per_token=plan.kv_per_token * shard.world,
                   pass_bytes=replace(planner.wish.target, shape=c).read_by_pass())
    return replace(small, target=target, draft=draft, info=info, planner=planner,
                   fingerprint=f"{small.fingerprint}-{name}")


def _grown_wish(small: Loaded, name: str, context: int | None) -> Wish:
    def weights(role: str, like: Llama, shape: str) -> Weights:
        config = grown_config(read_config(BUILTIN_FOLDER / role), SHAPES[shape])
        return Weights(local_config(config, like.shard), like.dtype.itemsize, ranks=like.shard.world)

    rounded = small.planner.wish.target
    target = replace(weights("target", small.target, name), few_bits=rounded.few_bits,
                     few_bits_head=rounded.few_bits_head)
    return replace(small.planner.wish, target=target,
                   draft=None if small.draft is None else weights("draft", small.draft, DRAFT),
                   max_context=context or small.info.max_context)
