"""Names concrete kinds (with ``middle_caches``): which model, which caches, which drafters, on which device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..config import BUILTIN, HEAVY_HITTERS, EngineConfig, SpeculationConfig
from ..device.capability import choose_threads, read_capability
from ..device.memory import give_back, limit_device_memory, ran_out
from ..device.memory_plan import Weights
from ..device.shard import ALONE, Shard
from ..device.stage_clock import StageClock
from ..drafters.cascade import with_ngrams
from ..drafters.chain import ModelDrafter, ModelOnCache
from ..drafters.device_loop import DeviceLoop
from ..drafters.device_tree import DeviceTree
from ..drafters.either import Either
from ..drafters.hierarchical import HierarchicalDrafter
from ..drafters.ngram import NGramDrafter, TextIndex
from ..drafters.tree import A_PARTS, SMALL_MODELS, TreeDrafter
from ..errors import ConfigError
from ..events import LoadProgress, MemoryPlan, ModelInfo
from ..kernels import WEIGHT_KINDS
from ..kv_cache.chunk_means import ChunkMeans
from ..kv_cache.full import FullCache
from ..kv_cache.marked import MarkedCache
from ..kv_cache.offloaded import OffloadedCache
from ..kv_cache.top_k import TopKCache
from ..model import Llama, ModelConfig, load_model, read_config, stored_as_int8
from ..model.graphs import CudaCapture
from ..model.sharded import local_config
from ..sampling import Sampler
from ..speculation.drafter import Drafter, NoDrafter
from ..tokenizer import Tokenizer
from ..tuning.controller import Choice
from .accumulated import AccumulatedMass
from .attention_map import AttentionMass
from .checkpoints import BUILTIN_FOLDER, fingerprint, model_folder, require_same_vocabulary, weight_files
from .dials import Dials
from .middle_caches import PartCache, follow, part_cache
from .place import device_name, modes, number_type, place
from .planning import Planner, limit_bytes, make_wish
from .rehearsal import any_width
from .small_model import SmallReading, mark, on_streaming, reading_bytes, without_some_layers

# A draft's time in full passes. Measured on an H200, llama2-7b, 120,000 tokens: 21 ms beside 20; on two, 38 beside 328
# where the cache comes through their links.
_DRAFTING, _DRAFTING_BESIDE_A_LINK = 1.0, 0.05
_COPIES = (8, 16, 32)  # lengths of copies, where each is a captured pass of its own
_HEADROOM = 2 * 2**30  # bytes that a copy of the weights leaves free: the retrieval cache, graphs, its own making


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
    shard: Shard = ALONE
    copies: dict[str, Llama] = field(default_factory=dict)  # the target with weights in few bits, once asked for

    def with_weights(self, kind: str) -> Llama:
        """The target itself ("same"), or its one copy in ``kind``, made when first asked for."""
        if kind == "same":
            return self.target
        if kind not in self.copies:
            self.copies.clear()
            self.copies[kind] = self.target.quantized(kind)
        return self.copies[kind]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What will be loaded and where, before any weight is read."""

    folder: Path
    draft_folder: Path | None
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    planner: Planner
    info: ModelInfo


def choose(config: EngineConfig, shard: Shard = ALONE, *, together: bool = True) -> Chosen:
    """Find the models and plan the memory of one rank of ``shard``, by shapes. together: the other ranks do the same.
    Raises ModelError kinds, ConfigError, and NotEnoughMemoryError if they cannot run here (or not with the context that
    was asked for)."""
    machine = read_capability()
    device, why_there = place(config, shard)
    dtype, why_dtype = number_type(config, device, machine)
    if device.type == "cpu":
        shared = max(1, choose_threads(machine) // shard.world)
        torch.set_num_threads(shared if config.threads == "auto" else config.threads)
    builtin, wanted = config.model == BUILTIN, config.draft_model
    folder, draft_folder = model_folder(config.model, "target", config), None
    tokenizer = Tokenizer(BUILTIN_FOLDER if builtin else folder)
    own = wanted in ("auto", BUILTIN)
    if wanted != "none" and (builtin or wanted != "auto"):
        draft_folder = model_folder(BUILTIN if own else wanted, "draft", config)
        if not (builtin and own):
            require_same_vocabulary(tokenizer, Tokenizer(BUILTIN_FOLDER if own else draft_folder), wanted)
    limit, on_gpu = limit_bytes(config), device.type == "cuda"
    limit_device_memory(device, limit)
    draft = _weights(draft_folder, dtype, device, _whole_layers(shard)) if draft_folder else None
    wish = make_wish(_weights(folder, dtype, device, shard), draft, max_context=_context(config, read_config(folder)),
                     config=config, device=device)
    planner = Planner(wish, modes(config, on_gpu), device, limit, shard, why_there)
    plan = planner.plan(None if config.max_context == "auto" else config.max_context, together=together)
    info = ModelInfo(
        name="built-in" if builtin else Path(config.model).name,
        draft_name="none" if draft_folder is None else "built-in draft" if own else Path(wanted).name,
        mode=plan.mode, why=f"{why_there}; {plan.why}; {why_dtype}", device=device_name(device, shard),
        dtype=str(dtype).removeprefix("torch."), max_context=wish.max_context,
        model_bytes=sum(f.stat().st_size for f in weight_files(folder)),
        kv_bytes_per_token=wish.target.kv_per_token * shard.world, plan=plan,
        pass_bytes=read_config(folder).matrix_weights * dtype.itemsize,
        instructions=not tokenizer.prompt_settings)
    return Chosen(folder, draft_folder, tokenizer, device, dtype, planner, info)


def load(config: EngineConfig, shard: Shard = ALONE) -> Iterator[LoadProgress | Loaded]:
    """Progress, then the Loaded: one rank's of ``shard``. Raises what ``choose`` raises, and DamagedWeightsError."""
    yield LoadProgress("Finding the model", 0.0)
    chosen = choose(config, shard)
    try:
        target, draft = yield from _read_models(chosen, shard)
    except Exception as error:
        if not ran_out(error):
            raise
        give_back(error)
        raise chosen.planner.too_little(error, "loading the model", None) from None
    yield LoadProgress("Ready", 1.0)
    yield Loaded(target, draft, chosen.tokenizer, chosen.info, fingerprint(chosen.folder),
                 fingerprint(chosen.draft_folder), chosen.planner, shard)


def _read_models(chosen: Chosen, shard: Shard) -> Generator[LoadProgress, None, tuple[Llama, Llama | None]]:
    yield LoadProgress("Loading the model", 0.1)
    target = load_model(chosen.folder, device=chosen.device, dtype=chosen.dtype, shard=shard)
    if chosen.draft_folder is None:
        return target, None
    yield LoadProgress("Loading the draft model", 0.8)
    return target, load_model(chosen.draft_folder, device=chosen.device, dtype=chosen.dtype, shard=_whole_layers(shard))


def _whole_layers(shard: Shard) -> Shard:
    """The draft model is so small that sums between GPUs would cost more than its layers: each rank has them whole."""
    return replace(shard, splits_layers=False)


def full_cache(loaded: Loaded, plan: MemoryPlan) -> ModelOnCache:
    """The target over its full cache, with room for the plan's context."""
    c = loaded.target.config
    if not plan.weight_copy and loaded.copies:  # only speed is lost with them
        loaded.copies.clear()
        torch.cuda.empty_cache()
    streamed = partial(OffloadedCache, resident_layers=plan.resident_layers)
    cache = (FullCache if plan.resident_layers == plan.num_layers else streamed)(
        c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=loaded.info.max_context,
        dtype=loaded.target.dtype, device=loaded.target.device, slots=plan.context)
    return ModelOnCache(loaded.target, cache, loaded.target.device)


class Hierarchy:
    """The drafters of one document's session, made once for its dials, and how each question starts them."""

    def __init__(self, loaded: Loaded, full: ModelOnCache, dials: Dials, observer: AttentionMass,
                 accumulated: AccumulatedMass | None = None, text: TextIndex | None = None,
                 reading: SmallReading | None = None) -> None:
        """observer: of the full passes that choose. accumulated: of all full passes, for H2O.
        text: what n-grams are copied from, if they are. reading: the small model's, if it attends marked chunks."""
        assert isinstance(full.cache, FullCache)
        assert (accumulated is not None) == (dials.middle_cache in HEAVY_HITTERS)
        self.dials, self._observer, self._accumulated, self._loaded = dials, observer, accumulated, loaded
        self._chosen_in_passing = isinstance(full.cache, OffloadedCache)
        self._text = text if dials.ngram or dials.straight else None
        self._small: ModelOnCache | None = None
        self._marked: MarkedCache | None = None
        self._part: PartCache | None = None
        self._newest: ModelOnCache | None = None
        self._reviewer: ModelOnCache | None = None  # the target over ``_part``
        self._means: ChunkMeans | None = None
        self._rounds = 0
        self._observes = True
        self._rehearsed_quotes = False
        self.drafter: Drafter = NoDrafter()
        if dials.small_model:
            if dials.draft_cache == "cross":
                assert reading is not None
                self._small = reading.marked(2 * dials.window, dials.window, dials.chunk_size)
                assert isinstance(self._small.cache, MarkedCache)
                self._marked = self._small.cache
            else:
                small = loaded.draft
                if dials.self_skip:
                    small = without_some_layers(loaded.with_weights(dials.retrieval_weights))
                assert small is not None
                self._small = on_streaming(small, dials.sinks, dials.window)
            self.drafter = (grow_trees(loaded, self._small, dials, tier="draft") if dials.tree_tier == "draft"
                            else ModelDrafter(self._small))
        if self._text is not None and dials.ngram:
            self.drafter = with_ngrams(self._small, self._text, dials.ngram_tail, dials.lenience)
        if dials.middle_cache == "streaming":
            self._newest = on_streaming(loaded.with_weights(dials.retrieval_weights), dials.sinks, dials.newest)
            self.drafter = self._middle(self._newest, follows=False)
        elif dials.middle_cache != "none":
            self._part = part_cache(loaded.target, full.cache, dials)
            if self._chosen_in_passing:
                observer.follower = follow(self._part, loaded.target.kernels.look_ahead)
            model = loaded.with_weights(dials.retrieval_weights)
            self._reviewer = ModelOnCache(model, self._part, model.device)
            self.drafter = self._middle(self._reviewer, follows=True)
            if dials.refresh == "chunk-means":
                self._means = ChunkMeans(full.cache, dials.chunk_size)
        self._full, self._target, self._shard = full, loaded.target, loaded.shard
        self._clock = StageClock(loaded.target.device)
        self._spent: dict[str, float] = {}
        on_host = dials.ngram or dials.tree != "off"
        on_device = _on_device(loaded) and not on_host and not isinstance(self._part, TopKCache)
        if on_device and isinstance(self.drafter, (ModelDrafter, HierarchicalDrafter)):
            self.drafter = DeviceLoop(self.drafter, *_without_the_host(loaded))
        self.tiers = self.drafter  # without copies that go straight to the full cache
        if self._text is not None and dials.straight:
            self.drafter = Either(self.drafter, NGramDrafter(self._text, dials.straight), dials.straight,
                                  _DRAFTING_BESIDE_A_LINK if self._chosen_in_passing else _DRAFTING,
                                  _COPIES if loaded.target.graphs is not None else ())

    def _middle(self, model: ModelOnCache, *, follows: bool) -> Drafter:
        """The tier between, over the drafter made so far."""
        dials = self.dials
        if dials.tree_tier == "middle":
            return grow_trees(self._loaded, model, dials, tier=dials.middle_cache, follows=follows)
        return HierarchicalDrafter(model, self.drafter, dials.gamma1, tier=dials.middle_cache, follows=follows,
                                   lenience=dials.lenience)

    def reset(self) -> None:
        """Before a question's prompt is read: forget the last one's."""
        self.drafter.reset()
        self._rounds = 0

    def start(self, context: list[int]) -> None:
        """Before the first round of a question: its prompt but for the last token is in the full cache, and in the
        small model's own where that attends marked chunks."""
        if self._small is not None and self._marked is None:
            self._small.start(context, self.dials.sinks, self.dials.window)
        if self._newest is not None:
            self._newest.start(context, self.dials.sinks, self.dials.newest)
        if self._text is not None:
            self._text.agree(context)
        self._choose()
        self._clock.read()  # no round's time

    def captures(self, context: list[int], sampler: Sampler, *, quoting: bool) -> list[Callable[[], None]]:
        """After ``start``, each to be called in order: they run what rounds will run, so that none of them waits for
        a capture, or for a kernel to be compiled. What is staged on the way is forgotten. sampler: like the answer's,
        but not its own. quoting: answers may be held to the document's words."""
        dials = self.dials
        beyond = dials.gamma1 if dials.has_middle else 0
        widths = {gamma2 + more for gamma2 in dials.gamma2s for more in range(beyond + 1)}
        widths = {dials.tree_size} if dials.verifies_trees else widths | ({0} if dials.may_rest else set())
        observers = [self._accumulated or self._observer, *([None] if dials.refresh_every > 1 else [])]
        steps: list[Callable[[], None]] = [
            partial(self._target.prepare, self._full.cache, drafted + 1, observer, tree=dials.verifies_trees)
            for drafted in sorted(widths) for observer in observers]
        steps += [partial(self._target.prepare, self._full.cache, copied + 1, self._accumulated or self._observer)
                  for copied in (_COPIES if dials.straight else ())]
        if quoting and not self._rehearsed_quotes:
            self._rehearsed_quotes = True
            parts = [on for on in (self._small, self._reviewer or self._newest) if on is not None]
            # A pass that streams its cache takes about as long as compiling does.
            whole = None if self._chosen_in_passing else self._full
            steps += any_width(whole, parts, dials.chunk_size, self._observer.mass_rows)
        return [*steps, partial(self._rehearse, context, sampler)]

    def _rehearse(self, context: list[int], sampler: Sampler) -> None:
        if sampler.masks is None:  # else the host leads, and which passes come depends on what is quoted
            self.drafter.propose(context, self.dials.longest, sampler)
            self.drafter.settle(context, committed=False)
        for forgotten in (self.drafter.counts, self.drafter.milliseconds, self.drafter.passes, self.drafter.ranks):
            forgotten()

    def milliseconds(self) -> dict[str, float]:
        """Of the choice that the last round's drafts were made with; clears it. Waits for nothing."""
        spent, self._spent = self._spent, {}
        return spent

    def begin(self, choice: Choice) -> int:
        """Before each round; -> tokens to ask for."""
        self._observes = choice.observed
        if isinstance(self.tiers, HierarchicalDrafter) and choice.gamma2:
            self.tiers.gamma1 = choice.gamma1
        return self.drafter.begin(choice.gamma2) if isinstance(self.drafter, Either) else choice.gamma2

    @property
    def measures_next_round(self) -> bool:
        """Whether the next full pass should report attention mass."""
        due = self._observes and (self._rounds + 1) % self.dials.refresh_every == 0
        return self._accumulated is not None or due

    def time_choice(self) -> float:
        """Choose chunks now; milliseconds."""
        self._choose()
        return sum(self._clock.read().values())

    def after_round(self) -> None:
        """The full cache has committed a round: choose chunks anew if it is time."""
        self._rounds += 1
        self._spent = self._clock.read()  # of the choice before: the pass after it is done
        if self._observes and self._rounds % self.dials.refresh_every == 0:
            self._choose()

    def _choose(self) -> None:
        """By what the newest observed pass attended, or its last query against chunk means, or what all attended."""
        part = self._part
        if self._chosen_in_passing and part is not None:  # while that pass ran; level with it since
            part.sync()
            part = None
        if self._marked is None and part is None:
            return
        self._clock.start()
        scores = self._scores()
        if self._marked is not None and scores is not None:
            mark(self._marked, scores, self._shard)
        elif self._marked is not None:
            self._marked.sync()
        if part is not None:
            if self._accumulated is not None:
                part.select(self._accumulated.sums)
            elif scores is not None:
                part.select(scores)
            else:
                part.sync()
        self._clock.mark("select")

    def _scores(self) -> Tensor | None:
        """[layers, H, chunks], None before anything was observed."""
        scores = self._observer.latest
        if self._means is not None:
            self._means.update()
            scores = self._means.score(self._observer.queries)
        return None if scores is None else self._target.kernels.look_ahead(scores)


def grow_trees(loaded: Loaded, model: ModelOnCache, dials: Dials, *, tier: str, follows: bool = False) -> Drafter:
    """follows: see ``TreeDrafter``."""
    host = TreeDrafter(model, dials.tree_size, dials.tree_depth, tier=tier, follows=follows,
                       replacing=dials.tree == "specinfer",
                       expected=SMALL_MODELS if dials.tree_tier == "draft" else A_PARTS)
    if not _on_device(loaded) or isinstance(model.cache, TopKCache):
        return host
    return DeviceTree(host, *_without_the_host(loaded))


def _without_the_host(loaded: Loaded) -> tuple[type[CudaCapture] | None, Callable[[Tensor], Tensor] | None]:
    """How a drafter that the device leads captures, and how it agrees with other ranks' devices."""
    return (CudaCapture if loaded.target.graphs else None,
            loaded.shard.same_on_device if loaded.shard.world > 1 else None)


def _on_device(loaded: Loaded) -> bool:
    """Whether the inner rounds can run without the host."""
    target, draft = loaded.target, loaded.draft
    alike = draft is None or (draft.runs_on_device and draft.config.vocab_size == target.config.vocab_size)
    return target.runs_on_device and alike


def _weights(folder: Path, dtype: torch.dtype, device: torch.device, shard: Shard) -> Weights:
    """One rank's, as the kernels of its device will hold them."""
    return Weights(local_config(read_config(folder), shard), dtype.itemsize, int8=stored_as_int8(folder),
                   keeps_int8=device.type == "cpu" and dtype == torch.bfloat16, ranks=shard.world)


def _context(config: EngineConfig, shape: ModelConfig) -> int:
    longest = shape.longest_context
    if config.max_context == "auto":
        return longest
    if config.max_context > longest:
        raise ConfigError(f"max_context is {config.max_context}", allowed=f"at most {longest} with this model",
                          remedy="Choose a model with a longer context.")
    return config.max_context


def dials_for(loaded: Loaded, full: ModelOnCache, speculation: SpeculationConfig, context_tokens: int,
              reading: SmallReading | None = None) -> Dials:
    """Settings with every "auto" decided for this model, machine, cache and context. reading: the small model's, if
    there is one by now. Raises ConfigError."""
    target, wanted = loaded.target, speculation.retrieval_weights
    able = [kind for kind in WEIGHT_KINDS if target.can_quantize(kind)]
    if wanted in WEIGHT_KINDS and wanted not in able:
        raise ConfigError(f"retrieval_weights is {wanted!r} with {loaded.info.dtype} on {loaded.info.device}",
                          allowed="auto, same", remedy="A copy of the weights in few bits is for bfloat16 on a GPU.")
    reads, kinds = 0, ("cross", "auto") if target.device.type == "cuda" else ("cross",)
    if loaded.draft is not None and speculation.draft_cache in kinds and reading is None:
        reads = reading_bytes(loaded.draft, context_tokens)
    free = loaded.shard.least(loaded.planner.unused_bytes) if able or reads else 0
    return Dials.decide(speculation, context_tokens=context_tokens, has_draft=loaded.draft is not None,
                        on_gpu=target.device.type == "cuda", offloaded=isinstance(full.cache, OffloadedCache),
                        device_leads=_on_device(loaded), room_to_read=reads <= free,
                        copies=[kind for kind in able if kind in loaded.copies
                                or target.quantized_bytes(kind) + reads + _HEADROOM <= free])
