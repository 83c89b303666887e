"""The engine that also runs comparisons, the benchmark's: their parts stand in the places of the usual ones."""

from __future__ import annotations

from typing import Any

from ..engine.engine import Engine
from ..engine.loading import Loaded
from ..engine.pipeline import MASS_ROWS, DocumentParts, Parts, Pipeline, PipelineParts, runs_on_graphs
from ..engine.plan import Plan
from ..engine.prefill import on_streaming
from ..errors import ConfigError
from ..kv_cache.full import FullCache
from ..model import Llama
from ..speculation.across_vocabularies import ModelAcross
from ..speculation.drafter import Drafter
from ..speculation.hierarchical import HierarchicalDrafter
from ..speculation.model_drafter import ModelDrafter, ModelOnCache
from ..speculation.prompt_lookup import MOST_COPIED
from ..speculation.verifier import verify
from .cascade import with_ngrams
from .chunk_means import LastQueries, MeansPipeline
from .device_tree import DeviceTree
from .h2o import AccumulatedMass, AccumulatingPipeline, HeavyHitterCache
from .independent_tier import IndependentTier, StreamingPipeline, newest
from .lenience import LenientRunner, lenient
from .plan import ResearchPlan, plan
from .settings import HEAVY_HITTERS
from .top_k import TopKCache, attending_best
from .tree_drafter import A_PARTS, SMALL_MODELS, TreeDrafter
from .tree_runner import TreeRunner
from .tree_verifier import for_trees


def without_some_layers(model: Llama) -> Llama:
    """Every second layer left out but for the first and the last: the model as its own small one (Draft & Verify,
    arXiv 2309.08168, which searches for the best ones to skip, text by text)."""
    last = model.config.num_layers - 1
    return model.with_layers([layer for index, layer in enumerate(model.layers) if index % 2 == 0 or index == last])


class ResearchParts(Parts):
    """Plans with comparisons, and makes what a ``ResearchPlan`` needs; any other plan is made as usual."""

    decide = staticmethod(plan)

    @classmethod
    def build(cls, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, kept: DocumentParts) -> Pipeline:
        return super().build(loaded, full, plan, kept) if isinstance(plan, ResearchPlan) else Parts.build(
            loaded, full, plan, kept)

    @property
    def compared(self) -> ResearchPlan:
        assert isinstance(self.plan, ResearchPlan)
        return self.plan

    def make(self) -> PipelineParts:
        made = super().make()
        if self.compared.verifies_trees:
            made.fixed_width, made.verify = self.compared.trees.size, for_trees(verify)
        return made

    @property
    def _accumulates(self) -> bool:
        return self.plan.middle_cache in HEAVY_HITTERS

    @property
    def _by_means(self) -> bool:
        return self.compared.refresh == "chunk-means" and self.plan.has_intermediate

    def pipeline(self) -> Pipeline:
        loaded, full, plan = self.loaded, self.full, self.plan
        if plan.middle_cache == "streaming":
            return StreamingPipeline(loaded, full, plan, self.observer, self.make())
        if self._accumulates:
            return AccumulatingPipeline(loaded, full, plan, self._accumulated(), self.make())
        if self._by_means:
            return MeansPipeline(loaded, full, plan, LastQueries(plan.chunk_size, MASS_ROWS), self.make())
        return super().pipeline()

    def _accumulated(self) -> AccumulatedMass:
        kept = self.kept.more
        if "accumulated" not in kept:
            heads = self.loaded.target.config.num_heads
            kept["accumulated"] = AccumulatedMass(self.observer, heads, len(self.kept.token_ids))
        found: AccumulatedMass = kept["accumulated"]
        found.shown = self.observer  # another one where chunks have another size
        return found

    def small(self) -> Llama:
        if self.compared.self_skip:
            return without_some_layers(self.loaded.with_weights(self.plan.retrieval_weights))
        return super().small()

    def add_draft_model(self, made: PipelineParts) -> None:
        if self.compared.self_skip and self.plan.draft_model:
            made.draft = on_streaming(self.small(), self.plan.sinks, self.plan.window)
        else:
            super().add_draft_model(made)

    def lowest(self, made: PipelineParts) -> Drafter:
        compared = self.compared
        if isinstance(made.draft, ModelAcross) and (compared.trees.tier == "draft" or self.plan.lookup):
            raise ConfigError("The draft model has another vocabulary than the model",
                              remedy="Compare trees and n-grams with a draft model of the same family.")
        if compared.trees.tier == "draft" and made.draft is not None:
            return self._grow_trees(made.draft, tier="draft")
        if self.plan.lookup:
            return with_ngrams(made.draft, self.kept.text(), compared.ngram_tail, lenient(compared.lenience))
        return super().lowest(made)

    def add_reviewer(self, made: PipelineParts) -> None:
        if self.plan.middle_cache != "streaming":
            super().add_reviewer(made)
            return
        made.reviewer = on_streaming(self.reviewer_model(), self.plan.sinks, newest(self.plan))
        made.tiers = self.intermediate(made.reviewer, made.tiers)

    def intermediate(self, model: ModelOnCache, drafter: Drafter) -> Drafter:
        plan, compared = self.plan, self.compared
        follows = plan.middle_cache != "streaming"
        if compared.trees.tier == "middle":
            return self._grow_trees(model, tier=plan.middle_cache, follows=follows)
        kind = HierarchicalDrafter if follows else IndependentTier
        return kind(model, drafter, plan.lengths.gamma1, tier=plan.middle_cache,
                    verify=for_trees(lenient(compared.lenience)))

    def chosen_cache(self) -> Any:
        """Raise ConfigError where a policy cannot follow a cache in host memory."""
        plan, full, kind = self.plan, self.full.cache, self.plan.middle_cache
        if full.streams and kind != "retrieval":
            raise ConfigError(f"middle_cache is {kind!r} and the cache is in host memory",
                              allowed="retrieval, streaming",
                              remedy="It needs every token's attention, or every key, at hand.")
        if full.streams and self.compared.refresh == "chunk-means":
            raise ConfigError("refresh is 'chunk-means' and the cache is in host memory", allowed="attention",
                              remedy="Means would have to be read through the link; attention is known anyway.")
        if self._accumulates:
            frequencies = self.loaded.target.frequencies if kind == "streaming-h2o" else None
            return HeavyHitterCache(full, budget=plan.budget, recent=plan.recent, frequencies=frequencies)
        if kind == "top-k":
            return TopKCache(full, budget=plan.budget)
        return super().chosen_cache()

    def reviewer_model(self) -> Llama:
        model = super().reviewer_model()
        return attending_best(model, self.plan.budget) if self.plan.middle_cache == "top-k" else model

    def longest_draft(self) -> int:
        copied = self.compared.ngram_tail + MOST_COPIED * self.plan.lookup
        return super().longest_draft() + copied + self.compared.trees.size

    def on_graphs(self, drafter: Drafter) -> Drafter:
        loaded, trees = self.loaded, self.compared.trees
        if self.plan.lookup or not runs_on_graphs(loaded) or self.plan.middle_cache == "top-k":
            return drafter
        if isinstance(drafter, HierarchicalDrafter) and isinstance(drafter.drafter, DeviceTree):
            # Of one pass the review must be: wider ones are not captured.
            return TreeRunner(drafter, *self.captures()) if trees.size < loaded.target.kernels.max_rows else drafter
        if self.compared.lenience > 1.0 and trees.kind == "off" and isinstance(drafter, HierarchicalDrafter):
            return LenientRunner(drafter, self.compared.lenience, *self.captures())
        if trees.kind == "off" and isinstance(drafter, ModelDrafter | HierarchicalDrafter):
            return super().on_graphs(drafter)
        return drafter

    def _grow_trees(self, model: ModelOnCache, *, tier: str, follows: bool = False) -> Drafter:
        """follows: see ``TreeDrafter``."""
        trees = self.compared.trees
        host = TreeDrafter(model, trees.size, trees.depth, tier=tier, follows=follows,
                           replacing=trees.kind == "specinfer",
                           expected=SMALL_MODELS if trees.tier == "draft" else A_PARTS)
        if not runs_on_graphs(self.loaded) or self.plan.middle_cache == "top-k":
            return host
        return DeviceTree(host, *self.captures())


class ResearchEngine(Engine):
    """Answer with a ``ResearchConfig`` as with any other settings."""

    parts = ResearchParts
