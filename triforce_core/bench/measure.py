"""Run plain decoding and TriForce against each other on one open document. Knows only the engine's verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from ..config import SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..events import AnswerStats, DocumentOpened, Finished, PrefillProgress, RoundEvent, TierCount
from ..metrics import merge_acceptance, milliseconds

if TYPE_CHECKING:
    from ..engine.engine import Engine as OwnEngine
    from ..worker.client import EngineClient

    Engine = OwnEngine | EngineClient

PLAIN, FAST = "autoregressive", "triforce"
SHORTEST = 8  # tokens; an answer below this is too short to time
_WARM_UP_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, answered by both. The statistics of every repeat."""

    question: str | None
    plain: tuple[AnswerStats, ...]
    fast: tuple[AnswerStats, ...]
    token_ids: Mapping[str, tuple[int, ...]]
    milliseconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # engine -> stage -> time, summed

    @property
    def identical(self) -> bool:
        return self.token_ids[PLAIN] == self.token_ids[FAST]

    @property
    def same_tokens(self) -> int:
        """Tokens before the first difference."""
        both = zip(self.token_ids[PLAIN], self.token_ids[FAST], strict=False)
        return next((i for i, (a, b) in enumerate(both) if a != b), min(map(len, self.token_ids.values())))

    @property
    def variety(self) -> float:
        """Distinct runs of four tokens over all of them: a text that goes in circles is easy to draft, and says so."""
        ids = self.token_ids[PLAIN]
        runs = list(zip(ids, ids[1:], ids[2:], ids[3:], strict=False))
        return len(set(runs)) / len(runs) if runs else 1.0

    @property
    def long_enough(self) -> bool:
        return min(map(len, self.token_ids.values())) >= SHORTEST

    def rate(self, engine: str) -> float:
        return median(stats.decode_tokens_per_second for stats in (self.plain if engine == PLAIN else self.fast))


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """One document: what reading it cost, and every pair of answers."""

    title: str
    context_tokens: int
    prefill_seconds: float
    prefill_tokens_per_second: float
    restored: bool  # from a saved reading: the prefill figures are of the run that made it
    pairs: tuple[Pair, ...]

    def rate(self, engine: str) -> float:
        return median_of([pair.rate(engine) for pair in self.pairs if pair.long_enough])

    @property
    def speedup(self) -> float:
        return self.rate(FAST) / self.rate(PLAIN) if self.rate(PLAIN) else 0.0


def median_of(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def _open(engine: Engine, document: Document, say: Callable[[str], None]) -> tuple[DocumentOpened, float]:
    """Open it; also the tokens per second of the prefill alone (of a restored one: when it was first read)."""
    opened, rate = None, 0.0
    for event in engine.open_document(document):
        if isinstance(event, DocumentOpened):
            opened = event
        elif isinstance(event, PrefillProgress) and event.stage == "read":
            rate = event.tokens_per_second
            say(f"reading {document.title}: {event.tokens_done:,} of {event.tokens_total:,} tokens")
    assert opened is not None
    return opened, rate or opened.tokens / opened.read_seconds


def measure_document(engine: Engine, document: Document, questions: Sequence[str | None], sampling: SamplingParams,
                     speculation: SpeculationConfig, repeats: int, say: Callable[[str], None]) -> DocumentResult:
    """Prefill once, warm both up, then alternate; who goes first alternates too."""
    engine.measure(document)  # tokenised now: the prefill below is timed without
    opened, prefill_rate = _open(engine, document, say)
    warm_up = replace(sampling, max_new_tokens=min(_WARM_UP_TOKENS, sampling.max_new_tokens))
    for name in (PLAIN, FAST):
        say(f"warming up: {name}")
        _answer(engine, questions[0], warm_up, _on(speculation, name))
    pairs = []
    for number, question in enumerate(questions, start=1):
        answers: dict[str, list[_Answer]] = {PLAIN: [], FAST: []}
        for repeat in range(repeats):
            for name in (PLAIN, FAST) if (number + repeat) % 2 else (FAST, PLAIN):
                say(f"{document.title}: answer {number} of {len(questions)}, {name}")
                answers[name].append(_answer(engine, question, sampling, _on(speculation, name)))
        pairs.append(Pair(question, tuple(done.stats for done, _ in answers[PLAIN]),
                          tuple(done.stats for done, _ in answers[FAST]),
                          {name: done[0][0].token_ids for name, done in answers.items()},
                          {name: milliseconds([event for _, rounds in done for event in rounds])
                           for name, done in answers.items()}))
    return DocumentResult(document.title, opened.tokens, opened.tokens / prefill_rate, prefill_rate, opened.restored,
                          tuple(pairs))


def acceptance(results: Sequence[DocumentResult]) -> dict[str, TierCount]:
    return merge_acceptance([stats.acceptance for result in results for pair in result.pairs for stats in pair.fast])


def tokens_per_full_pass(results: Sequence[DocumentResult]) -> float:
    """Over all TriForce answers together."""
    answers = [stats for result in results for pair in result.pairs for stats in pair.fast]
    passes = sum(stats.full_passes for stats in answers)
    return sum(stats.generated_tokens for stats in answers) / passes if passes else 0.0


def milliseconds_per_pass(results: Sequence[DocumentResult], engine: str) -> dict[str, float]:
    """Where the time of a full pass's round goes, stage by stage."""
    pairs = [pair for result in results for pair in result.pairs]
    passes = sum(stats.full_passes for pair in pairs for stats in (pair.plain if engine == PLAIN else pair.fast))
    totals: dict[str, float] = {}
    for pair in pairs:
        for stage, spent in pair.milliseconds.get(engine, {}).items():
            totals[stage] = totals.get(stage, 0.0) + spent
    return {stage: spent / passes for stage, spent in totals.items()} if passes else {}


_Answer = tuple[Finished, list[RoundEvent]]


def _on(speculation: SpeculationConfig, engine: str) -> SpeculationConfig:
    return replace(speculation, engine=engine)  # type: ignore[arg-type]


def _answer(engine: Engine, question: str | None, sampling: SamplingParams, speculation: SpeculationConfig) -> _Answer:
    *events, finished = engine.ask(question, (), sampling, speculation)
    assert isinstance(finished, Finished)
    return finished, [event for event in events if isinstance(event, RoundEvent)]
