"""From a plan to the pipeline that runs it: caches and drafters, and on which device. The only file that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor

from ..config import SpeculationConfig
from ..errors import ConfigError
from ..kernels import WEIGHT_KINDS
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval_copied import RetrievalCache
from ..kv_cache.retrieval_indexed import IndexedRetrievalCache
from ..model import Llama
from ..model.graphs import CudaCapture
from ..speculation.drafter import Drafter, NoDrafter
from ..speculation.graph_runner import GraphRunner
from ..speculation.hierarchical import HierarchicalDrafter
from ..speculation.model_drafter import MAX_GUIDED, ModelDrafter, ModelOnCache
from ..speculation.prompt_lookup import PromptLookupDrafter, TextIndex
from ..speculation.router import Router
from .attention_report import MASS_ROWS, AttentionMass
from .draft_model import DraftPrefill, on_streaming, prefill_bytes
from .loading import Loaded
from .pipeline import COPY_LENGTHS, Pipeline, PipelineParts
from .plan import Plan, Situation, plan

# A drafted token's time in full passes. Measured on an H200, llama2-7b, 120,000 tokens: 2.1 ms beside 20; on two, 1.2
# beside 328 where the cache comes through their links; with the built-in pair on two CPU cores 4.5 beside 45.
_DRAFTING, _DRAFTING_BESIDE_A_LINK = 0.1, 0.004
_HEADROOM = 2 * 2**30  # bytes that a copy of the weights leaves free: the retrieval cache, graphs, its own making


class DocumentParts:
    """Hold what is made once for a document and outlives a plan."""

    def __init__(self, loaded: Loaded, token_ids: Sequence[int], shared: int) -> None:
        """token_ids: the document's; shared: of them those that every context begins with."""
        self.token_ids, self._loaded, self._shared = token_ids, loaded, shared
        self.observers: dict[int, AttentionMass] = {}  # by chunk size, the one in use
        self.draft_prefill: DraftPrefill | None = None  # once the small model was asked to attend chunks
        self.more: dict[str, Any] = {}  # what other kinds of ``Parts`` keep
        self._text: TextIndex | None = None

    def text(self) -> TextIndex:
        """Made when prompt lookup first asks for it; without its end, which is not there when the text goes on."""
        if self._text is None:
            self._text = TextIndex(self.token_ids[: self._shared])
        return self._text

    def read_small(self) -> DraftPrefill:
        """Raises NotEnoughMemoryError."""
        if self.draft_prefill is None:
            assert self._loaded.draft is not None
            self.draft_prefill = DraftPrefill(self._loaded.draft, self._shared,
                                              max_tokens=self._loaded.info.max_context)
        return self.draft_prefill

    def observer(self, chunk_size: int) -> AttentionMass:
        if chunk_size not in self.observers:
            self.observers = {chunk_size: AttentionMass(chunk_size, MASS_ROWS)}
        return self.observers[chunk_size]

    def release(self) -> None:
        for observer in self.observers.values():
            observer.follower = None


def runs_on_graphs(loaded: Loaded) -> bool:
    """Return whether the inner rounds can run without the host."""
    target, draft = loaded.target, loaded.draft
    alike = draft is None or (draft.runs_on_device and draft.config.vocab_size == target.config.vocab_size)
    return target.runs_on_device and alike


def plan_for(loaded: Loaded, full: ModelOnCache[FullCache], wanted: SpeculationConfig, context_tokens: int,
             draft_prefill: DraftPrefill | None = None, budget: int = 0,
             plan: Callable[[SpeculationConfig, Situation], Plan] = plan) -> Plan:
    """The plan for this model, machine, cache and context. draft_prefill: the small model's, if there is one by now.
    budget: of the memory plan. plan: what decides. Raises ConfigError."""
    target, weights = loaded.target, wanted.retrieval_weights
    able = [kind for kind in WEIGHT_KINDS if target.can_quantize(kind)]
    if weights in WEIGHT_KINDS and weights not in able:
        raise ConfigError(f"retrieval_weights is {weights!r} with {loaded.info.dtype} on {loaded.info.device}",
                          allowed="auto, same", remedy="A copy of the weights in few bits is for bfloat16 on a GPU.")
    on_gpu = target.device.type == "cuda"
    reads, room_to_read = 0, True
    if loaded.draft is not None and draft_prefill is None and wanted.draft_cache in (
            ("cross", "auto") if on_gpu else ("cross",)):
        reads = prefill_bytes(loaded.draft, context_tokens)
        planned = on_gpu and not full.cache.streams  # elsewhere it reads only where that is asked for
        fits = loaded.planner.draft_may_read(context_tokens, reads) if planned else reads <= loaded.planner.unused_bytes
        room_to_read = loaded.shard.least(fits) == 1
    free = loaded.shard.least(loaded.planner.unused_bytes) if able else 0
    copies = tuple(kind for kind in able if kind in loaded.copies
                   or target.quantized_bytes(kind) + reads * room_to_read + _HEADROOM <= free)
    return plan(wanted, Situation(context_tokens, loaded.draft is not None, on_gpu, full.cache.streams, copies,
                                  runs_on_graphs(loaded), room_to_read, budget))


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
        """The draft model."""
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

    def lowest(self, made: PipelineParts) -> Drafter:
        """The tier that guesses first."""
        if self.plan.lookup:
            return PromptLookupDrafter(self.kept.text())
        if made.draft is None:
            return NoDrafter()
        return ModelDrafter(made.draft, leaves_guided=self.plan.has_intermediate)

    def add_reviewer(self, made: PipelineParts) -> None:
        """The tier between, over the drafter made so far."""
        part, model = self.chosen_cache(), self.reviewer_model()
        made.part, made.reviewer = part, ModelOnCache(model, part, model.device)
        made.tiers = self.intermediate(made.reviewer, made.tiers)

    def reviewer_model(self) -> Llama:
        """The target with the weights that the intermediate verifier computes with."""
        return self.loaded.with_weights(self.plan.retrieval_weights)

    def intermediate(self, model: ModelOnCache, drafter: Drafter) -> Drafter:
        return HierarchicalDrafter(model, drafter, self.plan.lengths.gamma1, tier=self.plan.middle_cache)

    def chosen_cache(self) -> Any:
        """The part of the full cache that the intermediate verifier attends: a ``ChosenCache`` and a ``KVCache``."""
        plan, full, target = self.plan, self.full.cache, self.loaded.target
        if not full.streams:
            kind = IndexedRetrievalCache if target.retrieves_in_place else RetrievalCache
            return kind(full, budget=plan.budget, chunk_size=plan.chunk_size, recent=plan.recent)
        # Chosen layer by layer, while a pass has it at hand. Room for a long draft's tokens, and for the last one's,
        # whose selection was made before they were committed.
        copied = RetrievalCache(full, budget=plan.budget, chunk_size=plan.chunk_size, recent=plan.recent,
                                slack=2 * max(self.longest_draft(), plan.direct + 1))
        self.observer.follower = _follower(copied, target.kernels.look_ahead)
        return copied

    def longest_draft(self) -> int:
        """Tokens that the intermediate verifier may have staged."""
        return self.plan.lengths.longest + self.plan.lengths.gamma1 + 1 + MAX_GUIDED

    def on_graphs(self, drafter: Drafter) -> Drafter:
        """``drafter``, or what takes its place on the device."""
        if self.plan.lookup or not runs_on_graphs(self.loaded):
            return drafter
        return GraphRunner(cast("HierarchicalDrafter | ModelDrafter", drafter), *self.captures())

    def captures(self) -> tuple[type[CudaCapture] | None, Callable[[Tensor], Tensor] | None]:
        """How drafters that run without the host capture, and how they agree with other ranks' devices."""
        loaded = self.loaded
        return (CudaCapture if loaded.target.graphs else None,
                loaded.shard.same_on_device if loaded.shard.world > 1 else None)

    def with_direct_lookup(self, tiers: Drafter) -> Drafter:
        plan, text = self.plan, self.kept.text()
        return Router(tiers, PromptLookupDrafter(text, plan.direct), plan.direct,
                      _DRAFTING_BESIDE_A_LINK if self.full.cache.streams else _DRAFTING,
                      COPY_LENGTHS if self.loaded.target.graphs is not None else (),
                      coupled_only=plan.direct_coupled_only)


def _follower(retrieval: RetrievalCache, look_ahead: Callable[[Tensor], Tensor]) -> Callable[[int, Tensor], None]:
    """Chooses a layer's chunks when its mass is known. No method: the observer must not hold the pipeline."""
    return lambda layer, mass: retrieval.select_layer(layer, look_ahead(mass))
