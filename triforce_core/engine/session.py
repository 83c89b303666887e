"""One document in the cache, and questions about it: context, prefill, decode loop, answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..config import SamplingParams, SpeculationConfig
from ..device.streams import Moment
from ..errors import ContextTooLongError
from ..events import (
    Finished,
    FinishReason,
    MemoryPlan,
    PrefillProgress,
    QuoteEvent,
    RoundEvent,
    Script,
    TextDelta,
    Turn,
)
from ..metrics import generated_tokens
from ..prompt.builder import DocumentPrompt
from ..prompt.quotations import Quoting
from ..sampling import Masks, Sampler
from ..sampling.grammar import JsonMasks
from ..sampling.quote_matcher import QuoteConstraint, QuoteMasks
from ..speculation.cost_profile import Profile
from ..speculation.draft_length import Selection
from ..speculation.draft_length_selector import DraftLengthSelector
from .answer import Answer, AttentionReport, DecodeLoop, Prompt, make_sampler
from .loading import Loaded
from .pipeline import DocumentParts, Parts, Pipeline, plan_for
from .plan import Plan
from .prefill import Reading, read_prompt, share_done
from .warm_up import WarmUp

_ABOUT_NOTHING = "."  # a question
AnswerEvent = PrefillProgress | RoundEvent | TextDelta | QuoteEvent | Finished


@dataclass(frozen=True, slots=True)
class Question:
    """Hold what is asked, as the engine takes it; text None goes on with the document's own. system: instructions for
    the whole conversation. script: see ``Quoting.rules``."""

    text: str | None
    history: Sequence[Turn]
    sampling: SamplingParams
    speculation: SpeculationConfig
    system: str = ""
    script: Script | None = None


@dataclass(frozen=True, slots=True)
class _Drafting:
    """Hold what drafts for a document, made together and given back together."""

    pipeline: Pipeline
    selector: DraftLengthSelector | None
    warm_up: WarmUp


class Session:
    """A document that has been read into the full cache. Holds no conversation: each question brings its history."""

    def __init__(self, loaded: Loaded, quoting: Quoting, prompt: DocumentPrompt, reading: Reading,
                 memory: MemoryPlan, profile: Profile | None = None, kind: type[Parts] = Parts) -> None:
        """memory: what the caches were planned with. profile: what passes cost on this machine; None: nothing is kept.
        kind: what makes plans and pipelines."""
        self.loaded, self.quoting, self.prompt, self.reading = loaded, quoting, prompt, reading
        self.memory, self._profile, self._kind = memory, profile, kind
        self.full = reading.full
        self.parts = DocumentParts(loaded, reading.document, reading.shared)
        self._drafting: _Drafting | None = None
        self._usual: AttentionReport | None = None  # what any question draws to the document

    @property
    def pipeline(self) -> Pipeline | None:
        """Return what drafts now; None before the first question, and where nothing drafts."""
        return self._drafting.pipeline if self._drafting is not None else None

    def ask(self, question: Question, cancelled: Callable[[], bool]) -> Iterator[AnswerEvent]:
        """Answer, round by round.

        Raises ContextTooLongError, ConfigError (an empty question, or a system text for a model that follows none),
        NotSpelledError.
        Closing the generator is safe. Captures and measures nothing: what is not prepared runs as it is."""
        started, reading = perf_counter(), self.reading
        context = self.context(question)
        self._check_room(context)
        constraint = self._constraint(question)
        reused = reading.go_back(context)
        plan = self.plan(question.speculation, len(context))
        drafting = self.drafting(plan)
        pipeline, selector = drafting.pipeline, drafting.selector
        reused = reading.rewind(context, pipeline.reads_from(reused))
        attended = self.report(plan.chunk_size)
        answer = Answer(self.quoting.builder, self.prompt, Prompt(started, len(context) - reused, reused), plan,
                        attended, constraint, details=question.sampling.alternatives > 0)

        yield from reading.follow(context, pipeline.read(context, reading.shared, reading.chunk, cancelled))
        read = Moment(self.full.device)  # from here on it is decoding, by every figure
        if self.full.length < len(context) - 1:
            yield answer.finished("cancelled", [], 0.0)
            return
        latest = pipeline.observer.latest
        if latest is not None:
            attended.see(latest)
        sampler = self._sampler(question, constraint, len(context))
        yield from self._start(drafting, question, context, sampler, cancelled)

        loop = DecodeLoop(pipeline, attended, sampler, context, self.loaded.info.max_context)
        ended = yield from self._decode(loop, selector, answer, question.sampling, read, cancelled)

        yield from answer.end()
        yield answer.finished(ended, context[len(context) - generated_tokens(answer.rounds) :], read.when() - started,
                              selector.why() if selector is not None else "")

    def _start(self, drafting: _Drafting, question: Question, context: list[int], sampler: Sampler,
               cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Do what drafting needs behind a prompt that was read: a part of its price."""
        pipeline, selector = drafting.pipeline, drafting.selector
        if not pipeline.drafts:
            return
        if selector is not None:
            selector.begin(context, sampler)
            if selector.rests:
                pipeline.start_without_models(context)
                return
        prefilled = self.parts.draft_prefill
        if prefilled is not None and pipeline.plan.draft_cache == "cross":
            yield from prefilled.read(context, self.reading.chunk, cancelled)
            if cancelled():
                return
        # Going on with the text, or held to its words, the draft model does as well on the newest tokens, and choosing
        # its chunks takes its time: with llama3-8b's shape on an H200 1 to 2.6 of a round's 20 to 27 ms.
        free = question.text is not None and sampler.masks is None
        pipeline.start(context, marks=free or question.speculation.draft_cache == "cross")

    def _decode(self, loop: DecodeLoop, selector: DraftLengthSelector | None, answer: Answer,
                sampling: SamplingParams, read: Moment, cancelled: Callable[[], bool]
                ) -> Generator[AnswerEvent, None, FinishReason]:
        """Run rounds until the answer ends; return why it did. read: the end of the prompt."""
        room = self.loaded.info.max_context - len(loop.context)
        left = min(sampling.max_new_tokens, room)
        while True:
            if cancelled():
                return "cancelled"
            choice = selector.next() if selector is not None else Selection(0)
            step = loop.step(choice, left)
            self.reading.grow(loop.context)
            yield from answer.add(choice, step, read.when())
            if selector is not None:
                selector.learn(choice, step.done, answer.rounds[-1])
            left -= len(step.tokens)
            if step.stopped:
                return "stop"
            if left <= 0:
                return "context" if room < sampling.max_new_tokens else "length"

    def prefill_draft_model(self, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Have the draft model read the document where the usual settings ask for that: no question shall wait for it.
        Cut short, the first question has it read."""
        document = self.reading.document
        if self.plan(SpeculationConfig(), len(document)).draft_cache == "cross":
            yield from self.parts.read_small().read(document, self.reading.chunk, cancelled)

    def prepare(self, speculation: SpeculationConfig, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Make ready all that answers with these settings run, at any temperature, held to the document's words or
        free: caches, captured passes and rounds, costs. No answer waits for any of it; what is ready costs next to
        nothing. Ends early when cancelled: what is missing then runs as it is. Leaves what was read."""
        document = self.reading.document
        context = [*self.reading.token_ids, document[-1]]  # which token comes next does not matter
        if len(context) + WarmUp.room >= self.loaded.info.max_context:
            return
        started, total = perf_counter(), len(document)
        yield PrefillProgress(0, total, 0.0, None, "warm-up")
        drafting = self.drafting(self.plan(speculation, len(context)))
        constraint = self._constraint(Question("What does it say?", (), SamplingParams(), speculation))
        steps = drafting.warm_up.steps(constraint, context, cancelled)
        for done, step in enumerate(steps, start=1):  # making the tiers, weights and all, was one more
            if cancelled():
                return
            step()
            yield share_done("warm-up", (done + 1) / (len(steps) + 1), total, started)

    def release(self) -> None:
        """Give back what drafts, and what a pass that broke off has staged; the next answer makes it anew."""
        self._drafting = None
        self.parts.release()
        self.full.observer = None
        self.full.truncate(len(self.reading.token_ids))

    def report(self, chunk_size: int) -> AttentionReport:
        """Return a new report of an answer's attention to the document."""
        usual = self._usual.total if self._usual is not None and self._usual.chunk_size == chunk_size else None
        return AttentionReport(self.prompt.pages, len(self.reading.document), chunk_size, self.loaded.shard, usual)

    def usual_shares(self, speculation: SpeculationConfig, cancelled: Callable[[], bool]) -> tuple[float, ...]:
        """Return the attention that any question draws to each page, for being near or first: what a question about
        nothing attends. () where that would take long, or was cancelled."""
        context, reading = self.context(Question(_ABOUT_NOTHING, (), SamplingParams(), speculation)), self.reading
        if self.full.cache.streams or len(context) >= self.loaded.info.max_context:
            return ()
        plan = self.plan(speculation, len(context))
        observer = self.parts.observer(plan.chunk_size)
        reading.rewind(context)
        for _ in reading.follow(context, read_prompt(self.full, context[:-1], reading.chunk, observer, cancelled)):
            pass
        if observer.latest is None or self.full.length < len(context) - 1:
            return ()
        self._usual = None
        report = self.report(plan.chunk_size)
        report.see(observer.latest)
        report.add_seen()
        self._usual = report
        return report.page_shares

    def plan(self, speculation: SpeculationConfig, context_tokens: int) -> Plan:
        """Return what an answer with these settings runs with. Raises ConfigError."""
        return plan_for(self.loaded, self.full, speculation, context_tokens, self.parts.draft_prefill,
                        self.memory.budget, self._kind.decide)

    def _check_room(self, context: list[int]) -> None:
        longest = self.loaded.info.max_context
        if len(context) >= longest:
            raise ContextTooLongError(f"Document, conversation and question take {len(context):,} tokens",
                                      allowed=f"{longest - 1:,}",
                                      remedy="Start a new conversation or choose fewer pages.")

    def context(self, question: Question) -> list[int]:
        """Return the tokens that the answer follows. All of it but the document is read anew where the system text is
        another."""
        builder, ids = self.quoting.builder, self.reading.document[: self.reading.shared]
        if question.text is None:
            return ids
        ids += builder.after_document(self.prompt, question.system)
        for number, turn in enumerate(question.history):
            ids += builder.question(turn.question, first=number == 0)
            # Which token stopped an answer is the builder's business: it writes the proper end of turn itself.
            answer = list(turn.answer_token_ids) or builder.tokenizer.encode(turn.answer)
            if answer and answer[-1] in builder.stop_token_ids:
                answer.pop()
            ids += answer
            ids += builder.after_answer(answer)
        return ids + builder.question(question.text, first=not question.history)

    def drafting(self, plan: Plan) -> _Drafting:
        """Return what drafts for a plan, made anew only when the plan is another: its caches go before the new ones
        come. Plain decoding leaves what there is."""
        now = self._drafting
        if plan.engine == "autoregressive":
            return self._made(plan)
        if now is None or not now.pipeline.serves(plan):
            self._drafting = None
            self.parts.release()
            now = self._drafting = self._made(plan)
        now.pipeline.reset()
        return now

    def _made(self, plan: Plan) -> _Drafting:
        shard, reading = self.loaded.shard, self.reading
        pipeline = self._kind.build(self.loaded, self.full, plan, self.parts)
        selector = DraftLengthSelector(pipeline, self.full, shard, self._profile) if pipeline.drafts else None
        # It must not hold this session: caches go with the last reference to them.
        attended = AttentionReport(self.prompt.pages, len(reading.document), plan.chunk_size, shard)
        return _Drafting(pipeline, selector, WarmUp(self.loaded, pipeline, selector, self.parts, reading.chunk,
                                                    attended))

    def _constraint(self, question: Question) -> QuoteConstraint | None:
        if question.text is None or question.speculation.quotes == "off" or question.sampling.schema:
            return None
        return self.quoting.rules(self.prompt, question.speculation.quotes == "on", question.script)

    def _sampler(self, question: Question, constraint: QuoteConstraint | None, answer_start: int) -> Sampler:
        sampling = question.sampling
        if sampling.stop_token_ids is not None:
            stop = frozenset(sampling.stop_token_ids)
        else:
            stop = frozenset() if question.text is None else self.quoting.builder.stop_token_ids
        masks: Masks | None = QuoteMasks(constraint, answer_start, stop) if constraint is not None else None
        if sampling.schema:
            masks = JsonMasks(self.quoting.builder.tokenizer, sampling.schema, answer_start, stop)
        return make_sampler(self.loaded, sampling, question.speculation.verifier, masks, stop=stop,
                            answer_start=answer_start)
