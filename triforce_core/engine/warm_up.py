"""Run once, before an answer, all that answers run: none waits for a capture, a kernel or a measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..config import SamplingParams
from ..model.graphs import CAPTURED_WIDTHS
from ..sampling import Masks, Sampler
from ..sampling.quote_matcher import QuoteConstraint
from ..speculation.draft_length import Selection
from ..speculation.draft_length_selector import DraftLengthSelector
from ..speculation.model_drafter import ModelOnCache
from .answer import AttentionReport, DecodeLoop, make_sampler
from .loading import Loaded
from .pipeline import COPY_LENGTHS, AttentionMass, DocumentParts, Pipeline
from .prefill import OBSERVED

_ROWS = (3, 7, 15)  # of full passes with fewer rows than are observed, one for each of the sizes that kernels come in
_ASKED = (3, 8, 16, 24, 48)  # tokens of questions, likewise
_ROOM_TO_ASK = 49  # tokens that a small model's first draft reads at most, see ``DraftPrefill``
# Every kind of choice that takes other kernels or other captured rounds: what the values are does not matter.
_GREEDY, _DRAWN = SamplingParams(alternatives=1), SamplingParams(temperature=0.6, alternatives=1)
_FILTERED = replace(_DRAWN, top_p=0.9)
_KINDS = ((_GREEDY, "rejection"), (_DRAWN, "rejection"), (_FILTERED, "rejection"), (_DRAWN, "coupled"),
          (_FILTERED, "coupled"))


class WarmUp:
    """Run passes before an answer may wait for them, and take them back: for one pipeline, and each only once."""

    room = 64  # tokens behind a context that it writes

    def __init__(self, loaded: Loaded, pipeline: Pipeline, selector: DraftLengthSelector | None, parts: DocumentParts,
                 chunk: int, attended: AttentionReport) -> None:
        """chunk: tokens of a pass that reads. attended: is shown what its rounds attend."""
        self._loaded, self._pipeline, self._selector = loaded, pipeline, selector
        self._parts, self._chunk, self._attended = parts, chunk, attended
        self._rounds_ran = self._any_width_ran = False  # the latter: behind its drafts, passes of the full cache

    def steps(self, constraint: QuoteConstraint | None, context: list[int],
              cancelled: Callable[[], bool]) -> list[Callable[[], object]]:
        """Return steps to be called in order. constraint: of answers held to the document's words, where there are
        such."""
        target, full, pipeline = self._loaded.target, self._pipeline.full, self._pipeline
        captures = target.graphs is not None
        steps: list[Callable[[], object]] = []
        if constraint is not None:
            steps.append(partial(_index_quotations, constraint))
        if captures:
            steps += [partial(target.prepare, full.cache, 1),
                      partial(target.prepare, full.cache, OBSERVED, pipeline.observer, logits_rows=1)]
        if not pipeline.drafts:
            return steps
        # Where a pass streams its cache it takes about as long as compiling does.
        first = not self._rounds_ran and not full.cache.streams
        if captures and first:
            steps += questions(full, self._loaded.info.max_context - len(context))
        steps.append(partial(self.begin, context))
        helds = (False,) if constraint is None else (True, False)
        if captures:
            kinds = [self.sampler(params, verifier, held=False) for params, verifier in _KINDS]
            steps += preparations(pipeline, context, kinds, any_widths=constraint is not None,
                                  full_pass_too=not self._any_width_ran)
            self._any_width_ran |= constraint is not None
            if first:
                steps += [partial(self._try_rounds, context, self.sampler(params, verifier, held=held))
                          for held in helds for params, verifier in _KINDS]
        if self._selector is not None:
            steps += [partial(self._selector.measure, context, pipeline.observer,
                              self.sampler(params, "rejection", held=held), cancelled)
                      for held in helds for params in (_GREEDY, _DRAWN)]
        return [*steps, partial(setattr, self, "_rounds_ran", True)]

    def begin(self, context: list[int]) -> None:
        """Start the pipeline behind a context as an answer does; the full cache holds all but the last token."""
        prefilled = self._parts.draft_prefill
        if prefilled is not None:
            for _ in prefilled.read(context, self._chunk, lambda: False):
                pass
        self._pipeline.reset()
        self._pipeline.start(context)

    def sampler(self, params: SamplingParams, verifier: str, *, held: bool) -> Sampler:
        """Return a sampler of no answer, which chooses as answers with these settings do. held: to the document."""
        return make_sampler(self._loaded, params, verifier, Masks() if held else None)

    def _try_rounds(self, context: list[int], sampler: Sampler) -> None:
        """Run rounds as an answer does, and take them back: libraries load much when they are first used."""
        pipeline = self._pipeline
        before = pipeline.full.length
        loop = DecodeLoop(pipeline, self._attended, sampler, list(context), self._loaded.info.max_context)
        for length in (pipeline.plan.lengths.longest, 0):
            loop.step(Selection(length), self.room)
        pipeline.forget()
        pipeline.full.truncate(before)
        self.begin(context)


def preparations(pipeline: Pipeline, context: list[int], samplers: Sequence[Sampler], *, any_widths: bool = False,
                 full_pass_too: bool = False) -> list[Callable[[], object]]:
    """After ``Pipeline.start``, each to be called in order: what rounds will run is captured where it is not, so that
    no answer waits for a capture, or for a kernel to be compiled. What is staged on the way is forgotten.

    samplers: one for each kind of choices that answers may make, none of them an answer's own. any_widths: answers may
    be held to the document's words; full_pass_too: and their full passes were not run in all widths yet."""
    plan, parts, full, prepare = pipeline.plan, pipeline.parts, pipeline.full.cache, pipeline.target.prepare
    observers: list[AttentionMass | None] = [pipeline.pass_observer, *([None] if plan.refresh_every > 1 else [])]
    steps: list[Callable[[], object]] = [partial(prepare, full, drafted + 1, observer, tree=parts.fixed_width > 0)
                                         for drafted in _draft_lengths(pipeline) for observer in observers]
    # Copies are made in rounds that draft nothing else, too, which may be observed or not.
    steps += [partial(prepare, full, copied + 1, observer) for copied in (COPY_LENGTHS if plan.direct else ())
              for observer in (pipeline.pass_observer, *([None] if plan.lengths.may_rest else []))]
    models = [on for on in (parts.draft, parts.reviewer) if on is not None]
    if any_widths:
        # A pass that streams its cache takes about as long as compiling does.
        whole = pipeline.full if full_pass_too and not full.streams else None
        steps += any_width(whole, models, plan.chunk_size, pipeline.observer.mass_rows)
    steps += [partial(on.model.capture_wanted, on.cache) for on in (pipeline.full, *models)]
    if parts.cross_model is not None and parts.draft is not None:
        steps += questions(parts.draft, _ROOM_TO_ASK)
    return [*steps, partial(_prepare_drafts, pipeline, context, samplers)]


def _draft_lengths(pipeline: Pipeline) -> list[int]:
    """Return lengths of drafts that the full cache may be given, copies and quotations aside."""
    lengths = pipeline.plan.lengths
    if pipeline.parts.fixed_width:
        return [pipeline.parts.fixed_width]
    beyond = lengths.gamma1 if pipeline.plan.has_intermediate else 0
    early = pipeline.tiers.gives_confidence and len(lengths.gamma2s) > 1
    ends = range(1, lengths.longest + 1) if early else lengths.gamma2s
    return sorted({end + more for end in ends for more in range(beyond + 1)} | ({0} if lengths.may_rest else set()))


def _prepare_drafts(pipeline: Pipeline, context: list[int], samplers: Sequence[Sampler]) -> None:
    tiers = pipeline.tiers
    if tiers.runs_on_graphs:
        tiers.configure(None)
        tiers.prepare(context, pipeline.plan.lengths.longest, samplers)


def _index_quotations(constraint: QuoteConstraint) -> None:
    """Make what quotations are looked up in, which is made when it is first asked for."""
    for token in constraint.opening:
        constraint.initial().advance(token).allowed()


def any_width(full: ModelOnCache | None, parts: Sequence[ModelOnCache], chunk_size: int,
              mass_rows: int) -> list[Callable[[], None]]:
    """Return steps for passes of any width. Where a quotation is held to the document the host leads, and a draft is as
    long as the document forces. Drafting passes are captured in all widths that there are. So are observed full passes,
    as trees, which are filled up: any chain runs as one of these. With fewer rows than are observed nothing fills up:
    such a pass is captured in its own width once that has come often; until then it runs as usual: here once.

    full: None where that takes too long. mass_rows: see ``AttentionMass``."""
    captures: list[Callable[[], None]] = [
        partial(on.model.prepare, on.cache, width) for on in parts for width in CAPTURED_WIDTHS]
    if full is None:
        return captures
    observer = AttentionMass(chunk_size, mass_rows)
    captures += [partial(full.model.prepare, full.cache, width, observer, tree=True)
                 for width in CAPTURED_WIDTHS if width >= mass_rows]
    return [*captures, *(partial(_run, full, rows, observer) for rows in _ROWS)]


def questions(on: ModelOnCache, room: int) -> list[Callable[[], None]]:
    """Return steps that read questions of several lengths, up to ``room`` tokens, and forget them."""
    return [partial(_run, on, rows, None) for rows in _ASKED if rows < room]


def _run(full: ModelOnCache, rows: int, observer: AttentionMass | None) -> None:
    """Run a pass over made-up tokens and forget it; without an observer none of its rows is asked for."""
    if rows > full.room:
        return
    before, used = full.length, full.observer
    full.observer = observer
    full.feed([0] * rows, rows if observer is not None else 0)
    full.observer = used
    full.keep(before)
