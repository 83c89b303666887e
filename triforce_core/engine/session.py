"""One document in the cache, and questions about it. An answer is: prepare, prefill, loop, finish."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..config import SamplingParams, SpeculationConfig
from ..device.streams import Moment
from ..errors import ContextTooLongError
from ..events import Finished, FinishReason, PrefillProgress, QuoteEvent, RoundEvent, TextDelta, Turn
from ..evidence.answering import AnswerPlan
from ..kv_cache import shared_prefix
from ..kv_cache.full import FullCache
from ..metrics import generated_tokens
from ..prompt.builder import DocumentPrompt
from ..sampling import Masks, Sampler
from ..sampling.quote_matcher import QuoteConstraint, QuoteMasks
from ..speculation.cost_profile import Profile
from ..speculation.draft_length import Selection
from ..speculation.draft_length_selector import DraftLengthSelector
from ..speculation.model_drafter import ModelOnCache
from .answer import Answer, AttentionReport, DecodeLoop, Prompt
from .loading import Loaded
from .pipeline import DocumentParts, Parts, Pipeline, plan_for
from .plan import Plan
from .prefill import OBSERVED, WORTH_KEEPING, LeftConversations, read_prompt, share_done
from .quoting import Quoting
from .warm_up import WarmUp

_ABOUT_NOTHING = "."  # a question
AnswerEvent = PrefillProgress | RoundEvent | TextDelta | QuoteEvent | Finished


@dataclass(frozen=True, slots=True)
class Question:
    """Hold what is asked, as the engine takes it; text None goes on with the document's own. system: instructions for
    the whole conversation."""

    text: str | None
    history: Sequence[Turn]
    sampling: SamplingParams
    speculation: SpeculationConfig
    system: str = ""


# large: the document, what is read of it, and what drafts for it
class Session:
    """A document that has been read into ``full``. Holds no conversation: each question brings its history."""

    def __init__(self, loaded: Loaded, quoting: Quoting, prompt: DocumentPrompt, full: ModelOnCache[FullCache],
                 prefill_chunk: int, profile: Profile | None = None, left: LeftConversations | None = None,
                 budget: int = 0, kind: type[Parts] = Parts) -> None:
        """profile: what passes cost on this machine; None: nothing is kept. left: conversations, of any document.
        budget: tokens that the memory plan has for a retrieval cache. kind: what makes plans and pipelines."""
        self.loaded, self.quoting, self.prompt, self.full, self._profile = loaded, quoting, prompt, full, profile
        self.builder = quoting.builder
        self._chunk, self._budget, self._kind = prefill_chunk, budget, kind
        self._document: list[int] = prompt.token_ids.tolist()
        self._shared = len(self._document) - self.builder.tail_length  # tokens that every context begins with
        self._read = self._document[: full.length]  # ids behind the cache, in order
        self._parts = DocumentParts(loaded, self._document, self._shared)
        self._pipeline: Pipeline | None = None
        self._selector: DraftLengthSelector | None = None  # of the pipeline
        self._warm_up = WarmUp()
        self._left = left if left is not None else LeftConversations()
        self._usual: AttentionReport | None = None  # what any question draws to the document

    def ask(self, question: Question, cancelled: Callable[[], bool]) -> Iterator[AnswerEvent]:
        """Answer, round by round.

        Raises ContextTooLongError, ConfigError (an empty question, or a system text for a model that follows none).
        Closing the generator is safe. Captures and measures nothing: what is not prepared runs as it is."""
        started = perf_counter()
        context = self._context(question)
        self._check_room(context)
        reused = self._go_back(context)
        plan = self._plan(question.speculation, len(context))
        pipeline = self._pipeline_for(plan)
        reused = self._rewind(context, pipeline.reads_from(reused))
        constraint, planned = self._constraint(question)
        attended = self.report(plan.chunk_size)
        answer = Answer(self.quoting, self.prompt, Prompt(started, len(context) - reused, reused), plan, attended,
                        constraint, planned, details=question.sampling.alternatives > 0)

        yield from self._reading(context, pipeline.read(context, self._shared, self._chunk, cancelled))
        read = Moment(self.full.device)  # from here on it is decoding, by every figure
        if self.full.length < len(context) - 1:
            yield answer.finished("cancelled", [], 0.0)
            return
        latest = pipeline.observer.latest
        if latest is not None:
            attended.see(latest)
        sampler = self._sampler(question, constraint, len(context))
        yield from self._start(pipeline, question, context, sampler, cancelled)

        loop = self.loop(pipeline, attended, sampler, context)
        ended = yield from self._decode(loop, pipeline, answer, question.sampling, read, cancelled)

        yield from answer.end()
        why = self._selector.why() if self._selector is not None and pipeline.drafts else ""
        yield answer.finished(ended, context[len(context) - generated_tokens(answer.rounds) :], read.when() - started,
                              why)

    def _start(self, pipeline: Pipeline, question: Question, context: list[int], sampler: Sampler,
               cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Do what drafting needs behind a prompt that was read: a part of its price."""
        if not pipeline.drafts:
            return
        if self._selector is not None:
            self._selector.begin(context, sampler)
            if self._selector.rests:
                pipeline.start_without_models(context)
                return
        prefilled = self._parts.draft_prefill
        if prefilled is not None and pipeline.plan.draft_cache == "cross":
            yield from prefilled.read(context, self._chunk, cancelled)
            if cancelled():
                return
        # Going on with the text, or held to its words, the small model does as well on the newest tokens, and choosing
        # its chunks takes its time: with llama3-8b's shape on an H200 1 to 2.6 of a round's 20 to 27 ms.
        free = question.text is not None and sampler.masks is None
        pipeline.start(context, marks=free or question.speculation.draft_cache == "cross")

    def _decode(self, loop: DecodeLoop, pipeline: Pipeline, answer: Answer, sampling: SamplingParams,
                read: Moment, cancelled: Callable[[], bool]) -> Generator[AnswerEvent, None, FinishReason]:
        """Rounds until the answer ends; why it did. read: the end of the prompt."""
        selector = self._selector if pipeline.drafts else None
        room = self.loaded.info.max_context - len(loop.context)
        left = min(sampling.max_new_tokens, room)
        while True:
            if cancelled():
                return "cancelled"
            choice = selector.next() if selector is not None else Selection(0)
            step = loop.step(choice, left)
            self._read += loop.context[len(self._read) : self.full.length]
            yield from answer.add(choice, step, read.when())
            if selector is not None:
                selector.learn(choice, step.done, answer.rounds[-1])
            left -= len(step.tokens)
            if step.stopped:
                return "stop"
            if left <= 0:
                return "context" if room < sampling.max_new_tokens else "length"

    def loop(self, pipeline: Pipeline, attended: AttentionReport, sampler: Sampler,
             context: list[int]) -> DecodeLoop:
        return DecodeLoop(self.loaded.target, self.full, pipeline, attended, sampler, context,
                          self.loaded.info.max_context)

    def prefill_draft_model(self, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Have the small model read the document where the usual settings ask for that: no question shall wait for it.
        Cut short, the first question has it read."""
        if self._plan(SpeculationConfig(), len(self._document)).draft_cache == "cross":
            yield from self._parts.read_small().read(self._document, self._chunk, cancelled)

    def prepare(self, speculation: SpeculationConfig, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Make ready all that answers with these settings run, at any temperature, held to the document's words or
        free: caches, captured passes and rounds, costs. No answer waits for any of it; what is ready costs next to
        nothing. Ends early when cancelled: what is missing then runs as it is. Leaves what was read."""
        context = [*self._read, self._document[-1]]  # which token comes next does not matter
        if len(context) + self._warm_up.room >= self.loaded.info.max_context:
            return
        started, total = perf_counter(), len(self._document)
        yield PrefillProgress(0, total, 0.0, None, "warm-up")
        pipeline = self._pipeline_for(self._plan(speculation, len(context)))
        constraint, _ = self._constraint(Question("What does it say?", (), SamplingParams(), speculation))
        steps = self._warm_up.steps(self, pipeline, self._selector, constraint, context, cancelled)
        for done, step in enumerate(steps, start=1):  # making the tiers, weights and all, was one more
            if cancelled():
                return
            step()
            yield share_done("warm-up", (done + 1) / (len(steps) + 1), total, started)

    def release(self) -> None:
        """Give back what drafts, and what a pass that broke off has staged; the next answer makes it anew."""
        self._pipeline = self._selector = None
        self._warm_up = WarmUp()
        self._parts.release()
        self.full.observer = None
        self.full.truncate(len(self._read))

    def begin_behind(self, pipeline: Pipeline, context: list[int]) -> None:
        """As an answer does; the full cache holds all but the last token."""
        prefilled = self._parts.draft_prefill
        if prefilled is not None:
            for _ in prefilled.read(context, self._chunk, lambda: False):
                pass
        pipeline.reset()
        pipeline.start(context)

    def report(self, chunk_size: int = 8) -> AttentionReport:
        usual = self._usual.total if self._usual is not None and self._usual.chunk_size == chunk_size else None
        return AttentionReport(self.prompt.pages, len(self._document), chunk_size, self.loaded.shard, usual)

    def usual_shares(self, speculation: SpeculationConfig, cancelled: Callable[[], bool]) -> tuple[float, ...]:
        """Return the attention that any question draws to each page, for being near or first: what a question about
        nothing attends. () where that would take long, or was cancelled."""
        context = self._context(Question(_ABOUT_NOTHING, (), SamplingParams(), speculation))
        if self.full.cache.streams or len(context) >= self.loaded.info.max_context:
            return ()
        plan = self._plan(speculation, len(context))
        observer = self._parts.observer(plan.chunk_size)
        self._rewind(context)
        for _ in self._reading(context, read_prompt(self.full, context[:-1], self._chunk, observer, cancelled)):
            pass
        if observer.latest is None or self.full.length < len(context) - 1:
            return ()
        self._usual = None
        report = self.report(plan.chunk_size)
        report.see(observer.latest)
        report.add_seen()
        self._usual = report
        return report.page_shares

    def _plan(self, speculation: SpeculationConfig, context_tokens: int) -> Plan:
        return plan_for(self.loaded, self.full, speculation, context_tokens, self._parts.draft_prefill, self._budget,
                        self._kind.decide)

    def _check_room(self, context: list[int]) -> None:
        longest = self.loaded.info.max_context
        if len(context) >= longest:
            raise ContextTooLongError(f"Document, conversation and question take {len(context):,} tokens",
                                      allowed=f"{longest - 1:,}",
                                      remedy="Start a new conversation or choose fewer pages.")

    def _context(self, question: Question) -> list[int]:
        """Return the tokens that the answer follows. All of it but the document is read anew where the system text is
        another."""
        ids = self._document[: self._shared]
        if question.text is None:
            return ids
        ids += self.builder.after_document(question.system)
        for number, turn in enumerate(question.history):
            ids += self.builder.question(turn.question, first=number == 0)
            # Which token stopped an answer is the builder's business: it writes the proper end of turn itself.
            answer = list(turn.answer_token_ids) or self.builder.tokenizer.encode(turn.answer)
            if answer and answer[-1] in self.builder.stop_token_ids:
                answer.pop()
            ids += answer
            ids += self.builder.after_answer(answer)
        return ids + self.builder.question(question.text, first=not question.history)

    def leave(self) -> None:
        """Keep what was said, for when somebody comes back to it."""
        self._left.keep(self.prompt.document_id, self._shared, self._read, self.full.cache)

    def _go_back(self, context: list[int]) -> int:
        """To what the cache shares with ``context``, and to what a conversation that was left shares with it further
        on; how many tokens that is. Keeps the conversation that is left for it."""
        read, most = self._read, len(context) - 1 - OBSERVED
        common = self._common(context)
        if len(read) - common >= WORTH_KEEPING:
            self.leave()
        reused = self._rewind(context)
        reused = self._left.bring(self.prompt.document_id, context, self.full, most) if reused < most else reused
        self._read = context[:reused]
        return reused

    def _common(self, context: list[int]) -> int:
        """Tokens with which what was read and ``context`` begin alike."""
        read = self._read
        # Both begin with the document, which is too long to be compared token by token.
        common = min(self._shared, len(read), len(context))
        return common + shared_prefix(read[common:], context[common:])

    def _rewind(self, context: list[int], most: int | None = None) -> int:
        """Truncate the cache to what it shares with ``context``, ``most`` tokens; how many that is."""
        common = max(0, min(self._common(context), len(context) - 1 - OBSERVED, len(context) if most is None else most))
        self.full.truncate(common)
        del self._read[common:]
        return common

    def _pipeline_for(self, plan: Plan) -> Pipeline:
        """Made anew only when the plan is another: its caches go before the new ones come."""
        if plan.engine == "autoregressive":
            return self._kind.build(self.loaded, self.full, plan, self._parts)
        if self._pipeline is None or not self._pipeline.serves(plan):
            self._pipeline = self._selector = None
            self._parts.release()
            self._pipeline = self._kind.build(self.loaded, self.full, plan, self._parts)
            self._selector = DraftLengthSelector(self._pipeline, self.full, self.loaded.shard, self._profile)
        self._pipeline.reset()
        return self._pipeline

    def _reading(self, context: list[int], passes: Iterator[PrefillProgress]) -> Iterator[PrefillProgress]:
        """``passes`` that read ``context``; what is in the cache is known after each."""
        for progress in passes:
            self._read = context[: self.full.length]
            yield progress

    def _constraint(self, question: Question) -> tuple[QuoteConstraint | None, AnswerPlan | None]:
        if question.text is None or question.speculation.quotes == "off":
            return None, None
        return self.quoting.rules(self.prompt, question.text, question.history,
                                  typographic=question.speculation.quotes == "on")

    def _sampler(self, question: Question, constraint: QuoteConstraint | None, answer_start: int) -> Sampler:
        sampling = question.sampling
        if sampling.stop_token_ids is not None:
            stop = frozenset(sampling.stop_token_ids)
        else:
            stop = frozenset() if question.text is None else self.builder.stop_token_ids
        masks = QuoteMasks(constraint, answer_start, stop) if constraint is not None else None
        shard = self.loaded.shard
        return Sampler(sampling, verifier=question.speculation.verifier, masks=masks, stop=stop,
                       same=shard.same if shard.world > 1 else None, faster=self.loaded.target.faster_sampling)

    def throwaway_sampler(self, params: SamplingParams, verifier: str, *, held: bool) -> Sampler:
        """No answer's: chooses as answers with these settings do."""
        shard = self.loaded.shard
        return Sampler(params, verifier=verifier, masks=Masks() if held else None,
                       same=shard.same if shard.world > 1 else None, faster=self.loaded.target.faster_sampling)
