"""One document in the cache, and questions about it: the only loop that emits tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from time import perf_counter
from typing import Any

from ..config import HEAVY_HITTERS, SamplingParams, SpeculationConfig
from ..device.stage_clock import Moment
from ..draft_length.controller import Choice
from ..draft_length.selector import Pacing
from ..drafters.model import ModelOnCache
from ..drafters.prompt_lookup import TextIndex
from ..errors import ContextTooLongError
from ..events import Finished, FinishReason, PrefillProgress, QuoteEvent, RoundEvent, TextDelta, Turn
from ..kv_cache.offloaded import OffloadedCache
from ..metrics import generated_tokens
from ..prompt.builder import DocumentPrompt, PromptBuilder
from ..quotes.masks import AnyWords, QuoteMasks
from ..quotes.matcher import QuoteConstraint
from ..research.accumulated_mass import AccumulatedMass
from ..sampling import Sampler
from ..speculation.drafter import Drafter, NoDrafter
from .answer import Answer, Prompt
from .attention_report import MASS_ROWS, AttendedMap, AttentionMass
from .build import Hierarchy, dials_for
from .decode_loop import DecodeLoop
from .draft_model import SmallReading
from .loading import Loaded
from .measured import Asked, Measured
from .plan import Dials
from .prefill import prefill
from .warm_up import questions

# The newest prompt tokens, always read again in a pass of their own: their attention chooses the first chunks,
# and a question asked twice from the same cache takes the same passes.
_OBSERVED = 16
_ROOM = 64  # tokens behind a context that preparing writes and takes back
# Every kind of choice that takes other kernels or other captured rounds: what the values are does not matter.
_GREEDY, _DRAWN = SamplingParams(alternatives=1), SamplingParams(temperature=0.6, alternatives=1)
_FILTERED = replace(_DRAWN, top_p=0.9)
_KINDS = ((_GREEDY, "rejection"), (_DRAWN, "rejection"), (_FILTERED, "rejection"), (_DRAWN, "coupled"),
          (_FILTERED, "coupled"))

AnswerEvent = PrefillProgress | RoundEvent | TextDelta | QuoteEvent | Finished


@dataclass(frozen=True, slots=True)
class Tiers:
    """What drafts for one answer. observer: of the passes that choose chunks; hierarchy None: plain decoding;
    accumulated: of all passes, for H2O."""

    observer: AttentionMass
    drafter: Drafter
    hierarchy: Hierarchy | None
    accumulated: AccumulatedMass | None


class Session:
    """A document that has been read into ``full``. Holds no conversation: each question brings its history."""

    def __init__(self, loaded: Loaded, builder: PromptBuilder, prompt: DocumentPrompt, full: ModelOnCache,
                 prefill_chunk: int, measured: Measured | None = None) -> None:
        """measured: what is known of this machine; None: the usual settings, and nothing is kept."""
        self.loaded, self.builder, self.prompt, self.full, self._measured = loaded, builder, prompt, full, measured
        self._chunk = prefill_chunk
        self._document = prompt.token_ids.tolist()
        self._read = list(self._document[: full.length])  # ids behind the cache, in order
        self._hierarchy: Hierarchy | None = None
        self._pacing: Pacing | None = None  # of the hierarchy
        self._text: TextIndex | None = None  # made when an n-gram drafter first asks for it
        self._observer: AttentionMass | None = None
        self._accumulated: AccumulatedMass | None = None  # of this document, once H2O was asked for
        self._reading: SmallReading | None = None  # the small model's, once it was asked to attend marked chunks
        self._warmed: Hierarchy | None = None  # whose rounds have been run
        self._planned: dict[SpeculationConfig, dict[str, Any]] = {}  # by settings, those in the place of "auto"

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, cancelled: Callable[[], bool], system: str = "") -> Iterator[AnswerEvent]:
        """Answer, round by round; ``question`` None goes on with the document's own text.

        Raises ContextTooLongError, ConfigError (an empty question, or a system text for a model that follows none).
        Closing the generator is safe. Captures and measures nothing: what is not prepared runs as it is."""
        started = perf_counter()
        context = self._context(question, history, system)
        room = self.loaded.info.max_context - len(context)
        if room < 1:
            raise ContextTooLongError(
                f"Document, conversation and question take {len(context):,} tokens",
                allowed=f"{self.loaded.info.max_context - 1:,}",
                remedy="Start a new conversation or choose fewer pages.")
        reused = self._rewind(context)
        asked = self._asked(question, sampling, speculation, len(context))
        dials = self._dials(asked)
        tiers = self._tiers(dials)
        if tiers.accumulated is not None:  # what it has not seen read is read again
            reused = self._rewind(context, tiers.accumulated.rewind(reused))
        constraint = self._constraint(question, speculation)
        attended = AttendedMap(self.prompt.pages, len(self._document), dials.chunk_size, self.loaded.shard)
        answer = Answer(self.builder, self.prompt, Prompt(started, len(context) - reused, reused), dials, attended,
                        constraint, details=sampling.alternatives > 0)
        yield from self._prefill(context, tiers.observer, tiers.accumulated, cancelled)
        read = Moment(self.full.device)  # from here on it is decoding, by every figure
        if self.full.length < len(context) - 1:
            yield answer.finished("cancelled", [], 0.0)
            return
        if tiers.observer.latest is not None:
            attended.see(tiers.observer.latest)
        sampler = self._sampler(question, sampling, speculation, constraint, len(context))
        # Going on with the text, or held to its words, the small model does as well on the newest tokens, and marking
        # takes its time: with llama3-8b's shape on an H200 1 to 2.6 of a round's 20 to 27 ms.
        marks = (question is not None and constraint is None) or speculation.draft_cache == "cross"
        yield from self._start(tiers, dials, context, sampler, cancelled, marks=marks)
        loop = self._loop(tiers, attended, sampler, context)
        ended = yield from self._decode(loop, tiers, answer, sampling, read, cancelled)
        yield from answer.end()
        if self._measured is not None:
            self._measured.learn(asked, dials, answer.rounds)
        told = self._pacing.why() if self._pacing is not None and tiers.hierarchy is not None else ""
        yield answer.finished(ended, context[len(context) - generated_tokens(answer.rounds) :], read.when() - started,
                              told)

    def _start(self, tiers: Tiers, dials: Dials, context: list[int], sampler: Sampler,
               cancelled: Callable[[], bool], *, marks: bool) -> Iterator[PrefillProgress]:
        """What drafting needs behind a prompt that was read: a part of its price."""
        if tiers.hierarchy is None:
            return
        if self._reading is not None and dials.draft_cache == "cross":
            yield from self._reading.read(context, self._chunk, cancelled)
            if cancelled():
                return
        tiers.hierarchy.start(context, marks=marks)
        if self._pacing is not None:
            self._pacing.begin(context, sampler)

    def _decode(self, loop: DecodeLoop, tiers: Tiers, answer: Answer, sampling: SamplingParams, read: Moment,
                cancelled: Callable[[], bool]) -> Generator[AnswerEvent, None, FinishReason]:
        """Rounds until the answer ends; why it did. read: the end of the prompt."""
        pacing = self._pacing if tiers.hierarchy is not None else None
        room = self.loaded.info.max_context - len(loop.context)
        left = min(sampling.max_new_tokens, room)
        while True:
            if cancelled():
                return "cancelled"
            choice = pacing.next() if pacing is not None else Choice(0, 0)
            step = loop.step(choice, left)
            self._read += loop.context[len(self._read) : self.full.length]
            yield from answer.add(choice, step, tiers.drafter, read.when())
            if pacing is not None:
                pacing.learn(choice, step.done, answer.rounds[-1])
            left -= len(step.tokens)
            if step.stopped:
                return "stop"
            if left <= 0:
                return "context" if room < sampling.max_new_tokens else "length"

    def _loop(self, tiers: Tiers, attended: AttendedMap, sampler: Sampler, context: list[int]) -> DecodeLoop:
        return DecodeLoop(self.loaded.target, self.full, tiers.drafter, tiers.hierarchy,
                          tiers.accumulated or tiers.observer, attended, sampler, context,
                          self.loaded.info.max_context)

    def _asked(self, question: str | None, sampling: SamplingParams, speculation: SpeculationConfig,
               context_tokens: int) -> Asked:
        forces = question is not None and speculation.quotes != "off" and self.builder.quote_format is not None
        return Asked(speculation, sampling, self.full, context_tokens, forces, self._reading)

    def _dials(self, asked: Asked) -> Dials:
        """Every "auto" decided, by what was measured on this machine where that is known. Where chance decides, the
        text of a seed depends on how it is drafted, so that no other settings are tried there."""
        wanted = asked.speculation
        if asked.by_draws:
            wanted = replace(wanted, **self._planned.get(wanted, {}))
        return dials_for(self.loaded, self.full, wanted, asked.context_tokens, asked.reading)

    def _plan(self, asked: Asked) -> None:
        """Go by what is known of this machine now, until these settings are prepared again: what answers have shown
        changes no answer's caches in between, as nothing would be ready for them."""
        if self._measured is not None and asked.by_draws:
            planned = self._measured.plan(asked)
            self._planned[asked.speculation] = {
                own.name: getattr(planned, own.name) for own in fields(planned)
                if getattr(planned, own.name) != getattr(asked.speculation, own.name)}

    def read_small(self, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Have the small model read the document where the usual settings ask for that: no question shall wait for it.
        Cut short, the first question has it read."""
        dials = dials_for(self.loaded, self.full, SpeculationConfig(), len(self._document), self._reading)
        if dials.draft_cache == "cross":
            yield from self._small_reading().read(self._document, self._chunk, cancelled)

    def _small_reading(self) -> SmallReading:
        if self._reading is None:
            assert self.loaded.draft is not None
            self._reading = SmallReading(self.loaded.draft, len(self._document) - self.builder.tail_length,
                                         max_tokens=self.loaded.info.max_context)
        return self._reading

    def prepare(self, sampling: SamplingParams, speculation: SpeculationConfig,
                cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Make ready all that answers with these settings run, at any temperature, held to the document's words or
        free: caches, captured passes and rounds, costs. No answer waits for any of it; what is ready costs next to
        nothing. Ends early when cancelled: what is missing then runs as it is. Leaves what was read."""
        context = [*self._read, self._document[-1]]  # which token comes next does not matter
        if len(context) + _ROOM >= self.loaded.info.max_context:
            return
        started, total = perf_counter(), len(self._document)
        yield PrefillProgress(0, total, 0.0, None, "warm-up")
        asked = self._asked("", sampling, speculation, len(context))
        self._plan(asked)
        steps = self._preparations(self._tiers(self._dials(asked)), asked, context, cancelled)
        for done, step in enumerate(steps, start=1):  # making the tiers, weights and all, was one more
            if cancelled():
                return
            step()
            spent, fraction = perf_counter() - started, (done + 1) / (len(steps) + 1)
            yield PrefillProgress(int(fraction * total), total, fraction * total / max(spent, 1e-9),
                                  spent / fraction - spent, "warm-up")

    def _preparations(self, tiers: Tiers, asked: Asked, context: list[int],
                      cancelled: Callable[[], bool]) -> list[Callable[[], object]]:
        """To be called in order."""
        hierarchy, target, captures = tiers.hierarchy, self.loaded.target, self.loaded.target.graphs is not None
        steps: list[Callable[[], object]] = []
        constraint = self._constraint("What does it say?", asked.speculation)
        if constraint is not None:
            steps.append(partial(self._index_quotations, constraint))
        if captures:
            steps += [partial(target.prepare, self.full.cache, 1),
                      partial(target.prepare, self.full.cache, _OBSERVED, tiers.observer, logits_rows=1)]
        if hierarchy is None:
            return steps
        streams = isinstance(self.full.cache, OffloadedCache)  # a pass takes about as long as compiling does
        first = self._warmed is not hierarchy
        if captures and first and not streams:
            steps += questions(self.full, self.loaded.info.max_context - len(context))
        steps.append(partial(self._begin_behind, hierarchy, context))
        helds = (False,) if constraint is None else (True, False)
        if captures:
            kinds = [self._throwaway(params, verifier, held=False) for params, verifier in _KINDS]
            steps += hierarchy.preparations(context, kinds, quoting=constraint is not None)
            if first and not streams:
                steps += [partial(self._try_rounds, tiers, context, params, verifier, held)
                          for held in helds for params, verifier in _KINDS]
        if self._pacing is not None:
            steps += [partial(self._pacing.measure, context, tiers.observer,
                              self._throwaway(params, "rejection", held=held), cancelled)
                      for held in helds for params in (_GREEDY, _DRAWN)]
        return [*steps, partial(setattr, self, "_warmed", hierarchy)]

    def let_go(self) -> None:
        """Give back what drafts, and what a pass that broke off has staged; the next answer makes it anew."""
        self._hierarchy = self._pacing = self._warmed = None
        if self._observer is not None:
            self._observer.follower = None
        self.full.observer = None
        self.full.truncate(len(self._read))

    @staticmethod
    def _index_quotations(constraint: QuoteConstraint) -> None:
        """What quotations are looked up in is made when it is first asked for."""
        for token in constraint.opening:
            constraint.initial().advance(token).prior()

    def _try_rounds(self, tiers: Tiers, context: list[int], params: SamplingParams, verifier: str, held: bool) -> None:
        """Run rounds as an answer does, and take them back: libraries load much when it is first used."""
        before, attended = self.full.length, AttendedMap(self.prompt.pages, len(self._document), 8, self.loaded.shard)
        sampler = self._throwaway(params, verifier, held=held)
        loop = self._loop(tiers, attended, sampler, list(context))
        hierarchy = tiers.hierarchy
        assert hierarchy is not None
        for length in (max(hierarchy.dials.gamma2s), 0):
            loop.step(Choice(max(hierarchy.dials.gamma1s), length), _ROOM)
        hierarchy.forget()
        self.full.truncate(before)
        self._begin_behind(hierarchy, context)

    def _begin_behind(self, hierarchy: Hierarchy, context: list[int]) -> None:
        """As an answer does; the full cache holds all but the last token."""
        if self._reading is not None:
            for _ in self._reading.read(context, self._chunk, lambda: False):
                pass
        hierarchy.reset()
        hierarchy.start(context)

    def _context(self, question: str | None, history: Sequence[Turn], system: str = "") -> list[int]:
        """What the answer follows. All of it but the document is read anew where the system text is another."""
        ids = self._document[: len(self._document) - self.builder.tail_length]
        if question is None:
            return ids
        ids += self.builder.after_document(system)
        for number, turn in enumerate(history):
            ids += self.builder.question(turn.question, first=number == 0)
            # Which token stopped an answer is the builder's business: it writes the proper end of turn itself.
            answer = list(turn.answer_token_ids) or self.builder.tokenizer.encode(turn.answer)
            if answer and answer[-1] in self.builder.stop_token_ids:
                answer.pop()
            ids += answer
            ids += self.builder.after_answer(answer)
        return ids + self.builder.question(question, first=not history)

    def _rewind(self, context: list[int], most: int = sys.maxsize) -> int:
        """Truncate the cache to what it shares with ``context``, ``most`` tokens; how many that is."""
        common = 0
        for mine, wanted in zip(self._read, context, strict=False):
            if mine != wanted:
                break
            common += 1
        common = max(0, min(common, len(context) - 1 - _OBSERVED, most))
        self.full.truncate(common)
        self._read = context[:common]
        return common

    def _tiers(self, dials: Dials) -> Tiers:
        """Drafters for these dials; caches are made anew only when a dial changed."""
        if self._observer is None or self._observer.chunk_size != dials.chunk_size:
            self._observer = AttentionMass(dials.chunk_size, MASS_ROWS)
            self._hierarchy = self._pacing = None
        if dials.engine == "autoregressive":
            return Tiers(self._observer, NoDrafter(), None, None)
        heavy = dials.middle_cache in HEAVY_HITTERS
        if heavy:
            if self._accumulated is None:
                heads = self.loaded.target.config.num_heads
                self._accumulated = AccumulatedMass(self._observer, heads, len(self._document))
            self._accumulated.shown = self._observer  # another one where chunks have another size
        # The reason counts the context's tokens, and both verifiers verify the same drafts: another one needs no other
        # caches, and no other graphs.
        if self._hierarchy is None or replace(self._hierarchy.dials, why=dials.why, verifier=dials.verifier) != dials:
            # Its caches go before the new ones come.
            self._hierarchy = self._pacing = self._warmed = self._observer.follower = None
            if (dials.ngram or dials.straight) and self._text is None:
                # Without its end, which is not there when the text itself goes on.
                self._text = TextIndex(self._document[: len(self._document) - self.builder.tail_length])
            reading = self._small_reading() if dials.draft_cache == "cross" else None
            self._hierarchy = Hierarchy(self.loaded, self.full, dials, self._observer,
                                        self._accumulated if heavy else None, self._text, reading)
            self._pacing = Pacing(self._hierarchy, self.full, self.loaded.shard, self._measured)
        self._hierarchy.reset()
        return Tiers(self._observer, self._hierarchy.drafter, self._hierarchy, self._accumulated if heavy else None)

    def _prefill(self, context: list[int], observer: AttentionMass, accumulated: AccumulatedMass | None,
                 cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """All but the last token, whose logits the first round asks for."""
        wanted = context[: len(context) - 1]
        last = max(self.full.length, len(wanted) - _OBSERVED)
        # Every context begins with the document without its tail: what that attended is good for all of them.
        shared = max(0, min(last, len(self._document) - self.builder.tail_length - 1 - _OBSERVED))
        self.full.observer = accumulated
        for stop in (shared, last) if accumulated is not None else (last,):
            for progress in prefill(self.full, wanted[self.full.length : stop], self._chunk, cancelled, len(wanted)):
                self._read = context[: self.full.length]
                yield progress
            if accumulated is not None and self.full.length == shared:
                accumulated.keep(shared)
        if self.full.length == last and not cancelled():
            self.full.observer = accumulated or observer
            yield from prefill(self.full, wanted[last:], _OBSERVED, cancelled)
            self._read = context[: self.full.length]

    def _constraint(self, question: str | None, speculation: SpeculationConfig) -> QuoteConstraint | None:
        if question is None or speculation.quotes == "off":
            return None
        return self.builder.quote_constraint(self.prompt, question, typographic=speculation.quotes == "on")

    def _sampler(self, question: str | None, sampling: SamplingParams, speculation: SpeculationConfig,
                 constraint: QuoteConstraint | None, answer_start: int) -> Sampler:
        if sampling.stop_token_ids is not None:
            stop = frozenset(sampling.stop_token_ids)
        else:
            stop = frozenset() if question is None else self.builder.stop_token_ids
        masks = QuoteMasks(constraint, answer_start, stop) if constraint is not None else None
        shard = self.loaded.shard
        return Sampler(sampling, verifier=speculation.verifier, masks=masks, stop=stop,
                       same=shard.same if shard.world > 1 else None)

    def _throwaway(self, params: SamplingParams, verifier: str, *, held: bool) -> Sampler:
        """No answer's: chooses as answers with these settings do."""
        shard = self.loaded.shard
        return Sampler(params, verifier=verifier, masks=AnyWords() if held else None,
                       same=shard.same if shard.world > 1 else None)
