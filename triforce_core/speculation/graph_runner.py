"""The inner rounds of TriForce without the host: draft, check, accept or refuse, and again, all on the device.

``hierarchical`` decides each token on the host, which then waits for the device some ten times per draft. Here tokens,
counts, positions and slots are numbers in device memory; a round is two captured graphs (the small model's chain; the
pass over the retrieved part with its verdict) that read and advance them. Temperature, noise and chance are data too.
The host enqueues as many rounds as are certain to be needed and reads once; seldom it must enqueue one or two more.
Where drafts end when they no longer pay (``keep_going``), it reads after each, while the next is under way.

The rules are ``sampling.DeviceSampling`` and the verifier's ``*_on_tensors``. Drafts equal the host's: token for token
when coupled, and by rejection with the same numbers.
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
from .draft import Draft
from .drafter import Drafter, DraftStats, KeepGoing
from .graph_buffers import REREAD, GraphBuffers, Written
from .graph_model import GraphModel
from .hierarchical import HierarchicalDrafter
from .model_drafter import ModelDrafter
from .verifier import agree_on_tensors, reject_on_tensors


# large: two models, their captured rounds, and the counts that a drafter tells
class GraphRunner(Drafter):
    """Takes the place of the drafter it is given, on the same models and caches. That one still writes where masks are
    at work (verbatim quoting): which tokens may follow is looked up on the host there, token by token."""

    def __init__(self, host: HierarchicalDrafter | ModelDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        """capture: None runs every round as usual (tests, machines without graphs). same: where several devices take
        every step together, gives them the first one's numbers, in place (greedy choices need it not)."""
        self.host, self.tier = host, host.tier
        self._below = host.tier
        self._small: GraphModel | None = None
        self._intermediate: GraphModel | None = None
        self._gamma = 1  # tokens the small model drafts per round; alone it writes round after round
        if isinstance(host, ModelDrafter):
            self._small = GraphModel(host.model, REREAD)
        else:
            self._intermediate = GraphModel(host.model, 1)
            self._gamma = host.gamma1 if isinstance(host.drafter, ModelDrafter) else 0
            if isinstance(host.drafter, ModelDrafter) and self._gamma:
                self._small, self._below = GraphModel(host.drafter.model, REREAD), host.drafter.tier
        self._graphed = [graphed for graphed in (self._small, self._intermediate) if graphed is not None]
        self.device = self._graphed[0].on.device
        self._new_capture, self._same = capture, same
        self._state: GraphBuffers | None = None
        self._graphs: dict[SamplingKind, list[Callable[[], None]]] = {}
        self._valid: tuple[object, ...] = ()  # what captured rounds are good for
        self._capture: Capture | None = None
        self._clock = StageClock(self.device)
        self._tested = self._accepted = self._rounds = 0

    runs_on_graphs = True

    @property
    def tells_confidence(self) -> bool:  # type: ignore[override]
        """A round of the small model alone is over before anything could be read."""
        return self._intermediate is not None

    def configure(self, keep_going: KeepGoing | None) -> None:
        self.host.configure(keep_going)

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        if sampler.masks is not None:
            return self.host.propose(context, num_draft_tokens, sampler)
        wanted = self._most(num_draft_tokens)
        if wanted < 1 or len(context) < REREAD:
            return Draft()
        state = self._begin(context, wanted, sampler)
        self._clock.start()
        keep_going = self.host.keep_going if self.tells_confidence else None
        if keep_going is None:
            written = self._all(state, sampler, wanted)
        else:
            written = self._while_it_pays(state, sampler, wanted, keep_going)
        emitted, tally = written.token_ids, written.tally
        self._rounds += tally.rounds
        self._tested += tally.tested
        self._accepted += tally.accepted
        self._tell(context, emitted, tally.last)
        ends = [i + 1 for i, token in enumerate(emitted) if token in sampler.stop]
        count = ends[0] if ends else len(emitted)
        probs: Sequence[Tensor | None] = [None] * count if sampler.coupled else state.probs[:count].clone().unbind()
        sources = [self._below if below else self.tier for below in written.kept[:count]]
        confidence = written.sure[:count] if keep_going is not None else []
        return Draft(emitted[:count], list(probs), sources, confidence=confidence)

    def _most(self, num_draft_tokens: int) -> int:
        """Of them as many as there is room for."""
        # The last round may overshoot, and the tier above stages one token more.
        return min(num_draft_tokens, min(graphed.cache.room for graphed in self._graphed) - self._gamma - 1)

    def _all(self, state: GraphBuffers, sampler: Sampler, wanted: int) -> Written:
        """As many rounds as so many tokens take."""
        written, most = Written.nothing(), self._gamma + 1 if self._intermediate else 1
        while len(written.token_ids) < wanted and sampler.stop.isdisjoint(written.token_ids):
            for _ in range(-(-(wanted - len(written.token_ids)) // most)):
                self._round(state, sampler.kind)
            written = state.read()  # the only wait
        return written

    def _while_it_pays(self, state: GraphBuffers, sampler: Sampler, wanted: int, keep_going: KeepGoing) -> Written:
        """No more than that, and only while ``keep_going`` says so. To start a round takes the host a while: one is
        under way while it asks about those before, if so many tokens need it anyhow."""
        written, most, more = Written.nothing(), self._gamma + 1, True
        under_way: list[Callable[[], Written]] = []
        while True:
            while more and len(under_way) < 2 and len(written.token_ids) + most * len(under_way) < wanted:
                self._round(state, sampler.kind)
                under_way.append(state.look())
            if not under_way:
                return written
            written = under_way.pop(0)()
            more = (more and sampler.stop.isdisjoint(written.token_ids)
                    and keep_going(written.sure, len(written.token_ids), written.tally.rounds, len(under_way)))

    def _begin(self, context: Sequence[int], wanted: int, sampler: Sampler) -> GraphBuffers:
        """Everything the rounds read, in its place; what was captured over buffers that moved is forgotten."""
        room, vocabulary = wanted + self._gamma, self._graphed[-1].model.config.vocab_size
        starts = [graphed.begin(context, room) for graphed in self._graphed]
        state = self._state
        if state is None or not state.holds(room):
            state = self._state = GraphBuffers(room, self._gamma, vocabulary, self.device)
            self._graphs = {}
        valid = tuple(place for graphed in self._graphed
                      for place in (graphed.model.rope.reserve(0), *graphed.addresses))
        if valid != self._valid:
            self._valid, self._graphs = valid, {}
            self._capture = self._new_capture() if self._new_capture else None
        state.write(context, starts, sampler, room)
        return state

    @torch.inference_mode()
    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:
        """Capture the rounds of drafts of up to so many tokens after ``context``, with choices as these samplers make
        them, where they are not: no answer waits for it. What is not captured runs as usual, which takes longer."""
        wanted = self._most(num_draft_tokens)
        if self._new_capture is None or wanted < 1 or len(context) < REREAD:
            return
        for sampler in samplers:
            state = self._begin(context, wanted, sampler)
            if self._capture is not None and sampler.kind not in self._graphs:
                self._graphs[sampler.kind] = [self._capture(partial(part, state, sampler.kind))[0]
                                              for part in self._parts]
        self.host.settle(context, committed=False)  # what was begun behind the context

    @property
    def _parts(self) -> list[Callable[[GraphBuffers, SamplingKind], None]]:
        parts = (self._draft, self._small), (self._check, self._intermediate)
        return [part for part, graphed in parts if graphed is not None]

    def _round(self, state: GraphBuffers, kind: SamplingKind) -> None:
        captured = self._graphs.get(kind)
        for number, part in enumerate(self._parts):
            if captured is not None:
                captured[number]()
            else:
                part(state, kind)
            self._clock.mark(self.tier if part == self._check else self._below)

    def _draft(self, state: GraphBuffers, kind: SamplingKind) -> None:
        """The small model's chain behind the newest token."""
        assert self._small is not None
        token_probs = self._small.token_probs(kind, state.parameters)
        chance = self._small.chance(state.numbers_of_round())
        token_ids, steps = state.newest(REREAD), state.steps(1 - REREAD, 1)
        for i in range(self._gamma):
            logits = self._small.logits(token_ids, state.starts[0], steps, 1)
            if kind.coupled:
                token = token_probs.draws(logits, state.noise_of(steps[-1:], kind))
            else:
                p = token_probs.distributions(logits)
                state.draft_probs[i] = p[0]
                token = chance.pick(p[0])
            state.drafted[i : i + 1] = token
            token_ids, steps = token, steps[-1:] + 1
        self._agree(kind, state.drafted)
        if self._intermediate is None:
            probs = None if kind.coupled else state.draft_probs
            state.emit(state.drafted, torch.ones_like(state.drafted), probs, alone=True)

    def _check(self, state: GraphBuffers, kind: SamplingKind) -> None:
        """One pass over the retrieved part verifies the chain; its verdict is what the round writes."""
        assert self._intermediate is not None
        steps = state.steps(0, self._gamma + 1)
        token_ids = torch.cat((state.newest(1), state.drafted))
        logits = self._intermediate.logits(token_ids, state.starts[-1], steps, self._gamma + 1)
        token_probs = self._intermediate.token_probs(kind, state.parameters)
        sure = self._intermediate.confidence(logits)
        if kind.coupled:
            own = self.own_draws(token_probs.draws(logits, state.noise_of(steps, kind)), state, logits)
            own = self._agree(kind, own)
            state.emit(own, agree_on_tensors(state.drafted, own), None, sure=sure)
            return
        target = self.target(token_probs.distributions(logits), state)
        chance = self._intermediate.chance(state.numbers_of_round()[self._gamma :])
        verdict = reject_on_tensors(state.drafted, state.draft_probs, target, chance)
        accepted, own = self._agree(kind, verdict).split(1)
        written = torch.cat((state.drafted, own))
        state.emit(torch.where(state.ramp(self._gamma + 1) < accepted, written, own), accepted, target, sure=sure)

    def own_draws(self, draws: Tensor, state: GraphBuffers, logits: Tensor) -> Tensor:
        """Coupled: what counts as the checking tier's own draws [g + 1], by logits [g + 1, V]."""
        return draws

    def target(self, probs: Tensor, state: GraphBuffers) -> Tensor:
        """What the chain is tested against and what its tokens then have as probabilities: [g + 1, V]."""
        return probs

    def _agree(self, kind: SamplingKind, numbers: Tensor) -> Tensor:
        return numbers if self._same is None or kind.greedy else self._same(numbers)

    def _tell(self, context: Sequence[int], emitted: Sequence[int], last: int) -> None:
        """The caches what they hold now. last: drafted tokens that the last round kept."""
        if self._small is not None:
            # Its last drafted token has not been through it; nor has what the other tier wrote.
            seen = len(emitted) - 1 - last + min(last, self._gamma - 1)
            self._small.on.staged_elsewhere([*context[self._small.on.length :], *emitted[:seen]])
        if self._intermediate is not None:
            self._intermediate.on.staged_elsewhere([*context[self._intermediate.on.length :], *emitted[:-1]])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.host.settle(context, committed=committed)

    def reset(self) -> None:
        self.host.reset()

    def stats(self) -> DraftStats:
        counts = (TierCount(self._below, self._tested, self._accepted),) if self._tested else ()
        passes = {self._below: self._rounds * self._gamma, **({self.tier: self._rounds} if self._intermediate else {})}
        self._tested = self._accepted = self._rounds = 0
        return self.host.stats() + DraftStats(counts, self._clock.read(), passes)
