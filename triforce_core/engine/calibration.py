"""What passes cost on this machine, measured before the first question: by rows, context and tier.

The text is made up: a few hundred tokens are read, and their keys and values fill the cache again and again up to each
length of context. What a pass takes depends on how much it attends, not on what, so nobody waits for a long reading.
What such drafts are worth would say nothing of real text: that is learnt from answers (``draft_length.seen``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from time import perf_counter

from ..config import SamplingParams, SpeculationConfig
from ..device.memory import give_back, ran_out
from ..draft_length.costs import Curve, middle, quickest
from ..draft_length.profile import TreeCosts
from ..draft_length.selector import measure_costs
from ..errors import NotEnoughMemoryError
from ..events import MemoryPlan, PrefillProgress
from ..kv_cache.full import FullCache
from ..research.device_tree import DeviceTree
from ..research.tree_drafter import TreeDrafter
from ..sampling import Sampler
from ..speculation.round import speculate
from .attention_report import MASS_ROWS, AttentionMass
from .build import Hierarchy, dials_for
from .draft_model import SmallReading
from .loading import Loaded, full_cache
from .measured import Asked, Measured, other_budgets, tiers, where
from .plan import Dials
from .prefill import prefill, prepare

_READ = 512  # made-up tokens that are really read
ROOM = 256  # tokens of context that stay free behind what is measured, for drafts
_SHORT, _SHORT_ON_GPU, _LONG = 4096, 16384, 32768  # tokens of context: a middle tier begins to pay; books
_TREES, _TREE_DEPTH = (4, 16), 4  # guesses in trees whose passes are timed
_TREE_REPEATS = 2
_PATIENCE = 12.0  # seconds after which a busy or slow machine is asked for no more than the usual settings need
_STEPS = 100  # hundredths, in which progress is told


@dataclass(frozen=True, slots=True)
class _Stage:
    """One thing to measure. share: of the work, roughly. needed: by the usual settings."""

    work: Callable[[], None]
    share: float
    needed: bool = True


def usual_lengths(loaded: Loaded, longest: int) -> tuple[int, ...]:
    """Tokens of context to measure at, of at most ``longest`` that fit."""
    short = _SHORT_ON_GPU if loaded.target.device.type == "cuda" else _SHORT
    most = min(_LONG, longest) - ROOM
    return tuple(sorted({min(short, most), most})) if most > 0 else ()


def calibrate(loaded: Loaded, measured: Measured, contexts: Sequence[int], chunk: int,
              cancelled: Callable[[], bool], plan: Callable[[int], MemoryPlan]) -> Iterator[PrefillProgress]:
    """Measure at each of ``contexts`` (tokens) and keep it in ``measured``. A length that does not fit into memory is
    left out. Ends early when cancelled; what was measured by then is kept.

    plan: lays out so many tokens of context, on all ranks alike; raises NotEnoughMemoryError."""
    started = perf_counter()
    yield PrefillProgress(0, _STEPS, 0.0, None, "tune")
    for number, context in enumerate(contexts):
        if cancelled():
            return
        try:
            laid_out = plan(context + ROOM)
        except NotEnoughMemoryError as error:
            measured.records.trouble = _left_out(context)
            give_back(error)
            continue
        try:
            # Nothing but the loop holds it: its cache goes before the next one comes.
            for share in _Bench(loaded, measured, laid_out, chunk, cancelled, started,
                                alternatives=context == max(contexts)).run():
                fraction, spent = (number + share) / len(contexts), perf_counter() - started
                yield PrefillProgress(int(_STEPS * fraction), _STEPS, _STEPS * fraction / spent,
                                      spent / fraction - spent, "tune")
        except Exception as error:
            # One rank alone cannot leave out what the others go on with.
            if loaded.shard.world > 1 or not (isinstance(error, NotEnoughMemoryError) or ran_out(error)):
                raise
            loaded.copies.clear()  # of the weights: only speed is lost with them
            measured.records.trouble = _left_out(context)
            give_back(error)


def _left_out(context: int) -> str:
    return f"no memory is free to measure at {context:,} tokens"


class _Bench:
    """One length of context, filled."""

    def __init__(self, loaded: Loaded, measured: Measured, plan: MemoryPlan, chunk: int,
                 cancelled: Callable[[], bool], started: float, *, alternatives: bool) -> None:
        """plan: for the context and ``ROOM``. started: when all of it did. alternatives: other tiers than the usual
        ones are timed too. Raises what ``ran_out`` knows."""
        self._loaded, self._measured, self._chunk, self._cancelled = loaded, measured, chunk, cancelled
        self._alternatives, self._started = alternatives, started
        self._full = full_cache(loaded, plan)
        vocabulary = loaded.target.config.vocab_size
        # Steps through the vocabulary that repeat nothing within what is read; the first ids are special.
        self._context = [16 + 7919 * i % (vocabulary - 16) for i in range(plan.context - ROOM)]
        self._reading: SmallReading | None = None

    def run(self) -> Iterator[float]:
        """The share of it that is done, after every stage. Ends early when cancelled."""
        stages = self._stages()
        total, done = sum(stage.share for stage in stages), 0.0
        for stage in stages:
            if self._cancelled():
                return
            if stage.needed or self._loaded.shard.least(perf_counter() - self._started < _PATIENCE):
                stage.work()
            done += stage.share
            yield done / total
        self._foresee()

    def _stages(self) -> list[_Stage]:
        context = len(self._context)
        wanted = SpeculationConfig(pace="on", ngram="off")
        dials = dials_for(self._loaded, self._full, wanted, context)
        if dials.engine == "autoregressive":  # nothing drafts here, so there is nothing to weigh
            return []
        found = [_Stage(self._fill, 1.0)]
        if dials.draft_cache == "cross":
            found.append(_Stage(self._read_small, 1.0))
        found.append(_Stage(partial(self._measure, wanted), 3.0))
        if dials.has_middle and self._alternatives:
            others = [replace(wanted, budget=budget) for budget in other_budgets(dials)]
            if dials.retrieval_weights != "same":
                others.append(replace(wanted, retrieval_weights="same"))
            found += [_Stage(partial(self._measure, other, steps_only=True), 2.0, needed=False) for other in others]
        if dials.has_middle:
            found.append(_Stage(partial(self._measure_trees, wanted), 1.0, needed=False))
        return found

    def _foresee(self) -> None:
        """What the usual settings would do here, in words."""
        self._measured.plan(Asked(SpeculationConfig(), SamplingParams(), self._full, len(self._context), False,
                                  self._reading))
        self._measured.records.write()

    def _fill(self) -> None:
        full, tokens = self._full, len(self._context) - 1
        cache = full.cache
        assert isinstance(cache, FullCache)
        for _ in prepare(full, tokens, self._cancelled):
            pass
        for _ in prefill(full, self._context[: min(_READ, tokens)], self._chunk, self._cancelled):
            pass
        known = full.length
        if not known:
            return
        once = [tuple(part.clone() for part in cache.read(layer)) for layer in range(cache.num_layers)]
        for places, parts in zip(cache.restore(tokens), once, strict=True):
            for whole, part in zip(places, parts, strict=True):
                for start in range(0, tokens, known):
                    stop = min(tokens, start + known)
                    whole[:, start:stop].copy_(part[:, : stop - start])

    def _read_small(self) -> None:
        draft = self._loaded.draft
        assert draft is not None
        self._reading = SmallReading(draft, len(self._context) - 1, max_tokens=self._loaded.info.max_context)
        for _ in self._reading.read(self._context, self._chunk, self._cancelled):
            pass

    def _measure(self, wanted: SpeculationConfig, *, steps_only: bool = False) -> None:
        hierarchy, dials, observer = self._start(wanted)
        if hierarchy is None:
            return
        measure = partial(measure_costs, hierarchy, self._full, self._context, observer, dials, self._loaded.shard,
                          Sampler(SamplingParams()), self._cancelled)
        costs = measure()
        if costs is None:
            return
        if not steps_only and self._loaded.shard.least(perf_counter() - self._started < _PATIENCE):
            again = measure()
            costs = costs if again is None else quickest(costs, again)
        if steps_only:
            self._measured.records.keep_steps(tiers(dials), costs.steps)
        else:
            self._measured.keep(dials, self._full, len(self._context), "", costs)

    def _measure_trees(self, wanted: SpeculationConfig) -> None:
        """Of the middle tier, by two sizes: what a level takes, and what their verification takes."""
        growing: dict[int, list[float]] = {}
        verifying: dict[int, list[float]] = {}
        for size in _TREES:
            hierarchy, dials, observer = self._start(replace(
                wanted, tree="sequoia", tree_tier="middle", tree_size=size, tree_depth=_TREE_DEPTH))
            drafter = hierarchy.tiers if hierarchy is not None else None
            grower = drafter.host if isinstance(drafter, DeviceTree) else drafter
            if drafter is None or not isinstance(grower, TreeDrafter):
                return
            sampler = Sampler(SamplingParams())
            for _ in range(_TREE_REPEATS):
                self._full.observer = observer
                done = speculate(self._full, drafter, self._context, dials.gamma2, sampler)
                self._full.keep(len(self._context) - 1)
                self._full.observer = None
                drafter.settle(self._context, committed=False)
                passes, spent = sum(drafter.passes().values()), sum(drafter.milliseconds().values())
                drafter.ranks()
                if passes:
                    growing.setdefault(round(mean(grower.shape.widths)), []).append(spent / passes)
                    verifying.setdefault(len(done.draft.token_ids) + 1, []).append(done.verify_milliseconds)
        if growing:
            self._measured.records.keep_trees(where(self._full), len(self._context),
                                              TreeCosts(_curve(verifying), _curve(growing)))
            self._measured.records.write()

    def _start(self, wanted: SpeculationConfig) -> tuple[Hierarchy | None, Dials, AttentionMass]:
        """Drafters behind the context; None where none draft there."""
        dials = dials_for(self._loaded, self._full, wanted, len(self._context), self._reading)
        observer = AttentionMass(dials.chunk_size, MASS_ROWS)
        if dials.engine == "autoregressive":
            return None, dials, observer
        reading = self._reading if dials.draft_cache == "cross" else None
        hierarchy = Hierarchy(self._loaded, self._full, dials, observer, reading=reading)
        hierarchy.reset()
        hierarchy.start(self._context)
        if self._loaded.target.graphs is not None:
            self._loaded.target.prepare(self._full.cache, 1)
            for prepare in hierarchy.preparations(self._context, [Sampler(SamplingParams())], quoting=False):
                prepare()
        return hierarchy, dials, AttentionMass(dials.chunk_size, MASS_ROWS)


def _curve(times: dict[int, list[float]]) -> Curve:
    return Curve(tuple((rows, middle(found)) for rows, found in sorted(times.items())))
