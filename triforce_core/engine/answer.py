"""The rounds of one answer (draft, one full pass, verdict, commit, choose) and the events that they become.

A real answer and the warm-up before it run the same rounds, so that nothing is met for the first time in an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from ..config import SamplingParams
from ..device.shard import ALONE, Shard
from ..device.streams import later
from ..events import (
    AttendedChunk,
    Finished,
    FinishReason,
    PageSpan,
    QuoteEvent,
    QuoteOccurrence,
    QuotePlace,
    RankCount,
    RoundEvent,
    TextDelta,
    TierCount,
    TokenChance,
    Turn,
)
from ..evidence.answering import Answering, AnswerPlan
from ..evidence.ranking import SentencePrior
from ..evidence.sentence_index import SentenceIndex
from ..evidence.vectors import WordVectors
from ..metrics import answer_stats
from ..prompt.builder import DocumentPrompt, PromptBuilder, QuoteFormat
from ..sampling import Masks, Sampler
from ..sampling.quote_matcher import QuoteConstraint, QuoteIndex
from ..speculation.draft_length import Selection
from ..speculation.model_drafter import QUOTE
from ..speculation.round import Round, speculate
from .loading import Loaded
from .pipeline import Pipeline
from .plan import Plan


class Quoting:
    """The quotation rules of all documents that one builder lays out."""

    def __init__(self, builder: PromptBuilder) -> None:
        self.builder = builder
        self._answering: WeakKeyDictionary[DocumentPrompt, Answering] = WeakKeyDictionary()
        # Documents but for their own quotation marks.
        self._unquoted: WeakKeyDictionary[DocumentPrompt, QuoteIndex] = WeakKeyDictionary()

    def answering(self, prompt: DocumentPrompt) -> Answering:
        """Return the finder of the document's sentences. It is remembered as long as its prompt."""
        if prompt not in self._answering:
            quotes, decode = prompt.quotes, self.builder.tokenizer.decode
            sentences = [" ".join(decode(part.tolist()).split()) for part in quotes.sentences]
            index = SentenceIndex(sentences, quotes.line_of_sentences, WordVectors.shipped())
            self._answering[prompt] = Answering(index, SentencePrior.shipped())
        return self._answering[prompt]

    def rules(self, prompt: DocumentPrompt, question: str, history: Sequence[Turn] = (),
              typographic: bool = False) -> tuple[QuoteConstraint | None, AnswerPlan | None]:
        """Return the constraint and the plan of an answer by a model whose prompt.json names quotation marks.

        Other models have no plan, and a constraint only where ``typographic`` asks for one and their vocabulary has
        such marks."""
        form, builder = self.builder.quote_format, self.builder
        if form is None:
            return (self._typographic(prompt) if typographic else None), None
        last = history[-1] if history else Turn("", ())
        said = last.answer or builder.tokenizer.decode(list(last.answer_token_ids))
        plan = self.answering(prompt).plan(builder.normalise(question), builder.normalise(last.question), said)
        whole, index, prior = prompt.quotes, prompt.quotes, None
        if plan.choices:
            index = whole.passages(plan.choices)
            prior = form.prior * np.append(np.array(plan.weights), 0.0)[index.sentence_of]
        return QuoteConstraint(index, form.open_id, form.close_id, form.unit, form.must_open, form.end_ids, prior,
                               script=self._script(prompt, plan, form), whole=whole), plan

    def sentences_around(self, prompt: DocumentPrompt, start: int, end: int) -> tuple[str, str, str]:
        """Return the sentences before and after context tokens [start, end), of the same line; and the line that
        introduces the list, or the first row of the table, in which they stand ("" for models that write free
        words)."""
        before, after = prompt.quotes.around(start, end)
        lead_in, decode = "", self.builder.tokenizer.decode
        if self.builder.quote_format is not None:
            lead_in = self.answering(prompt).index.lead_in(prompt.quotes.sentence_at(start))
        return decode(before).strip(), decode(after).strip(), lead_in

    def _script(self, prompt: DocumentPrompt, plan: AnswerPlan, form: QuoteFormat) -> tuple[int, ...]:
        """Return the tokens of what a plan says and quotes, each quotation in a paragraph of its own."""
        if not plan.words and not plan.spans:
            return ()
        line_feed = self.builder.tokenizer.token_id("<0x0A>")  # as a byte: the piece for it ends answers
        ids = self.builder.tokenizer.encode(plan.words)
        for first, last in plan.spans:
            ids += [line_feed] * 2 if ids else []
            ids += [form.open_id, *prompt.quotes.passage(first, last), form.close_id]
        return (*ids, *form.end_ids[:1])

    def _typographic(self, prompt: DocumentPrompt) -> QuoteConstraint | None:
        """Return rules for words between “ and ”. The document's own marks end a passage: what stands between an
        answer's is one run."""
        form = self._marks
        if form is None:
            return None
        if prompt not in self._unquoted:
            there = np.unique(prompt.token_ids).tolist()
            marked = [token for token in there if {*"“”"} & {*self.builder.tokenizer.decode([token])}]
            self._unquoted[prompt] = prompt.quotes_without(marked)
        return QuoteConstraint(self._unquoted[prompt], form.open_id, form.close_id, form.unit, also_open=form.also_open)

    @cached_property
    def _marks(self) -> QuoteFormat | None:
        """Return “ and ” as tokens of their own, alone or behind a space; None where the vocabulary lacks them."""
        encode = self.builder.tokenizer.encode
        single = {text: ids[0] for text in ("“", " “", "”") if len(ids := encode(text)) == 1}
        if "“" not in single or "”" not in single:
            return None
        opening, closing = single["“"], single["”"]
        return QuoteFormat(opening, closing, "word", False, also_open=frozenset(single.values()) - {opening, closing})



_MOST_OCCURRENCES = 8  # occurrences of one quotation that are reported with their places


class QuoteReport:
    """Report where an answer's quotations stand. All of it follows from the answer's tokens, so it is the same however
    they were drafted."""

    def __init__(self, constraint: QuoteConstraint, places: Callable[[int, int], tuple[QuotePlace, ...]],
                 around: Callable[[int, int], tuple[str, str, str]] = lambda start, end: ("", "", "")) -> None:
        """places: where tokens [start, end) of the context stand in the document; around: the sentences before and
        after them, and what leads into their list or table."""
        self._state, self._places, self._around = constraint.initial(), places, around
        self._length = self._start = 0  # characters of the answer; those before the quotation
        self._number = -1
        self._single = False  # the quotation that is open has been reported
        self._newest: dict[int, QuoteEvent] = {}

    @property
    def quotes(self) -> tuple[QuoteEvent, ...]:
        """Return the last report of each quotation."""
        return tuple(self._newest.values())

    def feed(self, token_ids: Sequence[int], texts: Sequence[str]) -> Iterator[QuoteEvent]:
        """Yield what the answer's next tokens quote. texts: what each adds to its text."""
        for token, text in zip(token_ids, texts, strict=True):
            before, end = self._state, self._length
            self._state = before.advance(token)
            self._length += len(text)
            if self._state.phase == "opened":
                self._number, self._start, self._single = self._number + 1, self._length, False
            elif before.phase == "inside" and token == before.rules.close_id:
                yield self._report(self._state.last, end, closed=True)
            elif self._state.phase == "inside" and len(self._state.positions) == 1 and not self._single:
                self._single = True
                yield self._report(self._state.spans(), self._length, closed=False)

    def end(self) -> Iterator[QuoteEvent]:
        """Yield the quotation inside which the answer ends, if any."""
        if self._state.phase == "inside":
            yield self._report(self._state.spans(), self._length, closed=False)

    def _report(self, spans: Sequence[tuple[int, int]], end: int, closed: bool) -> QuoteEvent:
        event = QuoteEvent(self._number, self._start, end, closed, len(spans),
                           tuple(QuoteOccurrence(*span, self._places(*span)) for span in spans[:_MOST_OCCURRENCES]),
                           *(self._around(*spans[0]) if closed and spans else ("", "", "")))
        self._newest[self._number] = event
        return event


_TOP_CHUNKS, _TOP_OF_ROUND = 16, 6


class AttentionReport:
    """Folds mass over a document's chunks: page shares now, and the most attended chunks of a whole answer.

    The first chunk is left out: it is an attention sink (StreamingLLM, arXiv 2309.17453), attended for being first.
    """

    def __init__(self, pages: Sequence[PageSpan], document_tokens: int, chunk_size: int, shard: Shard = ALONE,
                 usual: np.ndarray | None = None) -> None:
        """usual: shares of the chunks that any question draws to them (sum to 1); ``top`` gives what is above them."""
        self.chunk_size, self._shard = chunk_size, shard
        self.num_chunks = document_tokens // chunk_size
        middles = np.arange(self.num_chunks) * chunk_size + chunk_size // 2
        self._page_of = np.searchsorted([page.start for page in pages], middles, side="right") - 1
        self._num_pages = len(pages)
        self.total = np.zeros(self.num_chunks)
        self._newest = np.zeros(0)
        self._usual = usual if usual is not None and len(usual) == self.num_chunks else np.zeros(self.num_chunks)
        self._seen: Callable[[], Tensor] | None = None

    def see(self, mass: Tensor) -> None:
        """Take the mass [layers, H, chunks] of one pass, for ``add_seen``; the host does not wait for it.

        H: this rank's KV heads; the other ranks add theirs at the same time."""
        self._seen = later(self._shard.sum(mass.sum((0, 1))[: self.num_chunks]).double())

    def add_seen(self) -> tuple[float, ...] | None:
        """Add what was seen last; return its share per page (sums to 1; zeros if there is none). None: nothing since.
        """
        seen, self._seen = self._seen, None
        if seen is None:
            return None
        chunks = seen().numpy()
        chunks[:1] = 0.0
        chunks /= max(chunks.sum(), 1e-30)
        self.total[: len(chunks)] += chunks
        self._newest = chunks
        return self._pages(chunks)

    @property
    def page_shares(self) -> tuple[float, ...]:
        """Return the shares per page over the whole answer; () if nothing was observed."""
        return self._pages(self.total / self.total.sum()) if self.total.any() else ()

    def top(self, count: int) -> list[tuple[int, int, float]]:
        """Return the chunks attended most, heaviest first: (page index, chunk number, share of the document's mass
        beyond the usual)."""
        return self._heaviest(self.total, count)

    def top_of_newest(self, count: int) -> list[tuple[int, int, float]]:
        """Return the same of the pass that was added last."""
        return self._heaviest(self._newest, count)

    def _heaviest(self, chunks: np.ndarray, count: int) -> list[tuple[int, int, float]]:
        if not chunks.any():
            return []
        above = chunks / chunks.sum() - self._usual[: len(chunks)]
        count = min(count, len(chunks))
        found = np.argpartition(above, -count)[-count:]  # there may be tens of thousands, and it is asked every round
        order = found[np.argsort(above[found])[::-1]]
        return [(int(self._page_of[c]), int(c), float(above[c])) for c in order if above[c] > 0]

    def _pages(self, chunks: np.ndarray) -> tuple[float, ...]:
        shares = np.bincount(self._page_of[: len(chunks)], weights=chunks, minlength=self._num_pages)
        return tuple(shares.tolist())


def make_sampler(loaded: Loaded, params: SamplingParams, verifier: str, masks: Masks | None = None,
                 stop: frozenset[int] = frozenset()) -> Sampler:
    """Return what chooses tokens with these settings, alike on every rank."""
    shard = loaded.shard
    return Sampler(params, verifier=verifier, masks=masks, stop=stop, same=shard.same if shard.world > 1 else None,
                   faster=loaded.target.faster_sampling)


@dataclass(frozen=True, slots=True)
class Step:
    """Hold what one round did. tokens: those that the answer has room for; tiers: what was tested and accepted, the
    drafter's own first; passes, ranks: see ``DraftStats``; shares: of the pages, where the round measured them;
    streamed: bytes from host memory. began: when, by ``perf_counter``."""

    done: Round
    tokens: list[int]
    stopped: bool
    tiers: list[TierCount]
    passes: dict[str, int]
    ranks: tuple[RankCount, ...]
    shares: tuple[float, ...] | None
    milliseconds: dict[str, float]
    streamed: int
    began: float


class DecodeLoop:
    """Run the rounds of one answer. ``context`` grows with every round; all but its last token is in the full cache."""

    def __init__(self, pipeline: Pipeline, attended: AttentionReport, sampler: Sampler, context: list[int],
                 max_context: int) -> None:
        self._pipeline, self._attended, self._sampler = pipeline, attended, sampler
        self.context, self._max_context = context, max_context

    def step(self, choice: Selection, left: int) -> Step:
        """Run one round. left: tokens that the answer may still have."""
        pipeline, sampler, context, full = self._pipeline, self._sampler, self.context, self._pipeline.full
        began, streamed = perf_counter(), full.cache.streamed_bytes
        wanted = pipeline.begin(choice)
        full.observer = observer = pipeline.next_observer
        # A draft beyond the answer's limit is verified whole, as its pass may be captured in that width only.
        most = min(self._invariant_limit(), self._max_context - len(context) - 1)
        done = speculate(full, pipeline.drafter, context, min(wanted, left - 1, most), sampler,
                         most=most if choice.most is None else min(most, choice.most),
                         alternatives=sampler.params.alternatives, verify=pipeline.parts.verify,
                         overlap=pipeline.overlap if observer is not None else None)
        mass = pipeline.observer.latest
        if observer is not None and mass is not None:
            self._attended.see(mass)
        tokens, stopped = _cut(done.verdict.token_ids, sampler.stop, left)
        context.extend(tokens)
        full.keep(min(len(context), full.length))
        full.commit()
        chose = pipeline.milliseconds()
        pipeline.settle(context)
        stats = pipeline.drafter.stats()
        spent = {**stats.milliseconds, "verify": done.verify_milliseconds, **chose}
        return Step(done, tokens, stopped, [*_tested(done, pipeline.drafter.tier), *stats.counts], dict(stats.passes),
                    stats.ranks, self._attended.add_seen(), spent, full.cache.streamed_bytes - streamed, began)

    def _invariant_limit(self) -> int:
        """Return the drafted tokens up to which a verification rounds as plain decoding would, where that is known."""
        full = self._pipeline.full
        rows = self._pipeline.target.batch_invariant_rows(full.cache)
        return sys.maxsize if rows is None else rows - (len(self.context) - full.length)


def _tested(done: Round, tier: str) -> list[TierCount]:
    """Count what the full cache tested, by who drafted it; forced quotation counts apart, it is always right."""
    proposers = zip(done.draft.proposed_by(tier), done.draft.sources, strict=True)
    return done.counts([QUOTE if source == QUOTE else proposer for proposer, source in proposers])


def _cut(tokens: Sequence[int], stop: frozenset[int], left: int) -> tuple[list[int], bool]:
    """Return which of a round's tokens belong to the answer, and whether a stop token ends it there."""
    for count, token in enumerate(tokens[:left], start=1):
        if token in stop:
            return list(tokens[:count]), True
    return list(tokens[:left]), False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Say what an answer follows, and when it was asked for. started: by ``perf_counter``; tokens: of them read
    anew."""

    started: float
    tokens: int
    reused: int


class Answer:
    """Make one answer's events, in order. ``rounds``: yielded so far."""

    def __init__(self, quoting: Quoting, document: DocumentPrompt, asked: Prompt, plan: Plan,
                 attended: AttentionReport, constraint: QuoteConstraint | None, planned: AnswerPlan | None, *,
                 details: bool) -> None:
        """planned: what a model that only quotes was given to say. details: rounds say what they attended."""
        self.rounds: list[RoundEvent] = []
        builder = self._builder = quoting.builder
        self._document, self._asked, self._plan = document, asked, plan
        self._attended, self._planned, self._details = attended, planned, details
        self._decoder = builder.tokenizer.stream_decoder(None if constraint is None else constraint.opening)
        self._report = None if constraint is None else QuoteReport(constraint.counted_in_whole(),
                                                                   partial(builder.quote_places, document),
                                                                   partial(quoting.sentences_around, document))
        self._texts: list[str] = []

    def add(self, choice: Selection, step: Step, question_read: float) -> Iterator[RoundEvent | TextDelta | QuoteEvent]:
        """Yield one round's events. question_read: when the prompt had been read, by ``perf_counter``."""
        tokens = step.tokens
        shown = [self._decoder.feed(token) for token in (tokens[:-1] if step.stopped else tokens)]
        event = self._event(choice, step, shown, question_read)
        self.rounds.append(event)
        yield event
        text = "".join(shown)
        if text:
            self._texts.append(text)
            yield TextDelta(text, event.elapsed)
        if self._report is not None:
            yield from self._report.feed(tokens[: len(shown)], shown)

    def end(self) -> Iterator[TextDelta | QuoteEvent]:
        """Yield what was held back: the last part of a character, and of a quotation."""
        tail = self._decoder.flush()
        if tail:
            self._texts.append(tail)
            yield TextDelta(tail, perf_counter() - self._asked.started)
        if self._report is not None:
            yield from self._report.end()

    def finished(self, reason: FinishReason, token_ids: Sequence[int], prefill_seconds: float,
                 lengths: str = "") -> Finished:
        """Return the last event. lengths: why drafts were as long as they were."""
        plan, planned = self._plan, self._planned
        why = f"{plan.why}; {lengths}" if lengths else plan.why
        stats = answer_stats(self.rounds, prompt_tokens=self._asked.tokens, reused_tokens=self._asked.reused,
                             prefill_seconds=prefill_seconds, engine=plan.engine, why=why,
                             verifier=plan.verifier, settings=replace(plan, why=why).shown())
        return Finished(reason, "".join(self._texts), tuple(token_ids), stats,
                        self._chunks(self._attended.top(_TOP_CHUNKS)), self._attended.page_shares,
                        self._report.quotes if self._report is not None else (),
                        planned.confidence if planned is not None else None,
                        planned.answerable if planned is not None else None)

    def _event(self, choice: Selection, step: Step, shown: list[str], question_read: float) -> RoundEvent:
        now, done, count = perf_counter(), step.done, len(step.tokens)
        spent = {**step.milliseconds, "other": max(0.0, (now - step.began) * 1e3 - sum(step.milliseconds.values()))}
        decode = self._builder.tokenizer.decode
        chances = tuple(TokenChance(own, tuple((decode([token]), chance) for token, chance in likeliest))
                        for own, likeliest in done.chances[:count])
        chunks = self._attended.top_of_newest(_TOP_OF_ROUND) if self._details and step.shares is not None else []
        return RoundEvent(
            index=len(self.rounds), token_ids=tuple(step.tokens), sources=tuple(done.sources[:count]),
            tiers=tuple(step.tiers), milliseconds=spent, page_shares=step.shares, elapsed=now - self._asked.started,
            passes=step.passes, streamed_bytes=step.streamed, ranks=step.ranks,
            texts=tuple(shown) + ("",) * (count - len(shown)), chances=chances, drafted=done.draft.depth,
            gamma1=self._plan.lengths.gamma1 if choice.gamma2 else 0, gamma2=choice.gamma2,
            chunks=self._chunks(chunks), decoding=now - question_read)

    def _chunks(self, found: Sequence[tuple[int, int, float]]) -> tuple[AttendedChunk, ...]:
        """Return chunks as ``AttentionReport`` names them, with their words."""
        size, ids = self._plan.chunk_size, self._document.token_ids
        spans = [(page, chunk * size, min((chunk + 1) * size, len(ids)), share) for page, chunk, share in found]
        return tuple(AttendedChunk(page + 1, self._document.pages[page].label, start, end, share,
                                   self._builder.tokenizer.decode(ids[start:end].tolist()))
                     for page, start, end, share in spans)
