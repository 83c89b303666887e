"""The rounds of one answer (draft, one full pass, verdict, commit, choose) and the events that they become.

A real answer and the warm-up before it run the same rounds, so that nothing is met for the first time in an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
from torch import Tensor

from ..config import SamplingParams, check
from ..device.shard import ALONE, Shard
from ..device.streams import later
from ..events import (
    AttendedChunk,
    Finished,
    FinishReason,
    PageSpan,
    QuoteEvent,
    RankCount,
    RoundEvent,
    TextDelta,
    TierCount,
    TokenChance,
)
from ..metrics import answer_stats
from ..prompt.builder import DocumentPrompt, PromptBuilder
from ..prompt.quotations import QuoteReport
from ..sampling import Masks, Sampler
from ..sampling.quote_matcher import QuoteConstraint
from ..speculation.draft_length import Selection
from ..speculation.model_drafter import QUOTE
from ..speculation.round import Round, speculate
from .loading import Loaded
from .pipeline import Pipeline
from .plan import Plan

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


def make_sampler(loaded: Loaded, params: SamplingParams, verifier: str, masks: Masks | None = None, *,
                 stop: frozenset[int] = frozenset(), answer_start: int = 0) -> Sampler:
    """Return what chooses tokens with these settings, alike on every rank. Raises ConfigError."""
    shard, vocabulary = loaded.shard, loaded.target.config.vocab_size
    foreign = [token for token, _ in params.logit_bias if token >= vocabulary]
    check(not foreign, "logit_bias", foreign, f"tokens up to {vocabulary - 1}")
    return Sampler(params, verifier=verifier, masks=masks, stop=stop, answer_start=answer_start,
                   same=shard.same if shard.world > 1 else None, faster=loaded.target.faster_sampling)


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

    def __init__(self, builder: PromptBuilder, document: DocumentPrompt, asked: Prompt, plan: Plan,
                 attended: AttentionReport, constraint: QuoteConstraint | None, *, details: bool) -> None:
        """details: rounds say what they attended."""
        self.rounds: list[RoundEvent] = []
        self._builder, self._document, self._asked, self._plan = builder, document, asked, plan
        self._attended, self._details = attended, details
        self._decoder = builder.tokenizer.stream_decoder(None if constraint is None else constraint.opening)
        self._report = None if constraint is None else QuoteReport(constraint, partial(builder.quote_places, document))
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
        plan = self._plan
        why = f"{plan.why}; {lengths}" if lengths else plan.why
        stats = answer_stats(self.rounds, prompt_tokens=self._asked.tokens, reused_tokens=self._asked.reused,
                             prefill_seconds=prefill_seconds, engine=plan.engine, why=why,
                             verifier=plan.verifier, settings=replace(plan, why=why).shown())
        return Finished(reason, "".join(self._texts), tuple(token_ids), stats,
                        self._chunks(self._attended.top(_TOP_CHUNKS)), self._attended.page_shares,
                        self._report.quotes if self._report is not None else ())

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
