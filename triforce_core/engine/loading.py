"""A target and its draft model, found, planned for and read: before that nothing is, after that nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from ..assets import BUILTIN_FOLDER
from ..config import BUILTIN, EngineConfig
from ..device.bandwidth import copy_rate, modelled_rate
from ..device.capability import choose_threads, read_capability, thread_limit
from ..device.memory import give_back, limit_device_memory, ran_out, return_freed
from ..device.memory_plan import Weights
from ..device.shard import ALONE, Shard
from ..errors import ConfigError, ModelNotFoundError, NotEnoughMemoryError, TokenizerMismatchError
from ..events import Fit, LoadProgress, MemoryPlan, ModelInfo
from ..kernels import (
    HEAD_KIND,
    WEIGHT_KINDS,
    bytes_per_weight,
    choose_kernels,
    compiled,
    groups_missing,
    in_blocks,
)
from ..kv_cache.full import FullCache, RowsCache
from ..kv_cache.offloaded import OffloadedCache
from ..kv_cache.snapshot import fingerprint_files
from ..model import (
    Llama,
    ModelConfig,
    find_model,
    in_groups,
    load_model,
    local_config,
    read_config,
    stored_form,
    weight_files,
)
from ..model.checkpoint import UNPACKED
from ..speculation.model_drafter import ModelOnCache
from ..tokenizer import Tokenizer
from ..tokenizer.translation import Translation
from .memory import Planner, attention_words, device_name, limit_bytes, make_wish, modes, number_type, place

_COPIED = 512 * 2**20  # bytes: far beyond any GPU's cache, and copied in a millisecond


@dataclass(frozen=True, slots=True)
class Loaded:
    """A target, perhaps a draft model, their tokenizer, and where they run."""

    target: Llama
    draft: Llama | None
    tokenizer: Tokenizer
    info: ModelInfo
    fingerprint: str  # of the target's files: part of a saved reading's key
    draft_fingerprint: str  # of the draft model's; empty: there is none
    planner: Planner
    words: Translation | None = None  # into the draft model's tokens, where it has a vocabulary of its own
    shard: Shard = ALONE
    copies: dict[str, Llama] = field(default_factory=dict)  # the target with weights in few bits, once asked for
    copy_rate: float | None = None  # of this rank's GPU, see EngineFacts

    def with_weights(self, kind: str) -> Llama:
        """Return the target itself ("same"), or its one copy in ``kind``, made when first asked for."""
        if kind == "same":
            return self.target
        if kind not in self.copies:
            self.copies.clear()
            self.copies[kind] = self.target.quantized(kind)
        return self.copies[kind]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Describe what will be loaded and where, before any weight is read."""

    folder: Path
    draft_folder: Path | None
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    planner: Planner
    info: ModelInfo
    rounding: str = "same"  # of the target's weights
    words: Translation | None = None  # see ``Loaded``

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the target as it will be loaded: keys and values of rounded weights are others."""
        return fingerprint(self.folder) + ("" if self.rounding == "same" else f"-{self.rounding}")

    def measured(self) -> ModelInfo:
        """Return ``info`` with what must be measured on the device itself: planning needs none."""
        c = self.planner.wish.target.shape
        attends = attention_words(self.device, self.dtype, c.num_heads // c.num_kv_heads, c.head_dim)
        return replace(self.info, why=f"{self.info.why}; {attends}") if attends else self.info


def model_folder(name: str, role: str, config: EngineConfig) -> Path:
    """role: "target" or "draft". Raises ModelNotFoundError."""
    if name == BUILTIN:
        folder = BUILTIN_FOLDER / role
        if not (folder / "model.safetensors").is_file():
            raise ModelNotFoundError(f"The built-in {role} model is missing from {folder}",
                                     remedy="Get a complete copy of this program, or name a model with --model.")
        return folder
    return find_model(name, allow_download=config.allow_download)


def alike(target: Tokenizer, draft: Tokenizer, shapes: tuple[ModelConfig, ModelConfig]) -> bool:
    """Return whether a draft model's logits are those of its target's tokens. Their number differs within some families
    of one vocabulary (Qwen2.5 0.5B and 7B)."""
    return target.same_vocabulary(draft) and shapes[0].vocab_size == shapes[1].vocab_size


def translation(target: Tokenizer, draft: Tokenizer, name: str,
                shapes: tuple[ModelConfig, ModelConfig]) -> Translation | None:
    """Return how a draft model reads and writes its target's tokens; None where both are alike. Raises
    TokenizerMismatchError."""
    if alike(target, draft, shapes):
        return None
    words = Translation(target, draft)
    if not words.shared:
        raise TokenizerMismatchError(f"The draft model {name!r} has no token in common with the model",
                                     remedy="Choose another small model, or --draft-model none.")
    return words


def fingerprint(folder: Path | None) -> str:
    """Return the fingerprint of a checkpoint's weights; empty where there is none."""
    return fingerprint_files(weight_files(folder)) if folder is not None else ""


def set_threads(config: EngineConfig, device: torch.device, share: int) -> None:
    """share: of the machine's cores, this rank's. Raises ConfigError."""
    limit = thread_limit()
    if config.threads != "auto" and config.threads > limit:
        raise ConfigError(f"--threads {config.threads} is more than OMP_THREAD_LIMIT={limit} allows: give at most "
                          f"{limit}, or unset OMP_THREAD_LIMIT")
    if device.type == "cpu":
        torch.set_num_threads(share if config.threads == "auto" else config.threads)
    elif torch.get_num_threads() > limit:
        torch.set_num_threads(limit)


def choose(config: EngineConfig, shard: Shard = ALONE, *, together: bool = True,
           tokenizer_of: Callable[[Path, bool], Tokenizer] = Tokenizer) -> Chosen:
    """Find the models and plan the memory of one rank of ``shard``, by shapes. together: the other ranks do the same.
    tokenizer_of: folder or file, thinking -> its tokenizer. Raises ModelError kinds, ConfigError, and
    NotEnoughMemoryError if they cannot run here (or not with the context that was asked for)."""
    machine = read_capability()
    device, why_there = place(config, shard)
    dtype, why_dtype = number_type(config, device, machine)
    set_threads(config, device, max(1, choose_threads(machine) // shard.world))
    builtin, wanted = config.model == BUILTIN, config.draft_model
    folder, draft_folder = model_folder(config.model, "target", config), None
    tokenizer = tokenizer_of(BUILTIN_FOLDER if builtin else folder, config.thinking)
    own, words = wanted in ("auto", BUILTIN), None
    if wanted != "none" and (builtin or wanted != "auto"):
        draft_folder = model_folder(BUILTIN if own else wanted, "draft", config)
        if not (builtin and own):
            shapes = read_config(folder), read_config(draft_folder)
            words = translation(tokenizer, tokenizer_of(BUILTIN_FOLDER if own else draft_folder, config.thinking),
                                wanted, shapes)
    limit_device_memory(device, limit_bytes(config))
    planner = _planner(config, folder, draft_folder, device, dtype, shard, why_there, alike=words is None)
    target, wish = planner.wish.target, planner.wish
    plan = planner.plan(None if config.max_context == "auto" else config.max_context, together=together)
    info = ModelInfo(
        name="built-in" if builtin else Path(config.model).name,
        draft_name="none" if draft_folder is None else "built-in draft" if own else Path(wanted).name,
        mode=plan.mode, why=f"{why_there}; {plan.why}; {why_dtype}", device=device_name(device, shard, dtype),
        dtype=str(dtype).removeprefix("torch."), max_context=wish.max_context,
        model_bytes=sum(f.stat().st_size for f in weight_files(folder)),
        kv_bytes_per_token=plan.kv_per_token * shard.world, plan=plan,
        pass_bytes=replace(target, shape=read_config(folder)).read_by_pass(),  # of all ranks
        instructions=not tokenizer.prompt_settings,
        weights=_weight_words(folder, dtype, device, config.weights, shard))
    return Chosen(folder, draft_folder, tokenizer, device, dtype, planner, info, config.weights, words)


def fitting(config: EngineConfig, contexts: Sequence[int], rate: float) -> Iterator[Fit]:
    """Return what would fit of a model with its weights as they are and, where that makes them smaller, rounded, at
    each context; where that does not fit or streams, with keys and values rounded too. By shapes, on one device. rate:
    bytes per second that its memory moves; 0: speeds are unknown.

    Raises ModelError kinds, ConfigError."""
    device, why_there = place(config, ALONE)
    dtype, _ = number_type(config, device, read_capability())
    folder = model_folder(config.model, "target", config)
    drafts = config.draft_model not in ("none", "auto") or config.model == BUILTIN
    own = config.draft_model in ("auto", BUILTIN)
    draft = model_folder(BUILTIN if own else config.draft_model, "draft", config) if drafts else None
    as_is = replace(config, weights="same", max_context="auto")
    planner = _planner(as_is, folder, draft, device, dtype, ALONE, why_there)
    yield from fits(planner, "same", contexts, rate)
    for kind, target in planner.wish.rounded:
        wish = replace(planner.wish, target=target, copy_bytes_per_weight=0.0)  # it needs no smaller copy of its own
        yield from fits(replace(planner, wish=wish), kind, contexts, rate)


def fits(planner: Planner, weights: str, contexts: Sequence[int], rate: float) -> Iterator[Fit]:
    """See ``fitting``; weights: what the planner's are called."""
    for context in contexts:
        fit = _fit(planner, weights, context, rate)
        yield fit
        if fit.mode in ("", "offload"):
            here = replace(planner, modes=planner.modes[:1])
            others = (_fit(replace(here, wish=replace(planner.wish, kv_kinds=(kind,))), weights, context, rate)
                      for kind in planner.wish.kv_offers)
            yield from islice((other for other in others if other.mode), 1)


def _fit(planner: Planner, weights: str, context: int, rate: float) -> Fit:
    try:
        plan = planner.plan(context)
    except NotEnoughMemoryError:
        return Fit(weights, context)
    speed = modelled_rate(planner.wish.target, plan, context, rate) if rate else 0.0
    return Fit(weights, context, plan.mode, plan.need, plan.kv_kind, speed)


def _planner(config: EngineConfig, folder: Path, draft_folder: Path | None, device: torch.device, dtype: torch.dtype,
             shard: Shard, why_there: str, *, alike: bool = True) -> Planner:
    """alike: both models have the same vocabulary."""
    draft = _weights(draft_folder, dtype, device, _whole_layers(shard)) if draft_folder else None
    target = _weights(folder, dtype, device, shard, config.weights)
    wish = make_wish(target, draft, max_context=_context(config, read_config(folder)), config=config, device=device,
                     dtype=dtype, alike=alike)
    forms = [(kind, _weights(folder, dtype, device, shard, kind)) for kind in WEIGHT_KINDS]
    smaller = tuple((kind, weights) for kind, weights in forms if weights.nbytes < target.nbytes)
    return Planner(replace(wish, rounded=smaller), modes(config, device.type == "cuda"), device, limit_bytes(config),
                   shard, why_there)


def load(config: EngineConfig, shard: Shard = ALONE) -> Iterator[LoadProgress | Loaded]:
    """Yield progress, then the Loaded: one rank's of ``shard``. Raises what ``choose`` raises, and
    DamagedWeightsError."""
    yield LoadProgress("Finding the model", 0.0)
    chosen = choose(config, shard)
    try:
        target, draft = yield from _read_models(chosen, shard)
        return_freed()  # what files were unpacked in: a quarter of a gigabyte for a 1B model
        info = chosen.measured()
    except Exception as error:
        if not ran_out(error):
            raise
        give_back(error)
        raise chosen.planner.too_little(error, "loading the model", None) from None
    yield LoadProgress("Ready", 1.0)
    yield Loaded(target, draft, chosen.tokenizer, info, chosen.fingerprint, fingerprint(chosen.draft_folder),
                 chosen.planner, chosen.words, shard, copy_rate=_copy_rate(chosen.device))


def _read_models(chosen: Chosen, shard: Shard) -> Generator[LoadProgress, None, tuple[Llama, Llama | None]]:
    yield LoadProgress("Loading the model", 0.1)
    target = load_model(chosen.folder, device=chosen.device, dtype=chosen.dtype, shard=shard,
                        rounding=chosen.rounding, context=chosen.info.max_context)
    if chosen.draft_folder is None:
        return target, None
    yield LoadProgress("Loading the draft model", 0.8)
    return target, load_model(chosen.draft_folder, device=chosen.device, dtype=chosen.dtype, shard=_whole_layers(shard),
                              context=chosen.info.max_context)


def _copy_rate(device: torch.device) -> float | None:
    """Measure the copy rate of the GPU that this rank was put on, while its cache is not there yet; None on a CPU, and
    where even so little memory is not free."""
    if device.type != "cuda":
        return None
    try:
        with torch.cuda.device(device):
            return copy_rate(_COPIED)
    except Exception as error:
        if not ran_out(error):
            raise
        return None
    finally:
        torch.cuda.empty_cache()


def _whole_layers(shard: Shard) -> Shard:
    """Give each rank the draft model whole: it is so small that sums between GPUs would cost more than its layers."""
    return replace(shard, splits_layers=False)


def full_cache(loaded: Loaded, plan: MemoryPlan) -> ModelOnCache:
    """Return the target over its full cache, with room for the plan's context."""
    c = loaded.target.config
    if not plan.weight_copy and loaded.copies:  # only speed is lost with them
        loaded.copies.clear()
        torch.cuda.empty_cache()
    streamed = partial(OffloadedCache, resident_layers=plan.resident_layers)
    whole = FullCache if plan.kv_kind == "same" else partial(RowsCache, kind=plan.kv_kind)
    cache = (whole if plan.resident_layers == plan.num_layers else streamed)(
        c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=loaded.info.max_context,
        dtype=loaded.target.dtype, device=loaded.target.device, slots=plan.context, windows=c.windows)
    return ModelOnCache(loaded.target, cache, loaded.target.device)


def held(shape: ModelConfig, dtype: torch.dtype, device: torch.device, *, ranks: int = 1) -> Weights:
    """Return weights for products in ``dtype``, as the kernels of a device will hold them. shape: of one rank."""
    on_cpu = device.type == "cpu" and dtype == torch.bfloat16
    panels = on_cpu and compiled().library is not None
    return Weights(shape, dtype.itemsize, keeps_int8=on_cpu and not panels, in_panels=panels, ranks=ranks)


def rounded(weights: Weights, rounding: str, dtype: torch.dtype, device: torch.device) -> Weights:
    """Return weights as ``held`` does, with matrices that are rounded on loading; as they are where this device has no
    kernels for that."""
    if device.type == "cpu":
        int4 = bytes_per_weight("int4") if weights.in_panels else dtype.itemsize  # torch's kernels: rounding alone
        int8 = _int8_bytes(weights)
        return replace(weights, few_bits=int8 if rounding == "int8" else int4, few_bits_head=int8)
    if dtype not in choose_kernels(device).quantized_types:
        return weights
    return replace(weights, few_bits=bytes_per_weight(rounding), few_bits_head=bytes_per_weight(HEAD_KIND))


def _int8_bytes(weights: Weights) -> int:
    """Return the bytes of a weight: torch's kernels keep the wide form beside it."""
    return 1 if weights.in_panels else weights.dtype_bytes + weights.keeps_int8


def pass_bytes(folder: Path, dtype: torch.dtype, device: torch.device) -> int:
    """Return the bytes of a checkpoint's weights that a pass will read. Raises ModelError kinds."""
    return _weights(folder, dtype, device, ALONE).read_by_pass()


def _weights(folder: Path, dtype: torch.dtype, device: torch.device, shard: Shard, rounding: str = "same") -> Weights:
    """Return one rank's weights, as the kernels of its device will hold them."""
    stored, config = stored_form(folder), read_config(folder)
    weights = replace(held(local_config(config, shard), dtype, device, ranks=shard.world), int8=stored.int8)
    if stored.int8_rows:
        weights = replace(weights, few_bits=_int8_bytes(weights), few_bits_head=dtype.itemsize)
    if rounding == "same":
        kept = stored.groups if weights.in_panels else stored.groups_on_gpu
        if kept is not None and shard.world == 1 and in_groups(stored, config, device, dtype):
            layers, head = kept
            lies_so = device.type != "cuda" or in_blocks(config.vocab_size, config.hidden_size)
            if head == UNPACKED or not lies_so:
                head = dtype.itemsize
            return replace(weights, few_bits=layers, few_bits_head=head,
                           unpacks=device.type == "cpu" and not weights.in_panels,
                           rows_on_disk=device.type == "cpu" and stored.rows)
        return weights
    return rounded(weights, rounding, dtype, device)


def _weight_words(folder: Path, dtype: torch.dtype, device: torch.device, rounding: str, shard: Shard) -> str:
    """Say what is loaded, where it is not what was published; "" where it is."""
    form, rounds = stored_form(folder), rounding != "same"
    kept = not rounds and shard.world == 1 and in_groups(form, read_config(folder), device, dtype)
    parts = [form.words(str(dtype).removeprefix("torch."), device.type == "cpu" and dtype == torch.bfloat16, kept)]
    if device.type == "cuda" and form.groups_on_gpu is not None and not rounds and not kept:
        parts.append(groups_missing(device))
    if form.sees:
        parts.append("its weights for pictures are left out")
    if rounds:
        parts.append(f"{rounding} by this app: not the published weights")
    return "; ".join(filter(None, parts))


def _context(config: EngineConfig, shape: ModelConfig) -> int:
    longest = shape.max_context
    if config.max_context == "auto":
        return longest
    if config.max_context > longest:
        raise ConfigError(f"max_context is {config.max_context}", allowed=f"at most {longest} with this model",
                          remedy="Choose a model with a longer context.")
    return config.max_context
