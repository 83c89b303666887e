"""One document in the cache, and questions about it: the only loop that emits tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from ..config import HEAVY_HITTERS, SamplingParams, SpeculationConfig
from ..documents.prompt import DocumentPrompt, PromptBuilder
from ..drafters.chain import QUOTE, ModelOnCache
from ..drafters.ngram import TextIndex
from ..errors import ContextTooLongError
from ..events import (
    AttendedChunk,
    Finished,
    FinishReason,
    PrefillProgress,
    QuoteEvent,
    RoundEvent,
    TextDelta,
    TierCount,
    TokenChance,
    Turn,
)
from ..kv_cache.offloaded import OffloadedCache
from ..metrics import answer_stats
from ..sampling import Sampler
from ..speculation.drafter import Drafter, NoDrafter
from ..speculation.round import Round, speculate
from ..tuning.controller import Choice
from ..verbatim import QuoteConstraint
from .accumulated import AccumulatedMass
from .assembly import Hierarchy, dials_for
from .attention_map import MASS_ROWS, AttendedMap, AttentionMass
from .dials import Dials
from .loading import Loaded
from .measured import Asked, Measured
from .pacing import Pacing
from .prefill import prefill
from .quoting import AnyWords, QuoteMasks, QuoteReport
from .rehearsal import questions
from .small_model import SmallReading

# The newest prompt tokens, always read again in a pass of their own: their attention chooses the first chunks,
# and a question asked twice from the same cache takes the same passes.
_OBSERVED = 16
_TOP_CHUNKS, _TOP_OF_ROUND = 16, 6

AnswerEvent = PrefillProgress | RoundEvent | TextDelta | QuoteEvent | Finished


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

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, cancelled: Callable[[], bool], system: str = "") -> Iterator[AnswerEvent]:
        """Answer, round by round; ``question`` None goes on with the document's own text.

        Raises ContextTooLongError, ConfigError (an empty question, or a system text for a model that follows none).
        Closing the generator is safe."""
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
        observer, drafter, hierarchy = self._prepare(dials)
        if hierarchy is not None:
            hierarchy.reset()
        accumulated = self._accumulated if dials.middle_cache in HEAVY_HITTERS else None
        if accumulated is not None:  # what it has not seen read is read again
            reused = self._rewind(context, accumulated.rewind(reused))
        yield from self._prefill(context, observer, accumulated, cancelled)
        unread = self.full.length < len(context) - 1
        if self._reading is not None and dials.draft_cache == "cross" and not unread:
            yield from self._reading.read(context, self._chunk, cancelled)
            unread = self._reading.full.length < len(context) - 1
        if unread:
            yield self._finished("cancelled", [], [], None, dials, len(context) - reused, reused, started, started)
            return
        attended = AttendedMap(self.prompt.pages, len(self._document), dials.chunk_size, self.loaded.shard)
        if observer.latest is not None:
            attended.see(observer.latest)
        shares = attended.add_seen()
        constraint = self._constraint(question, speculation)
        if hierarchy is not None:
            # Going on with the text, or held to its words, the small model does as well on the newest tokens, and
            # marking takes its time: with llama3-8b's shape on an H200 1 to 2.6 of a round's 20 to 27 ms.
            hierarchy.start(context, marks=(question is not None and constraint is None)
                            or speculation.draft_cache == "cross")
        new_sampler = partial(self._sampler, question, sampling, speculation, constraint, len(context))
        if self.loaded.target.graphs is not None:
            for capture in self._captures(context, hierarchy, new_sampler(), quoting=constraint is not None):
                capture()
        sampler = new_sampler()
        report = QuoteReport(constraint, self.builder, self.prompt) if constraint is not None else None
        pacing = self._pacing if hierarchy is not None else None
        if pacing is not None:
            pacing.measure(context, AttentionMass(observer.chunk_size, observer.mass_rows),
                           self._measuring(sampling, speculation.verifier, held=constraint is not None))
            pacing.begin(context, sampler)
        prefilled = perf_counter()
        answer_start, limit = len(context), min(sampling.max_new_tokens, room)
        decoder = self.builder.tokenizer.stream_decoder(None if constraint is None else constraint.opening)
        rounds: list[RoundEvent] = []
        texts: list[str] = []
        reason: FinishReason | None = None
        while reason is None:
            if cancelled():
                reason = "cancelled"
                break
            left = limit - (len(context) - answer_start)
            began, streamed = perf_counter(), self.full.cache.streamed_bytes
            choice = pacing.next() if pacing is not None else Choice(0, 0)
            wanted = hierarchy.begin(choice) if hierarchy is not None else 0
            measured = hierarchy is not None and hierarchy.measures_next_round
            self.full.observer = (accumulated or observer) if measured else None
            # A draft beyond the answer's limit is verified whole, as its pass may be captured in that width only.
            most = min(self._alike(context), self.loaded.info.max_context - len(context) - 1)
            done = speculate(self.full, drafter, context, min(wanted, left - 1, most), sampler,
                             most=most if choice.most is None else min(most, choice.most),
                             alternatives=sampling.alternatives,
                             meanwhile=partial(hierarchy.meanwhile, attended.see) if hierarchy and measured else None)
            tokens, reason = self._cut(done.verdict.token_ids, sampler.stop, left)
            if reason == "length" and room < sampling.max_new_tokens:
                reason = "context"
            context.extend(tokens)
            self.full.keep(min(len(context), self.full.length))
            self.full.commit()
            drafter.settle(context, committed=True)
            chose = {}
            if hierarchy is not None:
                hierarchy.after_round()
                chose = hierarchy.milliseconds()
            self._read += context[len(self._read) : self.full.length]
            streamed = self.full.cache.streamed_bytes - streamed
            spent = {**drafter.milliseconds(), "verify": done.verify_milliseconds, **chose}
            shares = attended.add_seen() or shares
            shown = [decoder.feed(token) for token in (tokens[:-1] if reason == "stop" else tokens)]
            event = self._event(len(rounds), choice, done, tokens, shown, drafter, shares, spent, streamed, began,
                                started)
            if shares is not None and sampling.alternatives:
                event = replace(event, chunks=self._attended(attended.top_of_newest(_TOP_OF_ROUND), dials.chunk_size))
            if pacing is not None:
                pacing.learn(choice, done, event)
            shares = None
            rounds.append(event)
            yield event
            text = "".join(shown)
            if text:
                texts.append(text)
                yield TextDelta(text, event.elapsed)
            if report is not None:
                yield from report.feed(tokens[: len(shown)], shown)
        tail = decoder.flush()
        if tail:
            texts.append(tail)
            yield TextDelta(tail, perf_counter() - started)
        if report is not None:
            yield from report.end()
        if self._measured is not None:
            self._measured.learn(asked, dials, rounds)
        lengths = pacing.why() if pacing is not None else ""
        told = replace(dials, why=f"{dials.why}; {lengths}") if lengths else dials
        yield self._finished(reason, context[answer_start:], rounds, attended, told, answer_start - reused, reused,
                             started, prefilled, "".join(texts), report.quotes if report is not None else ())

    def usual(self, context_tokens: int) -> Asked:
        """A question with the usual settings."""
        return self._asked("", SamplingParams(), SpeculationConfig(), context_tokens)

    def _asked(self, question: str | None, sampling: SamplingParams, speculation: SpeculationConfig,
               context_tokens: int) -> Asked:
        forces = question is not None and speculation.quotes != "off" and self.builder.quote_format is not None
        return Asked(speculation, sampling, self.full, context_tokens, forces, self._reading)

    def _dials(self, asked: Asked) -> Dials:
        """Every "auto" decided, by what was measured on this machine where that is known."""
        wanted = self._measured.plan(asked) if self._measured is not None else asked.speculation
        return dials_for(self.loaded, self.full, wanted, asked.context_tokens, asked.reading)

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

    def warm_up(self, cancelled: Callable[[], bool]) -> Iterator[PrefillProgress]:
        """Capture what an answer with the usual settings runs, so that the first question does not wait for it.
        Ends early when cancelled: what is missing then is captured when it is needed."""
        context = [*self._document, self._document[-1]]  # which token comes next does not matter
        if self.loaded.target.graphs is None or len(context) >= self.loaded.info.max_context:
            return
        started, total = perf_counter(), len(self._document)
        yield PrefillProgress(0, total, 0.0, None, "warm-up")
        usual = self.usual(len(context))
        verifier = usual.speculation.verifier
        observer, _, hierarchy = self._prepare(self._dials(usual))
        streams = isinstance(self.full.cache, OffloadedCache)  # a pass takes about as long as compiling does
        steps = questions(None if streams else self.full, self._reading, self._document, self._chunk,
                          self.loaded.info.max_context - len(context))
        if hierarchy is not None:
            steps += [hierarchy.reset, partial(hierarchy.start, context)]
        steps += self._captures(context, hierarchy, Sampler(usual.sampling, verifier=verifier), quoting=usual.forces)
        if self._pacing is not None:
            steps += [partial(self._pacing.measure, context, observer,
                              self._measuring(usual.sampling, verifier, held=held))
                      for held in ((True, False) if usual.forces else (False,))]
        for done, step in enumerate(steps, start=1):  # making the hierarchy, weights and all, was one more
            if cancelled():
                return
            step()
            spent, fraction = perf_counter() - started, (done + 1) / (len(steps) + 1)
            yield PrefillProgress(int(fraction * total), total, fraction * total / max(spent, 1e-9),
                                  spent / fraction - spent, "warm-up")

    def _alike(self, context: Sequence[int]) -> int:
        """Drafted tokens up to which a verification rounds as plain decoding would, where that is known."""
        rows = self.loaded.target.alike_rows(self.full.length)
        return sys.maxsize if rows is None else rows - (len(context) - self.full.length)

    def _captures(self, context: list[int], hierarchy: Hierarchy | None, sampler: Sampler, *,
                  quoting: bool) -> list[Callable[[], None]]:
        """What rounds after ``context`` run, to be captured in this order: see ``Hierarchy.captures``."""
        return [partial(self.loaded.target.prepare, self.full.cache, 1),
                *(hierarchy.captures(context, sampler, quoting=quoting) if hierarchy is not None else ())]

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

    def _prepare(self, dials: Dials) -> tuple[AttentionMass, Drafter, Hierarchy | None]:
        """Drafters for these dials; caches are made anew only when a dial changed."""
        if self._observer is None or self._observer.chunk_size != dials.chunk_size:
            self._observer = AttentionMass(dials.chunk_size, MASS_ROWS)
            self._hierarchy = self._pacing = None
        if dials.engine == "autoregressive":
            return self._observer, NoDrafter(), None
        heavy = dials.middle_cache in HEAVY_HITTERS
        if heavy:
            if self._accumulated is None:
                heads = self.loaded.target.config.num_heads
                self._accumulated = AccumulatedMass(self._observer, heads, len(self._document))
            self._accumulated.shown = self._observer  # another one where chunks have another size
        # The reason counts the context's tokens: another one needs no other caches, and no other graphs.
        if self._hierarchy is None or replace(self._hierarchy.dials, why=dials.why) != dials:
            self._hierarchy = self._pacing = self._observer.follower = None  # its caches go before the new ones come
            if (dials.ngram or dials.straight) and self._text is None:
                # Without its end, which is not there when the text itself goes on.
                self._text = TextIndex(self._document[: len(self._document) - self.builder.tail_length])
            reading = self._small_reading() if dials.draft_cache == "cross" else None
            self._hierarchy = Hierarchy(self.loaded, self.full, dials, self._observer,
                                        self._accumulated if heavy else None, self._text, reading)
            self._pacing = Pacing(self._hierarchy, self.full, self.loaded.shard, self._measured)
        return self._observer, self._hierarchy.drafter, self._hierarchy

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

    def _measuring(self, sampling: SamplingParams, verifier: str, *, held: bool) -> Sampler:
        shard = self.loaded.shard
        return Sampler(replace(sampling, seed=0), verifier=verifier, masks=AnyWords() if held else None,
                       same=shard.same if shard.world > 1 else None)

    @staticmethod
    def _cut(tokens: list[int], stop: frozenset[int], left: int) -> tuple[list[int], FinishReason | None]:
        """What of a round's tokens belongs to the answer, and whether the answer ends there."""
        for count, token in enumerate(tokens[:left], start=1):
            if token in stop:
                return tokens[:count], "stop"
        return tokens[:left], "length" if len(tokens) >= left else None

    def _event(self, index: int, choice: Choice, done: Round, tokens: list[int], shown: list[str],
               drafter: Drafter,
               shares: tuple[float, ...] | None, spent: dict[str, float], streamed: int, began: float,
               started: float) -> RoundEvent:
        now = perf_counter()
        spent["other"] = max(0.0, (now - began) * 1e3 - sum(spent.values()))
        decode = self.builder.tokenizer.decode
        chances = tuple(TokenChance(own, tuple((decode([token]), chance) for token, chance in likeliest))
                        for own, likeliest in done.chances[: len(tokens)])
        return RoundEvent(index, tuple(tokens), tuple(done.origins[: len(tokens)]),
                          tuple([*_tested(done, drafter.tier), *drafter.counts()]), spent, shares, now - started,
                          drafter.passes(), streamed, tuple(drafter.ranks()),
                          tuple(shown) + ("",) * (len(tokens) - len(shown)), chances, done.draft.depth,
                          choice.gamma1 if choice.gamma2 else 0, choice.gamma2)

    def _finished(self, reason: FinishReason, token_ids: Sequence[int], rounds: list[RoundEvent],
                  attended: AttendedMap | None, dials: Dials, prompt_tokens: int, reused: int, started: float,
                  prefilled: float, text: str = "", quotes: tuple[QuoteEvent, ...] = ()) -> Finished:
        stats = answer_stats(rounds, prompt_tokens=prompt_tokens, reused_tokens=reused,
                             prefill_seconds=prefilled - started, engine=dials.engine, why=dials.why,
                             verifier=dials.verifier, dials=dials.shown())
        chunks = self._attended(attended.top(_TOP_CHUNKS), dials.chunk_size) if attended else ()
        return Finished(reason, text, tuple(token_ids), stats, chunks, attended.page_shares if attended else (), quotes)

    def _attended(self, found: Sequence[tuple[int, int, float]], size: int) -> tuple[AttendedChunk, ...]:
        """Chunks of ``size`` tokens, as ``AttendedMap`` names them, with their words."""
        spans = [(page, chunk * size, min((chunk + 1) * size, len(self._document)), share)
                 for page, chunk, share in found]
        return tuple(AttendedChunk(page + 1, self.prompt.pages[page].label, start, end, share,
                                   self.builder.tokenizer.decode(self._document[start:end]))
                     for page, start, end, share in spans)


def _tested(done: Round, tier: str) -> list[TierCount]:
    """What the full cache tested, by who drafted it; forced quotation counts apart, it is always right."""
    givers = zip(done.draft.given_by(tier), done.draft.origins, strict=True)
    return done.counts([QUOTE if origin == QUOTE else giver for giver, origin in givers])
