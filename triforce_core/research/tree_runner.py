"""``graph_runner`` where the small model drafts trees: grown, reviewed and taken over, round after round on the device.

A round is a tree's passes (``device_tree``), the pass over the retrieved part with its verdict, and the path that was
kept closing ranks in both caches: captured graphs that read and advance numbers in device memory. Rules, distributions
and counts are those of ``hierarchical`` over ``tree_drafter``; with the same numbers it drafts the same, token for
token.

Letters: n drafted tokens at most, N = n + 1: rows of the reviewing pass, the context's newest token first; among
drafted tokens the last of N stands for none. D levels at most, K siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..model.graphs import Capture
from ..sampling import Sampler, SamplingKind
from ..speculation import tree
from ..speculation.drafter import Draft
from ..speculation.graph_runner import REREAD, GraphBuffers, GraphModel, OnDevice, Written
from ..speculation.hierarchical import HierarchicalDrafter
from .device_tree import DeviceTree, TreeBuffers, branch
from .tree_schedule import Bounds, TreePlan
from .tree_verifier import ShapeOnDevice, older_siblings, reject_tree_on_tensors


class TreeTables:
    """Hold a shape's tables in fixed memory, for its review.

    children int64 [K, N]: of each row, by rank. parents, depths, slots int64 [N]: of each drafted token the row that it
    follows, its level, and where the tier below has it, counted from its root's slot. exists bool [N]. mask bool [N, N]
    and steps int64 [N]: of the reviewing pass."""

    def __init__(self, bounds: Bounds, device: torch.device) -> None:
        self.rows, self.depth = bounds.size + 1, bounds.depth
        with torch.inference_mode(False):
            count = self.rows
            numbers = torch.zeros(4 + bounds.siblings, count, dtype=torch.int64, device=device)
            self.parents, self.depths, self.slots, self.steps = numbers[:4].unbind()
            self.children = numbers[4:]
            flags = torch.zeros(3 * count + 1, count, dtype=torch.bool, device=device)
            self.above, self.older, self.mask = flags[:-1].view(3, count, count).unbind()
            self.exists = flags[-1]
            self.every = torch.arange(count, device=device)
            self.stop = torch.full((1,), count, device=device)
            self.ahead = torch.arange(1, bounds.depth + 1, device=device)
        self._numbers, self._flags = numbers, flags
        self._plan: TreePlan | None = None

    def load(self, plan: TreePlan) -> None:
        """Send a plan's tables; nothing to do if they are here."""
        if plan is self._plan:
            return
        self._plan = plan
        n, count = len(plan.parents), self.rows
        depths = tree.depths(plan.parents)
        run = {node: slot for slot, node in enumerate(plan.run, start=1)}
        numbers = np.zeros(tuple(self._numbers.shape), dtype=np.int64)
        numbers[0, :n] = np.array(plan.parents) + 1
        numbers[1, :n] = depths
        # What was not run has no slot: the next draft reads it where it would stand in a chain.
        numbers[2, :n] = [run.get(node, depths[node] + 1) for node in range(n)]
        numbers[3, 1 : n + 1] = np.array(depths) + 1
        numbers[4:] = count - 1
        for row, family in enumerate(tree.families(plan.parents)):
            numbers[4 : 4 + len(family), row] = family
        flags = np.zeros(tuple(self._flags.shape), dtype=np.bool_)
        flags[-1, :n] = True
        above, older, mask = flags[:-1].reshape(3, count, count)
        np.fill_diagonal(above, val=True)
        above[:n, :n] = tree.ancestry(plan.parents)
        older[:n, :n] = older_siblings(plan.parents)
        mask[:, 0] = True
        mask[1 : n + 1, 1 : n + 1] = above[:n, :n]
        self._numbers.copy_(torch.from_numpy(numbers))
        self._flags.copy_(torch.from_numpy(flags))

    def shape(self, ranks: int) -> ShapeOnDevice:
        """Return it as the verifier sees it, where families have up to ``ranks`` siblings."""
        return ShapeOnDevice(tuple((children, self.every) for children in self.children[:ranks]), self.above,
                             self.older)


class TreeRunner(OnDevice):
    """Run rounds of the small model's trees and their review."""

    host: HierarchicalDrafter

    def __init__(self, host: HierarchicalDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        """host: over a ``DeviceTree``."""
        assert isinstance(host.drafter, DeviceTree)
        super().__init__(host, host.drafter.tier, host.model.device, capture, same)
        self.trees, self._intermediate = host.drafter, GraphModel(host.model, 1)
        self._state: GraphBuffers | None = None
        self._tables: TreeTables | None = None
        self._history = torch.empty(0)  # int64 [rounds, 2, N]: drafted tokens, and which were kept

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        if sampler.host_leads or not self.host.gamma1:
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
        written = Written()
        while len(written.token_ids) < wanted and not written.ends(sampler.stop):
            for _ in range(-(-(wanted - len(written.token_ids)) // most)):
                self._round(state, grown_in, grown, sampler.kind)
            written = state.read()  # the only wait
        emitted, last = written.token_ids, self._learn(written, grown, sampler)
        # The first kept tokens of the last round have been through the small model, if they were read at all.
        small.stage(context, emitted[: len(emitted) - 1 - written.last + len(set(last).intersection(grown.run))])
        middle.stage(context, emitted[:-1])
        return written.draft((self.trees.tier, self.tier), None if sampler.coupled else state.probs, sampler.stop)

    def _begin(self, context: Sequence[int], wanted: int, most: int, sampler: Sampler, grown_in: TreeBuffers,
               grown: TreePlan) -> GraphBuffers:
        """Put everything that the rounds read in its place; capture these rounds if they were not."""
        bounds, room, kind, device = grown_in.bounds, wanted + most, sampler.kind, self.host.model.device
        starts = [self.trees.graphed.begin(context, room + grown.slots),
                  self._intermediate.begin(context, room + bounds.size + 1)]
        if self._tables is None or self._tables.rows != bounds.size + 1 or self._tables.depth != bounds.depth:
            self._tables, self._state = TreeTables(bounds, device), None
        tables, state = self._tables, self._state
        if state is None or not state.holds(room):
            # Numbers of a round: one to draw and one to test each token with, and one for the token that follows.
            vocabulary = self._intermediate.model.config.vocab_size
            state = self._state = GraphBuffers(room, tables.rows, vocabulary, device)
            with torch.inference_mode(False):
                self._history = torch.zeros(room, 2, tables.rows, dtype=torch.int64, device=device)
        grown_in.load(grown)
        tables.load(grown)
        state.write(context, starts, sampler, room)
        self.captured.at(state, tables, grown_in, *self.trees.graphed.places, *self._intermediate.places)
        grown_in.follow(state, kind)
        fresh = self.trees.capture(grown_in, grown, kind)
        for key, part in self._parts(state, grown_in, grown, kind):
            fresh |= self.captured.capture(key, part)
        if fresh:
            state.rewrite()  # capturing has run a round
        return state

    def _parts(self, state: GraphBuffers, grown_in: TreeBuffers, grown: TreePlan,
               kind: SamplingKind) -> list[tuple[tuple[SamplingKind, int], Callable[[], None]]]:
        """Return by key what is captured of a round before and after the tree's own passes."""
        ranks = max(siblings for _, siblings in grown.passes)  # of its largest families, as its passes draw them
        return [((kind, 0), partial(grown_in.follow, state, kind)),
                ((kind, ranks), partial(self._check, state, grown_in, kind, ranks))]

    def _round(self, state: GraphBuffers, grown_in: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> None:
        follow, check = self._parts(state, grown_in, grown, kind)
        self.captured.run(*follow)
        self.trees.grow(grown_in, grown, kind)
        self._clock.mark(self.trees.tier)
        self.captured.run(*check)
        self._clock.mark(self.tier)

    def _check(self, state: GraphBuffers, grown_in: TreeBuffers, kind: SamplingKind, ranks: int) -> None:
        """Review the tree by one pass over the retrieved part; its verdict is what the round writes."""
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
        verdict = self._agree(kind, verdict)
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
        """Move slots ``source`` [D], counted from the root's [1], to those right behind it."""
        assert self._tables is not None
        source, target = root + source, root + self._tables.ahead
        for buffers in graphed.cache.layers:
            for own in (buffers.keys, buffers.values):
                own.index_copy_(1, target, own.index_select(1, source))

    def _learn(self, written: Written, grown: TreePlan, sampler: Sampler) -> list[int]:
        """Learn what became of each round's tree; return what was kept of the last one."""
        self._count(written, written.rounds * len(grown.passes))
        at, n, kept = 0, len(grown.parents), []
        for drafted, path in self._history[: written.rounds].tolist():
            kept = [node for node in range(n) if path[node]]
            nodes, parents = grown.living(drafted[:n], sampler.stop)
            draft = Draft([drafted[node] for node in nodes], [None] * len(nodes), [self.trees.tier] * len(nodes),
                          parents=parents)
            self.trees.host.learn(written.token_ids[at : at + len(kept) + 1], draft)
            at += len(kept) + 1
        return kept
