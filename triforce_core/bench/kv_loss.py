"""python -m triforce_core.bench.kv_loss: what rounding keys and values changes, against the same model without it.

Of each document, cut to --context tokens: the perplexity of its last --tokens tokens, and of greedy answers the share
that stays the same to the last token, held to the document's words and in free words. Of int8 and int4, or of the one
that --kv names.
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
from ..kernels import KV_BITS
from .workload import cut, questions_about

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


def measure(engine: Engine, document: Document, context: int, tokens: int, questions: int, most: int,
            kinds: Sequence[str] = tuple(KV_BITS)) -> dict[str, Any]:
    """One row. Raises ConfigError where the document is too short, and where nothing is rounded here."""
    document = cut(document, context, lambda part: engine.measure(part).tokens)
    asked, loaded = questions_about(document, questions), engine._need_loaded()
    if not set(kinds) <= set(loaded.planner.wish.kv_offers):
        raise ConfigError(f"There is no cache in {' or '.join(kinds)} here to compare with",
                          allowed="a CPU; one GPU, in bfloat16",
                          remedy="Leave --mode offload, --gpus and --dtype out.")
    losses: dict[str, float] = {}
    told: dict[str, list[list[tuple[int, ...]]]] = {}
    length = 0
    for kind in ("same", *kinds):
        planner = replace(loaded.planner, wish=replace(loaded.planner.wish, kv_kinds=(kind,)),
                          modes=loaded.planner.modes[:1])  # none but where rows can be
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
    row: dict[str, Any] = {"document": document.title, "tokens": length, "perplexity": losses["same"],
                           "answers": len(asked)}
    for kind in kinds:
        quoting, free = (sum(a == b for a, b in zip(*pair, strict=True))
                         for pair in zip(told["same"], told[kind], strict=True))
        row[kind] = {"perplexity": losses[kind], "more": losses[kind] / losses["same"] - 1, "same_quoting": quoting,
                     "same_free": free}
    return row


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.kv_loss", description=__doc__.splitlines()[0])
    parser.add_argument("--document", type=Path, required=True, action="append", metavar="FILE")
    parser.add_argument("--context", type=int, default=30_000, metavar="N", help="tokens of document (default: 30000)")
    parser.add_argument("--tokens", type=int, default=2000, metavar="N", help="that are scored (default: 2000)")
    parser.add_argument("--answers", type=int, default=20, metavar="N", help="of each kind (default: 20)")
    parser.add_argument("--new-tokens", type=int, default=64, metavar="N", help="per answer, at most (default: 64)")
    flags.add_engine_flags(parser)
    given = parser.parse_args(argv)
    rows, kinds = [], (given.kv,) if given.kv in KV_BITS else tuple(KV_BITS)
    try:
        engine = Engine(replace(flags.engine_config(given), kv="same"))
        list(engine.load())
        for path in given.document:
            rows.append(measure(engine, read_document(path), given.context, given.tokens, given.answers,
                                given.new_tokens, kinds))
            print(json.dumps(rows[-1]), flush=True)
    except TriForceError as error:
        print(f"triforce_core.bench.kv_loss: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    asked = sum(row["answers"] for row in rows)
    for kind in kinds:
        more, quoting, free = (sum(row[kind][name] for row in rows) for name in ("more", "same_quoting", "same_free"))
        print(f"{kind}: perplexity {more / len(rows):+.2%}; the same greedy answers: {quoting} of {asked} with "
              f"quotations, {free} of {asked} in free words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
