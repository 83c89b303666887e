"""python -m triforce_core.bench: a table for people, then one line of JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import flags
from ..config import BUILTIN, EngineConfig
from ..documents.document import Document
from ..errors import ConfigError, TriForceError
from ..events import ModelInfo

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..worker.client import EngineClient
    from .measure import DocumentResult

_SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "sample"
_EPILOG = """\
Each document is read once; then plain decoding and TriForce answer in turns from the same cache, after a warm-up,
with the same seed. An answer's rate is all its tokens over the time from the end of the prompt's prefill to its last
token; figures are medians over answers. A document longer than --context is cut (only a benchmark may).
--peer transformers runs model.generate on the same weights, tokens, dtype and threads in a process of its own.
The last line is one JSON object. Run it on an idle machine: the load average is printed.
"""


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    try:
        found = _bench(given)
    except TriForceError as error:
        print(f"triforce_core.bench: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nCancelled.", file=sys.stderr)
        return 130
    from .report import table

    print(table(found))
    print(json.dumps(found, ensure_ascii=False), flush=True)
    return 0


def _parser() -> flags.Parser:
    parser = flags.Parser(prog="python -m triforce_core.bench", epilog=_EPILOG,
                          formatter_class=RawDescriptionHelpFormatter,
                          description="Compare plain decoding with TriForce on whole documents.")
    parser.add_argument("--document", type=Path, action="append", default=[], metavar="FILE",
                        help="may be given several times (default: the sample document)")
    parser.add_argument("--workload", choices=("continue", "questions"), default="continue",
                        help="continue the document's text, or answer questions about it")
    parser.add_argument("--questions", type=Path, metavar="FILE",
                        help='JSON Lines of {"question": ...} (default: made from the document itself)')
    parser.add_argument("--questions-per-document", type=int, default=3, metavar="N")
    parser.add_argument("--context", type=int, default=30_000, metavar="N", help="tokens of document (default: 30000)")
    parser.add_argument("--new-tokens", type=int, default=256, metavar="N", help="per answer, at most (default: 256)")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="of every answer (default: 1)")
    parser.add_argument("--saved-readings", type=Path, metavar="DIR",
                        help="keep the documents' KV here, to measure decoding again without reading again")
    parser.add_argument("--grow", choices=("llama2-7b", "llama3-8b"), metavar="SHAPE",
                        help="the built-in model in the size of llama2-7b or llama3-8b, same function, same text; "
                             "its draft model in the size of llama-68m")
    parser.add_argument("--peer", choices=("transformers",))
    parser.add_argument("--peer-new-tokens", type=int, default=48, metavar="N")
    flags.add_sampling_flags(parser)
    flags.add_speculation_flags(parser)
    flags.add_engine_flags(parser)
    return parser


def _bench(given: Namespace) -> dict[str, Any]:
    for name, low in (("context", 64), ("repeats", 1), ("questions_per_document", 1), ("peer_new_tokens", 4)):
        if getattr(given, name) < low:
            raise ConfigError(f"{name.replace('_', '-')} is {getattr(given, name)}", allowed=f"at least {low}")
    if given.grow and (given.peer or given.model != BUILTIN or given.saved_readings):
        raise ConfigError("--grow is given together with --peer, --model or --saved-readings",
                          allowed="one of them", remedy="A grown model exists in memory only.")
    sampling = flags.sampling_params(given, given.new_tokens)
    speculation = flags.speculation_config(given, "triforce")
    config = flags.engine_config(given, given.saved_readings)
    paths = given.document or sorted(path for path in _SAMPLES.glob("*") if path.suffix in (".md", ".txt", ".pdf"))
    if not paths:
        raise ConfigError("There is no document", remedy="Name one with --document.")
    from ..documents import read_document
    from .workload import cut, questions_about, read_questions

    asked = read_questions(given.questions) if given.questions else None
    documents = [read_document(path) for path in paths]
    engine, model = _load(config, given.grow)
    from .measure import measure_document
    from .report import describe_machine, summary

    where = "cpu" if model.mode == "cpu" else "cuda"
    before = describe_machine(where)
    print(f"{before['machine']}; {before['threads']} threads, {model.dtype}, seed {sampling.seed}, temperature "
          f"{sampling.temperature}; load average {before['load_average']}", file=sys.stderr)
    results: list[DocumentResult] = []
    peer_job: dict[str, Any] | None = None
    for document in documents:
        short = cut(document, given.context, lambda part: engine.measure(part).tokens)
        whole = short.characters == document.characters
        say(f"{document.title}: {'whole' if whole else 'CUT to its first'} {engine.measure(short).tokens:,} tokens\n")
        if given.workload == "continue":
            questions: Sequence[str | None] = [None]
        else:
            questions = asked or questions_about(short, given.questions_per_document)
        results.append(measure_document(engine, short, questions, sampling, speculation, given.repeats, say))
        if given.peer and peer_job is None:
            peer_job = {"document": short.title, "token_ids": _token_ids(config, short)}
    machine = describe_machine(where)
    engine.close()
    peer = _run_peer(config, peer_job, model, machine["threads"], given.peer_new_tokens) if peer_job else None
    say("\n")
    return summary(results, model, sampling, workload=given.workload, verifier=speculation.verifier,
                   machine=machine, peer=peer)


def _load(config: EngineConfig, shape: str | None) -> tuple[Engine | EngineClient, ModelInfo]:
    """Several ranks have processes of their own, which a client leads."""
    from ..worker.child import ENGINE, engine_environment

    os.environ.update(engine_environment(config))
    engine: Engine | EngineClient
    if config.gpus > 1:
        from ..worker.client import EngineClient

        engine = EngineClient(config, factory=f"triforce_core.bench.grow:grown_engine:{shape}" if shape else ENGINE)
    elif shape:
        from .grow import grown_engine

        engine = grown_engine(shape, config)
    else:
        from ..engine.engine import Engine

        engine = Engine(config)
    for event in engine.load():
        if isinstance(event, ModelInfo):
            return engine, event
    raise AssertionError("load ends with ModelInfo")


def _folder(config: EngineConfig) -> Path:
    from ..engine.assembly import BUILTIN_FOLDER
    from ..model import find_model

    return BUILTIN_FOLDER / "target" if config.model == "builtin" else find_model(config.model)


def _token_ids(config: EngineConfig, document: Document) -> tuple[int, ...]:
    """The document as the engine reads it, up to where the text goes on."""
    from ..documents.prompt import PromptBuilder
    from ..engine.assembly import BUILTIN_FOLDER
    from ..tokenizer import Tokenizer

    folder = BUILTIN_FOLDER if config.model == "builtin" else _folder(config)
    builder = PromptBuilder(Tokenizer(folder))
    ids = builder.document(document).token_ids.tolist()
    return tuple(ids[: len(ids) - builder.tail_length])


def _run_peer(config: EngineConfig, job: dict[str, Any], model: ModelInfo, threads: int,
              new_tokens: int) -> dict[str, Any]:
    from .peer import PeerJob, run_peer

    on_gpu = model.mode != "cpu"
    chunk = config.prefill_chunk if config.prefill_chunk != "auto" else 2048 if on_gpu else 512
    say(f"transformers on {job['document']}: {len(job['token_ids']):,} tokens, chunks of {chunk}")
    found = run_peer(PeerJob(str(_folder(config)), job["token_ids"], model.dtype, "cuda" if on_gpu else "cpu",
                             threads, chunk, new_tokens))
    return {**found, "document": job["document"], "prefill_chunk": chunk}


def say(text: str) -> None:
    """Progress: rewritten on a terminal, silent elsewhere unless it ends its line."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text.strip() and text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
