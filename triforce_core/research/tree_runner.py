"""``graph_runner`` where the small model drafts trees: grown, reviewed and taken over, round after round on the device.

A round is a tree's passes (``device_tree``), the pass over the retrieved part with its verdict, and the path that was
kept closing ranks in both caches: captured graphs that read and advance numbers in device memory. Rules, distributions
and what is counted are those of ``hierarchical`` over ``tree_drafter``; with the same numbers it drafts the same, token
for token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..device.streams import StageClock
from ..events import TierCount
from ..model.graphs import Capture
from ..sampling import Sampler, SamplingKind
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter, DraftStats
from ..speculation.graph_buffers import REREAD, GraphBuffers, Tally, Written
from ..speculation.graph_model import GraphModel
from ..speculation.hierarchical import HierarchicalDrafter
from .device_tree import DeviceTree
from .tree_buffers import TreeBuffers, branch
from .tree_schedule import TreePlan
from .tree_tables import TreeTables
from .tree_tensors import reject_tree_on_tensors


# large: two models, their captured rounds, and the counts that a drafter tells
class TreeRunner(Drafter):
    """Takes the place of the drafter it is given, on the same models and caches. That one still writes where masks are
    at work (verbatim quoting)."""

    def __init__(self, host: HierarchicalDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        """host: over a ``DeviceTree``. capture, same: as for ``GraphRunner``."""
        assert isinstance(host.drafter, DeviceTree)
        self.host, self.trees, self.tier = host, host.drafter, host.tier
        self._intermediate = GraphModel(host.model, 1)
        self._new_capture, self._same = capture, same
        self._state: GraphBuffers | None = None
        self._tables: TreeTables | None = None
        self._history = torch.empty(0)  # int64 [rounds, 2, N]: drafted tokens, and which were kept
        self._graphs: dict[tuple[SamplingKind, int], tuple[Callable[[], None], Callable[[], None]]] = {}
        self._valid: tuple[object, ...] = ()  # what captured rounds are good for
        self._capture: Capture | None = None
        self._clock = StageClock(host.model.device)
        self._tested = self._accepted = self._rounds = self._passes = 0

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        if sampler.masks is not None or not self.host.gamma1:
            return self.host.propose(context, num_draft_tokens, sampler)
        small, middle = self.trees.graphed, self._intermediate
        grown_in, grown = self.trees.planned(self.host.gamma1)
        most = grown_in.bounds.depth + 1  # tokens of a round
        free = min(graphed.cache.room - (len(context) - graphed.on.length) - ahead
                   for graphed, ahead in ((small, grown.slots), (middle, grown_in.bounds.size + 1)))
        wanted = min(num_draft_tokens, free - most)
        if wanted < 1 or len(context) < REREAD:
            return Draft()
        state = self._begin(context, wanted, most, sampler, grown_in, grown)
        self._clock.start()
        written = Written.nothing()
        while len(written.token_ids) < wanted and sampler.stop.isdisjoint(written.token_ids):
            for _ in range(-(-(wanted - len(written.token_ids)) // most)):
                self._round(state, grown_in, grown, sampler.kind)
            written = state.read()  # the only wait
        emitted, tally = written.token_ids, written.tally
        last = self._learn(tally, grown, emitted, sampler)
        self._tell(context, emitted, tally.last, len(set(last).intersection(grown.run)))
        ends = [i + 1 for i, token in enumerate(emitted) if token in sampler.stop]
        count = ends[0] if ends else len(emitted)
        probs: Sequence[Tensor | None] = [None] * count if sampler.coupled else state.probs[:count].clone().unbind()
        sources = [self.trees.tier if below else self.tier for below in written.kept[:count]]
        return Draft(emitted[:count], list(probs), sources)

    def _begin(self, context: Sequence[int], wanted: int, most: int, sampler: Sampler, grown_in: TreeBuffers,
               grown: TreePlan) -> GraphBuffers:
        """Everything the rounds read, in its place; captured, if these rounds were not."""
        bounds, room, kind = grown_in.bounds, wanted + most, sampler.kind
        starts = [self.trees.graphed.begin(context, room + grown.slots),
                  self._intermediate.begin(context, room + bounds.size + 1)]
        if self._tables is None or self._tables.rows != bounds.size + 1 or self._tables.depth != bounds.depth:
            self._tables, self._state = TreeTables(bounds, self.host.model.device), None
        tables, state = self._tables, self._state
        if state is None or not state.holds(room):
            # Numbers of a round: one to draw and one to test each token with, and one for the token that follows.
            state = self._state = GraphBuffers(room, tables.rows, self._intermediate.model.config.vocab_size,
                                            self.host.model.device)
            with torch.inference_mode(False):
                self._history = torch.zeros(room, 2, tables.rows, dtype=torch.int64, device=self.host.model.device)
        grown_in.load(grown)
        tables.load(grown)
        state.write(context, starts, sampler, room)
        seats = (self.trees.graphed, self._intermediate)
        valid = (state, tables, grown_in,
                 *(place for graphed in seats for place in (graphed.model.rope.reserve(0), *graphed.addresses)))
        if valid != self._valid:
            self._valid, self._graphs = valid, {}
            self._capture = self._new_capture() if self._new_capture else None
        grown_in.follow(state, kind)
        fresh = self.trees.capture(grown_in, grown, kind)
        key = kind, _ranks(grown)
        if self._capture is not None and key not in self._graphs:
            parts = partial(grown_in.follow, state, kind), partial(self._check, state, grown_in, *key)
            self._graphs[key] = self._capture(parts[0])[0], self._capture(parts[1])[0]
            fresh = True
        if fresh:
            state.rewrite()  # capturing has run a round
        return state

    def _round(self, state: GraphBuffers, grown_in: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> None:
        if self._capture is not None:
            begin, check = self._graphs[kind, _ranks(grown)]
            begin()
            self.trees.grow(grown_in, grown, kind)
            self._clock.mark(self.trees.tier)
            check()
        else:
            grown_in.follow(state, kind)
            self.trees.grow(grown_in, grown, kind)
            self._clock.mark(self.trees.tier)
            self._check(state, grown_in, kind, _ranks(grown))
        self._clock.mark(self.tier)

    def _check(self, state: GraphBuffers, grown_in: TreeBuffers, kind: SamplingKind, ranks: int) -> None:
        """One pass over the retrieved part reviews the tree; what it makes of it is what the round writes."""
        tables = self._tables
        assert tables is not None
        first, size, shape = grown_in.bounds.reread, grown_in.bounds.size, tables.shape(ranks)
        drafted = torch.where(tables.exists, grown_in.tokens[first : first + tables.rows], -1)
        token_ids = torch.cat((state.newest(1), drafted[:-1].clamp_min(0)))
        start, below = state.starts[-1] + state.count, state.starts[0, 1:] + state.count
        logits = branch(self._intermediate, token_ids, start, tables.steps, tables.every, tables.stop, tables.mask)
        token_probs, target = self._intermediate.token_probs(kind, state.parameters), None
        if kind.coupled:
            own = token_probs.draws(logits, state.noise_of(state.count + tables.steps, kind))
            path, row = shape.walk((drafted >= 0) & (drafted == own.index_select(0, tables.parents)))
            token = own.index_select(0, row)
        else:
            target = token_probs.distributions(logits)
            chance = self._intermediate.chance(state.numbers_of_round()[size:])
            decided, residuals = reject_tree_on_tensors(drafted, shape, grown_in.probs, target, chance)
            path, row = shape.walk(decided)
            token = chance.pick(residuals.index_select(0, row)[0])
        verdict = torch.cat((path.long(), row, token))
        if self._same is not None and not kind.greedy:
            verdict = self._same(verdict)
        path, row, token = verdict[:-2], verdict[-2:-1], verdict[-1:]
        self._history.index_copy_(0, state.round, torch.stack((drafted, path))[None])
        accepted = path.sum(0, keepdim=True)
        way = torch.zeros_like(tables.ahead).index_add_(0, tables.depths, path * (tables.every + 1)) - 1
        kept, there = way.clamp_min(0), way >= 0  # by level; beyond the path nothing moves
        slots = torch.where(there, tables.slots.index_select(0, kept), tables.ahead)
        self._close_ranks(self.trees.graphed, below, slots)
        self._close_ranks(self._intermediate, start[1:], torch.where(there, kept + 1, tables.ahead))
        written = torch.cat((drafted.index_select(0, kept), token))
        written = torch.where(state.ramp(len(written)) < accepted, written, token)
        probs = None if target is None else target.index_select(0, torch.cat((torch.zeros_like(row), kept + there)))
        refused = drafted.index_select(0, tables.children[0].index_select(0, row)) >= 0
        state.emit(written, accepted, probs, tested=accepted + refused)

    def _close_ranks(self, graphed: GraphModel, root: Tensor, source: Tensor) -> None:
        """Slots ``source`` [D], counted from the root's [1], to those right behind it."""
        assert self._tables is not None
        source, target = root + source, root + self._tables.ahead
        for buffers in graphed.cache.layers:
            for own in (buffers.keys, buffers.values):
                own.index_copy_(1, target, own.index_select(1, source))

    def _learn(self, tally: Tally, grown: TreePlan, emitted: Sequence[int], sampler: Sampler) -> list[int]:
        """What became of each round's tree; -> what was kept of the last one."""
        self._rounds += tally.rounds
        self._passes += tally.rounds * len(grown.passes)
        self._tested += tally.tested
        self._accepted += tally.accepted
        at, n, kept = 0, len(grown.parents), []
        for drafted, path in self._history[: tally.rounds].tolist():
            kept = [node for node in range(n) if path[node]]
            nodes, parents = grown.living(drafted[:n], sampler.stop)
            tree = Draft([drafted[node] for node in nodes], [None] * len(nodes), [self.trees.tier] * len(nodes),
                             parents=parents)
            self.trees.host.learn(emitted[at : at + len(kept) + 1], tree)
            at += len(kept) + 1
        return kept

    def _tell(self, context: Sequence[int], emitted: Sequence[int], last: int, run: int) -> None:
        """The caches what they hold now. last: drafted tokens that the last round kept, the first ``run`` of which have
        been through the small model."""
        small, middle = self.trees.graphed.on, self._intermediate.on
        seen = len(emitted) - 1 - last + run
        small.staged_elsewhere([*context[small.length :], *emitted[:seen]])
        middle.staged_elsewhere([*context[middle.length :], *emitted[:-1]])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.host.settle(context, committed=committed)

    def reset(self) -> None:
        self.host.reset()

    def stats(self) -> DraftStats:
        counts = (TierCount(self.trees.tier, self._tested, self._accepted),) if self._tested else ()
        passes = {self.tier: self._rounds, self.trees.tier: self._passes}
        self._tested = self._accepted = self._rounds = self._passes = 0
        return self.host.stats() + DraftStats(counts, self._clock.read(), passes)


def _ranks(grown: TreePlan) -> int:
    """Siblings of its largest families, as its passes draw them."""
    return max(siblings for _, siblings in grown.passes)
