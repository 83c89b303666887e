"""Trees grown without the host: level after level on the device, and one reading of the whole.

``tree_drafter`` draws each level's siblings on the host, which then waits for the device once a level and issues the
next pass kernel by kernel. Here tokens, distributions, positions and slots are numbers in device memory, which passes
of a few widths, each a captured graph, read and advance (``tree_schedule``). Which pass is next is itself a number on
the device, so that one graph serves all passes of its widths. The host enqueues a whole tree and reads once.

A draft equals the host's token for token, with the same chance. That one lets a family end, and its children never be,
where a distribution has nothing left; here they are run and then left out.

Letters as in ``tree_schedule``, whose tables lie here too; V vocabulary, n drafted tokens at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..model.graphs import Capture, DeviceSlots
from ..sampling import Sampler, SamplingKind
from ..speculation.drafter import Draft
from ..speculation.graph_runner import (
    PARAMETERS,
    REREAD,
    GraphBuffers,
    GraphModel,
    OnDevice,
    SentNumbers,
    sampling_numbers,
)
from .tree_drafter import TreeDrafter, best_on_tensors, siblings_on_tensors
from .tree_schedule import Bounds, TreePlan, plan

_PASS, _STARTS, _HEAD = 0, 1, 3  # the next pass; position and slot of the root


class TreeBuffers(SentNumbers):
    """Hold what a tree's passes read and write; every method but ``load``, ``write`` and ``read`` may be captured."""

    def __init__(self, bounds: Bounds, vocabulary: int, device: torch.device) -> None:
        self.bounds, self._vocabulary = bounds, vocabulary
        with torch.inference_mode(False):
            self._tables = {name: torch.from_numpy(table).to(device) for name, table in bounds.tables().items()}
            self._book = torch.zeros(_HEAD + bounds.nowhere + 1, dtype=torch.int64, device=device)
            self._odds = torch.zeros(PARAMETERS + bounds.size + 1, dtype=torch.float64, device=device)
        self._probs: Tensor | None = None
        self._noise: Tensor | None = None
        self._pass = self._book[_PASS : _PASS + 1]
        self.start, self.tokens = self._book[_STARTS:_HEAD], self._book[_HEAD:]
        self.parameters, self._numbers = self._odds[:PARAMETERS], self._odds[PARAMETERS:]
        self._plan: TreePlan | None = None

    def load(self, plan: TreePlan) -> None:
        """Send a plan's tables; nothing to do if they are here."""
        if plan is not self._plan:
            self._plan = plan
            for name, values in plan.tables.items():
                self._tables[name][: len(values)].copy_(torch.from_numpy(values))

    def write(self, context: Sequence[int], start: tuple[int, int], sampler: Sampler, levels: int) -> None:
        """Begin a draft after ``context``. The host does not wait."""
        assert self._plan is not None
        book = torch.tensor([0, *start, *context[len(context) - self.bounds.reread :]])
        # One number for each drafted token, in its order.
        odds = sampling_numbers(sampler, self._vocabulary, len(self._plan.parents))
        noise = []
        if sampler.coupled and not sampler.kind.greedy:
            noise = [(sampler.noise(len(context), levels, self._vocabulary), self.noise)]
        self.send((book, self._book), (odds, self._odds), *noise)

    @property
    def noise(self) -> Tensor:
        """Return [levels, V], made when it is first asked for."""
        if self._noise is None:
            self._noise = self._rows(self.bounds.depth)
        return self._noise

    @property
    def probs(self) -> Tensor:
        """Return [n + 1, V]: of drafted tokens, and of nobody's; made when it is first asked for."""
        if self._probs is None:
            self._probs = self._rows(self.bounds.size + 1)
        return self._probs

    def _rows(self, count: int) -> Tensor:
        with torch.inference_mode(False):
            return torch.zeros(count, self._vocabulary, device=self._book.device)

    def follow(self, loop: GraphBuffers, kind: SamplingKind) -> None:
        """Begin a draft after what ``loop`` has written. May be captured."""
        count, size = loop.count, self.bounds.size
        self._pass.zero_()
        self.start.copy_(loop.starts[0] + count)
        self.tokens[: self.bounds.reread].copy_(loop.newest(self.bounds.reread))
        self.parameters.copy_(loop.parameters)
        if not kind.coupled:
            self._numbers[:size].copy_(loop.numbers_of_round()[:size])
        elif not kind.greedy:
            self.noise.copy_(loop.noise_of(count + torch.arange(self.bounds.depth, device=count.device), kind))

    def at(self, number: int) -> None:
        """Make this pass the next: for capturing one out of turn."""
        self._pass.fill_(number)

    def read(self) -> list[int]:
        """Wait, and return the drafted tokens, -1 where nothing was left to draw."""
        assert self._plan is not None
        first = self.bounds.reread
        return self.tokens[first : first + len(self._plan.parents)].tolist()

    def _of_pass(self, name: str) -> Tensor:
        """Return a table's part for the next pass."""
        return self._tables[name].index_select(0, self._pass)[0]

    def rows(self, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the next pass's token ids, steps and slots [width], where slots end [1], and mask [width, M]."""
        places, steps, slots, mask = (self._of_pass(name)[:width] for name in ("places", "steps", "slots", "masks"))
        token_ids = self.tokens.index_select(0, places).clamp_min(0)
        return token_ids, steps, slots, self._tables["stops"].index_select(0, self._pass), mask

    def noise_of(self, steps: Tensor, kind: SamplingKind) -> Tensor:
        """Return [m, V] for drawing what follows each of steps [m]; greedy reads none."""
        if kind.greedy:
            return self.parameters
        return self.noise.index_select(0, steps.clamp_min(0))

    def targets(self, width: int, siblings: int) -> Tensor:
        """Return [siblings, width] of the next pass: each drawn token's place in ``tokens``."""
        return self._of_pass("targets")[:siblings, :width]

    def numbers_of(self, targets: Tensor) -> Tensor:
        """Return float64, as many: the chance that each is drawn by."""
        return self._numbers.index_select(0, targets.reshape(-1) - self.bounds.reread)

    def put(self, targets: Tensor, tokens: Tensor, probs: Tensor | None) -> None:
        """Write tokens [m], and the probs [m, V] that they were drawn from."""
        self.tokens.index_copy_(0, targets, tokens)
        if probs is not None:
            self.probs.index_copy_(0, targets - self.bounds.reread, probs)

    def end_pass(self) -> None:
        self._pass.add_(1)


def branch(graphed: GraphModel, token_ids: Tensor, start: Tensor, steps: Tensor, slots: Tensor, stop: Tensor,
           mask: Tensor) -> Tensor:
    """Return [n, V] after each of token_ids [n], some of a tree's.

    start [2], steps [n]: as in ``GraphModel.logits``; slots [n], stop [1]: where each goes and where the last slot
    ends, counted from the slot in start; mask: see ``DeviceSlots``."""
    place = DeviceSlots(graphed.cache, start[1:] + slots, (start[1:] + stop).int(), mask)
    return graphed.model.forward_on_device(token_ids, start[:1] + steps, place, len(token_ids))


class DeviceTree(OnDevice):
    """Grow trees; the host's drafter still does where the context ends, and learns which shape is best."""

    host: TreeDrafter

    def __init__(self, host: TreeDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__(host, host.tier, host.model.device, capture, same)
        self.graphed = GraphModel(host.model, 1 if host.follows else REREAD)
        self._state: TreeBuffers | None = None
        self._plans: dict[int, TreePlan] = {}  # of ``_shape``, by levels
        self._shape: object = None

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """num_draft_tokens: levels at most."""
        if sampler.host_leads or num_draft_tokens < 1 or len(context) < REREAD:
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
        self._passes[self.tier] += len(grown.passes)
        tokens = state.read()  # the only wait
        draft = self._draft(state, grown, tokens, sampler)
        self._stage(context, grown, tokens)
        self.host.drafted(context, draft)
        return draft

    def planned(self, levels: int) -> tuple[TreeBuffers, TreePlan]:
        """Return the plan of the first ``levels`` levels of the best shape by now, and where its tables will lie."""
        shape, state = self.host.shape, self._state
        if state is None or not state.bounds.hold(shape):
            families = max(max(map(len, shape.families)), self.host.most_siblings)
            bounds = Bounds(max(self.host.size, shape.size), max(self.host.depth, shape.depth),
                            1 << (families - 1).bit_length(), 1 if self.host.follows else REREAD)
            state = self._state = TreeBuffers(bounds, self.graphed.model.config.vocab_size, self.host.model.device)
            self._plans = {}
        if shape != self._shape:
            self._shape, self._plans = shape, {}
        levels = min(levels, shape.depth)
        if levels not in self._plans:
            self._plans[levels] = plan(shape, levels, state.bounds)
        return state, self._plans[levels]

    def capture(self, state: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> bool:
        """Capture those of its passes that are not yet, where passes are; return whether there were any.

        All that they read is there; what they write is noise."""
        self.captured.at(state, *self.graphed.places)
        fresh = False
        for number, (width, siblings) in enumerate(grown.passes):
            if self.captured.lacks((kind, width, siblings)):
                state.at(number)
                part = partial(self._pass, state, kind, width, siblings)
                fresh = self.captured.capture((kind, width, siblings), part)
        return fresh

    def grow(self, state: TreeBuffers, grown: TreePlan, kind: SamplingKind) -> None:
        """Enqueue a whole tree's passes."""
        for width, siblings in grown.passes:
            self.captured.run((kind, width, siblings), partial(self._pass, state, kind, width, siblings))

    def _pass(self, state: TreeBuffers, kind: SamplingKind, width: int, siblings: int) -> None:
        """Run one pass, and draw siblings after each of its rows."""
        token_ids, steps, slots, stop, mask = state.rows(width)
        logits = branch(self.graphed, token_ids, state.start, steps, slots, stop, mask)
        targets, token_probs = state.targets(width, siblings), self.graphed.token_probs(kind, state.parameters)
        if kind.coupled:
            found = best_on_tensors(token_probs.scores(logits, state.noise_of(steps, kind)), siblings)
            state.put(targets.reshape(-1), found.t().reshape(-1), None)
        else:
            chance = self.graphed.chance(state.numbers_of(targets))
            drawn = siblings_on_tensors(token_probs.distributions(logits), siblings, chance,
                                        replacing=self.host.replacing)
            for rank, (tokens, probs) in enumerate(drawn):
                state.put(targets[rank], tokens, probs)
        self._agree(kind, state.tokens)
        state.end_pass()

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

    def _stage(self, context: Sequence[int], grown: TreePlan, tokens: Sequence[int]) -> None:
        """Say to the cache what passes have staged in it."""
        on = self.graphed.on
        pending, before = context[on.length :], on.num_staged
        root = before + len(pending) - 1
        slot = {-1: root} | {node: root + 1 + order for order, node in enumerate(grown.run)}
        self.host.growing.grown_elsewhere(
            [*pending, *(tokens[node] for node in grown.run)],
            [*range(before - 1, root), *(slot[grown.parents[node]] for node in grown.run)])
