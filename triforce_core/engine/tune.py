"""Measure what passes cost on this machine without a document: by rows, context and tier.

The text is made up: a few hundred tokens are read, and their keys and values fill the cache again and again up to each
length of context. What a pass takes depends on how much it attends, not on what, so nobody waits for a long reading.
An opened document is measured by its session; this is for who wants to know before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import torch

from ..config import SamplingParams, SpeculationConfig
from ..device.capability import read_capability
from ..device.memory import give_back, ran_out
from ..device.shard import Shard
from ..errors import NotEnoughMemoryError
from ..events import MemoryPlan, PrefillProgress
from ..kernels import compiled
from ..kv_cache.full import FullCache
from ..sampling import Sampler
from ..speculation.cost_profile import Profile, Subject
from ..speculation.draft_length_selector import DraftLengthSelector
from ..speculation.model_drafter import ModelOnCache
from .loading import Loaded, full_cache
from .memory import cpu_kernels
from .pipeline import MASS_ROWS, AttentionMass, DocumentParts, Parts, Pipeline, plan_for
from .plan import Plan
from .prefill import prefill, prepare, share_done
from .warm_up import preparations

_READ = 512  # made-up tokens that are really read
ROOM = 256  # tokens of context that stay free behind what is measured, for drafts
_SHORT, _SHORT_ON_GPU, _LONG = 4096, 16384, 32768  # tokens of context: a retrieval cache begins to pay; books
_STEPS = 100  # hundredths, in which progress is counted


def subject(device: torch.device, dtype: str, fingerprint: str, draft_fingerprint: str, shard: Shard) -> Subject:
    """Describe this machine as far as its speed depends on it, and what was loaded."""
    found = read_capability()
    machine = {"CPU": found.cpu_name, "cores": str(found.physical_cores), "threads": str(torch.get_num_threads()),
               "torch": str(torch.__version__), "numbers": dtype, "device": device.type}
    if device.type == "cpu":
        machine["kernels"] = f"{cpu_kernels(getattr(torch, dtype))} {compiled().build}"
    if device.type == "cuda":
        gpu = found.cuda[device.index or 0]
        machine |= {"GPU": gpu.name, "GPU memory": str(gpu.total_memory)}
    if shard.world > 1:
        machine["rank"] = f"{shard.rank} of {shard.world}"
    return Subject(machine, fingerprint, draft_fingerprint)


def open_profile(folder: Path | None, whose: Subject) -> Profile:
    """Open what is kept of this machine; ranks do not share a file."""
    rank = whose.machine.get("rank", "")
    return Profile(folder / rank.replace(" ", "-") if folder is not None and rank else folder, whose)


def usual_lengths(loaded: Loaded, longest: int) -> tuple[int, ...]:
    """Return the tokens of context to measure at, of at most ``longest`` that fit."""
    short = _SHORT_ON_GPU if loaded.target.device.type == "cuda" else _SHORT
    most = min(_LONG, longest) - ROOM
    return tuple(sorted({min(short, most), most})) if most > 0 else ()


def tune(loaded: Loaded, profile: Profile, contexts: Sequence[int], chunk: int, cancelled: Callable[[], bool],
         plan: Callable[[int], MemoryPlan]) -> Iterator[PrefillProgress]:
    """Measure at each of ``contexts`` (tokens) and keep it in ``profile``. A length that does not fit into memory is
    left out. Ends early when cancelled; what was measured by then is kept.

    plan: lays out so many tokens of context, on all ranks alike; raises NotEnoughMemoryError."""
    started = perf_counter()
    yield PrefillProgress(0, _STEPS, 0.0, None, "tune")
    for number, context in enumerate(contexts):
        if cancelled():
            return
        try:
            for share in _measure(loaded, profile, plan(context + ROOM), chunk, cancelled):
                yield share_done("tune", (number + share) / len(contexts), _STEPS, started)
        except Exception as error:
            # One rank alone cannot leave out what the others go on with.
            planned = isinstance(error, NotEnoughMemoryError)
            if not planned and (loaded.shard.world > 1 or not ran_out(error)):
                raise
            loaded.copies.clear()  # of the weights: only speed is lost with them
            profile.trouble = f"no memory is free to measure at {context:,} tokens"
            give_back(error)


def _measure(loaded: Loaded, profile: Profile, plan: MemoryPlan, chunk: int,
             cancelled: Callable[[], bool]) -> Iterator[float]:
    """Measure at one length of context; yield the share of it that is done. Raises what ``ran_out`` knows."""
    full = full_cache(loaded, plan)
    vocabulary = loaded.target.config.vocab_size
    # Steps through the vocabulary that repeat nothing within what is read; the first ids are special.
    context = [16 + 7919 * i % (vocabulary - 16) for i in range(plan.context - ROOM)]
    chosen = plan_for(loaded, full, SpeculationConfig(ngram="off"), len(context), budget=plan.budget)
    if chosen.engine == "autoregressive":  # nothing drafts here
        return
    _fill(full, context, chunk, cancelled)
    yield 0.2
    sampler = Sampler(SamplingParams())
    pipeline = started(loaded, full, chosen, context, chunk, sampler, cancelled)
    yield 0.6
    if not cancelled():
        DraftLengthSelector(pipeline, full, loaded.shard, profile).measure(
            context, AttentionMass(chosen.chunk_size, MASS_ROWS), sampler, cancelled)
    yield 1.0


def started(loaded: Loaded, full: ModelOnCache[FullCache], chosen: Plan, context: list[int], chunk: int,
            sampler: Sampler, cancelled: Callable[[], bool] = lambda: False) -> Pipeline:
    """Return what drafts behind a context of which ``full`` has read all but the last token. chosen: the plan. chunk:
    tokens of a pass that reads."""
    parts = DocumentParts(loaded, context, len(context) - 1)
    if chosen.draft_cache == "cross" and not cancelled():
        for _ in parts.read_small().read(context, chunk, cancelled):
            pass
    pipeline = Parts.build(loaded, full, chosen, parts)
    pipeline.reset()
    pipeline.start(context)
    if loaded.target.graphs is not None and not cancelled():
        loaded.target.prepare(full.cache, 1)
        for step in preparations(pipeline, context, [sampler]):
            step()
    return pipeline


def _fill(full: ModelOnCache[FullCache], context: Sequence[int], chunk: int, cancelled: Callable[[], bool]) -> None:
    """Fill the cache with all of ``context`` but its last token, most of it copied."""
    cache, tokens = full.cache, len(context) - 1
    for _ in prepare(full, tokens, cancelled):
        pass
    for _ in prefill(full, context[: min(_READ, tokens)], chunk, cancelled):
        pass
    known = full.length
    if not known:
        return
    once = [tuple(part.clone() for part in cache.read(layer)) for layer in range(cache.num_layers)]
    for places, parts in zip(cache.restore(tokens), once, strict=True):
        for whole, part in zip(places, parts, strict=True):
            held, again = whole.shape[1], part.shape[1]  # tokens: of a window fewer
            for start in range(0, held, again):
                stop = min(held, start + again)
                whole[:, start:stop].copy_(part[:, : stop - start])
