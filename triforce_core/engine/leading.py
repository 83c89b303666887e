"""Who leads the drafting, the device or the host: where models run without the host, drafters do too."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..drafters.graph_runner import DeviceLoop
from ..drafters.hierarchical import HierarchicalDrafter
from ..drafters.model import ModelDrafter, ModelOnCache
from ..kv_cache.base import KVCache
from ..model.graphs import CudaCapture
from ..research.device_tree import DeviceTree
from ..research.top_k import TopKCache
from ..research.tree_drafter import A_PARTS, SMALL_MODELS, TreeDrafter
from ..research.tree_runner import TreeLoop
from ..speculation.drafter import Drafter
from .loading import Loaded
from .plan import Dials


def device_leads(loaded: Loaded) -> bool:
    """Whether the inner rounds can run without the host."""
    target, draft = loaded.target, loaded.draft
    alike = draft is None or (draft.runs_on_device and draft.config.vocab_size == target.config.vocab_size)
    return target.runs_on_device and alike


def grow_trees(loaded: Loaded, model: ModelOnCache, dials: Dials, *, tier: str, follows: bool = False) -> Drafter:
    """follows: see ``TreeDrafter``."""
    host = TreeDrafter(model, dials.tree_size, dials.tree_depth, tier=tier, follows=follows,
                       replacing=dials.tree == "specinfer",
                       expected=SMALL_MODELS if dials.tree_tier == "draft" else A_PARTS)
    if not device_leads(loaded) or isinstance(model.cache, TopKCache):
        return host
    return DeviceTree(host, *_ways(loaded))


def led(loaded: Loaded, drafter: Drafter, dials: Dials, part: KVCache | None) -> Drafter:
    """``drafter``, or what takes its place on the device. part: of the middle tier."""
    if dials.ngram or not device_leads(loaded) or isinstance(part, TopKCache):
        return drafter
    if isinstance(drafter, HierarchicalDrafter) and isinstance(drafter.drafter, DeviceTree):
        # Of one pass the review must be: wider ones are not captured.
        return TreeLoop(drafter, *_ways(loaded)) if dials.tree_size < loaded.target.kernels.max_rows else drafter
    if dials.tree == "off" and isinstance(drafter, (ModelDrafter, HierarchicalDrafter)):
        return DeviceLoop(drafter, *_ways(loaded))
    return drafter


def _ways(loaded: Loaded) -> tuple[type[CudaCapture] | None, Callable[[Tensor], Tensor] | None]:
    """How drafters that the device leads capture, and how they agree with other ranks' devices."""
    return (CudaCapture if loaded.target.graphs else None,
            loaded.shard.same_on_device if loaded.shard.world > 1 else None)
