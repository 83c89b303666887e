"""From shapes, settings and free memory to a memory plan: before weights are read, and again for each document."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch

from ..config import EngineConfig, SpeculationConfig
from ..device.capability import Capability, choose_dtype
from ..device.memory import read_room
from ..device.memory_plan import Weights, Wish, longest_plan, make_plan, size
from ..device.shard import Shard
from ..errors import ConfigError, NotEnoughMemoryError
from ..events import MemoryPlan, Mode
from ..kernels import KV_BITS, Kernels, bytes_per_weight, choose_kernels, choose_wide_attention, compiled, native
from ..kv_cache.offloaded import TAIL
from .plan import COPY, STREAMED_BUDGET, Situation, plan, prefill_chunk

_TORCH_UNPACKING = 15  # bytes of a number, by way of fp32; of 4 bits, which are a byte each on the way
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
        """Return the bytes that the weights hold once they are read."""
        return self.wish.target.nbytes + (self.wish.draft.nbytes if self.wish.draft else 0)

    @property
    def unused_bytes(self) -> int:
        """Return bytes of the device that neither we nor others hold now."""
        room = read_room(self.device, self.limit)
        return room.device - torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else room.host_free

    def plan(self, tokens: int | None, held: int = 0, *, together: bool = False) -> MemoryPlan:
        """Plan for ``tokens`` of context; None: for the longest that fits now. held: see ``read_room``.
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

    def draft_may_read(self, tokens: int, nbytes: int) -> bool:
        """Return whether a context of ``tokens`` has room in the draft model's own cache, where it takes ``nbytes``,
        beside a cache on a GPU. The plan says so: what is free now is also for graphs and passes that are not made
        yet."""
        try:
            return self.plan(tokens).draft_cache >= nbytes
        except NotEnoughMemoryError:  # others took memory meanwhile
            return False

    def too_little(self, error: BaseException, doing: str, tokens: int | None, held: int = 0) -> NotEnoughMemoryError:
        """Make the error of an allocation that failed, after its memory was given back."""
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
              device: torch.device, dtype: torch.dtype, alike: bool = True) -> Wish:
    """Return the wish for the caches that answers use unless they are asked with other settings. dtype: of products.
    alike: both models have the same vocabulary. Raises ConfigError."""
    on_gpu, group = device.type == "cuda", target.shape.num_heads // target.shape.num_kv_heads
    usual = plan(SpeculationConfig(), Situation(max_context, draft is not None, on_gpu,
                                               retrieves=target.shape.whole_layers > 0, alike=alike))
    kernels, dim = choose_kernels(device), target.shape.head_dim
    copied = target.dtype_bytes == 2 and not target.few_bits and bool(kernels.quantized_types)
    kinds, offers = _cache_kinds(config, on_gpu, _no_rows(config, kernels, dtype, dim))
    in_place = kernels.indexed_attention is not None and dim in kernels.device_lengths and not target.shape.windows
    return Wish(target, max_context, draft, budget=usual.budget if usual.middle_cache == "retrieval" else 0,
                slack=_SLACK, in_place=in_place, streamed_budget=STREAMED_BUDGET,
                draft_slots=usual.sinks + usual.window + 2 * _SLACK,
                draft_reads=usual.draft_cache == "cross",
                prefill_chunk=prefill_chunk(config, group, on_gpu=on_gpu, streams=False),
                streamed_chunk=prefill_chunk(config, group, on_gpu=on_gpu, streams=True),
                chunk_size=usual.chunk_size, stream_tail=TAIL,
                copy_bytes_per_weight=bytes_per_weight(COPY) if copied else 0.0,
                kv_kinds=kinds, kv_offers=offers, unpacking=_unpacking(device, dim),
                most_resident=None if config.resident_layers == "auto" else config.resident_layers)


def _cache_kinds(config: EngineConfig, on_gpu: bool, no_rows: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return kinds of the full cache, the best first, and those that could be chosen instead. no_rows: why the GPU
    attends no rows of bytes, where it does not. Raises ConfigError."""
    rounds = config.kv in KV_BITS
    if config.mode == "offload":
        if rounds:
            raise ConfigError(f"kv is {config.kv!r} with --mode offload", allowed="auto, same",
                              remedy=f"Leave --mode out: {config.kv} is for a cache that lies where it is attended.")
        return ("same",), ()
    if on_gpu and no_rows:
        if rounds:
            raise ConfigError(f"kv is {config.kv!r} {no_rows}", allowed="auto, same",
                              remedy="Leave --kv out: what does not fit may lie in host memory (--mode offload).")
        return ("same",), ()
    order = ("same", *KV_BITS)
    if config.kv == "auto":
        kinds = order[:1] if on_gpu else order[:2]
    else:
        kinds = (config.kv,)
    return kinds, order[order.index(kinds[-1]) + 1 :]


def _no_rows(config: EngineConfig, kernels: Kernels, dtype: torch.dtype, dim: int) -> str:
    """Say why a GPU attends no rows of bytes; "" where it does."""
    if config.gpus > 1:
        return "on several GPUs"
    if dtype != torch.bfloat16:
        return f"with {str(dtype).removeprefix('torch.')} products on a GPU: it is for bfloat16"
    if not kernels.attends_rows(dtype):
        return "on a GPU without Triton"
    return "" if dim in kernels.device_lengths else f"on a GPU, for heads of {dim}: it is for those of " + ", ".join(
        map(str, kernels.device_lengths))


def _unpacking(device: torch.device, dim: int) -> int:
    """Return the bytes for a number of a rounded cache while a layer of it is unpacked, where passes need that."""
    if device.type == "cuda":
        return 2  # bfloat16, for wide passes
    return 0 if compiled().library is not None and native.attends(dim) else _TORCH_UNPACKING


def limit_bytes(config: EngineConfig) -> int | None:
    return None if config.gpu_memory_limit == "none" else int(config.gpu_memory_limit * 2**30)


def _words(number: float, unit: str) -> str:
    return size(number) if unit == "bytes" else f"{number:g} {unit}"




def place(config: EngineConfig, shard: Shard) -> tuple[torch.device, str]:
    """Return the device, and why. Raises ConfigError."""
    has_gpu = torch.cuda.is_available()
    dry_run = config.mode == "offload" and config.device == "cpu"
    if config.mode in ("on-chip", "offload") and not has_gpu and not dry_run:
        raise ConfigError(f"mode is {config.mode!r} and torch sees no GPU", allowed="auto, cpu",
                          remedy="Install a CUDA build of torch, or use --mode cpu.")
    split = f"; {shard.world} ranks, each with its part of the heads" if shard.world > 1 else ""
    if config.device != "auto":
        try:
            device = torch.device(config.device)
        except RuntimeError as error:
            raise ConfigError(f"device is {config.device!r}", allowed="auto, cpu, cuda, cuda:N, mps") from error
        if device.type == "cuda" and not has_gpu:
            raise ConfigError(f"device is {config.device!r} and torch sees no GPU", allowed="auto, cpu")
        if device.type == "mps":
            if not torch.backends.mps.is_available():
                raise ConfigError(f"device is {config.device!r} and torch has no Metal here", allowed="auto, cpu")
            return device, "chosen with --device, which nobody has tried on a Mac"
        return device, "chosen with --device" + split
    if has_gpu and config.mode != "cpu":
        device = torch.device("cuda", shard.rank) if split else torch.device("cuda")
        return device, ("a GPU is present" if config.mode == "auto" else "chosen with --mode") + split
    return torch.device("cpu"), ("no GPU was found" if config.mode == "auto" else "chosen with --mode") + split


def modes(config: EngineConfig, on_gpu: bool) -> tuple[Mode, ...]:
    """Return the modes that may be, the best first."""
    if config.mode == "offload":  # on a CPU a dry run
        return ("offload",)
    if not on_gpu:
        return ("cpu",)
    return ("on-chip",) if config.mode == "on-chip" or config.kv in KV_BITS else ("on-chip", "offload")


def number_type(config: EngineConfig, device: torch.device, machine: Capability) -> tuple[torch.dtype, str]:
    """Return the type that products are made in, and why."""
    if config.dtype == "float16" and device.type == "cpu":
        # Torch alone computes in it there: 1,000 tokens were read at 90 a second where bfloat16 read 3,200.
        instead, why = number_type(replace(config, dtype="auto"), device, machine)
        return instead, f"{why}; not float16, as chosen, in which a CPU is many times slower"
    if config.dtype != "auto":
        return getattr(torch, config.dtype), f"{config.dtype} was chosen"
    name = choose_dtype(machine, str(device))
    if device.type == "cpu" and name == "float32" and compiled().library is not None:
        # Measured on AVX2: with our kernels 1.0 to 5 times as fast as torch in float32, in half the memory.
        if "avx2" in machine.cpu_flags:
            return torch.bfloat16, "bfloat16, as our own kernels are faster in it than torch in float32"
        if "asimd" in machine.cpu_flags:  # ARM: right in an emulator, timed nowhere
            return torch.bfloat16, "bfloat16, as our own kernels take half of float32's memory with it"
    natively = name == "bfloat16" and "which this machine multiplies natively"
    return getattr(torch, name), f"{name}, {natively or 'as this machine has no native bfloat16'}"


def device_name(device: torch.device, shard: Shard, dtype: torch.dtype) -> str:
    if device.type == "cpu":
        name = f"CPU, {torch.get_num_threads()} threads; kernels: {cpu_kernels(dtype)}"
    else:
        name = torch.cuda.get_device_name(device)
    return name if shard.world == 1 else f"{shard.world} x {name}"


def cpu_kernels(dtype: torch.dtype) -> str:
    """Say whose kernels a CPU has, and why, in a few words."""
    return compiled().summary if dtype == torch.bfloat16 else "torch's (our own are for bfloat16)"


def attention_words(device: torch.device, dtype: torch.dtype, group: int, dim: int) -> str:
    """Say which kernel reads long documents on this GPU, measured now; "" on a CPU. group, dim: query heads per KV
    head, and head_dim."""
    if device.type != "cuda" or dtype == torch.float32:
        return ""
    return choose_wide_attention(device, dtype, group, dim).summary
