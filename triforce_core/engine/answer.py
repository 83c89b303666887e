"""Folds the rounds of one answer into events: texts, figures, what was attended, quotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from ..events import (
    AttendedChunk,
    Finished,
    FinishReason,
    QuoteEvent,
    RoundEvent,
    TextDelta,
    TokenChance,
)
from ..evidence.answering import AnswerPlan
from ..metrics import answer_stats
from ..prompt.builder import DocumentPrompt
from ..sampling.quote_matcher import QuoteConstraint
from ..speculation.draft_length import Selection
from .attention_report import AttentionReport
from .decode_loop import Step
from .plan import Plan
from .quote_report import QuoteReport
from .quoting import Quoting

_TOP_CHUNKS, _TOP_OF_ROUND = 16, 6


@dataclass(frozen=True, slots=True)
class Prompt:
    """Hold what an answer follows, and when it was asked for. started: by ``perf_counter``; tokens: of them read
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
        """One round. question_read: when the prompt had been read, by ``perf_counter``."""
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
        """lengths: why drafts were as long as they were."""
        plan = replace(self._plan, why=f"{self._plan.why}; {lengths}") if lengths else self._plan
        stats = answer_stats(self.rounds, prompt_tokens=self._asked.tokens, reused_tokens=self._asked.reused,
                             prefill_seconds=prefill_seconds, engine=plan.engine, why=plan.why,
                             verifier=plan.verifier, settings=plan.shown())
        return Finished(reason, "".join(self._texts), tuple(token_ids), stats,
                        self._chunks(self._attended.top(_TOP_CHUNKS)), self._attended.page_shares,
                        self._report.quotes if self._report is not None else (),
                        self._planned.confidence if self._planned is not None else None,
                        self._planned.answerable if self._planned is not None else None)

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
        """Chunks as ``AttentionReport`` names them, with their words."""
        size, ids = self._plan.chunk_size, self._document.token_ids
        spans = [(page, chunk * size, min((chunk + 1) * size, len(ids)), share) for page, chunk, share in found]
        return tuple(AttendedChunk(page + 1, self._document.pages[page].label, start, end, share,
                                   self._builder.tokenizer.decode(ids[start:end].tolist()))
                     for page, start, end, share in spans)
