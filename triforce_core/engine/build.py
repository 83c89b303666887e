"""Names concrete kinds (with ``middle_caches``): which caches, which drafters, on which device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from ..config import HEAVY_HITTERS, SpeculationConfig
from ..device.side_stream import Beside
from ..device.stage_clock import StageClock
from ..draft_length.controller import Choice
from ..drafters.graph_runner import DeviceLoop
from ..drafters.hierarchical import HierarchicalDrafter
from ..drafters.model import ModelDrafter, ModelOnCache
from ..drafters.prompt_lookup import NGramDrafter, TextIndex
from ..drafters.router import Either
from ..errors import ConfigError
from ..kernels import WEIGHT_KINDS
from ..kv_cache.cross_model import MarkedCache
from ..kv_cache.full import FullCache
from ..kv_cache.offloaded import OffloadedCache
from ..kv_cache.retrieval_indexed import IndexedCache
from ..model import Llama
from ..research.accumulated_mass import AccumulatedMass
from ..research.cascade import with_ngrams
from ..research.chunk_means import ChunkMeans
from ..sampling import Sampler
from ..speculation.drafter import Drafter, GoesOn, NoDrafter
from .attention_report import AttentionMass
from .draft_model import SmallReading, mark, on_streaming, reading_bytes, without_some_layers
from .leading import device_leads, grow_trees, led
from .loading import Loaded
from .middle_caches import PartCache, follow, part_cache
from .plan import Dials
from .warm_up import any_width, questions

# A drafted token's time in full passes. Measured on an H200, llama2-7b, 120,000 tokens: 2.1 ms beside 20; on two, 1.2
# beside 328 where the cache comes through their links; with the built-in pair on two CPU cores 4.5 beside 45.
_DRAFTING, _DRAFTING_BESIDE_A_LINK = 0.1, 0.004
_COPIES = (8, 16, 32)  # lengths of copies, where each is a captured pass of its own
_ROOM_TO_ASK = 49  # tokens that a small model's first draft reads at most, see ``SmallReading``
_HEADROOM = 2 * 2**30  # bytes that a copy of the weights leaves free: the retrieval cache, graphs, its own making


class Hierarchy:
    """The drafters of one document's session, made once for its dials, and how each question starts them."""

    def __init__(self, loaded: Loaded, full: ModelOnCache, dials: Dials, observer: AttentionMass,
                 accumulated: AccumulatedMass | None = None, text: TextIndex | None = None,
                 reading: SmallReading | None = None) -> None:
        """observer: of the full passes that choose. accumulated: of all full passes, for H2O.
        text: what n-grams are copied from, if they are. reading: the small model's, if it attends marked chunks."""
        assert isinstance(full.cache, FullCache)
        assert (accumulated is not None) == (dials.middle_cache in HEAVY_HITTERS)
        self.dials, self._observer, self._accumulated, self._loaded = dials, observer, accumulated, loaded
        self._chosen_in_passing = isinstance(full.cache, OffloadedCache)
        self._text = text if dials.ngram or dials.straight else None
        self._small: ModelOnCache | None = None
        self._marked: MarkedCache | None = None
        self._marks = True
        self._part: PartCache | None = None
        self._newest: ModelOnCache | None = None
        self._reviewer: ModelOnCache | None = None  # the target over ``_part``
        self._means: ChunkMeans | None = None
        self._rounds = 0
        self._observes = True
        self._ran_any_width = False
        self.drafter: Drafter = NoDrafter()
        if dials.small_model:
            if dials.draft_cache == "cross":
                assert reading is not None
                self._small = reading.marked(2 * dials.window, dials.window, dials.chunk_size)
                assert isinstance(self._small.cache, MarkedCache)
                self._marked = self._small.cache
            else:
                small = loaded.draft
                if dials.self_skip:
                    small = without_some_layers(loaded.with_weights(dials.retrieval_weights))
                assert small is not None
                self._small = on_streaming(small, dials.sinks, dials.window)
            self.drafter = (grow_trees(loaded, self._small, dials, tier="draft") if dials.tree_tier == "draft"
                            else ModelDrafter(self._small, leaves_forced=dials.has_middle))
        if self._text is not None and dials.ngram:
            self.drafter = with_ngrams(self._small, self._text, dials.ngram_tail, dials.lenience)
        if dials.middle_cache == "streaming":
            self._newest = on_streaming(loaded.with_weights(dials.retrieval_weights), dials.sinks, dials.newest)
            self.drafter = self._middle(self._newest, follows=False)
        elif dials.middle_cache != "none":
            self._part = part_cache(loaded.target, full.cache, dials)
            if self._chosen_in_passing:
                observer.follower = follow(self._part, loaded.target.kernels.look_ahead)
            model = loaded.with_weights(dials.retrieval_weights)
            self._reviewer = ModelOnCache(model, self._part, model.device)
            self.drafter = self._middle(self._reviewer, follows=True)
            if dials.refresh == "chunk-means":
                self._means = ChunkMeans(full.cache, dials.chunk_size)
        self._full, self._target, self._shard = full, loaded.target, loaded.shard
        self._clock = StageClock(loaded.target.device)
        self._beside = Beside(loaded.target.device)
        self._chosen: Tensor | None = None  # scores that the next drafts' chunks were chosen by, ahead of their round
        self._spent: dict[str, float] = {}
        # Without copies that go straight to the full cache.
        self.tiers = self.drafter = led(loaded, self.drafter, dials, self._part)
        if self._text is not None and dials.straight:
            self.drafter = Either(self.drafter, NGramDrafter(self._text, dials.straight), dials.straight,
                                  _DRAFTING_BESIDE_A_LINK if self._chosen_in_passing else _DRAFTING,
                                  _COPIES if loaded.target.graphs is not None else (),
                                  by_draws_only=dials.straight_by_draws)

    def _middle(self, model: ModelOnCache, *, follows: bool) -> Drafter:
        """The tier between, over the drafter made so far."""
        dials = self.dials
        if dials.tree_tier == "middle":
            return grow_trees(self._loaded, model, dials, tier=dials.middle_cache, follows=follows)
        return HierarchicalDrafter(model, self.drafter, dials.gamma1, tier=dials.middle_cache, follows=follows,
                                   lenience=dials.lenience)

    def reset(self) -> None:
        """Before a question's prompt is read: forget the last one's."""
        self.drafter.reset()
        self._rounds = 0

    def start(self, context: list[int], *, marks: bool = True) -> None:
        """Before the first round of a question: its prompt but for the last token is in the full cache, and in the
        small model's own where that attends marked chunks. marks: whether it does so in this answer; else it attends
        the newest tokens."""
        self._marks, self._chosen = marks, None
        self._beside.join()
        if self._marked is not None and not marks:
            self._marked.truncate(0)  # what the last answer's rounds marked
        if self._small is not None and self._marked is None:
            self._small.start(context, self.dials.sinks, self.dials.window)
        if self._newest is not None:
            self._newest.start(context, self.dials.sinks, self.dials.newest)
        if self._text is not None:
            self._text.agree(context)
        self._choose()
        self._clock.clear()  # no round's time

    def preparations(self, context: list[int], samplers: Sequence[Sampler], *,
                     quoting: bool) -> list[Callable[[], object]]:
        """After ``start``, each to be called in order: what rounds will run is captured where it is not, so that no
        answer waits for a capture, or for a kernel to be compiled. What is staged on the way is forgotten.

        samplers: one for each kind of choices that answers may make, none of them an answer's own. quoting: answers
        may be held to the document's words."""
        dials = self.dials
        observers = [self._accumulated or self._observer, *([None] if dials.refresh_every > 1 else [])]
        steps: list[Callable[[], object]] = [
            partial(self._target.prepare, self._full.cache, drafted + 1, observer, tree=dials.verifies_trees)
            for drafted in self._draft_lengths() for observer in observers]
        steps += [partial(self._target.prepare, self._full.cache, copied + 1, self._accumulated or self._observer)
                  for copied in (_COPIES if dials.straight else ())]
        parts = [on for on in (self._small, self._reviewer or self._newest) if on is not None]
        if quoting:
            # A pass that streams its cache takes about as long as compiling does.
            whole = None if self._chosen_in_passing or self._ran_any_width else self._full
            self._ran_any_width = True
            steps += any_width(whole, parts, dials.chunk_size, self._observer.mass_rows)
        steps += [partial(on.model.capture_wanted, on.cache) for on in (self._full, *parts)
                  if isinstance(on.model, Llama)]
        if self._marked is not None and self._small is not None:
            steps += questions(self._small, _ROOM_TO_ASK)
        # The longest first: buffers that grow for it would take shorter ones' captures along.
        return steps + [partial(self._capture_drafts, context, samplers, gamma1)
                        for gamma1 in sorted(dials.gamma1s, reverse=True)]

    def _draft_lengths(self) -> list[int]:
        """Of drafts that the full cache may be given, copies and quotations aside."""
        dials = self.dials
        if dials.verifies_trees:
            return [dials.tree_size]
        beyond = max(dials.gamma1s) if dials.has_middle else 0
        ends = range(1, dials.longest + 1) if self.tells_sureness and len(dials.gamma2s) > 1 else dials.gamma2s
        return sorted({end + more for end in ends for more in range(beyond + 1)} | ({0} if dials.may_rest else set()))

    def _capture_drafts(self, context: list[int], samplers: Sequence[Sampler], gamma1: int) -> None:
        if isinstance(self.tiers, DeviceLoop):
            self._set_chain(gamma1)
            self.tiers.prepare(context, self.dials.longest, samplers)

    def forget(self) -> None:
        """What is told of rounds: those before belong to no answer."""
        self.after_round()
        for told in (self.drafter.counts, self.drafter.milliseconds, self.drafter.passes, self.drafter.ranks,
                     self.milliseconds):
            told()

    def milliseconds(self) -> dict[str, float]:
        """Of the choice that the last round's drafts were made with; clears it. Waits for nothing."""
        spent, self._spent = self._spent, {}
        return spent

    def begin(self, choice: Choice) -> int:
        """Before each round; -> tokens to ask for."""
        self._observes = choice.observed
        if choice.gamma2:
            self._set_chain(choice.gamma1, choice.goes_on)
        return self.drafter.begin(choice.gamma2) if isinstance(self.drafter, Either) else choice.gamma2

    def _set_chain(self, gamma1: int, goes_on: GoesOn | None = None) -> None:
        tiers = self.tiers.host if isinstance(self.tiers, DeviceLoop) else self.tiers
        if isinstance(tiers, HierarchicalDrafter):
            tiers.gamma1 = gamma1
        if isinstance(tiers, (HierarchicalDrafter, ModelDrafter)):
            tiers.goes_on = goes_on

    @property
    def tells_sureness(self) -> bool:
        """Whether its drafts may end where their tier is no longer sure of them."""
        alone = isinstance(self.tiers, DeviceLoop) and isinstance(self.tiers.host, ModelDrafter)
        return isinstance(self.tiers, (DeviceLoop, HierarchicalDrafter, ModelDrafter)) and not alone

    @property
    def measures_next_round(self) -> bool:
        """Whether the next full pass should report attention mass."""
        due = self._observes and (self._rounds + 1) % self.dials.refresh_every == 0
        return self._accumulated is not None or due

    def time_choice(self) -> float:
        """Choose chunks now; milliseconds."""
        self._choose()
        return sum(self._clock.read().values())

    def meanwhile(self, told: Callable[[Tensor], None]) -> None:
        """An observed pass is under way: tell its mass [layers, H, chunks], and choose chunks by it before its verdict
        is known, where a choice is an index.

        The host has nothing else to do then, and the device little: after the verdict it would wait for both."""
        mass = self._observer.latest
        if mass is None:
            return
        told(mass)
        if self._accumulated is None and self._means is None and isinstance(self._part, IndexedCache):
            with self._beside:
                self._chosen = self._scores()
                if self._chosen is not None:
                    self._part.choose(self._chosen)

    def after_round(self) -> None:
        """The full cache has committed a round: choose chunks anew if it is time."""
        self._rounds += 1
        self._spent = self._clock.read()  # of the choice before: the pass after it is done
        if self._observes and self._rounds % self.dials.refresh_every == 0:
            self._choose()

    def _choose(self) -> None:
        """By what the newest observed pass attended, or its last query against chunk means, or what all attended."""
        part = self._part
        chosen, self._chosen = self._chosen, None
        if chosen is not None:
            self._beside.join()
        if self._chosen_in_passing and part is not None:  # while that pass ran; level with it since
            part.sync()
            part = None
        if self._marked is None and part is None:
            return
        self._clock.start()
        scores = self._scores() if chosen is None else chosen
        if self._marked is not None and self._marks and scores is not None:
            mark(self._marked, scores, self._shard)
        elif self._marked is not None:
            self._marked.sync()
        if part is not None:
            if self._accumulated is not None:
                part.select(self._accumulated.sums)
            elif scores is not None and chosen is None:
                part.select(scores)
            else:
                part.sync()
        self._clock.mark("select")

    def _scores(self) -> Tensor | None:
        """[layers, H, chunks], None before anything was observed."""
        scores = self._observer.latest
        if self._means is not None:
            self._means.update()
            scores = self._means.score(self._observer.queries)
        return None if scores is None else self._target.kernels.look_ahead(scores)


def dials_for(loaded: Loaded, full: ModelOnCache, speculation: SpeculationConfig, context_tokens: int,
              reading: SmallReading | None = None) -> Dials:
    """Settings with every "auto" decided for this model, machine, cache and context. reading: the small model's, if
    there is one by now. Raises ConfigError."""
    target, wanted = loaded.target, speculation.retrieval_weights
    able = [kind for kind in WEIGHT_KINDS if target.can_quantize(kind)]
    if wanted in WEIGHT_KINDS and wanted not in able:
        raise ConfigError(f"retrieval_weights is {wanted!r} with {loaded.info.dtype} on {loaded.info.device}",
                          allowed="auto, same", remedy="A copy of the weights in few bits is for bfloat16 on a GPU.")
    reads, kinds = 0, ("cross", "auto") if target.device.type == "cuda" else ("cross",)
    if loaded.draft is not None and speculation.draft_cache in kinds and reading is None:
        reads = reading_bytes(loaded.draft, context_tokens)
    free = loaded.shard.least(loaded.planner.unused_bytes) if able or reads else 0
    return Dials.decide(speculation, context_tokens=context_tokens, has_draft=loaded.draft is not None,
                        on_gpu=target.device.type == "cuda", offloaded=isinstance(full.cache, OffloadedCache),
                        device_leads=device_leads(loaded), room_to_read=reads <= free,
                        copies=[kind for kind in able if kind in loaded.copies
                                or target.quantized_bytes(kind) + reads + _HEADROOM <= free])
