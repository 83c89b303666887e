"""python -m triforce_core.bench: a table for people, then one line of JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .. import flags
from ..config import BUILTIN, EngineConfig
from ..errors import ConfigError, TriForceError
from ..events import ModelInfo
from ..research.settings import add_research_flags, research_config
from .llama_cpp import check_model, find_binary, run_llama_cpp
from .measure import SHORTEST, DocumentResult, measure_document, those_that_fit
from .report import describe_machine, gains, gains_table, peer_table, summary, table, with_peer
from .roofline import Traffic, measure_bandwidth
from .rows import ABLATION, DRAFT, POLICIES, TARGETS, Row, chosen, combinations, make_rows, parse_sweep
from .workload import FIVE, WORKLOADS, Asked, read_questions

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..worker.client import EngineClient

_EPILOG = """\
Each document is read once; then every row of settings, and plain decoding, answer from that same cache with the same
seed, after a warm-up. An answer's rate is all its tokens over the wall clock's time from the end of the prompt's
prefill to its last token; figures are medians over documents, and the spread is the least and the most. A document
longer than --context is cut (only a benchmark may). What the machine can move is measured in the same run; what a token
must move is counted from the model's shapes, and what follows from that is called modelled.

Each row is said on stderr as soon as it is known. The last line is one JSON object: of the first row, and of every row
under "rows". llama.cpp's benchmark is looked for in the PATH, or as TRIFORCE_LLAMA_BENCH names it. python -m
triforce_core.bench.short_answers times short answers, where a slow start shows, bench.kernels attention alone,
bench.answers FOLDER counts right answers. Run it on an idle machine: the load average is printed.
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
    print(json.dumps(found, ensure_ascii=False), flush=True)
    if given.peer and "peer" not in found:
        print(f"triforce_core.bench: {given.peer} failed, see above; the figures without it are complete",
              file=sys.stderr)
        return 1
    return 0


def _parser() -> flags.Parser:
    parser = flags.Parser(prog="python -m triforce_core.bench", epilog=_EPILOG,
                          formatter_class=RawDescriptionHelpFormatter,
                          description="Compare plain decoding with TriForce on whole documents.")
    what = parser.add_argument_group("what is asked")
    what.add_argument("--document", type=Path, action="append", default=[], metavar="FILE",
                      help="may be given several times (default: the sample, or one made for the workload)")
    what.add_argument("--workload", type=_workloads, default=("continue",), metavar="NAME,...",
                      help="continue: go on with the text; questions: answer some about it; needle: about facts hidden "
                           "in it (quotes off); summary: sum it up in free words; code, table: go on with a listing of "
                           "code or a long table. Several, or 'all' (the five without needle): the geometric mean too")
    what.add_argument("--made-documents", type=int, default=1, metavar="N",
                      help="how many summary, code and table make themselves without --document (default: 1)")
    what.add_argument("--questions", type=Path, metavar="FILE",
                      help='JSON Lines of {"question": ...} (default: made from the document itself)')
    what.add_argument("--questions-per-document", type=int, default=3, metavar="N")
    what.add_argument("--context", type=int, default=30_000, metavar="N", help="tokens of document (default: 30000)")
    what.add_argument("--new-tokens", type=int, default=256, metavar="N", help="per answer, at most (default: 256)")
    what.add_argument("--plain-new-tokens", type=int, metavar="N",
                      help="fewer for plain decoding, where each takes long (default: as many)")
    what.add_argument("--repeats", type=int, default=1, metavar="N", help="of every answer (default: 1)")
    what.add_argument("--saved-readings", type=Path, metavar="DIR",
                      help="keep the documents' KV here, to measure decoding again without reading again")
    rows = parser.add_argument_group("what is compared")
    rows.add_argument("--sweep", action="append", default=[], metavar="NAME=A,B,...",
                      help="a row for each value of a setting: budget, gamma1, gamma2, chunk_size, window, "
                           "refresh_every, temperature, ...")
    rows.add_argument("--ablation", action="store_true", help="a row for TriForce and for each part left out")
    rows.add_argument("--combinations", action="store_true",
                      help="a row for every way of combining drafters, at temperatures 0, 0.6 and 1")
    rows.add_argument("--policies", action="store_true",
                      help="a row for every cache of the intermediate verifier, budget (256 to 4096) and temperature")
    rows.add_argument("--only", metavar="NAME;...", help="of such rows, those with these names")
    rows.add_argument("--grow", choices=TARGETS, metavar="SHAPE",
                      help=f"the built-in model in the size of {', '.join(TARGETS)}: same function, same text; "
                           f"its draft model in the size of {DRAFT}")
    rows.add_argument("--peer", choices=("llama.cpp",), help="it on the same weights, after ours")
    flags.add_sampling_flags(parser)
    add_research_flags(parser)
    flags.add_engine_flags(parser)
    flags.add_tune_flag(parser)
    return parser


def _bench(given: Namespace) -> dict[str, Any]:
    """Measure, print tables, return the JSON object: of several workloads with their gains, of one with llama.cpp's
    figures if asked for."""
    config = flags.engine_config(given, given.saved_readings)
    _check(config, given)
    rows = {workload: _rows(given, workload) for workload in given.workload}
    binary = find_binary() if given.peer else None
    asked = Asked(given.workload, given.document, given.made_documents, given.context, given.questions_per_document,
                  read_questions(given.questions) if given.questions else [])
    jobs = asked.jobs()
    engine, model = load_engine(config, given.grow)
    on_gpu = model.mode != "cpu" and config.device != "cpu"  # mode "offload" may be run dry on a CPU
    where = "cuda" if on_gpu else "cpu"
    before = describe_machine(where, config.gpus)
    say(f"{before['machine']}; {before['threads']} threads, {model.dtype}, seed {given.seed}; "
        f"{len(rows[given.workload[0]])} rows; load average {before['load_average']}\n")
    bandwidth, traffic = measure_bandwidth(where), _traffic(config, given.grow, model, config.gpus if on_gpu else 1)
    results: dict[str, list[DocumentResult]] = {workload: [] for workload in given.workload}
    for job in jobs:
        short, questions, whole = asked.ready(job, engine)
        say(f"{job.workload}, {short.title}: {'whole' if whole else 'CUT to its first'} "
            f"{engine.measure(short).tokens:,} tokens\n")
        results[job.workload].append(measure_document(engine, short, questions, rows[job.workload], given.repeats, say,
                                                      given.plain_new_tokens))
    machine = describe_machine(where, config.gpus)
    engine.close()
    say("\n")
    found = {}
    for workload, measured in results.items():
        found[workload] = summary(*those_that_fit(measured, rows[workload]), model, workload=workload, machine=machine,
                                  bandwidth=bandwidth, traffic=traffic)
        print((f"\n{workload}\n" if len(results) > 1 else "") + table(found[workload]), flush=True)
    if len(found) > 1:
        over = gains(found)
        print(gains_table(over, found))
        return {"workloads": found, "gains": over}
    only = found[given.workload[0]]
    if binary:
        print(json.dumps(only, ensure_ascii=False), flush=True)
        only |= _beside_llama_cpp(config, given, binary, results[given.workload[0]][0], only["threads"])
    return only


def _check(config: EngineConfig, given: Namespace) -> None:
    """Raises ConfigError for settings that cannot be measured."""
    for name, low in (("context", 64), ("repeats", 1), ("questions_per_document", 1), ("made_documents", 1),
                      ("plain_new_tokens", SHORTEST)):
        if getattr(given, name) is not None and getattr(given, name) < low:
            raise ConfigError(f"{name.replace('_', '-')} is {getattr(given, name)}", allowed=f"at least {low}")
    if given.grow and (given.model != BUILTIN or given.saved_readings):
        raise ConfigError("--grow is given together with --model or --saved-readings", allowed="one of them",
                          remedy="A grown model exists in memory only.")
    if given.peer:
        if len(given.workload) > 1:
            raise ConfigError("--peer is given with several workloads", allowed="one workload with it")
        check_model(config)


def _rows(given: Namespace, workload: str) -> list[Row]:
    """Return the rows that are compared on one workload. Raises ConfigError."""
    speculation = research_config(given)
    if workload in ("summary", "needle"):  # forced tokens would hide what a cache has lost
        speculation = replace(speculation, quotes="off")
    sweeps = [parse_sweep(text) for text in given.sweep]
    kinds = {"ablation": ABLATION, "policies": POLICIES, "combinations": combinations(given.mode == "offload")}
    asked = [kind for kind in kinds if getattr(given, kind)]
    if len(asked) > 1:
        raise ConfigError(f"--{asked[0]} is given with --{asked[1]}", allowed="one of them")
    variants = kinds[asked[0]] if asked else {}
    if asked and given.only:
        variants = chosen(variants, given.only)
    swept = {name for name, _ in sweeps}
    if asked in (["policies"], ["combinations"]) and "temperature" not in swept:
        sweeps.append(("temperature", (0, 0.6, 1.0)))
    if asked == ["policies"] and "budget" not in swept:
        sweeps.append(("budget", (256, 512, 1024, 2048, 4096)))
    return make_rows(flags.sampling_params(given, given.new_tokens), speculation, sweeps, variants)


def _workloads(text: str) -> tuple[str, ...]:
    names = FIVE if text == "all" else tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown or len(set(names)) < len(names):
        raise ArgumentTypeError(f"{text!r} is not one or several of {', '.join(WORKLOADS)}, or 'all'")
    return names


def _traffic(config: EngineConfig, shape: str | None, model: ModelInfo, gpus: int) -> Traffic:
    """Count from the shapes of the model that was loaded."""
    from ..assets import BUILTIN_FOLDER
    from ..model import find_model, read_config
    from ..model.grown import grown_config
    from .grow import SHAPES

    loaded = read_config(BUILTIN_FOLDER / "target" if config.model == BUILTIN else find_model(config.model))
    if shape:
        loaded = grown_config(loaded, SHAPES[shape], model.max_context)
    return Traffic(loaded, model.pass_bytes / loaded.matrix_weights, model.kv_bytes_per_token, gpus)


def load_engine(config: EngineConfig, shape: str | None) -> tuple[Engine | EngineClient, ModelInfo]:
    """Load an engine; several ranks have processes of their own, which a client leads."""
    from ..worker.child import engine_environment

    os.environ.update(engine_environment(config))
    engine: Engine | EngineClient
    if config.gpus > 1:
        from ..worker.client import EngineClient

        engine = EngineClient(config, factory=f"triforce_core.bench.grow:grown_engine:{shape}" if shape
                              else "triforce_core.research.engine:ResearchEngine")
    else:
        from ..research.engine import ResearchEngine
        from .grow import grown_engine

        engine = grown_engine(shape, config) if shape else ResearchEngine(config)
    for event in engine.load():
        if isinstance(event, ModelInfo):
            return engine, event
    raise AssertionError("load ends with ModelInfo")


def _beside_llama_cpp(config: EngineConfig, given: Namespace, binary: Path, own: DocumentResult,
                      threads: int) -> dict[str, Any]:
    """Return its figures on as many tokens as the first document has; {} where it failed (it has said why)."""
    say(f"llama.cpp with {own.context_tokens:,} tokens, as many as {own.title}")
    with TemporaryDirectory() as folder:
        found = run_llama_cpp(config, given.grow, binary, own.context_tokens, threads, given.repeats, Path(folder))
    say("\n")
    if found is None:
        return {}
    added = with_peer(own, {**found, "document": own.title})
    print(peer_table(added["peer"]))
    return added


def say(text: str) -> None:
    """Show progress: rewritten on a terminal, silent elsewhere unless it ends its line."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text.strip() and text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
