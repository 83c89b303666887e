"""python -m triforce_core.bench.short_answers: what speculation does to short answers in free words, by wall clock.

A long answer forgives a slow start, a short one does not. Each question is answered by plain decoding and by the
default settings, in turns, in a process that has only opened the document: nothing is warmed up, no answer is left out.
With --repeats all of it is asked so many times over, from the first question to the last, and of each answer the run
with the median rate counts: single runs of plain decoding differ by some percent.
An answer's rate is its tokens over the time from the end of reading the question to its last token. Time that no figure
of the engine contains is measured from outside, and told.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from .. import flags
from ..config import BUILTIN, SamplingParams, SpeculationConfig
from ..documents import read_document
from ..errors import ConfigError, TriForceError
from ..events import DocumentOpened, Finished, RoundEvent
from .shapes import TARGETS
from .workload import cut, questions_about

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..worker.client import EngineClient

Kind = Literal["triforce", "autoregressive"]
PLAIN: Kind = "autoregressive"
FAST: Kind = "triforce"
_SPARE = 3  # questions for each answer that is wanted: many answers are too short or too long


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer. Seconds: from the call to the first token; from the question's end to the last token; of the whole
    call, measured outside; of it what neither reading nor decoding accounts for."""

    tokens: int
    first: float
    decoding: float
    outside: float
    unaccounted: float
    rounds: tuple[tuple[int, int, float], ...]  # tokens drafted, tokens written, seconds since the round before

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.decoding


@dataclass(frozen=True, slots=True)
class Pair:
    """One question's answers. later: seconds by which the first token came later than plain decoding's."""

    question: str
    temperature: float
    plain: Timed
    fast: Timed

    @property
    def speedup(self) -> float:
        return self.fast.rate / self.plain.rate

    @property
    def later(self) -> float:
        return self.fast.first - self.plain.first


def answer(engine: Engine | EngineClient, question: str, sampling: SamplingParams,
           kind: Kind) -> Timed:
    """Ask once, quotations not held to the document."""
    rounds: list[tuple[int, int, float]] = []
    finished, first, started = None, 0.0, perf_counter()
    before = started
    for event in engine.ask(question, (), sampling, SpeculationConfig(engine=kind, quotes="off")):
        now = perf_counter()
        if isinstance(event, RoundEvent):
            first = first or now - started
            rounds.append((event.drafted, len(event.token_ids), now - before))
            before = now
        elif isinstance(event, Finished):
            finished = event
    outside = perf_counter() - started
    assert finished is not None
    stats = finished.stats
    return Timed(stats.generated_tokens, first, outside - stats.prefill_seconds, outside,
                 outside - stats.prefill_seconds - stats.decode_seconds, tuple(rounds))


def measure(engine: Engine | EngineClient, questions: Sequence[str], count: int, sampling: SamplingParams,
            least: int, repeats: int = 1) -> list[Pair]:
    """The first ``count`` pairs of which both answers have ``least`` tokens or more, each the middle of its repeats."""
    runs: dict[str, dict[Kind, list[Timed]]] = {}
    for repeat in range(repeats):
        for number, question in enumerate(runs or questions):
            kinds = (PLAIN, FAST) if (number + repeat) % 2 else (FAST, PLAIN)
            found = {kind: answer(engine, question, sampling, kind) for kind in kinds}
            if not repeat and min(one.tokens for one in found.values()) < least:
                continue
            for kind, one in found.items():
                runs.setdefault(question, {PLAIN: [], FAST: []})[kind].append(one)
            if not repeat and len(runs) == count:
                break
    pairs = [Pair(question, sampling.temperature, _middle(run[PLAIN]), _middle(run[FAST]))
             for question, run in runs.items()]
    for pair in pairs:
        print(f"T {pair.temperature:g}  {pair.plain.tokens:3} and {pair.fast.tokens:3} tokens  "
              f"{pair.plain.rate:6.1f} and {pair.fast.rate:6.1f} t/s  {pair.speedup:5.2f}x  first token "
              f"{pair.later * 1e3:+6.1f} ms  unaccounted {pair.fast.unaccounted * 1e3:5.1f} ms  {pair.question}",
              flush=True)
    return pairs


def _middle(runs: Sequence[Timed]) -> Timed:
    """Of one answer's repeats the one with the (lower) median rate."""
    return sorted(runs, key=lambda run: run.rate)[(len(runs) - 1) // 2]


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Of one temperature."""
    gains, later = sorted(pair.speedup for pair in pairs), sorted(pair.later for pair in pairs)
    plain, fast = (sum(getattr(pair, name).decoding / getattr(pair, name).tokens for pair in pairs)
                   for name in ("plain", "fast"))
    return {"answers": len(pairs), "speedup": median(gains), "speedup_least": gains[0], "speedup_most": gains[-1],
            "speedup_of_all_time": plain / fast, "slower_than_095": sum(gain < 0.95 for gain in gains),
            "first_token_later_ms": median(later) * 1e3, "first_token_later_most_ms": later[-1] * 1e3,
            "unaccounted_most_ms": max(pair.fast.unaccounted for pair in pairs) * 1e3}


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.short_answers", description=__doc__.splitlines()[0])
    parser.add_argument("--document", type=Path, required=True, metavar="FILE")
    parser.add_argument("--context", type=int, default=30_000, metavar="N", help="tokens of document (default: 30000)")
    parser.add_argument("--answers", type=int, default=20, metavar="N", help="for each temperature (default: 20)")
    parser.add_argument("--least-tokens", type=int, default=10, metavar="N", help="of an answer that counts")
    parser.add_argument("--new-tokens", type=int, default=80, metavar="N", help="per answer, at most (default: 80)")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="of every answer (default: 1)")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6], metavar="T")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--grow", choices=TARGETS, metavar="SHAPE")
    flags.add_engine_flags(parser)
    given = parser.parse_args(argv)
    try:
        found = _bench(given)
    except TriForceError as error:
        print(f"triforce_core.bench.short_answers: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(found))
    return 0


def _bench(given: Any) -> dict[str, Any]:
    from .__main__ import _load

    if given.grow and given.model != BUILTIN:
        raise ConfigError("--grow is given together with --model", allowed="one of them")
    engine, model = _load(flags.engine_config(given, None), given.grow)
    document = cut(read_document(given.document), given.context, lambda part: engine.measure(part).tokens)
    questions = questions_about(document, _SPARE * given.answers)
    started, warm_up = perf_counter(), 0.0
    for event in engine.open_document(document):
        if getattr(event, "stage", "") == "warm-up":
            warm_up = warm_up or perf_counter()
        if isinstance(event, DocumentOpened):
            print(f"{model.name}, {event.tokens:,} tokens read in {perf_counter() - started:.1f} s, of which "
                  f"{perf_counter() - warm_up if warm_up else 0.0:.1f} s made ready", flush=True)
    rows = []
    pairs: list[Pair] = []
    for temperature in given.temperatures:
        sampling = SamplingParams(temperature=temperature, top_p=given.top_p, seed=1, max_new_tokens=given.new_tokens)
        pairs += (new := measure(engine, questions, given.answers, sampling, given.least_tokens,
                                given.repeats))
        rows.append({"temperature": temperature, **summary(new)})
        print(json.dumps(rows[-1]), flush=True)
    return {"model": model.name, "device": model.device, "context_tokens": given.context, "rows": rows,
            "pairs": [asdict(pair) for pair in pairs]}


if __name__ == "__main__":
    sys.exit(main())
