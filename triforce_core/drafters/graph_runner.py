"""The inner rounds of TriForce without the host: draft, check, accept or refuse, and again, all on the device.

``hierarchical`` decides each token on the host, which then waits for the device some ten times per draft. Here tokens,
counts, positions and slots are numbers in device memory; a round is two captured graphs (the small model's chain; the
pass over the retrieved part with its verdict) that read and advance them. Temperature, noise and chance are data too.
The host enqueues as many rounds as are certain to be needed and reads once; seldom it must enqueue one or two more.
Where drafts end when they no longer pay (``goes_on``), it reads after each, while the next is under way.

The rules are ``sampling.TensorLaw`` and the verifier's ``*_on_tensors``. Drafts equal the host's: token for token when
deciding by draws, and when deciding by chance with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..device.stage_clock import StageClock
from ..events import TierCount
from ..model.graphs import Capture
from ..research.lenience import lenient_draws, lenient_laws
from ..sampling import LawKind, Sampler
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter, GoesOn
from ..speculation.verifier import agree_on_tensors, reject_on_tensors
from .graph_buffers import REREAD, LoopState, Written
from .graph_model import Seat
from .hierarchical import HierarchicalDrafter
from .model import ModelDrafter


class DeviceLoop(Drafter):
    """Takes the place of the drafter it is given, on the same models and caches. That one still writes where masks are
    at work (verbatim quoting): which tokens may follow is looked up on the host there, token by token."""

    def __init__(self, host: HierarchicalDrafter | ModelDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        """capture: None runs every round as usual (tests, machines without graphs). same: where several devices take
        every step together, gives them the first one's numbers, in place (greedy choices need it not)."""
        self.host, self.tier = host, host.tier
        self._below = host.tier
        self._small: Seat | None = None
        self._middle: Seat | None = None
        self._lenience = 1.0 if isinstance(host, ModelDrafter) else host.lenience
        self._gamma = 1  # tokens the small model drafts per round; alone it writes round after round
        if isinstance(host, ModelDrafter):
            self._small = Seat(host.model, REREAD)
        else:
            self._middle = Seat(host.model, 1)
            self._gamma = host.gamma1 if isinstance(host.drafter, ModelDrafter) else 0
            if isinstance(host.drafter, ModelDrafter) and self._gamma:
                self._small, self._below = Seat(host.drafter.model, REREAD), host.drafter.tier
        self._seats = [seat for seat in (self._small, self._middle) if seat is not None]
        self.device = self._seats[0].on.device
        self._new_capture, self._same = capture, same
        self._states: dict[int, LoopState] = {}  # by gamma
        self._graphs: dict[tuple[int, LawKind], list[Callable[[], None]]] = {}
        self._valid: tuple[object, ...] = ()  # what captured rounds are good for
        self._capture: Capture | None = None
        self._clock = StageClock(self.device)
        self._tested = self._accepted = self._rounds = 0

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        if sampler.masks is not None:
            return self.host.propose(context, num_draft_tokens, sampler)
        wanted = self._most(num_draft_tokens)
        if wanted < 1 or len(context) < REREAD:
            return Draft()
        state = self._begin(context, wanted, sampler)
        self._clock.start()
        # A round of the small model alone is over before anything could be read.
        goes_on = self.host.goes_on if self._middle else None
        if goes_on is None:
            written = self._all(state, sampler, wanted)
        else:
            written = self._while_it_pays(state, sampler, wanted, goes_on)
        emitted, tally = written.token_ids, written.tally
        self._rounds += tally.rounds
        self._tested += tally.tested
        self._accepted += tally.accepted
        self._tell(context, emitted, tally.last)
        ends = [i + 1 for i, token in enumerate(emitted) if token in sampler.stop]
        count = ends[0] if ends else len(emitted)
        laws: Sequence[Tensor | None] = [None] * count if sampler.by_draws else state.laws[:count].clone().unbind()
        origins = [self._below if below else self.tier for below in written.kept[:count]]
        return Draft(emitted[:count], list(laws), origins, sureness=written.sure[:count] if goes_on is not None else [])

    def _most(self, num_draft_tokens: int) -> int:
        """Of them as many as there is room for, with the chain that the host's drafter has now."""
        if self._small is not None and isinstance(self.host, HierarchicalDrafter):
            self._gamma = self.host.gamma1  # another one from draft to draft, but never none
            assert self._gamma > 0
        # The last round may overshoot, and the tier above stages one token more.
        return min(num_draft_tokens, min(seat.cache.room for seat in self._seats) - self._gamma - 1)

    def _all(self, state: LoopState, sampler: Sampler, wanted: int) -> Written:
        """As many rounds as so many tokens take."""
        written, most = Written.nothing(), self._gamma + 1 if self._middle else 1
        while len(written.token_ids) < wanted and sampler.stop.isdisjoint(written.token_ids):
            for _ in range(-(-(wanted - len(written.token_ids)) // most)):
                self._round(state, sampler.kind)
            written = state.read()  # the only wait
        return written

    def _while_it_pays(self, state: LoopState, sampler: Sampler, wanted: int, goes_on: GoesOn) -> Written:
        """No more than that, and only while ``goes_on`` says so. To start a round takes the host a while: one is under
        way while it asks about those before, if so many tokens need it anyhow."""
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
                    and goes_on(written.sure, len(written.token_ids), len(under_way)))

    def _begin(self, context: Sequence[int], wanted: int, sampler: Sampler) -> LoopState:
        """Everything the rounds read, in its place; what was captured over buffers that moved is forgotten."""
        room, vocabulary = wanted + self._gamma, self._seats[-1].model.config.vocab_size
        starts = [seat.begin(context, room) for seat in self._seats]
        state = self._states.get(self._gamma)
        if state is None or not state.holds(room):
            state = self._states[self._gamma] = LoopState(room, self._gamma, vocabulary, self.device)
            self._graphs = {key: graphs for key, graphs in self._graphs.items() if key[0] != self._gamma}
        valid = tuple(place for seat in self._seats for place in (seat.model.rope.reserve(0), *seat.addresses))
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
            if self._capture is not None and (self._gamma, sampler.kind) not in self._graphs:
                self._graphs[self._gamma, sampler.kind] = [self._capture(partial(part, state, sampler.kind))[0]
                                                           for part in self._parts]
        self.host.settle(context, committed=False)  # what was begun behind the context

    @property
    def _parts(self) -> list[Callable[[LoopState, LawKind], None]]:
        return [part for part, seat in ((self._draft, self._small), (self._check, self._middle)) if seat is not None]

    def _round(self, state: LoopState, kind: LawKind) -> None:
        captured = self._graphs.get((self._gamma, kind))
        for number, part in enumerate(self._parts):
            if captured is not None:
                captured[number]()
            else:
                part(state, kind)
            self._clock.mark(self.tier if part == self._check else self._below)

    def _draft(self, state: LoopState, kind: LawKind) -> None:
        """The small model's chain behind the newest token."""
        assert self._small is not None
        law, chance = self._small.law(kind, state.dials), self._small.chance(state.numbers_of_round())
        token_ids, steps = state.newest(REREAD), state.steps(1 - REREAD, 1)
        for i in range(self._gamma):
            logits = self._small.logits(token_ids, state.starts[0], steps, 1)
            if kind.by_draws:
                token = law.draws(logits, state.noise_of(steps[-1:], kind))
            else:
                p = law.distributions(logits)
                state.draft_laws[i] = p[0]
                token = chance.pick(p[0])
            state.drafted[i : i + 1] = token
            token_ids, steps = token, steps[-1:] + 1
        self._agree(kind, state.drafted)
        if self._middle is None:
            laws = None if kind.by_draws else state.draft_laws
            state.emit(state.drafted, torch.ones_like(state.drafted), laws, alone=True)

    def _check(self, state: LoopState, kind: LawKind) -> None:
        """One pass over the retrieved part verifies the chain; its verdict is what the round writes."""
        assert self._middle is not None
        steps = state.steps(0, self._gamma + 1)
        token_ids = torch.cat((state.newest(1), state.drafted))
        logits = self._middle.logits(token_ids, state.starts[-1], steps, self._gamma + 1)
        law = self._middle.law(kind, state.dials)
        sure = self._middle.sureness(logits)
        lenient = self._lenience > 1.0 and self._gamma > 0
        if kind.by_draws:
            own = law.draws(logits, state.noise_of(steps, kind))
            if lenient:
                own = lenient_draws(state.drafted, own, logits, self._lenience)
            own = self._agree(kind, own, sums=lenient)
            state.emit(own, agree_on_tensors(state.drafted, own), None, sure=sure)
            return
        target = law.distributions(logits)
        if lenient:
            target = lenient_laws(state.draft_laws, target, self._lenience)
        chance = self._middle.chance(state.numbers_of_round()[self._gamma :])
        verdict = torch.cat(reject_on_tensors(state.drafted, state.draft_laws, target, chance))
        accepted, own = self._agree(kind, verdict).split(1)
        written = torch.cat((state.drafted, own))
        state.emit(torch.where(state.ramp(self._gamma + 1) < accepted, written, own), accepted, target, sure=sure)

    def _agree(self, kind: LawKind, numbers: Tensor, *, sums: bool = False) -> Tensor:
        """sums: a running sum had its part in greedy choices too."""
        return numbers if self._same is None or (kind.greedy and not sums) else self._same(numbers)

    def _tell(self, context: Sequence[int], emitted: Sequence[int], last: int) -> None:
        """The caches what they hold now. last: drafted tokens that the last round kept."""
        if self._small is not None:
            # Its last drafted token has not been through it; nor has what the other tier wrote.
            seen = len(emitted) - 1 - last + min(last, self._gamma - 1)
            self._small.on.staged_elsewhere([*context[self._small.on.length :], *emitted[:seen]])
        if self._middle is not None:
            self._middle.on.staged_elsewhere([*context[self._middle.on.length :], *emitted[:-1]])

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.host.settle(context, committed=committed)

    def reset(self) -> None:
        self.host.reset()

    def counts(self) -> list[TierCount]:
        mine = TierCount(self._below, self._tested, self._accepted)
        self._tested = self._accepted = 0
        return [*([mine] if mine.tested else []), *self.host.counts()]

    def milliseconds(self) -> dict[str, float]:
        mine = self._clock.read()
        return {tier: spent + mine.get(tier, 0.0) for tier, spent in self.host.milliseconds().items()}

    def passes(self) -> dict[str, int]:
        mine = {self._below: self._rounds * self._gamma, **({self.tier: self._rounds} if self._middle else {})}
        self._rounds = 0
        return {tier: made + mine.get(tier, 0) for tier, made in self.host.passes().items()}
