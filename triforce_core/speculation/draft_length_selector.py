"""Draft lengths while answering: measures what passes cost here, and keeps a controller for each kind of sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..device.shard import Shard
from ..events import RoundEvent
from ..kernels import AttentionObserver
from ..sampling import Sampler
from .cost_profile import Profile
from .draft_length import Candidates, Controller, Costs, Prior, RoundSeen, Selection, can_pay
from .drafter import Draft, NoDrafter
from .model_drafter import QUOTE, ModelOnCache
from .prompt_lookup import NGRAM
from .round import Round, speculate

# What is assumed before anything was seen: priors, soon overruled. Measured with the built-in pair at 30,000 tokens.
_RIGHT, _OTHER = {"retrieval": 0.95, "none": 0.5}, 0.85
_BELOW = 0.6
_WARMTH = 0.06, 0.1  # what both lose at temperature 1 and above
_QUOTING = 0.78, 0.3, 6.6  # where every answer is a quotation; the last: tokens forced behind a drafted one
# How much a tier's confidence is worth, with greedy choices and with any others; measured likewise.
ERROR_RATES = (0.3, 0.12, 0.06, 0.04, 0.02, 0.005), (0.14, 0.12, 0.09, 0.06, 0.03, 0.01)
_REPEATS = 3  # of every measurement
_PATIENCE = 5.0  # seconds after which nothing is repeated
_SHORT = 200.0  # milliseconds of a pass that may be repeated without need
_STEPS = 4  # tokens drafted to time the drafter's steps
_NEVER = "no model drafts: even if nearly every token were right, drafting would take longer here than plain decoding"
_SELDOM = ("no model drafts: {right:.0%} of the small model's tokens were right where both were tried, and with so "
           "many drafting would take longer here than plain decoding")


def expected_prior(middle_cache: str, gamma1: int, temperature: float, *, quotes: bool = False,
                   confident: bool = True) -> Prior:
    """Return what is assumed of drafts before anything was seen.

    middle_cache: what the intermediate verifier attends, or "none"; below it chains of gamma1. quotes: answers are
    quotations. confident: the drafter says how sure it is."""
    lost = [share * min(1.0, temperature) for share in _WARMTH]
    right, below, forced = _QUOTING if quotes else (_RIGHT.get(middle_cache, _OTHER) - lost[0], _BELOW - lost[1], 0.0)
    per_step = 1.0 if middle_cache == "none" else sum(below**i for i in range(gamma1 + 1))
    return Prior(right, per_step, forced, ERROR_RATES[temperature > 0] if confident else ())


class DraftLengthSelector:
    """Choose the draft lengths of one pipeline.

    What was learnt in an answer is of use to the next one of its kind, but not with rejection sampling above
    temperature 0: there the text depends on the lengths, and a seed shall fix it."""

    def __init__(self, pipeline: Any, full: ModelOnCache, shard: Shard, profile: Profile | None = None) -> None:
        """pipeline: an ``engine.pipeline.Pipeline``. profile: what is known of this machine, and keeps what is
        measured here."""
        self._pipeline, self._full, self._shard, self._profile = pipeline, full, shard, profile
        lengths = pipeline.plan.lengths
        self._candidates: Candidates = pipeline.plan.candidates
        self._fixed = Selection(lengths.gamma2)
        self._costs: dict[str, Costs] = {}  # by kind of sampling: to make a distribution of logits takes its time
        self._known: dict[tuple[float, bool], Controller] = {}
        self._controller: Controller | None = None
        self.rests = False  # the models draft nothing in this answer, as they are never quick enough here
        self._why = ""

    def measure(self, context: Sequence[int], observer: AttentionObserver | None, sampler: Sampler,
                cancelled: Callable[[], bool]) -> None:
        """Measure what rounds after ``context`` cost, unless it is known or of no use.

        The pipeline has started there; what is staged on the way is forgotten. observer: sees passes over made-up
        drafts. sampler: chooses as answers do; its masks, if those are held to a document, leave every token.
        cancelled: asked after every pass; then nothing is known."""
        kind = self._kind(sampler)
        if self._candidates.settled or self._known_costs(context, kind) is not None:
            return
        costs = measure_costs(self._pipeline, self._full, context, observer, self._shard, sampler, cancelled)
        if costs is None:
            return
        self._costs[kind] = costs
        key = self._key(kind)
        if self._profile is not None and key is not None:
            self._profile.keep_costs(*key[:2], len(context), key[2], costs)
            self._profile.write()

    def _known_costs(self, context: Sequence[int], kind: str) -> Costs | None:
        """Return what was measured here, or before near enough; on every rank, or on none."""
        if kind not in self._costs and self._profile is not None and not self._candidates.settled:
            key = self._key(kind)
            costs = None if key is None else self._profile.costs(*key[:2], len(context), key[2])
            if self._shard.least(costs is not None) and costs is not None:
                self._costs[kind] = costs
        return self._costs.get(kind)

    def _key(self, kind: str) -> tuple[str, str, int] | None:
        """Return what a profile knows these costs by: place, tiers and gamma1; None where costs do not last."""
        key = self._pipeline.profile_key
        return None if key is None else (key[0] + kind, key[1] + kind, self._pipeline.plan.lengths.gamma1)

    def begin(self, context: Sequence[int], sampler: Sampler) -> None:
        """Begin an answer after ``context``. Where nothing was measured for it, the usual lengths stay."""
        self._controller, self.rests = None, False
        costs = self._known_costs(context, self._kind(sampler))
        if costs is None:
            return
        plan = self._pipeline.plan
        promise = self._profile.promise if self._profile is not None and not plan.has_intermediate else None
        right = promise.accepted if promise is not None and plan.draft_model else None
        # Held to the document most tokens are its own, and drafts are worth more. Several ranks may have measured
        # differently. What runs without the host follows along by itself.
        models = plan.has_intermediate or plan.draft_model
        follows = plan.draft_model and self._pipeline.tiers.runs_on_graphs
        alone = models and self._shard.world == 1 and not follows
        gamma1 = plan.lengths.gamma1
        self.rests = (alone and self._candidates.may_rest and sampler.masks is None
                      and not can_pay(costs, self._candidates, gamma1 + 1 if plan.has_intermediate else 1, right))
        if self.rests:
            self._why = _NEVER if right is None else _SELDOM.format(right=right)
            return
        temperature = sampler.params.temperature
        confident = self._pipeline.tiers.gives_confidence and len(self._candidates.gamma2s) > 1
        prior = expected_prior(plan.middle_cache, gamma1, temperature, quotes=bool(sampler.guided(context, 1)),
                               confident=confident)
        if not sampler.coupled:
            self._controller = Controller(costs, self._candidates, prior, clocks=False)
            return
        kind = temperature, sampler.host_leads
        if kind not in self._known:
            # A CPU is shared with all else that runs: times there go up and down by a third, and lengths would follow.
            # Where the target drafts for itself, which gains little, they decide whether it does.
            clocks = self._full.device.type == "cuda"
            self._known[kind] = Controller(costs, self._candidates, prior, clocks=clocks, compares=alone and not clocks)
        self._controller = self._known[kind]
        self._controller.begin()

    def next(self) -> Selection:
        """Return the choice for the next round, on every rank the same."""
        if self.rests:
            return Selection(0, False, self._candidates.most)
        if self._controller is None:
            return self._fixed
        choice = self._controller.next()
        own, shard = choice.keep_going, self._shard
        # What others measured may differ, and so whether theirs ends drafts early.
        gamma2, observed, ends = shard.same([choice.gamma2, int(choice.observed), int(own is not None)])

        def together(confidence: Sequence[float], num_drafted: int, steps: int, under_way: int) -> bool:
            return bool(shard.same([int(own is not None and own(confidence, num_drafted, steps, under_way))])[0])

        keep_going = own if shard.world == 1 else together if ends else None
        return replace(choice, gamma2=gamma2, observed=bool(observed), keep_going=keep_going)

    def learn(self, choice: Selection, done: Round, event: RoundEvent) -> None:
        """Learn from a round that is over. event: of it."""
        if self._controller is None:
            return
        plan = self._pipeline.plan
        if done.draft.proposers and done.draft.proposers[0] == NGRAM:
            return  # a direct copy: its length was not chosen here
        guided = [source == QUOTE for source in done.draft.sources]
        self._controller.learn(RoundSeen(
            choice, guided, done.verdict.num_tested, done.verdict.num_accepted,
            _steps(plan, event.passes, len(guided) - sum(guided)), sum(event.milliseconds.values()),
            [sure for sure, given in zip(done.draft.confidence, guided, strict=False) if not given]))

    def _kind(self, sampler: Sampler) -> str:
        """Return what passes and steps take their time from beside the tiers.

        Where masks or penalties are at work the host leads the drafts, which on a GPU takes up to twice as long. To
        draw with noise takes about what drawing from a distribution does; beside a CPU's passes how tokens are chosen
        takes no time. Words of profiles that are kept: do not change them."""
        if not self._pipeline.tiers.runs_on_graphs:
            return ""
        drawn = "" if sampler.kind.greedy else "; drawn from laws"
        return drawn + ("; the host leads" if sampler.host_leads else "")

    def why(self) -> str:
        """Return why the last answer's drafts are as long as they are; empty where that was given."""
        if self.rests:
            return self._why
        return self._controller.why() if self._controller is not None else ""


class _Given(NoDrafter):
    """Propose what was given, whatever the context."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._draft = Draft(list(token_ids), [None] * len(token_ids), ["draft"] * len(token_ids))

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        return self._draft


def measure_costs(pipeline: Any, full: ModelOnCache, context: Sequence[int],
                  observer: AttentionObserver | None, shard: Shard, sampler: Sampler,
                  cancelled: Callable[[], bool] = lambda: False) -> Costs | None:
    """Return the least of a few repeats, of fewer where passes are long; None if cancelled, on every rank alike."""
    lengths = pipeline.plan.lengths
    room = min(full.cache.room, len(context)) - 1
    shortest, longest = min(lengths.gamma2s), lengths.most or max(lengths.gamma2s)
    widths = sorted({min(room, drafted) for drafted in (shortest, (shortest + longest) // 2, longest)})
    plain: list[float] = []
    verify: dict[int, list[float]] = {drafted: [] for drafted in widths}
    steps: list[float] = []
    choose: list[float] = []
    # What is loaded for a first pass, and for the first of a width, is no part of the others: on two CPU cores
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
        choose.append(pipeline.time_choice())
        if cancelled():
            return None
        pipeline.begin(Selection(_STEPS))
        steps.append(_step(pipeline, context, sampler))
        if shard.same([int(perf_counter() - started > _PATIENCE)])[0]:
            break
    # The least, as whatever disturbs makes them longer: on a machine with much else to do one may take thrice its time.
    return Costs(min(plain), tuple((drafted + 1, min(verify[drafted])) for drafted in widths), min(steps), min(choose))


def _pass(full: ModelOnCache, context: Sequence[int], drafted: int, observer: AttentionObserver | None,
          sampler: Sampler) -> float:
    """Return the milliseconds of the full pass over a draft, with its verdict."""
    full.observer = observer
    made_up = context[len(context) - drafted :]
    done = speculate(full, _Given(made_up), context, drafted, sampler)
    full.keep(len(context) - 1)
    full.observer = None
    return done.verify_milliseconds


def _step(pipeline: Any, context: Sequence[int], sampler: Sampler) -> float:
    """Return the milliseconds of one of the drafter's steps."""
    drafter = pipeline.tiers
    draft = drafter.propose(context, _STEPS, sampler)
    drafter.settle(context, committed=False)
    stats = drafter.stats()
    drafting = sum(stats.milliseconds.values())
    return drafting / max(1, _steps(pipeline.plan, stats.passes, len(draft.token_ids)))


def _steps(plan: Any, passes: Mapping[str, int], drafted: int) -> int:
    """Return a round's steps: the checking model's passes, or the only one's; tokens where there is no model."""
    return passes.get(plan.middle_cache, 0) if plan.has_intermediate else sum(passes.values()) or drafted
