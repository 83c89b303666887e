"""The tiers that draft for one document: from a plan to caches and drafters, which no other file here names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ..config import SpeculationConfig
from ..device.streams import SideStream, StageClock, single_thread
from ..errors import ConfigError
from ..events import PrefillProgress
from ..kernels import WEIGHT_KINDS
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval import CrossModelCache, IndexedRetrievalCache, RetrievalCache
from ..model import Llama
from ..model.graphs import CudaCapture
from ..speculation.across_vocabularies import ModelAcross
from ..speculation.draft_length import Selection
from ..speculation.drafter import Drafter, NoDrafter
from ..speculation.graph_runner import GraphRunner
from ..speculation.hierarchical import HierarchicalDrafter
from ..speculation.model_drafter import MAX_GUIDED, ModelDrafter, ModelOnCache
from ..speculation.prompt_lookup import PromptLookupDrafter, Router, TextIndex
from ..speculation.verifier import Verifier, verify
from .loading import Loaded
from .plan import Plan, Situation, plan
from .prefill import DraftPrefill, mark, on_streaming, read_prompt

COPY_LENGTHS = (8, 16, 32)  # of direct copies, where each is a captured pass of its own
MASS_ROWS = 16  # newest rows of a full pass by which chunks are chosen
# A drafted token's time in full passes. Measured on an H200, llama2-7b, 120,000 tokens: 2.1 ms beside 20; on two, 1.2
# beside 328 where the cache comes through their links; with the built-in pair on two CPU cores 4.5 beside 45.
_DRAFTING, _DRAFTING_BESIDE_A_LINK = 0.1, 0.004
_HEADROOM = 2 * 2**30  # bytes that a copy of the weights leaves free: the retrieval cache, graphs, its own making


class AttentionMass:
    """An ``AttentionObserver`` that collects each layer's mass over the chunks of the committed prefix.

    mass_rows: newest rows of a pass that count (the last row of a pass asks the next token's question).
    follower: gets each layer's mass at once, while the cache has that layer at hand."""

    def __init__(self, chunk_size: int, mass_rows: int) -> None:
        self.chunk_size, self.mass_rows = chunk_size, mass_rows
        self.follower: Callable[[int, Tensor], None] | None = None
        self._layers: dict[int, Tensor] = {}
        self._latest: Tensor | None = None

    def see(self, layer: int, queries: Tensor, mass: Tensor | None) -> None:
        if layer == 0:
            self._layers.clear()
            self._latest = None
        if mass is not None:
            self._layers[layer] = mass
            if self.follower is not None:
                self.follower(layer, mass)

    @property
    def latest(self) -> Tensor | None:
        """Return the mass of the newest observed pass, fp32 [layers, H, chunks]; None before the first."""
        if self._latest is None and self._layers:
            self._latest = torch.stack([self._layers[layer] for layer in sorted(self._layers)])
        return self._latest


class ChosenCache(Protocol):
    """A part of the full cache, chosen by scores (see ``kv_cache.retrieval``)."""

    chooses_ahead: bool  # ``choose`` may run while tokens are staged

    def select(self, mass: Tensor) -> None:
        """Hold what has the most mass [layers, H, chunks], and be level with the full cache."""
        ...

    def choose(self, mass: Tensor) -> None: ...

    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""
        ...


@dataclass(slots=True)
class PipelineParts:
    """Hold what ``Parts`` made. tiers: the drafter without direct copies; drafter: with them."""

    drafter: Drafter = field(default_factory=NoDrafter)
    tiers: Drafter = field(default_factory=NoDrafter)
    draft: ModelOnCache | None = None
    cross_model: CrossModelCache | None = None
    reviewer: ModelOnCache | None = None  # the intermediate verifier: the target over ``part``
    part: ChosenCache | None = None
    agree: Callable[[Sequence[int]], None] = lambda context: None  # shows prompt lookup a context
    fixed_width: int = 0  # tokens of each draft for the full cache, where those are trees
    verify: Verifier = verify  # what the full cache makes of drafts


class Pipeline:
    """The drafters of one document's session, made once for a plan, and what they need before, between and after the
    rounds of an answer. Without parts it is plain decoding: nothing drafts."""

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, observer: AttentionMass,
                 parts: PipelineParts) -> None:
        """observer: of the full passes that choose."""
        self.plan, self.observer = plan, observer
        self.parts, self.full, self.target, self._shard = parts, full, loaded.target, loaded.shard
        self._marks = self._observes = True
        self._rounds = 0
        self._clock = StageClock(loaded.target.device)
        self._side_stream = SideStream(loaded.target.device)
        # Scores that the next drafts' chunks were chosen by, ahead of their round; whether the draft model's were too.
        self._ahead: tuple[Tensor, bool] | None = None

    @property
    def drafter(self) -> Drafter:
        return self.parts.drafter

    @property
    def tiers(self) -> Drafter:
        return self.parts.tiers

    @property
    def pass_observer(self) -> AttentionMass:
        """Return what observed passes are handed: it shows ``observer`` what it sees."""
        return self.observer

    @property
    def drafts(self) -> bool:
        return self.plan.engine != "autoregressive"

    def serves(self, plan: Plan) -> bool:
        """Return whether it is what ``plan`` would be built to. The reason counts the context's tokens, and both
        verifiers verify the same drafts."""
        return replace(self.plan, why=plan.why, verifier=plan.verifier) == plan

    @property
    def profile_key(self) -> tuple[str, str] | None:
        """Name what passes and steps take their time from: where keys and values lie, and the tiers. None: measured
        costs do not last."""
        cache, tiers = self.full.cache, self.plan.tiers_key
        layers, here = cache.num_layers, cache.resident_layers
        place = "all on the device" if here == layers else f"{here} of {layers} layers on the device"
        if cache.kind != "same":
            place += f", in {cache.kind}"
        return None if tiers is None else (place, tiers)

    def reset(self) -> None:
        """Forget the last question, before another one's prompt is read."""
        self.drafter.reset()
        self._rounds = 0

    def reads_from(self, length: int) -> int:
        """Return from where a context must be read (again) of which the full cache has the first ``length`` tokens."""
        return length

    def read(self, context: Sequence[int], shared: int, chunk: int,
             cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Read all of ``context`` but its last token into the full cache, from where that ends. shared: tokens with
        which every context begins."""
        return read_prompt(self.full, context[: len(context) - 1], chunk, self.observer, cancelled)

    def start(self, context: list[int], *, marks: bool = True) -> None:
        """Begin before the first round of a question: its prompt but for the last token is in the full cache, and in
        the draft model's own where that attends chunks. marks: whether it does so in this answer; else it attends the
        newest tokens."""
        parts, plan = self.parts, self.plan
        self.start_without_models(context)
        self._marks = marks
        if parts.cross_model is not None and not marks:
            parts.cross_model.truncate(0)  # what the last answer's rounds chose
        if parts.draft is not None:
            parts.draft.rests = False
            if parts.cross_model is None:
                parts.draft.start(context, plan.sinks, plan.window)
        self._choose()
        self._clock.clear()  # no round's time

    def start_without_models(self, context: list[int]) -> None:
        """Begin where only copies are drafted: nothing is chosen for models, and no pass is observed."""
        self._marks, self._ahead = False, None
        self._side_stream.join()
        if self.parts.draft is not None:
            self.parts.draft.rests = True
        self.parts.agree(context)

    def forget(self) -> None:
        """Forget counts of earlier rounds: they belong to no answer."""
        self.after_round()
        self.drafter.stats()
        self._clock.clear()

    def milliseconds(self) -> dict[str, float]:
        """Return and clear, before ``settle``, the time of the choice that the round's drafts were made with."""
        return self._clock.read()

    def begin(self, choice: Selection) -> int:
        """Begin a round; return the tokens to ask for."""
        self._observes = choice.observed
        if choice.gamma2:
            self.tiers.configure(choice.keep_going)
        return self.drafter.begin(choice.gamma2)

    @property
    def next_observer(self) -> AttentionMass | None:
        """Return who sees the next full pass, if its attention mass is wanted."""
        due = self.drafts and self._observes and (self._rounds + 1) % self.plan.refresh_every == 0
        return self.observer if due else None

    def time_choice(self) -> float:
        """Choose chunks as a round does; return the milliseconds of it that come after the verdict."""
        self.overlap()
        self._side_stream.join()
        self._choose()
        return sum(self._clock.read().values())

    def overlap(self) -> None:
        """Choose chunks by an observed pass under way, before its verdict is known, where that does not depend on it.

        The host has nothing else to do then, and the device little: after the verdict it would wait for both."""
        part, cross_model = self.parts.part, self.parts.cross_model
        if self.observer.latest is None or part is None or not part.chooses_ahead:
            return
        with self._side_stream:
            scores = self._scores()
            if scores is None:
                return
            part.choose(scores)
            marks = cross_model is not None and self._marks and cross_model.marked
            self._ahead = scores, marks
            if cross_model is not None and marks:
                mark(cross_model, scores, self._shard, ahead=True)

    def settle(self, context: Sequence[int]) -> None:
        """Follow the full cache, which has committed a round, of ``context`` all but its last token."""
        if self._ahead is not None:
            self._side_stream.join()
        self.drafter.settle(context, committed=True)
        self.after_round()

    def after_round(self) -> None:
        """Choose chunks anew if it is time."""
        self._rounds += 1
        if self._observes and self._rounds % self.plan.refresh_every == 0:
            self._choose()

    def _choose(self) -> None:
        """Choose chunks by what the newest observed pass attended."""
        part, cross_model = self.parts.part, self.parts.cross_model
        ahead, self._ahead = self._ahead, None
        if self.full.cache.streams and part is not None:  # chosen layer by layer while that pass ran; level since
            part.sync()
            part = None
        if cross_model is None and part is None:
            return
        self._clock.start()
        with single_thread(self.target.device):
            scores, marked = (self._scores(), False) if ahead is None else ahead
            if cross_model is not None and self._marks and scores is not None:
                if not (marked and cross_model.marked):  # what was committed since may have needed the room
                    mark(cross_model, scores, self._shard)
            elif cross_model is not None:
                cross_model.sync()
            if part is not None:
                self._select(part, scores, ahead is None)
        self._clock.mark("select")

    def _select(self, part: ChosenCache, scores: Tensor | None, chosen_now: bool) -> None:
        if scores is not None and chosen_now:
            part.select(scores)
        else:
            part.sync()

    def _scores(self) -> Tensor | None:
        """Return the scores of chunks [layers, H, chunks]; None before anything was observed."""
        mass = self.observer.latest
        return None if mass is None else self.target.kernels.look_ahead(mass)


class DocumentParts:
    """Hold what is made once for a document and outlives a plan."""

    def __init__(self, loaded: Loaded, token_ids: Sequence[int], shared: int) -> None:
        """token_ids: the document's; shared: of them those that every context begins with."""
        self.token_ids, self._loaded, self._shared = token_ids, loaded, shared
        self.draft_prefill: DraftPrefill | None = None  # once the draft model was asked to attend chunks
        self.more: dict[str, Any] = {}  # what other kinds of ``Parts`` keep
        self._observer: AttentionMass | None = None
        self._text: TextIndex | None = None

    def text(self) -> TextIndex:
        """Return prompt lookup's index of the document, without its end, which is not there when the text goes on."""
        if self._text is None:
            self._text = TextIndex(self.token_ids[: self._shared])
        return self._text

    def read_small(self) -> DraftPrefill:
        """Return the draft model's own reading, made when first asked for. Raises NotEnoughMemoryError."""
        if self.draft_prefill is None:
            assert self._loaded.draft is not None
            self.draft_prefill = DraftPrefill(self._loaded.draft, self._shared,
                                              max_tokens=self._loaded.info.max_context)
        return self.draft_prefill

    def observer(self, chunk_size: int) -> AttentionMass:
        """Return who sees full passes, another one for chunks of another size."""
        if self._observer is None or self._observer.chunk_size != chunk_size:
            self._observer = AttentionMass(chunk_size, MASS_ROWS)
        return self._observer

    def release(self) -> None:
        if self._observer is not None:
            self._observer.follower = None


def runs_on_graphs(loaded: Loaded) -> bool:
    """Return whether the inner rounds can run without the host."""
    draft = loaded.draft
    return loaded.target.runs_on_device and loaded.words is None and (draft is None or draft.runs_on_device)


def plan_for(loaded: Loaded, full: ModelOnCache[FullCache], wanted: SpeculationConfig, context_tokens: int,
             draft_prefill: DraftPrefill | None = None, budget: int = 0,
             plan: Callable[[SpeculationConfig, Situation], Plan] = plan) -> Plan:
    """Return the plan for this model, machine, cache and context. draft_prefill: the draft model's, if there is one by
    now. budget: of the memory plan. plan: what decides. Raises ConfigError."""
    target, draft, weights = loaded.target, loaded.draft, wanted.retrieval_weights
    able = [kind for kind in WEIGHT_KINDS if target.can_quantize(kind)]
    if weights in WEIGHT_KINDS and weights not in able:
        raise ConfigError(f"retrieval_weights is {weights!r} with {loaded.info.dtype} on {loaded.info.device}",
                          allowed="auto, same", remedy="A copy of the weights in few bits is for bfloat16 on a GPU.")
    on_gpu = target.device.type == "cuda"
    reads, room_to_read = 0, True
    if draft is not None and loaded.words is None and draft_prefill is None and wanted.draft_cache in (
            ("cross", "auto") if on_gpu else ("cross",)):
        reads = context_tokens * draft.config.kv_bytes_per_token(draft.dtype.itemsize)
        planned = on_gpu and not full.cache.streams  # elsewhere it reads only where that is asked for
        fits = loaded.planner.draft_may_read(context_tokens, reads) if planned else reads <= loaded.planner.unused_bytes
        room_to_read = loaded.shard.least(fits) == 1
    free = loaded.shard.least(loaded.planner.unused_bytes) if able else 0
    copies = tuple(kind for kind in able if kind in loaded.copies
                   or target.quantized_bytes(kind) + reads * room_to_read + _HEADROOM <= free)
    return plan(wanted, Situation(context_tokens, draft is not None, on_gpu, full.cache.streams, copies,
                                  runs_on_graphs(loaded), room_to_read, budget, target.config.whole_layers > 0,
                                  loaded.words is None))


class Parts:
    """Plans, and makes the parts of one pipeline. A subclass may make others in their places."""

    decide = staticmethod(plan)

    @classmethod
    def build(cls, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, kept: DocumentParts) -> Pipeline:
        """Make the pipeline of a plan that ``decide`` made. Raises ConfigError, NotEnoughMemoryError."""
        if plan.engine == "autoregressive":
            return Pipeline(loaded, full, plan, kept.observer(plan.chunk_size), PipelineParts())
        return cls(loaded, full, plan, kept).pipeline()

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, kept: DocumentParts) -> None:
        self.loaded, self.full, self.plan, self.kept = loaded, full, plan, kept
        self.observer = kept.observer(plan.chunk_size)  # of full passes

    def pipeline(self) -> Pipeline:
        """Return the pipeline over the parts that ``make`` makes."""
        return Pipeline(self.loaded, self.full, self.plan, self.observer, self.make())

    def make(self) -> PipelineParts:
        plan, made = self.plan, PipelineParts()
        self.add_draft_model(made)
        made.tiers = self.lowest(made)
        if plan.has_intermediate:
            self.add_reviewer(made)
        made.tiers = made.drafter = self.on_graphs(made.tiers)
        if plan.lookup or plan.direct:
            made.agree = self.kept.text().agree
        if plan.direct:
            made.drafter = self.with_direct_lookup(made.tiers)
        return made

    def small(self) -> Llama:
        """Return the draft model."""
        assert self.loaded.draft is not None
        return self.loaded.draft

    def add_draft_model(self, made: PipelineParts) -> None:
        plan = self.plan
        if not plan.draft_model:
            return
        if plan.draft_cache == "cross":
            on = self.kept.read_small().on_chunks(2 * plan.window, plan.window, plan.chunk_size)
            made.draft, made.cross_model = on, on.cache
        else:
            made.draft = on_streaming(self.small(), plan.sinks, plan.window)
            if self.loaded.words is not None:
                made.draft = ModelAcross(made.draft, self.loaded.words, self.loaded.target.config.vocab_size)

    def lowest(self, made: PipelineParts) -> Drafter:
        """Return the tier that guesses first."""
        if self.plan.lookup:
            return PromptLookupDrafter(self.kept.text())
        if made.draft is None:
            return NoDrafter()
        return ModelDrafter(made.draft, leaves_guided=self.plan.has_intermediate)

    def add_reviewer(self, made: PipelineParts) -> None:
        """Add the tier between, over the drafter made so far."""
        part, model = self.chosen_cache(), self.reviewer_model()
        made.part, made.reviewer = part, ModelOnCache(model, part, model.device)
        made.tiers = self.intermediate(made.reviewer, made.tiers)

    def reviewer_model(self) -> Llama:
        """Return the target with the weights that the intermediate verifier computes with."""
        return self.loaded.with_weights(self.plan.retrieval_weights)

    def intermediate(self, model: ModelOnCache, drafter: Drafter) -> Drafter:
        return HierarchicalDrafter(model, drafter, self.plan.lengths.gamma1, tier=self.plan.middle_cache)

    def chosen_cache(self) -> Any:
        """Return the part of the full cache that the intermediate verifier attends: ``ChosenCache`` and ``KVCache``."""
        plan, full, target = self.plan, self.full.cache, self.loaded.target
        if not full.streams:
            kind = IndexedRetrievalCache if target.retrieves_in_place else RetrievalCache
            return kind(full, budget=plan.budget, chunk_size=plan.chunk_size, recent=plan.recent)
        # Chosen layer by layer, while a pass has it at hand. Room for a long draft's tokens, and for the last one's,
        # whose selection was made before they were committed.
        copied = RetrievalCache(full, budget=plan.budget, chunk_size=plan.chunk_size, recent=plan.recent,
                                slack=2 * max(self.longest_draft(), plan.direct + 1))
        look_ahead, select = target.kernels.look_ahead, copied.select_layer  # the observer must not hold the pipeline
        self.observer.follower = lambda layer, mass: select(layer, look_ahead(mass))
        return copied

    def longest_draft(self) -> int:
        """Return the tokens that the intermediate verifier may have staged."""
        return self.plan.lengths.longest + self.plan.lengths.gamma1 + 1 + MAX_GUIDED

    def on_graphs(self, drafter: Drafter) -> Drafter:
        """Return ``drafter``, or what takes its place on the device."""
        if self.plan.lookup or not runs_on_graphs(self.loaded):
            return drafter
        return GraphRunner(cast("HierarchicalDrafter | ModelDrafter", drafter), *self.captures())

    def captures(self) -> tuple[type[CudaCapture] | None, Callable[[Tensor], Tensor] | None]:
        """Return how drafters that run without the host capture, and how they agree with other ranks' devices."""
        loaded = self.loaded
        return (CudaCapture if loaded.target.graphs else None,
                loaded.shard.same_on_device if loaded.shard.world > 1 else None)

    def with_direct_lookup(self, tiers: Drafter) -> Drafter:
        plan, text = self.plan, self.kept.text()
        return Router(tiers, PromptLookupDrafter(text, plan.direct), plan.direct,
                      _DRAFTING_BESIDE_A_LINK if self.full.cache.streams else _DRAFTING,
                      COPY_LENGTHS if self.loaded.target.graphs is not None else (),
                      coupled_only=plan.direct_coupled_only)
