"""python -m triforce_core.bench.kv_loss: what keys and values in int8 change, against the same model's unrounded ones.

Of each document, cut to --context tokens: the perplexity of its last --tokens tokens, and of greedy answers the share
that stays the same to the last token, held to the document's words and in free words.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .. import flags
from ..config import SamplingParams, SpeculationConfig
from ..documents import read_document
from ..documents.document import Document
from ..engine.engine import Engine
from ..engine.session import Session
from ..errors import ConfigError, TriForceError
from ..events import Finished
from .workload import cut, questions_about

_KINDS = ("same", "int8")
_ROWS = 64  # of a pass that scores


def perplexity(session: Session, tokens: int) -> float:
    """Of the last ``tokens`` tokens that the session has read, each after all before it."""
    full, ids = session.full, session.prompt.token_ids.tolist()
    start, loss = len(ids) - tokens, 0.0
    full.truncate(start)
    for first in range(start, len(ids), _ROWS):
        part = ids[first : first + _ROWS]
        scores = full.feed(part, len(part)).log_softmax(-1)
        full.commit()
        wanted = torch.tensor(ids[first + 1 : first + 1 + len(part)], device=scores.device)
        loss -= float(scores[: len(wanted)].gather(1, wanted[:, None]).double().sum())
    return math.exp(loss / (tokens - 1))


def answers(engine: Engine, questions: Sequence[str], quotes: str, most: int) -> list[tuple[int, ...]]:
    """Greedy ones, as token ids."""
    found, sampling = [], SamplingParams(max_new_tokens=most)
    for question in questions:
        *_, done = engine.ask(question, (), sampling, SpeculationConfig(quotes=quotes))  # type: ignore[arg-type]
        assert isinstance(done, Finished)
        found.append(tuple(done.token_ids))
    return found


def measure(engine: Engine, document: Document, context: int, tokens: int, questions: int, most: int) -> dict[str, Any]:
    """One row. Raises ConfigError where the document is too short, and where there is no int8 here."""
    document = cut(document, context, lambda part: engine.measure(part).tokens)
    asked, loaded = questions_about(document, questions), engine._need_loaded()
    if "int8" not in loaded.planner.wish.kv_offers:
        raise ConfigError("There is no cache in int8 here to compare with", allowed="a CPU; one GPU, in bfloat16",
                          remedy="Leave --mode offload, --gpus and --dtype out.")
    losses: dict[str, float] = {}
    told: dict[str, list[list[tuple[int, ...]]]] = {}
    length = 0
    for kind in _KINDS:
        planner = replace(loaded.planner, wish=replace(loaded.planner.wish, kv_kinds=(kind,)),
                          modes=loaded.planner.modes[:1])  # none but where int8 can be
        own = Engine(engine.config, replace(loaded, planner=planner))
        list(own.open_document(document))
        session = own._session
        assert session is not None and session.full.cache.kind == kind
        length = len(session.prompt.token_ids)
        if length < 2 * tokens:
            raise ConfigError(f"{document.title!r} has {length:,} tokens", allowed=f"at least {2 * tokens:,}",
                              remedy="Choose a longer document, or fewer --tokens.")
        losses[kind] = perplexity(session, tokens)
        told[kind] = [answers(own, asked, quotes, most) for quotes in ("auto", "off")]
        own.close()
    same = [sum(a == b for a, b in zip(*pair, strict=True))
            for pair in zip(told["same"], told["int8"], strict=True)]
    return {"document": document.title, "tokens": length, "perplexity": losses["same"],
            "perplexity_int8": losses["int8"], "more": losses["int8"] / losses["same"] - 1, "answers": len(asked),
            "same_quoting": same[0], "same_free": same[1]}


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.kv_loss", description=__doc__.splitlines()[0])
    parser.add_argument("--document", type=Path, required=True, action="append", metavar="FILE")
    parser.add_argument("--context", type=int, default=30_000, metavar="N", help="tokens of document (default: 30000)")
    parser.add_argument("--tokens", type=int, default=2000, metavar="N", help="that are scored (default: 2000)")
    parser.add_argument("--answers", type=int, default=20, metavar="N", help="of each kind (default: 20)")
    parser.add_argument("--new-tokens", type=int, default=64, metavar="N", help="per answer, at most (default: 64)")
    flags.add_engine_flags(parser)
    given = parser.parse_args(argv)
    rows = []
    try:
        engine = Engine(replace(flags.engine_config(given), kv="same"))
        list(engine.load())
        for path in given.document:
            rows.append(measure(engine, read_document(path), given.context, given.tokens, given.answers,
                                given.new_tokens))
            print(json.dumps(rows[-1]), flush=True)
    except TriForceError as error:
        print(f"triforce_core.bench.kv_loss: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    asked = sum(row["answers"] for row in rows)
    quoting, free = (sum(row[name] for row in rows) for name in ("same_quoting", "same_free"))
    more = sum(row["more"] for row in rows) / len(rows)
    print(f"int8: perplexity {more:+.2%}; the same greedy answers: {quoting} of {asked} with quotations, {free} of "
          f"{asked} in free words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
