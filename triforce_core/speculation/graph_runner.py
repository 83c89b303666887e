"""The inner rounds of TriForce without the host: draft, check, accept or refuse, and again, all on the device.

``hierarchical`` decides each token on the host, which then waits for the device some ten times per draft. Here tokens,
counts, positions and slots are numbers in device memory; a round is two captured graphs (the small model's chain; the
pass over the retrieved part with its verdict) that read and advance them. Temperature, noise and chance are data too.
The host enqueues as many rounds as are certain to be needed and reads once; seldom it must enqueue one or two more.
Where drafts end when they no longer pay (``keep_going``), it reads after each, while the next is under way.

The rules are ``sampling.DeviceSampling`` and the verifier's ``*_on_tensors``. Drafts equal the host's: token for token
when coupled, and by rejection with the same numbers.

Letters: g tokens drafted per round, V vocabulary, room: tokens that one draft may come to. Tokens are counted from the
context's last one: step 0 is that token, step i the i-th token that is written behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ..device.streams import StageClock, later
from ..events import TierCount
from ..model.graphs import Capture, DeviceSlots
from ..sampling import DeviceSampling, DrawnChance, Sampler, SamplingKind, confidence
from .drafter import Draft, Drafter, DraftStats, KeepGoing
from .hierarchical import HierarchicalDrafter
from .model_drafter import ModelDrafter, ModelOnCache
from .verifier import agree_on_tensors, reject_on_tensors

# Newest tokens that the small model's first pass of a round reads. Two of them may not be in its cache yet: its own
# last guess if all were right, and the token that followed. One more after a whole accepted draft.
REREAD = 3
_ROUND, _LAST, _TALLY = 1, 4, 5  # of: tokens written, rounds, tested and accepted tokens, kept by the last round
_STARTS = 4  # position and slot of step 0, of each of two tiers
PARAMETERS = 3


class GraphModel:
    """Run one tier's model on its cache by numbers on the device."""

    def __init__(self, on: ModelOnCache, reread: int) -> None:
        """reread: tokens up to the newest that a draft's first pass stages (again)."""
        self.on, self.cache, self.model = on, on.cache, on.model
        self._reread, self._faster = reread, on.model.faster_sampling

    @property
    def places(self) -> tuple[object, ...]:
        """Return what captured passes are good for: where their tables and buffers lie."""
        return (self.model.rope.reserve(0), *self.cache.addresses)

    def begin(self, context: Sequence[int], n: int) -> tuple[int, int]:
        """Make ready for n tokens behind ``context``; return position and slot of its last token."""
        pending = context[self.on.length :]
        if len(pending) > self._reread:
            self.on.feed(pending[:-1], 0)
            pending = pending[-1:]
        self.cache.begin(len(pending) + n)  # buffers that must grow do it now
        ahead = len(pending) - 1
        self.model.rope.reserve(self.cache.length + ahead + n)
        return self.cache.length + ahead, self.cache.next_slot + ahead

    def token_probs(self, kind: SamplingKind, parameters: Tensor) -> DeviceSampling:
        return DeviceSampling(kind, parameters, self._faster)

    def chance(self, numbers: Tensor) -> DrawnChance:
        return DrawnChance(numbers, self._faster)

    def confidence(self, logits: Tensor) -> Tensor:
        """See ``sampling.confidence``."""
        return (self.model.kernels.confidence or confidence)(logits)

    def logits(self, token_ids: Tensor, start: Tensor, steps: Tensor, rows: int) -> Tensor:
        """Return [rows, V] after the last of token_ids [n].

        steps [n]: how far behind the context's last token each is; start [2]: that token's position and slot."""
        slots = start[1:] + steps
        place = DeviceSlots(self.cache, slots, (slots[-1:] + 1).int())
        return self.model.forward_on_device(token_ids, start[:1] + steps, place, rows)

    def stage(self, context: Sequence[int], emitted: Sequence[int]) -> None:
        """Say to the cache that passes have staged what it lacks of ``context``, and ``emitted`` behind it."""
        self.on.staged_elsewhere([*context[self.on.length :], *emitted])


class CapturedParts:
    """Keep captured parts of rounds by key for as long as what they read stays where it is."""

    def __init__(self, new_capture: Callable[[], Capture] | None) -> None:
        """new_capture: None runs every part as usual (tests, machines without graphs)."""
        self._new_capture = new_capture
        self._capture: Capture | None = None
        self._places: tuple[object, ...] = ()
        self.graphs: dict[Hashable, Callable[[], None]] = {}

    @property
    def captures(self) -> bool:
        return self._new_capture is not None

    def at(self, *places: object) -> None:
        """Forget what was captured unless these are the places of last time."""
        if places != self._places:
            self._places, self.graphs = places, {}
            self._capture = self._new_capture() if self._new_capture else None

    def capture(self, key: Hashable, part: Callable[[], None]) -> bool:
        """Capture a part where parts are and this one is not; return whether it was run for that."""
        if self._capture is None or key in self.graphs:
            return False
        self.graphs[key] = self._capture(part)[0]
        return True

    def lacks(self, key: Hashable) -> bool:
        """Return whether ``capture`` would capture this part."""
        return self._capture is not None and key not in self.graphs

    def run(self, key: Hashable, part: Callable[[], None]) -> None:
        self.graphs.get(key, part)()


@dataclass(frozen=True, slots=True)
class Written:
    """Hold what rounds have written since ``GraphBuffers.write``.

    last: drafted tokens that the last round kept. kept: of each token whether it was drafted and let stand; sure: the
    checking tier's confidence in it."""

    rounds: int = 0
    tested: int = 0
    accepted: int = 0
    last: int = 0
    token_ids: list[int] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, book: Tensor) -> Written:
        tally, (tokens, kept, sure) = book[:_TALLY].tolist(), book[_TALLY + _STARTS + REREAD :].view(3, -1)
        count, rounds, tested, accepted, last = tally
        return cls(rounds, tested, accepted, last, tokens[:count].tolist(), kept[:count].bool().tolist(),
                   sure.view(torch.float64)[:count].tolist())

    def ends(self, stop: frozenset[int]) -> bool:
        return not stop.isdisjoint(self.token_ids)

    def draft(self, tiers: tuple[str, str], probs: Tensor | None, stop: frozenset[int], *, sure: bool = False) -> Draft:
        """Return it up to the first token of ``stop``.

        tiers: whose tokens the kept ones are, and the others. probs [room, V]: None where nothing was drawn."""
        ends = [i + 1 for i, token in enumerate(self.token_ids) if token in stop]
        count = ends[0] if ends else len(self.token_ids)
        drawn: Sequence[Tensor | None] = [None] * count if probs is None else probs[:count].clone().unbind()
        return Draft(self.token_ids[:count], list(drawn), [tiers[not kept] for kept in self.kept[:count]],
                     confidence=self.sure[:count] if sure else [])


class SentNumbers:
    """Send numbers into fixed memory on the device, again where capturing has written over them."""

    _sent: Sequence[tuple[Tensor, Tensor]] = ()

    def send(self, *sent: tuple[Tensor, Tensor]) -> None:
        """Copy each of these values to its place, without waiting."""
        self._sent = sent
        self.rewrite()

    def rewrite(self) -> None:
        """Begin the same draft again."""
        for values, to in self._sent:
            # From pinned memory: other copies wait for all that the device has to do.
            to[: len(values)].copy_(values.pin_memory() if to.is_cuda else values, non_blocking=True)


def sampling_numbers(sampler: Sampler, vocabulary: int, count: int) -> Tensor:
    """Return the sampler's parameters, and behind them ``count`` numbers of its chance if that decides."""
    parameters = torch.tensor(sampler.parameters(vocabulary), dtype=torch.float64)
    return parameters if sampler.coupled else torch.cat((parameters, sampler.chance.numbers(count)))


class GraphBuffers(SentNumbers):
    """Hold what rounds read and write; every method but ``write``, ``read`` and ``look`` may be captured."""

    def __init__(self, room: int, gamma: int, vocabulary: int, device: torch.device) -> None:
        self._gamma = gamma
        with torch.inference_mode(False):
            self._book = torch.zeros(_TALLY + _STARTS + REREAD + 3 * room, dtype=torch.int64, device=device)
            self._odds = torch.zeros(PARAMETERS + room * (2 * gamma + 1), dtype=torch.float64, device=device)
            self._ramp = torch.arange(-REREAD, gamma + 2, device=device)
            self.drafted = torch.zeros(gamma, dtype=torch.int64, device=device)
            self.draft_probs = torch.zeros(gamma, vocabulary, device=device)
            self.probs = torch.zeros(room, vocabulary, device=device)  # of written tokens
            self._noise: Tensor | None = None
        self._tally, rest = self._book[:_TALLY], self._book[_TALLY:]
        self.starts = rest[:_STARTS].view(-1, 2)
        self._tokens, self._kept, sure = rest[_STARTS:].split((REREAD + room, room, room))
        self._sure = sure.view(torch.float64)
        self.parameters, self._numbers = self._odds[:PARAMETERS], self._odds[PARAMETERS:].view(room, 2 * gamma + 1)

    def holds(self, room: int) -> bool:
        return room <= len(self.probs)

    def write(self, context: Sequence[int], starts: Sequence[tuple[int, int]], sampler: Sampler, room: int) -> None:
        """Begin a draft of up to ``room`` tokens after ``context``. The host does not wait."""
        places = [number for start in (starts[0], starts[-1]) for number in start]
        book = torch.tensor([*[0] * _TALLY, *places, *context[-REREAD:]])
        # A round writes a token at least, so there are no more rounds than tokens.
        odds = sampling_numbers(sampler, self.probs.shape[1], room * (2 * self._gamma + 1))
        noise = []
        if sampler.coupled and not sampler.kind.greedy:
            if self._noise is None:
                with torch.inference_mode(False):
                    self._noise = torch.zeros_like(self.probs)
            noise = [(sampler.noise(len(context), room, self.probs.shape[1]), self._noise)]
        self.send((book, self._book), (odds, self._odds), *noise)

    def read(self) -> Written:
        """Return what is written; waits for all that the device has to do."""
        return self.look()()

    def look(self) -> Callable[[], Written]:
        """Return what will be written once the device has done what it was given so far; only that is waited for."""
        book = later(self._book)
        return lambda: Written.read(book())

    def ramp(self, n: int) -> Tensor:
        """Return 0 ... n - 1, for n up to g + 2."""
        return self._ramp[REREAD : REREAD + n]

    def steps(self, start: int, stop: int) -> Tensor:
        """Return the steps of tokens [start, stop) counted from the newest."""
        return self._tally[:1] + self._ramp[REREAD + start : REREAD + stop]

    def newest(self, n: int) -> Tensor:
        """Return the last n tokens."""
        return self._tokens.index_select(0, self.steps(1 - n, 1) + (REREAD - 1))

    @property
    def count(self) -> Tensor:
        """Return [1]: tokens written; the next round moves it."""
        return self._tally[:1]

    @property
    def round(self) -> Tensor:
        """Return [1]: rounds done."""
        return self._tally[_ROUND : _ROUND + 1]

    def noise_of(self, steps: Tensor, kind: SamplingKind) -> Tensor:
        """Return [m, V] for drawing what follows each of steps [m]; greedy reads none."""
        if kind.greedy:
            return self.probs[:0]
        assert self._noise is not None
        return self._noise.index_select(0, steps)

    def numbers_of_round(self) -> Tensor:
        """Return [2g + 1]: to draw g tokens, to test them, and to draw the one that follows."""
        return self._numbers.index_select(0, self.round)[0]

    def emit(self, tokens: Tensor, accepted: Tensor, probs: Tensor | None, *, alone: bool = False,
             tested: Tensor | None = None, sure: Tensor | None = None) -> None:
        """End a round: of tokens [m] the first accepted [1] were drafted and kept, the next is the checking tier's.

        What lies behind is noise and will be written over. alone: nobody checked, all are drafted. tested [1]: tokens
        for which something was drafted, if that was not a chain of g. sure [m]: see ``Written``."""
        m = tokens.shape[0]
        steps = self.steps(0, m)
        self._tokens.index_copy_(0, steps + REREAD, tokens)
        self._kept.index_copy_(0, steps, (self.ramp(m) < accepted).long())
        if sure is not None:
            self._sure.index_copy_(0, steps, sure.double())
        if probs is not None:
            self.probs.index_copy_(0, steps, probs)
        if alone:
            self._tally[: _ROUND + 1].add_(1)
            return
        one = torch.ones_like(accepted)
        tested = (accepted + 1).clamp_max(self._gamma) if tested is None else tested
        self._tally[:_LAST].add_(torch.cat((accepted + 1, one, tested, accepted)))
        self._tally[_LAST:].copy_(accepted)


class OnDevice(Drafter):
    """Take the place of the drafter that is given, on the same models and caches.

    That one still writes where masks or penalties are at work: what may follow, or is lowered for having been said, is
    looked up on the host there, token by token."""

    def __init__(self, host: Drafter, below: str, device: torch.device, capture: Callable[[], Capture] | None,
                 same: Callable[[Tensor], Tensor] | None) -> None:
        """below: the tier that writes first. capture: see ``CapturedParts``. same: where several devices take every
        step together, gives them the first one's numbers, in place (greedy choices need it not)."""
        self.host, self.tier, self._below = host, host.tier, below
        self.captured, self._same = CapturedParts(capture), same
        self._clock = StageClock(device)
        self._tested = self._accepted = 0  # tokens of the tier below
        self._passes = dict.fromkeys((below, host.tier), 0)

    def _count(self, written: Written, passes: int) -> None:
        """Count what was written. passes: of the tier below; the other makes one a round."""
        self._tested += written.tested
        self._accepted += written.accepted
        self._passes[self._below] += passes
        if self.tier != self._below:
            self._passes[self.tier] += written.rounds

    def _agree(self, kind: SamplingKind, numbers: Tensor) -> Tensor:
        return numbers if self._same is None or kind.greedy else self._same(numbers)

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.host.settle(context, committed=committed)

    def reset(self) -> None:
        self.host.reset()

    def stats(self) -> DraftStats:
        counts = (TierCount(self._below, self._tested, self._accepted),) if self._tested else ()
        mine = DraftStats(counts, self._clock.read(), self._passes)
        self._tested = self._accepted = 0
        self._passes = dict.fromkeys(self._passes, 0)
        return self.host.stats() + mine


class GraphRunner(OnDevice):
    """Run rounds of the small model's chains and their review, or the small model alone."""

    runs_on_graphs = True
    host: HierarchicalDrafter | ModelDrafter

    def __init__(self, host: HierarchicalDrafter | ModelDrafter, capture: Callable[[], Capture] | None = None,
                 same: Callable[[Tensor], Tensor] | None = None) -> None:
        self._small: GraphModel | None = None
        self._intermediate: GraphModel | None = None
        self._gamma = 1  # tokens the small model drafts per round; alone it writes round after round
        small: Drafter = host
        if isinstance(host, HierarchicalDrafter):
            self._intermediate, small = GraphModel(host.model, 1), host.drafter
            self._gamma = host.gamma1 if isinstance(small, ModelDrafter) else 0
        if isinstance(small, ModelDrafter) and self._gamma:
            self._small = GraphModel(small.model, REREAD)
        super().__init__(host, small.tier if self._small else host.tier, host.model.device, capture, same)
        # Rounds of the small model alone are over before they could be read.
        self.gives_confidence = self._intermediate is not None
        self._state: GraphBuffers | None = None

    @property
    def _graphed(self) -> list[GraphModel]:
        return [graphed for graphed in (self._small, self._intermediate) if graphed is not None]

    def configure(self, keep_going: KeepGoing | None) -> None:
        self.host.configure(keep_going)

    @torch.inference_mode()
    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        if sampler.host_leads:
            return self.host.propose(context, num_draft_tokens, sampler)
        wanted = self._most(num_draft_tokens)
        if wanted < 1 or len(context) < REREAD:
            return Draft()
        state = self._begin(context, wanted, sampler)
        self._clock.start()
        keep_going = self.host.keep_going if self.gives_confidence else None
        if keep_going is None:
            written = self._all(state, sampler, wanted)
        else:
            written = self._while_it_pays(state, sampler, wanted, keep_going)
        self._count(written, written.rounds * max(1, self._gamma))
        emitted, last = written.token_ids, written.last
        if self._small is not None:
            # Its last drafted token has not been through it; nor has what the other tier wrote.
            self._small.stage(context, emitted[: len(emitted) - 1 - last + min(last, self._gamma - 1)])
        if self._intermediate is not None:
            self._intermediate.stage(context, emitted[:-1])
        return written.draft((self._below, self.tier), None if sampler.coupled else state.probs, sampler.stop,
                             sure=keep_going is not None)

    def _most(self, num_draft_tokens: int) -> int:
        """Return as many of them as there is room for."""
        # The last round may overshoot, and the tier above stages one token more.
        return min(num_draft_tokens, min(graphed.cache.room for graphed in self._graphed) - self._gamma - 1)

    def _all(self, state: GraphBuffers, sampler: Sampler, wanted: int) -> Written:
        """Run as many rounds as so many tokens take."""
        written, most = Written(), self._gamma + 1 if self._intermediate else 1
        while len(written.token_ids) < wanted and not written.ends(sampler.stop):
            for _ in range(-(-(wanted - len(written.token_ids)) // most)):
                self._round(state, sampler.kind)
            written = state.read()  # the only wait
        return written

    def _while_it_pays(self, state: GraphBuffers, sampler: Sampler, wanted: int, keep_going: KeepGoing) -> Written:
        """Run no more than that, and only while ``keep_going`` says so.

        To start a round takes the host a while: one is under way while it asks about those before, if so many tokens
        need it anyhow."""
        written, most, more = Written(), self._gamma + 1, True
        under_way: list[Callable[[], Written]] = []
        while True:
            while more and len(under_way) < 2 and len(written.token_ids) + most * len(under_way) < wanted:
                self._round(state, sampler.kind)
                under_way.append(state.look())
            if not under_way:
                return written
            written = under_way.pop(0)()
            more = (more and not written.ends(sampler.stop)
                    and keep_going(written.sure, len(written.token_ids), written.rounds, len(under_way)))

    def _begin(self, context: Sequence[int], wanted: int, sampler: Sampler) -> GraphBuffers:
        """Put everything that the rounds read in its place."""
        room, vocabulary = wanted + self._gamma, self._graphed[-1].model.config.vocab_size
        starts = [graphed.begin(context, room) for graphed in self._graphed]
        if self._state is None or not self._state.holds(room):
            self._state = GraphBuffers(room, self._gamma, vocabulary, self.host.model.device)
        state = self._state
        self.captured.at(state, *(place for graphed in self._graphed for place in graphed.places))
        state.write(context, starts, sampler, room)
        return state

    @torch.inference_mode()
    def prepare(self, context: Sequence[int], num_draft_tokens: int, samplers: Sequence[Sampler]) -> None:
        wanted = self._most(num_draft_tokens)
        if not self.captured.captures or wanted < 1 or len(context) < REREAD:
            return
        for sampler in samplers:
            state = self._begin(context, wanted, sampler)
            for number, part in enumerate(self._parts):
                self.captured.capture((sampler.kind, number), partial(part, state, sampler.kind))
        self.host.settle(context, committed=False)  # what was begun behind the context

    @property
    def _parts(self) -> list[Callable[[GraphBuffers, SamplingKind], None]]:
        parts = (self._draft, self._small), (self._check, self._intermediate)
        return [part for part, graphed in parts if graphed is not None]

    def _round(self, state: GraphBuffers, kind: SamplingKind) -> None:
        for number, part in enumerate(self._parts):
            self.captured.run((kind, number), partial(part, state, kind))
            self._clock.mark(self.tier if part == self._check else self._below)

    def _draft(self, state: GraphBuffers, kind: SamplingKind) -> None:
        """Write the small model's chain behind the newest token."""
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
        """Verify the chain by one pass over the retrieved part; its verdict is what the round writes."""
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
        """Return what counts as the checking tier's own draws [g + 1] if coupled, by logits [g + 1, V]."""
        return draws

    def target(self, probs: Tensor, state: GraphBuffers) -> Tensor:
        """Return what the chain is tested against and what its tokens then have as probabilities: [g + 1, V]."""
        return probs
