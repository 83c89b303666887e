"""python -m triforce_core.bench.short_answers: short answers in free words with and without speculation, by wall clock.

A long answer forgives a slow start, a short one does not. Each question is answered by plain decoding and by the
default settings, in turns, in a process that has only opened the document: nothing is warmed up, no answer is left out.
With --repeats all of it is asked so many times over, and of each answer the run with the median rate counts. An
answer's rate is its tokens over the time from the end of reading the question to its last token.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from .. import flags
from ..config import BUILTIN, SamplingParams, SpeculationConfig
from ..documents import read_document
from ..errors import ConfigError, TriForceError
from .measure import Answer, Engine, answer
from .rows import TARGETS
from .workload import cut, questions_about

_SPARE = 3  # questions for each answer that is wanted: many answers are too short or too long
_PLAIN, _FAST = SpeculationConfig(engine="autoregressive", quotes="off"), SpeculationConfig(quotes="off")


def measure(engine: Engine, questions: Sequence[str], count: int, sampling: SamplingParams, least: int,
            repeats: int = 1) -> dict[str, tuple[Answer, Answer]]:
    """Return plain decoding's answer and the fast one to each question, each the middle of its repeats: of the first
    ``count`` questions whose answers both have ``least`` tokens or more."""
    runs: dict[str, tuple[list[Answer], list[Answer]]] = {}
    for repeat in range(repeats):
        for number, question in enumerate(runs or questions):
            turns = (_PLAIN, _FAST) if (number + repeat) % 2 else (_FAST, _PLAIN)
            found = {turn: answer(engine, question, sampling, turn) for turn in turns}
            if not repeat and min(len(one.token_ids) for one in found.values()) < least:
                continue
            plain, fast = runs.setdefault(question, ([], []))
            plain.append(found[_PLAIN])
            fast.append(found[_FAST])
            if not repeat and len(runs) == count:
                break
    middle, rate = (repeats - 1) // 2, attrgetter("rate")  # the lower median
    return {question: (sorted(plain, key=rate)[middle], sorted(fast, key=rate)[middle])
            for question, (plain, fast) in runs.items()}


def summary(temperature: float, pairs: Mapping[str, tuple[Answer, Answer]]) -> dict[str, Any]:
    """Print the pairs of one temperature and return its figures."""
    gains, later = [], []
    for question, (plain, fast) in pairs.items():
        gains.append(fast.rate / plain.rate)
        later.append(1e3 * (fast.stats.time_to_first_token - plain.stats.time_to_first_token))
        print(f"T {temperature:g}  {len(plain.token_ids):3} and {len(fast.token_ids):3} tokens  {plain.rate:6.1f} "
              f"and {fast.rate:6.1f} t/s  {gains[-1]:5.2f}x  first token {later[-1]:+6.1f} ms  {question}",
              flush=True)
    whole = [sum(1 / pair[at].rate for pair in pairs.values()) for at in (0, 1)]
    return {"temperature": temperature, "answers": len(pairs), "speedup": median(gains), "speedup_least": min(gains),
            "speedup_most": max(gains), "speedup_of_all_time": whole[0] / whole[1],
            "slower_than_095": sum(gain < 0.95 for gain in gains),
            "first_token_later_ms": median(later), "first_token_later_most_ms": max(later)}


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
        print(json.dumps(_bench(given)))
    except TriForceError as error:
        print(f"triforce_core.bench.short_answers: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _bench(given: Namespace) -> dict[str, Any]:
    from .__main__ import load_engine

    if given.grow and given.model != BUILTIN:
        raise ConfigError("--grow is given together with --model", allowed="one of them")
    engine, model = load_engine(flags.engine_config(given, None), given.grow)
    document = cut(read_document(given.document), given.context, lambda part: engine.measure(part).tokens)
    questions = questions_about(document, _SPARE * given.answers)
    for _ in engine.open_document(document):
        pass
    rows = []
    for temperature in given.temperatures:
        sampling = SamplingParams(temperature=temperature, top_p=given.top_p, seed=1, max_new_tokens=given.new_tokens)
        rows.append(summary(temperature, measure(engine, questions, given.answers, sampling, given.least_tokens,
                                                 given.repeats)))
        print(json.dumps(rows[-1]), flush=True)
    return {"model": model.name, "device": model.device, "context_tokens": given.context, "rows": rows}


if __name__ == "__main__":
    sys.exit(main())
