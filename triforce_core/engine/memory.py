"""From shapes, settings and free memory to a memory plan: before weights are read, and again for each document."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch

from ..config import EngineConfig, SpeculationConfig
from ..device.memory import read_room
from ..device.memory_plan import Weights, Wish, longest_plan, make_plan, size
from ..device.shard import Shard
from ..errors import ConfigError, NotEnoughMemoryError
from ..events import MemoryPlan, Mode
from ..kernels import bytes_per_weight, choose_kernels, compiled, native
from ..kv_cache.offloaded import TAIL
from .plan import COPY, Situation, plan, prefill_chunk

_SLACK = 64  # slots that RetrievalCache and StreamingCache keep for new tokens (the latter twice)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for models that are chosen: what they need, which modes are allowed (best first), where, and why there.

    limit: bytes of the GPU, or None."""

    wish: Wish
    modes: tuple[Mode, ...]
    device: torch.device
    limit: int | None
    shard: Shard
    why_there: str

    @property
    def loaded_bytes(self) -> int:
        """What the weights hold once they are read."""
        return self.wish.target.nbytes + (self.wish.draft.nbytes if self.wish.draft else 0)

    @property
    def unused_bytes(self) -> int:
        """Of the device, now: held neither by us nor by others."""
        room = read_room(self.device, self.limit)
        return room.device - torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else room.host_free

    def plan(self, tokens: int | None, held: int = 0, *, together: bool = False) -> MemoryPlan:
        """For ``tokens`` of context; None: for the longest that fits now. held: see ``read_room``.
        together: every rank asks the same now, and all go by the one with the least room.

        Raises NotEnoughMemoryError: need, have, what to change."""
        room = read_room(self.device, self.limit, held, self.shard.world)
        if together:
            room = replace(room, host_free=self.shard.least(room.host_free),
                           device_free=self.shard.least(room.device_free))
        if self.device.type == "cpu" and "offload" in self.modes:  # a dry run: this memory plays both parts
            room = replace(room, device_free=room.host_free)
        if tokens is None:
            return longest_plan(self.wish, room, self.modes)
        return make_plan(self.wish, room, tokens, self.modes)

    def too_little(self, error: BaseException, doing: str, tokens: int | None, held: int = 0) -> NotEnoughMemoryError:
        """What to say of an allocation that failed, after its memory was given back."""
        try:
            plan = self.plan(tokens, held)
        except NotEnoughMemoryError as exact:
            return exact
        asked = re.search(r"[Tt]ried to allocate ([\d.]+) (\w+)", str(error))
        more = "" if asked is None else f" (it asked for {_words(float(asked[1]), asked[2])} more)"
        return NotEnoughMemoryError(
            f"Memory ran out while {doing}{more}: {plan.context:,} tokens need about {size(plan.need)}, and "
            f"{size(plan.have)} are free now",
            remedy="Choose fewer pages, close other programs that use this memory, or choose a smaller model.")


def make_wish(target: Weights, draft: Weights | None, *, max_context: int, config: EngineConfig,
              device: torch.device) -> Wish:
    """With the caches that answers use unless they are asked with other settings."""
    on_gpu, group = device.type == "cuda", target.shape.num_heads // target.shape.num_kv_heads
    usual = plan(SpeculationConfig(), Situation(max_context, draft is not None, on_gpu))
    kernels, own = choose_kernels(device), device.type == "cpu" and compiled().library is not None
    copied = target.dtype_bytes == 2 and not target.few_bits and bool(kernels.quantized_types)
    kinds, offers = _cache_kinds(config, on_gpu)
    in_place = kernels.indexed_attention is not None and target.shape.head_dim in kernels.device_lengths
    return Wish(target, max_context, draft, budget=usual.budget if usual.middle_cache == "retrieval" else 0,
                slack=_SLACK, in_place=in_place, draft_slots=usual.sinks + usual.window + 2 * _SLACK,
                draft_reads=usual.draft_cache == "cross",
                prefill_chunk=prefill_chunk(config, group, on_gpu=on_gpu, streams=False),
                streamed_chunk=prefill_chunk(config, group, on_gpu=on_gpu, streams=True),
                chunk_size=usual.chunk_size, stream_tail=TAIL,
                copy_bytes_per_weight=bytes_per_weight(COPY) if copied else 0.0,
                kv_kinds=kinds, kv_offers=offers, unpacks_kv=not native.attends(target.shape.head_dim) or not own,
                most_resident=None if config.resident_layers == "auto" else config.resident_layers)


def _cache_kinds(config: EngineConfig, on_gpu: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the full cache, the best first, and those that could be chosen instead. Raises ConfigError."""
    if on_gpu or config.mode == "offload":
        if config.kv == "int8":
            raise ConfigError("kv is 'int8' " + ("on a GPU" if on_gpu else "with --mode offload"), allowed="auto, same",
                              remedy="Keep the cache in host memory (--mode offload), or use the CPU (--mode cpu)."
                              if on_gpu else "Leave --mode out: int8 is for a cache that a CPU attends.")
        return ("same",), ()
    if config.kv == "auto":
        return ("same", "int8"), ()
    return (config.kv,), () if config.kv == "int8" else ("int8",)


def limit_bytes(config: EngineConfig) -> int | None:
    return None if config.gpu_memory_limit == "none" else int(config.gpu_memory_limit * 2**30)


def _words(number: float, unit: str) -> str:
    return size(number) if unit == "bytes" else f"{number:g} {unit}"
