"""Draft lengths while answering: measures what passes cost here, and keeps a controller for each kind of sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from ..device.shard import Shard
from ..drafters.graph_runner import DeviceLoop
from ..drafters.model import QUOTE, ModelOnCache
from ..drafters.prompt_lookup import NGRAM
from ..engine.attention_report import AttentionMass
from ..engine.build import Hierarchy
from ..engine.measured import Measured
from ..engine.plan import Dials
from ..events import RoundEvent
from ..sampling import Sampler
from ..speculation.draft import Draft
from ..speculation.drafter import NoDrafter
from ..speculation.round import Round, speculate
from .acceptance import Acceptance, Hopes
from .confidence import Confidence
from .controller import Choice, Controller, RoundSeen, Ways
from .costs import Costs, Curve, middle

# What is assumed before anything was seen: priors, soon overruled. Measured with the built-in pair at 30,000 tokens.
_RIGHT = {"retrieval": 0.95, "streaming": 0.85, "h2o": 0.85, "streaming-h2o": 0.85, "top-k": 0.95, "none": 0.5}
_BELOW = 0.6
_WARMTH = 0.06, 0.1  # what both lose at temperature 1 and above
QUOTING = Hopes(right=0.78, below=0.3, runs=0.3, run_length=22.0)  # where every answer is a quotation
# How much a tier's sureness is worth, with greedy choices and with any others; measured likewise.
DOUBTS = (0.3, 0.12, 0.06, 0.04, 0.02, 0.005), (0.14, 0.12, 0.09, 0.06, 0.03, 0.01)
_REPEATS = 3  # of every measurement
_PATIENCE = 2.0  # seconds after which nothing is repeated
_SHORT = 200.0  # milliseconds of a pass that may be repeated without need
_STEPS = 4  # tokens drafted to time the drafter's steps
_OVERHEADS = ("verify", "select", "other")  # stages of a round that are no drafting


def hopes(middle_cache: str, temperature: float) -> Hopes:
    """middle_cache: one of MIDDLE_CACHES."""
    right, below = (lost * min(1.0, temperature) for lost in _WARMTH)
    return Hopes(_RIGHT[middle_cache] - right, _BELOW - below)


class Pacing:
    """For one hierarchy. What was learnt in an answer is of use to the next one of its kind, but not where chance
    decides: there the text depends on the lengths, and a seed shall fix it."""

    def __init__(self, hierarchy: Hierarchy, full: ModelOnCache, shard: Shard,
                 measured: Measured | None = None) -> None:
        """measured: what is known of this machine, and learns what is measured here."""
        self._hierarchy, self._full, self._shard, self._measured = hierarchy, full, shard, measured
        dials = hierarchy.dials
        self._ways = Ways(dials.gamma1s, dials.gamma2s, dials.has_middle, dials.may_rest, dials.most or None)
        self._fixed = Choice(dials.gamma1, dials.gamma2)
        self._costs: dict[str, Costs] = {}  # by law: to make one of logits takes its time
        self._known: dict[tuple[float, bool], Controller] = {}
        self._controller: Controller | None = None

    def measure(self, context: Sequence[int], observer: AttentionMass, sampler: Sampler,
                cancelled: Callable[[], bool]) -> None:
        """What rounds after ``context`` cost, unless it is known or of no use. The hierarchy has started there; what is
        staged on the way is forgotten. observer: sees passes over made-up drafts. sampler: chooses as answers do; its
        masks, if those are held to a document, leave every token. cancelled: asked after every pass; then nothing is
        known."""
        law = self._law(sampler)
        if self._ways.settled or self._known_costs(context, law) is not None:
            return
        dials = self._hierarchy.dials
        costs = measure_costs(self._hierarchy, self._full, context, observer, dials, self._shard, sampler, cancelled)
        if costs is None:
            return
        self._costs[law] = costs
        if self._measured is not None:
            self._measured.keep(dials, self._full, len(context), law, costs)

    def _known_costs(self, context: Sequence[int], law: str) -> Costs | None:
        """Measured here, or before."""
        if law not in self._costs and self._measured is not None and not self._ways.settled:
            costs = self._measured.costs(self._hierarchy.dials, self._full, len(context), law)
            if costs is not None:
                self._costs[law] = costs
        return self._costs.get(law)

    def begin(self, context: Sequence[int], sampler: Sampler) -> None:
        """An answer after ``context``. Where nothing was measured for it, the usual lengths stay."""
        self._controller = None
        costs = self._known_costs(context, self._law(sampler))
        if costs is None:
            return
        temperature, quotes = sampler.params.temperature, bool(sampler.forced(context, 1))
        hoped = QUOTING if quotes else hopes(self._hierarchy.dials.middle_cache, temperature)
        if not sampler.by_draws:
            self._controller = self._new(costs, hoped, temperature, clocks=False)
            return
        kind = temperature, sampler.masks is not None
        if kind not in self._known:
            # A CPU is shared with all else that runs: times there go up and down by a third, and lengths would follow.
            self._known[kind] = self._new(costs, hoped, temperature, clocks=self._full.device.type == "cuda")
        self._controller = self._known[kind]
        self._controller.begin()

    def next(self) -> Choice:
        """Of the next round; on every rank the same."""
        if self._controller is None:
            return self._fixed
        choice = self._controller.next()
        own, shard = choice.goes_on, self._shard
        # What others measured may differ, and so whether theirs ends drafts early.
        gamma1, gamma2, observed, ends = shard.same([choice.gamma1, choice.gamma2, int(choice.observed),
                                                     int(own is not None)])

        def together(sureness: Sequence[float], num_drafted: int, under_way: int) -> bool:
            return bool(shard.same([int(own is not None and own(sureness, num_drafted, under_way))])[0])

        goes_on = own if shard.world == 1 else together if ends else None
        return replace(choice, gamma1=gamma1, gamma2=gamma2, observed=bool(observed), goes_on=goes_on)

    def learn(self, choice: Choice, done: Round, event: RoundEvent) -> None:
        """After each round. event: of it."""
        if self._controller is None:
            return
        dials = self._hierarchy.dials
        if done.draft.givers and done.draft.givers[0] == NGRAM:
            return  # a copy that went straight to the full cache: its length was not chosen here
        forced = [origin == QUOTE for origin in done.draft.origins]
        below = [count for count in event.tiers if dials.has_middle and count.tier not in (dials.middle_cache, QUOTE)]
        spent = event.milliseconds
        self._controller.learn(RoundSeen(
            choice, forced, done.verdict.num_tested, done.verdict.num_accepted,
            _steps(dials, event.passes, len(forced) - sum(forced)),
            (sum(count.tested for count in below), sum(count.accepted for count in below)),
            _drafting(spent), spent["verify"], spent.get("select", 0.0) + spent["other"],
            [sure for sure, given in zip(done.draft.sureness, forced, strict=False) if not given]))

    def _law(self, sampler: Sampler) -> str:
        """What passes and steps take their time from. Where masks are at work the host leads the drafts, which on a GPU
        takes up to twice as long: with the other steps' times drafts went on for long behind quotations. To draw with
        noise takes about what drawing from laws does; beside a CPU's passes how tokens are chosen takes no time."""
        if not isinstance(self._hierarchy.tiers, DeviceLoop):
            return ""
        drawn = "" if sampler.kind.greedy else "; drawn from laws"
        return drawn + ("; the host leads" if sampler.masks is not None else "")

    def why(self) -> str:
        """Why the last answer's drafts are as long as they are; empty where that was given."""
        return self._controller.why() if self._controller is not None else ""

    def _new(self, costs: Costs, hoped: Hopes, temperature: float, *, clocks: bool) -> Controller:
        told = self._hierarchy.tells_sureness and len(self._ways.gamma2s) > 1
        return Controller(costs, self._ways, Acceptance(hoped), clocks=clocks,
                          confidence=Confidence(DOUBTS[temperature > 0]) if told else None)


class _Given(NoDrafter):
    """Proposes what it was given, whatever the context."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._draft = Draft(list(token_ids), [None] * len(token_ids), ["draft"] * len(token_ids))

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        return self._draft


def measure_costs(hierarchy: Hierarchy, full: ModelOnCache, context: Sequence[int], observer: AttentionMass,
                  dials: Dials, shard: Shard, sampler: Sampler, cancelled: Callable[[], bool] = lambda: False
                  ) -> Costs | None:
    """Medians of a few repeats, of fewer where passes are long. dials: with the lengths to choose from. cancelled:
    asked after every pass, on every rank alike; then there are none."""
    room = min(full.cache.room, len(context)) - 1  # type: ignore[attr-defined]
    shortest, longest = min(dials.gamma2s), dials.most or max(dials.gamma2s)
    widths = sorted({min(room, drafted) for drafted in (shortest, (shortest + longest) // 2, longest)})
    plain: list[float] = []
    verify: dict[int, list[float]] = {drafted: [] for drafted in widths}
    steps: dict[int, list[float]] = {gamma1: [] for gamma1 in dials.gamma1s}
    choose: list[float] = []
    # What is loaded for a law's first pass, and for the first of a width, is no part of the others: on two CPU cores
    # such a one took twice as long, and drafts were half as long for it.
    short = _pass(full, context, 0, None, sampler) < _SHORT
    if shard.same([int(short)])[0]:  # every rank makes the same passes
        for drafted in widths:
            _pass(full, context, drafted, observer, sampler)
            if cancelled():
                return None
    started = perf_counter()
    for _ in range(_REPEATS):
        plain.append(_pass(full, context, 0, None, sampler))
        for drafted in widths:
            if cancelled():
                return None
            verify[drafted].append(_pass(full, context, drafted, observer, sampler))
        choose.append(hierarchy.time_choice())
        for gamma1 in dials.gamma1s:
            if cancelled():
                return None
            hierarchy.begin(Choice(gamma1, _STEPS))
            steps[gamma1].append(_step(hierarchy, context, sampler))
        if shard.same([int(perf_counter() - started > _PATIENCE)])[0]:
            break
    return Costs(middle(plain), Curve(tuple((drafted + 1, middle(verify[drafted])) for drafted in widths)),
                 {gamma1: middle(times) for gamma1, times in steps.items()}, middle(choose))


def _pass(full: ModelOnCache, context: Sequence[int], drafted: int, observer: AttentionMass | None,
          sampler: Sampler) -> float:
    """Milliseconds of the full pass over a draft, with its verdict."""
    full.observer = observer
    made_up = context[len(context) - drafted :]
    done = speculate(full, _Given(made_up), context, drafted, sampler)
    full.keep(len(context) - 1)
    full.observer = None
    return done.verify_milliseconds


def _step(hierarchy: Hierarchy, context: Sequence[int], sampler: Sampler) -> float:
    """Milliseconds of one of the drafter's steps."""
    drafter = hierarchy.tiers
    draft = drafter.propose(context, _STEPS, sampler)
    drafter.settle(context, committed=False)
    for forgotten in (drafter.counts, drafter.ranks):  # of no round
        forgotten()
    return _drafting(drafter.milliseconds()) / max(1, _steps(hierarchy.dials, drafter.passes(), len(draft.token_ids)))


def _steps(dials: Dials, passes: Mapping[str, int], drafted: int) -> int:
    """Of the drafter, in a round: its checking model's passes, or its only one's; tokens where there is no model."""
    return passes.get(dials.middle_cache, 0) if dials.has_middle else sum(passes.values()) or drafted


def _drafting(spent: Mapping[str, float]) -> float:
    return sum(time for stage, time in spent.items() if stage not in _OVERHEADS)
