"""Trees grown without the host: level after level on the device, and one reading of the whole.

``tree_drafter`` draws each level's siblings on the host, which then waits for the device once a level and issues the
next pass kernel by kernel. Here tokens, distributions, positions and slots are numbers in device memory, which passes
of a few widths, each a captured graph, read and advance (``tree_schedule``). The host enqueues a whole tree and reads
once.

Siblings are drawn as ``siblings`` draws them, with the same chance: a draft equals the host's token for token. That one
lets a family end, and its children never be, where a distribution has nothing left; here they are run and then left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..device.streams import StageClock
from ..model.graphs import Capture
from ..sampling import Sampler, SamplingKind
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter, DraftStats
from ..speculation.graph_buffers import REREAD
from ..speculation.graph_model import GraphModel
from .siblings import siblings_on_tensors
from .tree_buffers import TreeBuffers, branch
from .tree_drafter import TreeDrafter
from .tree_schedule import Bounds, TreePlan, plan


# large: a model, its captured passes, and the counts that a drafter tells
class DeviceTree(Drafter):
    """Takes the place of the drafter it is given, on the same model and cache. That one still writes where masks are at
    work (verbatim quoting) and where the context ends, and learns which shape is best."""

    def __init__(self, host: TreeDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        """capture, same: as for ``GraphRunner``."""
        self.host, self.tier = host, host.tier
        self._reread = 1 if host.follows else REREAD
        self.graphed = GraphModel(host.model, self._reread)
        self._new_capture, self._same = capture, same
        self._state: TreeBuffers | None = None
        self._plans: dict[int, TreePlan] = {}  # of ``_shape``, by levels
        self._shape: object = None
        self._graphs: dict[tuple[SamplingKind, int, int], Callable[[], None]] = {}
        self._valid: tuple[object, ...] = ()  # what captured passes are good for
        self._capture: Capture | None = None
        self._clock = StageClock(host.model.device)
        self._passes = 0

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """num_draft_tokens: levels at most."""
        if sampler.masks is not None or num_draft_tokens < 1 or len(context) < REREAD:
            return self.host.propose(context, num_draft_tokens, sampler)
        state, grown = self.planned(num_draft_tokens)
        if len(context) - self.graphed.on.length + grown.slots > self.graphed.cache.room:
            return self.host.propose(context, num_draft_tokens, sampler)
        start = self.graphed.begin(context, grown.slots)
        state.load(grown)
        state.write(context, start, sampler, min(num_draft_tokens, state.bounds.depth))
        if self.capture(state, grown, sampler.kind):
            state.rewrite()  # capturing has run passes
        self._clock.start()
        self.grow(state, grown, sampler.kind)
        self._clock.mark(self.tier)
        self._passes += len(grown.passes)
        tokens = state.read()  # the only wait
        draft = self._draft(state, grown, tokens, sampler)
        self._tell(context, grown, tokens)
        self.host.drafted(context, draft)
        return draft

    def planned(self, levels: int) -> tuple[TreeBuffers, TreePlan]:
        """Tables for the first ``levels`` levels of the best shape by now, and where they will lie."""
        shape, state = self.host.shape, self._state
        if state is None or not state.bounds.hold(shape):
            families = max(max(map(len, shape.families)), self.host.most_siblings)
            bounds = Bounds(max(self.host.size, shape.size), max(self.host.depth, shape.depth),
                            1 << (families - 1).bit_length(), self._reread)
            state = self._state = TreeBuffers(bounds, self.graphed.model.config.vocab_size, self.host.model.device)
            self._plans = {}
        if shape != self._shape:
            self._shape, self._plans = shape, {}
        levels = min(levels, shape.depth)
        if levels not in self._plans:
            self._plans[levels] = plan(shape, levels, state.bounds)
        return state, self._plans[levels]

    def capture(self, state: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> bool:
        """Those of its passes that are not yet, where passes are; whether there were any. All that they read is there;
        what they write is noise."""
        valid = (state, self.graphed.model.rope.reserve(0), *self.graphed.addresses)
        if valid != self._valid:
            self._valid, self._graphs = valid, {}
            self._capture = self._new_capture() if self._new_capture else None
        if self._capture is None:
            return False
        missing = {widths: number for number, widths in enumerate(grown.passes) if (kind, *widths) not in self._graphs}
        for (width, siblings), number in missing.items():
            state.at(number)
            self._graphs[kind, width, siblings] = self._capture(partial(self._pass, state, kind, width, siblings))[0]
        return bool(missing)

    def grow(self, state: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> None:
        """Enqueue a whole tree's passes."""
        for width, siblings in grown.passes:
            if self._capture is not None:
                self._graphs[kind, width, siblings]()
            else:
                self._pass(state, kind, width, siblings)

    def _pass(self, state: TreeBuffers, kind: SamplingKind, width: int, siblings: int) -> None:
        """One pass, and siblings drawn after each of its rows."""
        token_ids, steps, slots, stop, mask = state.rows(width)
        logits = branch(self.graphed, token_ids, state.start, steps, slots, stop, mask)
        targets, token_probs = state.targets(width, siblings), self.graphed.token_probs(kind, state.parameters)
        if kind.coupled:
            found = _best(token_probs.scores(logits, state.noise_of(steps, kind)), siblings)
            state.put(targets.reshape(-1), found.t().reshape(-1), None)
        else:
            chance = self.graphed.chance(state.numbers_of(targets))
            drawn = siblings_on_tensors(token_probs.distributions(logits), siblings, chance,
                                        replacing=self.host.replacing)
            for rank, (tokens, probs) in enumerate(drawn):
                state.put(targets[rank], tokens, probs)
        if self._same is not None and not kind.greedy:
            self._same(state.tokens)
        state.done()

    def _draft(self, state: TreeBuffers, grown: TreePlan, tokens: Sequence[int], sampler: Sampler) -> Draft:
        nodes, parents = grown.living(tokens, sampler.stop)
        probs: Sequence[Tensor | None] = [None] * len(nodes)
        if not sampler.coupled:
            whole = len(nodes) == len(tokens)
            probs = (state.probs[: len(tokens)].clone() if whole
                    else state.probs[torch.tensor(nodes, device=state.probs.device)]).unbind()
        chain = parents == list(range(-1, len(parents) - 1))
        return Draft([tokens[node] for node in nodes], list(probs), [self.tier] * len(nodes),
                         parents=[] if chain else parents)

    def _tell(self, context: Sequence[int], grown: TreePlan, tokens: Sequence[int]) -> None:
        """The cache what it holds now."""
        on = self.graphed.on
        pending, before = context[on.length :], on.num_staged
        root = before + len(pending) - 1
        slot = {-1: root} | {node: root + 1 + order for order, node in enumerate(grown.run)}
        self.host.growing.grown_elsewhere(
            [*pending, *(tokens[node] for node in grown.run)],
            [*range(before - 1, root), *(slot[grown.parents[node]] for node in grown.run)])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.host.settle(context, committed=committed)

    def reset(self) -> None:
        self.host.reset()

    def stats(self) -> DraftStats:
        mine = DraftStats(milliseconds=self._clock.read(), passes={self.tier: self._passes})
        self._passes = 0
        return self.host.stats() + mine


def _best(scores: Tensor, count: int) -> Tensor:
    """``tree_rows.best`` on a device: int64 [m, count] of scores [m, V], -1 where nothing more may come."""
    values, found = scores.topk(min(count, scores.shape[-1]), dim=-1)
    best = torch.where(values > -torch.inf, found, -1)
    return torch.nn.functional.pad(best, (0, count - best.shape[1]), value=-1)
