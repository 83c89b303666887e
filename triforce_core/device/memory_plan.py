"""Plan what a model, its caches and its passes need, and where that fits: arithmetic on shapes before anything is
loaded.

Knows no torch and asks no machine: shapes, wishes and free bytes come in, a ``MemoryPlan`` or a NotEnoughMemoryError
goes out. All sizes are bytes. "Device" is the GPU, or the host's memory where there is none ("cpu").

Letters: t tokens of context, n tokens of a prefill pass, H query heads, K KV heads, D head_dim, d hidden, f MLP width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..errors import NotEnoughMemoryError
from ..events import MemoryPlan, Mode

LEAST_CONTEXT = 256  # tokens: with less room than this a model is of no use
_VERIFIED_ROWS = 64  # rows of logits that a round may ask for
_LOGIT_COPIES = 4  # fp32 forms of a row of logits while a distribution is made of it
_CPU_SCORES = 1 << 26  # attention scores that the CPU's kernel keeps in its scratch memory (kernels/cpu.py)
_PARTS = 7  # of a context that a GPU's wide pass attends one by one, at most (kernels/wide_attention.py)
_BUDGET_STEP = 1024  # tokens: what was measured with a budget serves as long as it is the same
_WINDOW_SLACK = 256  # tokens that a layer holds beside its window (kv_cache/window.py)
_UNPACKING = 10  # numbers that a core reads while it unpacks one in plain torch (measured: 4 to 14)
_LEAST_RESERVE = 512 * 2**20


class Shape(Protocol):
    """The sizes of a decoder, as in ``model.ModelConfig``."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def tied_embeddings(self) -> bool: ...
    @property
    def num_parameters(self) -> int: ...
    @property
    def idle_weights(self) -> int: ...
    @property
    def windows(self) -> tuple[int, ...]: ...
    @property
    def whole_layers(self) -> int: ...
    def kv_bytes_per_token(self, dtype_bytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Weights:
    """A model as it lies in memory. dtype_bytes: of products, keys and values.

    int8: stored as int8 with scales; the embedding stays so, matrices become the product type.
    keeps_int8: torch's bf16 kernels for CPUs keep the int8 form beside it.
    in_panels: our own keep one form only, of int8 or of the product type, and a tied head's beside the embedding.
    few_bits: bytes of a matrix's weight that is rounded on loading, or stays in few bits, and few_bits_head: of the
    head's (0: neither).
    rows_on_disk: the embedding's, which is mapped and takes no memory.
    unpacks: passes make numbers of them on the way, which takes longer than reading the numbers would.
    ranks: how many GPUs share the head's rows; ``shape`` is what one of them holds otherwise."""

    shape: Shape
    dtype_bytes: int = 2
    int8: bool = False
    keeps_int8: bool = False
    in_panels: bool = False
    ranks: int = 1
    few_bits: float = 0.0
    few_bits_head: float = 0.0
    unpacks: bool = False
    rows_on_disk: bool = False

    @property
    def nbytes(self) -> int:
        """Norms and biases left out (they are a rounding error)."""
        embedding, head = self.shape.vocab_size * self.shape.hidden_size, 0
        if self.few_bits:  # a tied head has a form of its own
            rounded = self.matrices * self.few_bits + embedding // self.ranks * self.few_bits_head
            table = 0 if self.rows_on_disk else embedding * (1 if self.int8 else self.dtype_bytes)
            return int(table + rounded)
        if self.in_panels:
            return (embedding + embedding // self.ranks + self.matrices) * (1 if self.int8 else self.dtype_bytes)
        if self.int8 or not self.shape.tied_embeddings:  # a tied head of int8 has a product form of its own
            head = embedding // self.ranks
        if not self.int8:
            return (embedding + self.matrices + head) * self.dtype_bytes
        return embedding + (self.matrices + head) * (self.dtype_bytes + self.keeps_int8)

    @property
    def matrices(self) -> int:
        """Weights of the layers."""
        s = self.shape
        return s.num_parameters - s.vocab_size * s.hidden_size * (1 if s.tied_embeddings else 2)

    def read_by_pass(self) -> int:
        """Return the bytes that a pass of one row reads: all but the embedding table, unless it is the head too. Where
        it unpacks them: the bytes that could be read meanwhile."""
        head = self.shape.vocab_size * self.shape.hidden_size
        if self.unpacks:
            return (self.matrices - self.shape.idle_weights + head) * self.dtype_bytes * _UNPACKING
        plain = 1 if self.int8 and (self.in_panels or self.keeps_int8) else self.dtype_bytes
        matrices = self.matrices - self.shape.idle_weights
        return int(matrices * (self.few_bits or plain) + head * (self.few_bits_head or plain))

    @property
    def kv_per_token(self) -> int:
        return self.shape.kv_bytes_per_token(self.dtype_bytes)

    def kv_per_token_in(self, kind: str) -> int:
        """In the full cache. kind: "same", "int8" or "int4" (kernels/kv_rows.py: two bytes of scale for each 32)."""
        s = self.shape
        if kind == "same":
            return self.kv_per_token
        steps = s.head_dim if kind == "int8" else s.head_dim // 2
        return 2 * s.whole_layers * s.num_kv_heads * (steps + 2 * -(-s.head_dim // 32))

    def window_bytes(self, chunk: int) -> int:
        """Return what layers that attend windows keep, however long the context, and once more to go back to. chunk: of
        a prefill pass."""
        held = sum(2 * window + 6 * _WINDOW_SLACK + chunk for window in self.shape.windows if window)
        return 2 * held * self.shape.num_kv_heads * self.shape.head_dim * self.dtype_bytes


@dataclass(frozen=True, slots=True)
class Wish:
    """Describe what shall run. Sizes in tokens.

    max_context: what the model can. budget: of the retrieval cache (0: none); slack: its room for new tokens; in_place:
    on the GPU it is attended where it lies, and takes no memory of its own while the whole cache is there;
    streamed_budget: beside layers that stream through, one in so many tokens of the context where that is more, as far
    as it fits (0: never).
    draft_slots: of the draft model's streaming cache; draft_reads: it keeps the whole context too, where that
    fits beside a cache on the device. chunk_size: of the attention mass that chooses chunks.
    copy_bytes_per_weight: of the quantised copy for the retrieval tier (0: none); left out where it does not fit.
    stream_buffers: device buffers through which layers of an offloaded cache pass, each for stream_tokens tokens of
    one layer (0: all of them); stream_tail: newest tokens of each such layer that stay on the device; most_resident: of
    its layers on the device (None: as many as fit); streamed_chunk: of a prefill pass then (0: prefill_chunk).
    rounded: smaller forms of the target by the setting that makes them, for what to do where it does not fit.
    kv_kinds: of the full cache, the best first: the first that fits is taken. kv_offers: other kinds that may be
    chosen, the best first. unpacking: bytes for a number of a rounded cache while a layer of it is unpacked to be
    attended."""

    target: Weights
    max_context: int
    draft: Weights | None = None
    budget: int = 0
    slack: int = 64
    in_place: bool = False
    streamed_budget: int = 0
    draft_slots: int = 0
    draft_reads: bool = False
    prefill_chunk: int = 512
    chunk_size: int = 8
    copy_bytes_per_weight: float = 0.0
    stream_buffers: int = 2
    stream_tokens: int = 0
    stream_tail: int = 0
    most_resident: int | None = None
    streamed_chunk: int = 0
    rounded: tuple[tuple[str, Weights], ...] = ()
    kv_kinds: tuple[str, ...] = ("same",)
    kv_offers: tuple[str, ...] = ()
    unpacking: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """Describe what the machine gives: bytes free to us, what we hold already included. device_free 0: there is no GPU.

    limit: of the GPU's memory, use no more (``--gpu-memory-limit``)."""

    host_free: int
    device_free: int = 0
    limit: int | None = None

    @property
    def device(self) -> int:
        return self.device_free if self.limit is None else min(self.device_free, self.limit)


def make_plan(wish: Wish, room: Room, context: int, modes: Sequence[Mode]) -> MemoryPlan:
    """The first of ``modes`` in which ``context`` tokens fit, with the first kind of cache that does. Raises
    NotEnoughMemoryError: need, have, what to do."""
    tried = [_plan(wish, room, context, mode, kind) for kind in wish.kv_kinds for mode in modes]
    for plan in tried:
        if plan.fits:
            return plan
    raise _too_little(wish, room, tried)


def longest_plan(wish: Wish, room: Room, modes: Sequence[Mode]) -> MemoryPlan:
    """For the longest context that fits, at most the model's own; of several modes with the same the first.
    Raises NotEnoughMemoryError where not even the least context fits."""
    lengths = {mode: _longest(wish, room, mode) for mode in modes}
    in_order = sorted(modes, key=lambda mode: -lengths[mode])
    return make_plan(wish, room, max(lengths[in_order[0]], min(LEAST_CONTEXT, wish.max_context)), in_order)


def size(nbytes: float) -> str:
    """In words: GiB, or MiB below one."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


def _plan(wish: Wish, room: Room, context: int, mode: Mode, kind: str) -> MemoryPlan:
    plan = _lay_out(wish, room, context, mode, kind)
    plan = replace(plan, why=_why(plan) + _why_kind(wish, plan), longest=_longest(wish, room, mode))
    if mode == "cpu":
        return plan
    return replace(plan, longest_on_chip=_longest(wish, room, "on-chip"),
                   longest_offloaded=_longest(wish, room, "offload"))


def _lay_out(wish: Wish, room: Room, context: int, mode: Mode, kind: str) -> MemoryPlan:
    """Lay a plan out, whether it fits or not, without words and longest contexts."""
    target, draft, layers = wish.target, wish.draft, max(1, wish.target.shape.whole_layers)
    have = room.host_free if mode == "cpu" else room.device
    per_token = target.kv_per_token_in(kind)
    layer_kv = per_token * context // layers
    copied = wish.budget and not (wish.in_place and mode == "on-chip")
    plan = MemoryPlan(
        mode=mode, why="", context=context, weights=target.nbytes, draft_weights=draft.nbytes if draft else 0,
        weight_copy=0, kv_per_token=per_token, kv=layer_kv * layers, kv_kind=kind,
        retrieval=target.kv_per_token * (min(wish.budget, context) + wish.slack) if copied else 0,
        draft_cache=draft.kv_per_token * wish.draft_slots if draft else 0,
        workspace=workspace(wish, context, mode, kind), streams=0, reserve=_reserve(have, 32 if mode != "cpu" else 16),
        num_layers=layers, resident_layers=layers, have=have, host=0,
        host_have=room.host_free - _reserve(room.host_free, 16), longest=0, budget=wish.budget)
    if mode == "offload":
        free = wish.most_resident is None or wish.most_resident >= layers
        return plan if not per_token or (plan.fits and free) else _offload(plan, wish, layer_kv)
    return _with_extras(plan, wish)


def _with_extras(plan: MemoryPlan, wish: Wish) -> MemoryPlan:
    """With what only makes answers faster: the context as the draft model reads it, and a copy of the weights in few
    bits."""
    if wish.draft and wish.draft_reads:
        reading = replace(plan, draft_cache=plan.draft_cache + wish.draft.kv_per_token * plan.context)
        plan = _where_roomy(reading, plan)
    if wish.copy_bytes_per_weight:
        shape = wish.target.shape
        head = shape.vocab_size * shape.hidden_size  # in int8, whatever the layers are in
        with_copy = replace(plan, weight_copy=int(wish.target.matrices * wish.copy_bytes_per_weight) + head)
        plan = _where_roomy(with_copy, plan)
    return plan


def _where_roomy(larger: MemoryPlan, plan: MemoryPlan) -> MemoryPlan:
    """The larger one where it leaves the reserve twice: beside an int8 cache of 250,000 tokens in 24 GiB, tables of
    positions, graphs and fragments took 1.6 GiB of an H200 where 0.75 were reserved."""
    return larger if larger.fits and larger.need + larger.reserve <= larger.have else plan


def _offload(plan: MemoryPlan, wish: Wish, layer_kv: int) -> MemoryPlan:
    """As many layers on the device as fit beside the buffers that the others stream through, and beside the budget,
    which is the larger one as far as that fits."""
    tokens = min(wish.stream_tokens or plan.context, plan.context)
    streams = wish.stream_buffers * (layer_kv // plan.context) * tokens + plan.kv_per_token * wish.stream_tail
    bare = replace(plan, resident_layers=0, streams=streams)
    if wish.streamed_budget and wish.budget:
        room = wish.budget + (bare.have - bare.need) // wish.target.kv_per_token
        budget = max(wish.budget, min(plan.context // wish.streamed_budget, room) // _BUDGET_STEP * _BUDGET_STEP)
        retrieval = wish.target.kv_per_token * (budget + wish.slack)
        larger = _with_residents(replace(bare, retrieval=retrieval, budget=budget), wish, layer_kv)
        if larger.fits:
            return larger
    return _with_residents(bare, wish, layer_kv)


def _with_residents(bare: MemoryPlan, wish: Wish, layer_kv: int) -> MemoryPlan:
    most = bare.num_layers - 1 if wish.most_resident is None else min(bare.num_layers - 1, wish.most_resident)
    resident = max(0, min(most, (bare.have - bare.need) // layer_kv))
    return replace(bare, resident_layers=resident, host=layer_kv * (bare.num_layers - resident))


def workspace(wish: Wish, context: int, mode: Mode, kind: str = "same") -> int:
    """Return bytes that passes need beside weights and caches: the widest pass's activations (prefill), logits of a
    round, attention mass, and one layer of the cache twice while it grows, or unpacked."""
    s, b = wish.target.shape, wish.target.dtype_bytes
    n = min(wish.streamed_chunk if mode == "offload" and wish.streamed_chunk else wish.prefill_chunk, context)
    stream = n * s.hidden_size * (4 + 4 + b)  # fp32 residual and norm, and the norm as products take it
    heads, kv_heads = s.num_heads * s.head_dim, s.num_kv_heads * s.head_dim
    attention = n * ((heads + 2 * kv_heads) * b + (heads + kv_heads) * 8 + 2 * heads * b)  # qkv, rotated, out
    if mode != "cpu":
        attention += n * heads * (_PARTS * b + 4)
    mlp = n * s.intermediate_size * 3 * b
    logits = _VERIFIED_ROWS * s.vocab_size * (b + 4 * _LOGIT_COPIES)
    mass = 3 * 4 * s.whole_layers * s.num_kv_heads * (context // wish.chunk_size)
    total = stream + max(attention, mlp) + logits + mass
    if mode == "cpu":
        total += min(_CPU_SCORES, s.num_heads * n * context) * b * 9 // 8
    if wish.target.few_bits and mode != "cpu":  # the largest product, unpacked for a wide pass; and what rounding left
        total += 4 * s.intermediate_size * s.hidden_size * b  # in pieces (0.25 GiB with llama3-8b on an H200)
    total += wish.target.window_bytes(n)
    grown = wish.target.kv_per_token_in(kind) * context // max(1, s.whole_layers) if mode != "offload" else 0
    unpacked = 2 * kv_heads * context * wish.unpacking if kind != "same" else 0
    return total + max(grown, unpacked)


def _reserve(have: int, part: int) -> int:
    """Kept free for what is not counted: libraries, captured graphs, tables of positions, fragments, other programs."""
    return max(_LEAST_RESERVE, have // part)


def _longest(wish: Wish, room: Room, mode: Mode) -> int:
    """The most tokens that fit, 0 if none do: need grows with the context."""
    kinds = ("same",) if mode == "offload" else wish.kv_kinds
    return max(_last(lambda tokens, kind=kind: _lay_out(wish, room, tokens, mode, kind).fits,  # type: ignore[misc]
                     wish.max_context) for kind in kinds)


def _last(good: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to ``most`` that is good, where all below a good one are; 0 if none is."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if good(middle) else (low, middle - 1)
    return low


def _why(plan: MemoryPlan) -> str:
    need = plan.need - plan.reserve
    if plan.mode == "cpu":
        return f"it takes {size(need)} of {size(plan.have)} free memory"
    if plan.resident_layers == plan.num_layers:
        return f"all of it fits on the GPU: {size(need)} of {size(plan.have)}"
    return (f"{size(plan.kv)} of keys and values do not fit beside the rest in {size(plan.have)} of GPU memory: "
            f"{plan.resident_layers} of {plan.num_layers} layers stay there, {size(plan.host)} lie in host memory")


def _why_kind(wish: Wish, plan: MemoryPlan) -> str:
    if plan.kv_kind == "same":
        return ""
    if len(wish.kv_kinds) == 1:
        return f"; keys and values in {plan.kv_kind}, as chosen"
    whole = wish.target.kv_per_token * plan.context
    return f"; keys and values in {plan.kv_kind}: unrounded they would take {size(whole)} and do not fit"


def _too_little(wish: Wish, room: Room, tried: Sequence[MemoryPlan]) -> NotEnoughMemoryError:
    plan = tried[-1]
    where = "memory" if plan.mode == "cpu" else "GPU memory"
    fixed = plan.weights + plan.draft_weights
    need = (f"{plan.context:,} tokens of context need {size(plan.need)} of {where} (weights {size(fixed)}, "
            f"keys and values {size(plan.resident_kv)}, the rest {size(plan.need - fixed - plan.resident_kv)})")
    have = f"{size(plan.have)} are free" + (" under the limit" if plan.mode != "cpu" and room.limit else "")
    if plan.host > plan.host_have:
        have += f"; {size(plan.host)} of host memory, and {size(plan.host_have)} are free"
    return NotEnoughMemoryError(f"{need}, and {have}", remedy=_sentence(_ways_out(wish, room, tried)))


def _ways_out(wish: Wish, room: Room, tried: Sequence[MemoryPlan]) -> list[str]:
    """Say what a person can do where none of the tried plans fits."""
    plan, shape, ways = tried[-1], wish.target.shape, list[str]()
    longest = max(one.longest for one in tried)
    if longest >= min(LEAST_CONTEXT, plan.context):
        ways.append(f"choose fewer pages or a smaller --max-context ({longest:,} tokens fit)")
    if all(one.mode != "offload" for one in tried) and (plan.longest_offloaded or 0) >= plan.context:
        unrounded = "" if "same" in wish.kv_kinds else " --kv same"
        ways.append(f"keep the cache in host memory (--mode offload{unrounded})")
    for kind in wish.kv_offers:
        if _lay_out(wish, room, plan.context, "on-chip" if plan.mode == "offload" else plan.mode, kind).fits:
            ways.append(f"round keys and values (--kv {kind})")
            break
    for kind, weights in wish.rounded:
        smaller = replace(wish, target=weights, copy_bytes_per_weight=0.0)
        if _lay_out(smaller, room, plan.context, plan.mode, plan.kv_kind).fits:
            ways.append(f"round its weights (--weights {kind})")
            break
    if longest < plan.context // 8:  # most of the memory goes to the weights
        ways.append("choose a smaller model")
    elif shape.num_kv_heads == shape.num_heads and plan.kv > plan.weights + plan.draft_weights:
        per_token = size(plan.kv_per_token * 1024)
        ways.append(f"choose a model with fewer KV heads (this one keeps {per_token} per 1,024 tokens)")
    if wish.target.dtype_bytes > 2:
        ways.append("choose a smaller number type (--dtype bfloat16)")
    ways.append("close other programs" if plan.mode == "cpu" or not room.limit else "raise --gpu-memory-limit")
    return ways


def _sentence(ways: Sequence[str]) -> str:
    text = ways[0] if len(ways) == 1 else ", ".join(ways[:-1]) + ", or " + ways[-1]
    return text[0].upper() + text[1:] + "."

