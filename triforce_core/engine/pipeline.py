"""The tiers that draft for one document, and what they need before, between and after the rounds of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from ..device.capability import single_thread
from ..device.streams import SideStream, StageClock
from ..events import PrefillProgress
from ..kv_cache.cross_model import CrossModelCache
from ..kv_cache.full import FullCache
from ..speculation.draft_length import Selection
from ..speculation.drafter import Drafter, NoDrafter
from ..speculation.model_drafter import ModelOnCache
from ..speculation.verifier import Verifier, verify
from .attention_report import AttentionMass
from .draft_model import mark
from .loading import Loaded
from .plan import Plan
from .prefill import read_prompt

COPY_LENGTHS = (8, 16, 32)  # of direct copies, where each is a captured pass of its own


class ChosenCache(Protocol):
    """A part of the full cache, chosen by scores (``kv_cache.retrieval_*`` are the usual ones)."""

    chooses_ahead: bool  # ``choose`` may run while tokens are staged

    def select(self, mass: Tensor) -> None:
        """Hold what has the most mass [layers, H, chunks], and be level with the full cache."""
        ...

    def choose(self, mass: Tensor) -> None: ...

    def sync(self) -> None:
        """Be level with the full cache; staged tokens are dropped."""
        ...


@dataclass(slots=True)
class PipelineParts:
    """Hold what ``build.Parts`` made. tiers: the drafter without direct copies; drafter: with them."""

    drafter: Drafter = field(default_factory=NoDrafter)
    tiers: Drafter = field(default_factory=NoDrafter)
    draft: ModelOnCache | None = None
    cross_model: CrossModelCache | None = None
    reviewer: ModelOnCache | None = None  # the intermediate verifier: the target over ``part``
    part: ChosenCache | None = None
    agree: Callable[[Sequence[int]], None] = lambda context: None  # shows prompt lookup a context
    fixed_width: int = 0  # tokens of each draft for the full cache, where those are trees
    verify: Verifier = verify  # what the full cache makes of drafts


# large: the tiers, and what was chosen for the next round
class Pipeline:
    """The drafters of one document's session, made once for a plan, and how each question starts them. Without parts it
    is plain decoding: nothing drafts."""

    def __init__(self, loaded: Loaded, full: ModelOnCache[FullCache], plan: Plan, observer: AttentionMass,
                 parts: PipelineParts) -> None:
        """observer: of the full passes that choose."""
        self.plan, self.observer = plan, observer
        self.parts, self.full, self.target, self._shard = parts, full, loaded.target, loaded.shard
        self.drafter, self.tiers = parts.drafter, parts.tiers
        self._streams = full.cache.streams
        self._marks = self._observes = True
        self._rounds = 0
        self._clock = StageClock(loaded.target.device)
        self._side_stream = SideStream(loaded.target.device)
        self._chosen: Tensor | None = None  # scores that the next drafts' chunks were chosen by, ahead of their round
        self._marked = False  # the small model's too
        self._spent: dict[str, float] = {}

    @property
    def pass_observer(self) -> AttentionMass:
        """Return what observed passes are handed: it shows ``observer`` what it sees."""
        return self.observer

    @property
    def drafts(self) -> bool:
        return self.plan.engine != "autoregressive"

    def serves(self, plan: Plan) -> bool:
        """Return whether it is what ``plan`` would be built to. The reason counts the context's tokens, and both
        verifiers verify the same drafts: another one needs no other caches, and no other graphs."""
        return replace(self.plan, why=plan.why, verifier=plan.verifier) == plan

    @property
    def profile_key(self) -> tuple[str, str] | None:
        """Name what passes and steps take their time from: where keys and values lie, and the tiers. None: measured
        costs do not last."""
        cache, tiers = self.full.cache, self.plan.tiers_key
        layers, here = cache.num_layers, cache.resident_layers
        place = "all on the device" if here == layers else f"{here} of {layers} layers on the device"
        if cache.kind != "same":
            place += f", in {cache.kind}"
        return None if tiers is None else (place, tiers)

    def reset(self) -> None:
        """Before a question's prompt is read: forget the last one's."""
        self.drafter.reset()
        self._rounds = 0

    def reads_from(self, length: int) -> int:
        """The full cache has read the first ``length`` tokens of a context; -> from where it must be read (again)."""
        return length

    def read(self, context: Sequence[int], shared: int, chunk: int,
             cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """All of ``context`` but its last token into the full cache, from where that ends. shared: tokens with which
        every context begins."""
        return read_prompt(self.full, context[: len(context) - 1], chunk, self.observer, cancelled)

    def start(self, context: list[int], *, marks: bool = True) -> None:
        """Before the first round of a question: its prompt but for the last token is in the full cache, and in the
        small model's own where that attends chunks. marks: whether it does so in this answer; else it attends the
        newest tokens."""
        parts, plan = self.parts, self.plan
        self.start_without_models(context)
        self._marks = marks
        if parts.cross_model is not None and not marks:
            parts.cross_model.truncate(0)  # what the last answer's rounds chose
        if parts.draft is not None and parts.cross_model is None:
            parts.draft.start(context, plan.sinks, plan.window)
        self._choose()
        self._clock.clear()  # no round's time

    def start_without_models(self, context: list[int]) -> None:
        """``start`` where only copies are drafted: nothing is chosen for models, and no pass is observed."""
        self._marks, self._chosen, self._marked = False, None, False
        self._side_stream.join()
        self.parts.agree(context)

    def forget(self) -> None:
        """Forget counts of earlier rounds: they belong to no answer."""
        self.after_round()
        self.drafter.stats()
        self.milliseconds()

    def milliseconds(self) -> dict[str, float]:
        """Return and clear the time of the choice that the last round's drafts were made with. Waits for nothing."""
        spent, self._spent = self._spent, {}
        return spent

    def begin(self, choice: Selection) -> int:
        """Before each round; -> tokens to ask for."""
        self._observes = choice.observed
        if choice.gamma2:
            self.tiers.configure(choice.keep_going)
        return self.drafter.begin(choice.gamma2)

    @property
    def next_observer(self) -> AttentionMass | None:
        """Who sees the next full pass, if its attention mass is wanted."""
        due = self.drafts and self._observes and (self._rounds + 1) % self.plan.refresh_every == 0
        return self.observer if due else None

    def time_choice(self) -> float:
        """Choose chunks as a round does; milliseconds of it that come after the verdict."""
        self.overlap(lambda mass: None)
        self._side_stream.join()
        self._choose()
        return sum(self._clock.read().values())

    def overlap(self, see: Callable[[Tensor], None]) -> None:
        """Show the mass [layers, H, chunks] of an observed pass under way, and choose chunks by it before its verdict
        is known, where that does not depend on it.

        The host has nothing else to do then, and the device little: after the verdict it would wait for both."""
        mass, part, cross_model = self.observer.latest, self.parts.part, self.parts.cross_model
        if mass is None:
            return
        see(mass)
        if part is None or not part.chooses_ahead:
            return
        with self._side_stream:
            self._chosen = self._scores()
            if self._chosen is None:
                return
            part.choose(self._chosen)
            if cross_model is not None and self._marks and cross_model.marked:
                mark(cross_model, self._chosen, self._shard, ahead=True)
                self._marked = True

    def settle(self, context: Sequence[int]) -> None:
        """The full cache has committed a round, of ``context`` all but its last token."""
        if self._chosen is not None:
            self._side_stream.join()
        self.drafter.settle(context, committed=True)
        self.after_round()

    def after_round(self) -> None:
        """Choose chunks anew if it is time."""
        self._rounds += 1
        self._spent = self._clock.read()  # of the choice before: the pass after it is done
        if self._observes and self._rounds % self.plan.refresh_every == 0:
            self._choose()

    def _choose(self) -> None:
        """By what the newest observed pass attended."""
        part, cross_model = self.parts.part, self.parts.cross_model
        chosen, self._chosen = self._chosen, None
        if self._streams and part is not None:  # chosen layer by layer while that pass ran; level with it since
            part.sync()
            part = None
        if cross_model is None and part is None:
            return
        self._clock.start()
        with single_thread(self.target.device):
            scores = self._scores() if chosen is None else chosen
            marked, self._marked = self._marked, False
            if cross_model is not None and self._marks and scores is not None:
                if not (marked and cross_model.marked):  # what was committed since may have needed the room
                    mark(cross_model, scores, self._shard)
            elif cross_model is not None:
                cross_model.sync()
            if part is not None:
                self._select(part, scores, chosen is None)
        self._clock.mark("select")

    def _select(self, part: ChosenCache, scores: Tensor | None, chosen_now: bool) -> None:
        if scores is not None and chosen_now:
            part.select(scores)
        else:
            part.sync()

    def _scores(self) -> Tensor | None:
        """[layers, H, chunks], None before anything was observed."""
        mass = self.observer.latest
        return None if mass is None else self.target.kernels.look_ahead(mass)

