"""python -m triforce_core models: lists the checkpoints on this machine, and fetches one when told to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict

from .. import flags
from ..config import EngineConfig
from ..events import LoadProgress, ModelFound, ModelOffer

_EPILOG = """\
example:
  python -m triforce_core models ~/checkpoints --max-context 32768

--json prints one object for each model; drafts [{name, model, parameters, why_not}] says which others may draft for it.
"""


def add(commands: argparse._SubParsersAction[flags.Parser]) -> None:
    parser = commands.add_parser(
        "models", help="list the models on this machine and what fits", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="List the checkpoints in the Hugging Face cache and in folders: what each needs here, what is "
                    "free, and which can draft for it. Reads no weights.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="look here too, two folders deep")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each line")
    network = parser.add_mutually_exclusive_group()
    network.add_argument("--offer", metavar="REPO", help="ask the hub how large a model is and under which licence")
    network.add_argument("--fetch", metavar="REPO", help="fetch it into the Hugging Face cache, or go on with it")
    flags.add_engine_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Raises TriForceError."""
    from dataclasses import replace

    repo = given.offer or given.fetch
    config = replace(flags.engine_config(given), model_folders=tuple(given.folders))
    if repo:
        config = replace(config, model=repo, allow_download=True)
    os.environ["HF_HUB_OFFLINE"] = "0" if repo else "1"
    for event in _events(given, config):
        if given.json:
            print(json.dumps({"kind": type(event).__name__, **asdict(event)}), flush=True)
        elif isinstance(event, LoadProgress):
            print(f"\r\x1b[K{event.stage}" if sys.stderr.isatty() else event.stage, file=sys.stderr,
                  end="" if sys.stderr.isatty() else "\n", flush=True)
        else:
            print("\n".join(_words(event)), flush=True)
    return 0


def _events(given: argparse.Namespace, config: EngineConfig) -> Iterator[ModelFound | ModelOffer | LoadProgress]:
    if given.offer or given.fetch:
        from .hub import Fetch, Offer

        yield from (Fetch if given.fetch else Offer)(config).check()
        return
    from .survey import Survey

    yield from Survey(config).check()


def _words(event: ModelFound | ModelOffer) -> Iterator[str]:
    from ..device.memory_plan import size
    from .survey import millions

    if isinstance(event, ModelOffer):
        yield (f"{event.repo}: {len(event.names)} files, {size(event.nbytes)}, {size(event.missing)} of it not here yet"
               f"; licence: {event.licence}")
        return
    yield f"{event.name} ({event.source}, {size(event.nbytes)} on disk)"
    if event.parameters:
        yield (f"  {event.architecture}, {millions(event.parameters)} weights, up to {event.max_context:,} tokens; "
               f"--model {event.model}")
    if event.info and event.info.plan:
        plan = event.info.plan
        if event.info.weights:
            yield f"  stored as {event.info.weights}"
        drafts = plan.draft_weights + plan.draft_cache + plan.retrieval
        yield (f"  runs here ({plan.mode}) with {plan.context:,} tokens: weights {size(plan.weights)}, keys and values "
               f"{size(plan.kv)}, drafts {size(drafts)}, in all {size(plan.need)} of {size(plan.have)} free; "
               f"{event.longest:,} tokens would fit")
    if event.problem:
        yield f"  does not run here: {event.problem}"
        if event.longest:
            yield f"  {event.longest:,} tokens of context would fit"
    for weights in dict.fromkeys(fit.weights for fit in event.fits):
        told = "; ".join(f"{fit.context:,}: " + (f"{fit.mode}, {size(fit.need)}" if fit.mode else "does not fit")
                         for fit in event.fits if fit.weights == weights)
        yield f"  weights {weights}: {told}"
    for choice in event.drafts:
        mark = f"may draft: --draft-model {choice.model}" if not choice.why_not else f"may not draft: {choice.why_not}"
        yield f"  {choice.name} {mark}"
