"""Records what ``replay`` drafts again: ``python -m tests.speculation.record BOOK [BOOK ...]``.

The built-in pair answers on this machine's CPU; then each of its tokens is asked of all three tiers with the true text
before it: of the full cache, of the small model, and of the retrieval tier for as long as one choice of chunks may
last. About half an hour on two cores."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.speculation.replay import AGO, LETTERS, LIMIT, TEMPERATURES
from triforce_core.bench.workload import FIVE, MADE, Asked
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.engine.pipeline import Pipeline
from triforce_core.engine.session import Question, Session
from triforce_core.sampling import Sampler, confidence

_ROOM = 2048  # tokens beside the document
_AHEAD = max(AGO) + 5  # tokens for which one choice of chunks is followed
_DOCUMENTS = 4  # of a workload that makes its own


@dataclass(frozen=True, slots=True)
class Followed:
    """Of the retrieval tier, from one token on: its laws and how sure it was."""

    probs: Tensor
    sure: Tensor


def record(engine: Engine, question: str | None, temperature: float, speculation: SpeculationConfig) -> dict[str, Any]:
    """One answer about the open document; see ``replay.Trace``."""
    sampling = SamplingParams(temperature=temperature, top_p=0.9 if temperature else 1.0, max_new_tokens=LIMIT, seed=1)
    *_, finished = engine.ask(question, (), sampling, speculation)
    session = engine._session
    assert session is not None
    answer = list(finished.token_ids)
    context, sampler, pipeline = _begin(session, question, sampling, speculation)
    small, reviewer, observer = pipeline.parts.draft, pipeline.parts.reviewer, pipeline.observer
    assert small is not None and reviewer is not None
    guided: list[bool] = []
    full: list[Tensor] = []
    below: list[float] = []
    followed: list[Followed] = []
    for place, token in enumerate(answer):
        guided.append(bool(sampler.guided(context, 1)))
        ahead = answer[place : place + _AHEAD - 1]
        logits = reviewer.logits(context, ahead)
        followed.append(Followed(_laws(sampler, logits, context, ahead), confidence(logits)))
        reviewer.keep(reviewer.cache.num_committed + reviewer.skipped)
        token_probs = _laws(sampler, small.logits(context, ()), context, ())[0]
        below.append(_both(followed[-1].probs[0], token_probs, temperature))
        small.agree(context)
        small.commit()
        session.full.observer = observer
        full.append(_laws(sampler, session.full.logits(context, ()), context, ())[0])
        session.full.commit()
        context.append(token)
        pipeline.after_round()

    def rows(asked: Any) -> list[str]:
        return [_letters([asked(place, min(ago, place)) for place in range(len(answer))]) for ago in AGO]

    return {"forced": "".join(str(int(given)) for given in guided),
            "right": rows(lambda place, ago: _both(full[place], followed[place - ago].probs[ago], temperature)),
            "below": _letters(below), "sure": rows(lambda place, ago: float(followed[place - ago].sure[ago]))}


def _begin(session: Session, question: str | None, sampling: SamplingParams,
           speculation: SpeculationConfig) -> tuple[list[int], Sampler, Pipeline]:
    """As ``Session.ask`` does."""
    asked = Question(question, (), sampling, speculation)
    context = session.context(asked)
    reading = session.reading
    reading.rewind(context)
    pipeline = session.drafting(session.plan(speculation, len(context))).pipeline
    for _ in reading.follow(context, pipeline.read(context, reading.shared, reading.chunk, lambda: False)):
        pass
    pipeline.start(context)
    constraint, _ = session._constraint(asked)
    return context, session._sampler(asked, constraint, len(context)), pipeline


def _laws(sampler: Sampler, logits: Tensor, context: list[int], draft: Any) -> Tensor:
    masked = sampler._masked(logits, context, draft, None).float()
    return (sampler._filtered(masked) if sampler.params.temperature else masked).softmax(-1)


def _both(one: Tensor, other: Tensor, temperature: float) -> float:
    """The chance that what is drawn from one is accepted by the other."""
    return float(torch.minimum(one, other).sum()) if temperature else float(one.argmax() == other.argmax())


def _letters(shares: list[float]) -> str:
    return "".join(LETTERS[round(63 * min(1.0, max(0.0, share)))] for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("books", nargs="+", type=Path)
    parser.add_argument("--context", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "traces")
    given = parser.parse_args()
    engine = Engine(EngineConfig(mode="cpu", max_context=given.context + _ROOM))
    for _ in engine.load():
        pass
    for workload in FIVE:
        asked = Asked((workload,), [] if workload in MADE else given.books, _DOCUMENTS, given.context, 3)
        speculation = SpeculationConfig(pace="off", ngram="off")
        if workload == "summary":  # as in the benchmark
            speculation = replace(speculation, quotes="off")
        found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for job in asked.jobs():
            document, questions, _ = asked.ready(job, engine)
            for _ in engine.open_document(document):
                pass
            for question in questions:
                for temperature in TEMPERATURES:
                    found[f"{temperature:.1f}"].append(record(engine, question, temperature, speculation))
                    print(f"{workload}, {document.title}, temperature {temperature:g}", flush=True)
        (given.out / f"{workload}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
