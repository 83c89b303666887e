"""What the passes of a tree grown on the device read and write: numbers in fixed memory, sent there and read whole.

Letters as in ``tree_schedule``, whose tables lie here too; V vocabulary, n drafted tokens at most. Which pass is next
is itself a number on the device, that each pass moves on, so that one captured graph serves all passes of its widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..model.graphs import DeviceSlots
from ..sampling import Sampler, SamplingKind
from ..speculation.graph_buffers import GraphBuffers
from ..speculation.graph_model import GraphModel
from .tree_schedule import Bounds, TreePlan

_PASS, _STARTS, _HEAD = 0, 1, 3  # the next pass; position and slot of the root
_PARAMETERS = 3


# large: each is a tensor in fixed memory that captured passes read or write
class TreeBuffers:
    """Plain tensors: every method but ``load``, ``write`` and ``read`` may be captured."""

    def __init__(self, bounds: Bounds, vocabulary: int, device: torch.device) -> None:
        self.bounds, self._vocabulary, self._device = bounds, vocabulary, device
        count, rows = bounds.passes, bounds.rows
        with torch.inference_mode(False):
            def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
                return torch.zeros(shape, dtype=dtype, device=device)

            self._book = numbers(_HEAD + bounds.nowhere + 1)
            self._odds = numbers(_PARAMETERS + bounds.size + 1, dtype=torch.float64)
            self._places, self._steps, self._slots = numbers(3, count, rows).unbind()
            self._stops = numbers(count)
            self._targets = numbers(count, bounds.siblings, rows)
            self._masks = numbers(count, rows, bounds.columns, dtype=torch.bool)
        self._probs: Tensor | None = None
        self._noise: Tensor | None = None
        self._pass = self._book[_PASS : _PASS + 1]
        self.start, self.tokens = self._book[_STARTS:_HEAD], self._book[_HEAD:]
        self.parameters, self._numbers = self._odds[:_PARAMETERS], self._odds[_PARAMETERS:]
        self._sent: list[tuple[Tensor, Tensor]] = []
        self._plan: TreePlan | None = None

    def load(self, plan: TreePlan) -> None:
        """Its tables; nothing to do if they are here."""
        if plan is self._plan:
            return
        self._plan = plan
        for values, to in ((plan.places, self._places), (plan.steps, self._steps), (plan.row_slots, self._slots),
                           (plan.stops, self._stops), (plan.targets, self._targets), (plan.masks, self._masks)):
            to[: len(values)].copy_(torch.from_numpy(values))

    def write(self, context: Sequence[int], start: tuple[int, int], sampler: Sampler, levels: int) -> None:
        """Begin a draft after ``context``. The host does not wait."""
        book = torch.tensor([0, *start, *context[len(context) - self.bounds.reread :]])
        odds = torch.tensor(sampler.parameters(self._vocabulary), dtype=torch.float64)
        if not sampler.coupled:  # one for each drafted token, in its order
            assert self._plan is not None
            odds = torch.cat((odds, sampler.chance.numbers(len(self._plan.parents))))
        self._sent = [(book, self._book), (odds, self._odds)]
        if sampler.coupled and not sampler.kind.greedy:
            self._sent.append((sampler.noise(len(context), levels, self._vocabulary), self.noise))
        self.rewrite()

    @property
    def noise(self) -> Tensor:
        """[levels, V], made when it is first asked for."""
        if self._noise is None:
            with torch.inference_mode(False):
                self._noise = torch.zeros(self.bounds.depth, self._vocabulary, device=self._device)
        return self._noise

    @property
    def probs(self) -> Tensor:
        """[n + 1, V]: of drafted tokens, and of nobody's; made when it is first asked for."""
        if self._probs is None:
            with torch.inference_mode(False):
                self._probs = torch.zeros(self.bounds.size + 1, self._vocabulary, device=self._device)
        return self._probs

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

    def rewrite(self) -> None:
        """Begin the same draft again."""
        for values, to in self._sent:
            # From pinned memory: other copies wait for all that the device has to do.
            to[: len(values)].copy_(values.pin_memory() if to.is_cuda else values, non_blocking=True)

    def at(self, number: int) -> None:
        """As if so many passes were done: for capturing one out of turn."""
        self._pass.fill_(number)

    def read(self) -> list[int]:
        """Waits: the drafted tokens, -1 where nothing was left to draw."""
        assert self._plan is not None
        first = self.bounds.reread
        return self.tokens[first : first + len(self._plan.parents)].tolist()

    def rows(self, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of the next pass: token ids, steps and slots [width], where slots end [1], mask [width, M]."""
        places, steps, slots, mask = (table.index_select(0, self._pass)[0, :width]
                                      for table in (self._places, self._steps, self._slots, self._masks))
        token_ids = self.tokens.index_select(0, places).clamp_min(0)
        return token_ids, steps, slots, self._stops.index_select(0, self._pass), mask

    def noise_of(self, steps: Tensor, kind: SamplingKind) -> Tensor:
        """[m, V] for drawing what follows each of steps [m]; greedy reads none."""
        if kind.greedy:
            return self.parameters
        return self.noise.index_select(0, steps.clamp_min(0))

    def targets(self, width: int, siblings: int) -> Tensor:
        """[siblings, width] of the next pass: what each drawn token is, counted as in ``tokens``."""
        return self._targets.index_select(0, self._pass)[0, :siblings, :width]

    def numbers_of(self, targets: Tensor) -> Tensor:
        """float64, as many: the chance that each is drawn by."""
        return self._numbers.index_select(0, targets.reshape(-1) - self.bounds.reread)

    def put(self, targets: Tensor, tokens: Tensor, probs: Tensor | None) -> None:
        """tokens [m], and the probs [m, V] that they were drawn from."""
        self.tokens.index_copy_(0, targets, tokens)
        if probs is not None:
            self.probs.index_copy_(0, targets - self.bounds.reread, probs)

    def done(self) -> None:
        """The pass is."""
        self._pass.add_(1)


def branch(graphed: GraphModel, token_ids: Tensor, start: Tensor, steps: Tensor, slots: Tensor, stop: Tensor,
           mask: Tensor) -> Tensor:
    """[n, V] after each of token_ids [n], some of a tree's. start [2], steps [n]: as in ``GraphModel.logits``; slots
    [n], stop [1]: where each goes and where the last slot ends, counted from the slot in start; mask: see
    ``DeviceSlots``."""
    place = DeviceSlots(graphed.cache, start[1:] + slots, (start[1:] + stop).int(), mask)
    return graphed.model.forward_on_device(token_ids, start[:1] + steps, place, len(token_ids))
