"""Run plain decoding and every row of settings against each other on one open document. Knows only the engine's verbs.

The document is read once; every answer starts from the same cache, cut back to it. A row's first answer is not
counted: it makes the row's caches and, on a GPU, captures its graphs. The first row of each sampling and plain decoding
take turns; further rows are compared with the same plain answers. Plain decoding may be given fewer tokens where each
takes long: its rate does not depend on how many they are. A row's figures are said as soon as it is measured; one that
does not fit into memory is left out, and the others are compared without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ..config import SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..errors import NotEnoughMemoryError
from ..events import AnswerStats, DocumentOpened, Finished, PrefillProgress, RoundEvent
from ..metrics import acceptance_rate, draft_lengths, merge_acceptance, milliseconds, variety
from .rows import Row

Engine = Any  # engine.Engine, or a client with the same verbs

SHORTEST = 8  # tokens; an answer below this is too short to time
_WARM_UP_TOKENS = 8  # where little is left to warm up: plain decoding has one kind of pass


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer by one engine. milliseconds per stage and passes per tier: summed over its rounds. lengths: rounds by
    how many tokens they had drafted."""

    token_ids: tuple[int, ...]
    stats: AnswerStats
    milliseconds: Mapping[str, float]
    passes: Mapping[str, int]
    lengths: Mapping[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.stats.decode_tokens_per_second


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, answered by plain decoding and by one row, every repeat of both. plain_limit: tokens that plain
    decoding was given, where they were fewer."""

    question: str | None
    plain: tuple[Answer, ...]
    fast: tuple[Answer, ...]
    plain_limit: int | None = None

    @property
    def identical(self) -> bool:
        """Compare all repeats of both, token for token, up to the end of a plain answer cut short."""
        return len({answer.token_ids[: self.plain_limit] for answer in (*self.plain, *self.fast)}) == 1

    @property
    def same_tokens(self) -> int:
        """Count the tokens before the first difference: all of the shorter in fp32, fewer where bf16 flips a
        near-tie."""
        both = list(zip(self.plain[0].token_ids, self.fast[0].token_ids, strict=False))
        return next((i for i, (a, b) in enumerate(both) if a != b), len(both))

    @property
    def variety(self) -> float:
        """Return the variety of the longest answer (``metrics.variety``)."""
        return variety(max((answer.token_ids for answer in (*self.plain, *self.fast)), key=len))

    @property
    def long_enough(self) -> bool:
        return min(len(answer.token_ids) for answer in (*self.plain, *self.fast)) >= SHORTEST

    @property
    def plain_rate(self) -> float:
        return median(answer.rate for answer in self.plain)

    @property
    def fast_rate(self) -> float:
        return median(answer.rate for answer in self.fast)


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """One document: its prefill's figures, and every pair of answers, row by row."""

    title: str
    context_tokens: int
    prefill_tokens_per_second: float
    restored: bool  # from a saved reading: the prefill figures are of the run that made it
    pairs: tuple[tuple[Pair, ...], ...]  # [row][question]; no questions: the row did not fit into memory

    def rates(self, row: int) -> tuple[float, float, float]:
        """Return the medians of plain decoding and of the row, over answers long enough to time, and the speed-up."""
        return rates(self.pairs[row])


def rates(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    timed = [pair for pair in pairs if pair.long_enough]
    plain, fast = median_of([pair.plain_rate for pair in timed]), median_of([pair.fast_rate for pair in timed])
    return plain, fast, fast / plain if plain else 0.0


def median_of(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def measure_document(engine: Engine, document: Document, questions: Sequence[str | None], rows: Sequence[Row],
                     repeats: int, say: Callable[[str], None], plain_limit: int | None = None) -> DocumentResult:
    """Prefill once, then every row's answers from that cache; see above for the order. plain_limit: see ``Pair``."""
    engine.measure(document)  # tokenised now: the prefill below is timed without
    opened, prefill_rate = _open(engine, document, say)
    plain: dict[tuple[SamplingParams, SpeculationConfig], list[list[Answer]]] = {}
    pairs: list[tuple[Pair, ...]] = []
    warmed: object = None
    for number, row in enumerate(rows):
        known = row.speculation, row.sampling.temperature > 0
        try:
            pairs.append(_pairs(engine, document.title, questions, row, repeats, say, plain, plain_limit,
                                warm=known == warmed))
        except NotEnoughMemoryError as error:
            if not number:  # nothing to compare the others with
                raise
            pairs.append(())
            say(f"{document.title}: {row.name} LEFT OUT. {error}\n")
            continue
        warmed = known
        say(f"{document.title}: {_row_line(row, pairs[-1])}\n")
    return DocumentResult(document.title, opened.tokens, prefill_rate, opened.restored, tuple(pairs))


def those_that_fit(results: Sequence[DocumentResult], rows: Sequence[Row]) -> tuple[list[DocumentResult], list[Row]]:
    """Drop the rows that did not fit into memory beside some document."""
    kept = [number for number in range(len(rows)) if all(result.pairs[number] for result in results)]
    return ([replace(result, pairs=tuple(result.pairs[number] for number in kept)) for result in results],
            [rows[number] for number in kept])


def _pairs(engine: Engine, title: str, questions: Sequence[str | None], row: Row, repeats: int,
           say: Callable[[str], None], plain: dict[tuple[SamplingParams, SpeculationConfig], list[list[Answer]]],
           plain_limit: int | None, *, warm: bool) -> tuple[Pair, ...]:
    """Return one row's answers. plain: plain decoding's by sampling, which it adds to. warm: another temperature above
    0 finds the caches and the captured rounds of the row before."""
    baseline = row.baseline
    alternate = baseline not in plain
    slow = [[] for _ in questions] if alternate else plain[baseline]
    if alternate:
        say(f"{title}: warming up plain decoding")
        short = min(_WARM_UP_TOKENS, row.sampling.max_new_tokens)
        answer(engine, questions[0], replace(row.sampling, max_new_tokens=short), baseline[1])
    say(f"{title}: warming up {row.name}")
    most = min(_WARM_UP_TOKENS, row.sampling.max_new_tokens) if warm else row.sampling.max_new_tokens
    answer(engine, questions[0], replace(row.sampling, max_new_tokens=most), row.speculation)
    for _ in engine.prepare():
        pass
    fast: list[list[Answer]] = [[] for _ in questions]
    for number, question in enumerate(questions):
        for repeat in range(repeats):
            turns = [(row.sampling, row.speculation, fast[number])]
            if alternate:
                least = min(plain_limit or row.sampling.max_new_tokens, row.sampling.max_new_tokens)
                turns.insert((number + repeat) % 2, (replace(row.sampling, max_new_tokens=least), baseline[1],
                                                     slow[number]))
            for sampling, speculation, answers in turns:
                say(f"{title}: {row.name}, answer {number + 1} of {len(questions)}, {speculation.engine}")
                answers.append(answer(engine, question, sampling, speculation))
    plain[baseline] = slow
    return tuple(Pair(question, tuple(one), tuple(other), plain_limit)
                 for question, one, other in zip(questions, slow, fast, strict=True))


def tokens_per_full_pass(answers: Sequence[Answer]) -> float:
    """Return the figure over all these answers together."""
    passes = sum(answer.stats.full_passes for answer in answers)
    return sum(answer.stats.generated_tokens for answer in answers) / passes if passes else 0.0


def _row_line(row: Row, pairs: Sequence[Pair]) -> str:
    """Return one row's figures on one document in one line."""
    plain, fast, gain = rates(pairs)
    answers = [answer for pair in pairs for answer in pair.fast]
    counts = merge_acceptance([answer.stats.acceptance for answer in answers])
    parts = [f"{gain:.2f}x ({plain:.2f} and {fast:.2f} t/s)" if plain else "too short to time",
             f"{tokens_per_full_pass(answers):.2f} tokens per full pass",
             *(f"{tier} {count.accepted} of {count.tested} ({acceptance_rate(count):.1%})"
               for tier, count in counts.items())]
    if row.same_text_expected:
        parts.append("same text" if all(pair.identical for pair in pairs) else "ANOTHER TEXT")
    return f"{row.name}: {', '.join(parts)}"


def _open(engine: Engine, document: Document, say: Callable[[str], None]) -> tuple[DocumentOpened, float]:
    """Open a document. Return also the tokens per second of the prefill alone (of a restored one: when it was first
    read)."""
    opened, rate = None, 0.0
    for event in engine.open_document(document):
        if isinstance(event, DocumentOpened):
            opened = event
        elif isinstance(event, PrefillProgress) and event.stage == "read":
            rate = event.tokens_per_second
            say(f"reading {document.title}: {event.tokens_done:,} of {event.tokens_total:,} tokens")
    assert opened is not None
    return opened, rate or opened.tokens / opened.read_seconds


def answer(engine: Engine, question: str | None, sampling: SamplingParams, speculation: SpeculationConfig) -> Answer:
    """Ask once."""
    *events, finished = engine.ask(question, (), sampling, speculation)
    assert isinstance(finished, Finished)
    rounds = [event for event in events if isinstance(event, RoundEvent)]
    passes = sum((Counter(event.passes) for event in rounds), Counter[str]())
    return Answer(finished.token_ids, finished.stats, milliseconds(rounds), passes, draft_lengths(rounds))
