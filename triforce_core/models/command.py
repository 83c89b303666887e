"""python -m triforce_core models: lists the checkpoints on this machine and published ones that would run on it, and
fetches one when asked to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict

from .. import flags
from ..config import EngineConfig
from ..device.memory_plan import size
from ..events import CuratedModel, Fit, GGUFDownload, LoadProgress, ModelFound, ModelOffer

_EPILOG = """\
example:
  python -m triforce_core models ~/checkpoints --max-context 32768
  python -m triforce_core models --fetch "Qwen3 4B Instruct 2507"

REPO is OWNER/NAME, or a name of the list; OWNER/NAME:Q4_K_M (or a file's name) for one of a repo's GGUF files, which
--offer lists, marking the one that --fetch takes where nothing is said. --draft-model REPO beside --fetch fetches its
draft model too.
--json prints one object for each model; drafts [{name, model, parameters, why_not, foreign, cost, promise}] says which
others may draft for it. One of another family is tried when it is first loaded as draft model; what it brings then
stands in what python -m triforce_core tune --model M --draft-model D says.
"""


def add(commands: argparse._SubParsersAction[flags.Parser]) -> None:
    parser = commands.add_parser(
        "models", help="list the models on this machine and what fits", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="List the checkpoints in the Hugging Face cache and in folders: what each needs here, what is "
                    "free, and which can draft for it; then published models, and which of them would fit. Reads no "
                    "weights, and asks nobody.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="look here too, two folders deep")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each line")
    network = parser.add_mutually_exclusive_group()
    network.add_argument("--offer", metavar="REPO", help="ask the hub how large a model is and under which licence")
    network.add_argument("--fetch", metavar="REPO", help="fetch it into the Hugging Face cache, or go on with it")
    parser.add_argument("--yes", action="store_true", help="with --fetch: do not ask again on a terminal")
    flags.add_engine_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Raises TriForceError."""
    from dataclasses import replace

    from .curated import repo_of

    repo = repo_of(given.offer or given.fetch or "")
    config = replace(flags.engine_config(given), model_folders=tuple(given.folders))
    if repo:
        config = replace(config, model=repo, allow_download=True)
    os.environ["HF_HUB_OFFLINE"] = "0" if repo else "1"
    asks, listed = bool(given.fetch) and sys.stdin.isatty() and not given.yes, False
    for event in _events(given, config):
        if asks and isinstance(event, LoadProgress):
            asks = False
            if input("Download? [y/N] ").strip().lower() not in ("y", "yes"):
                return 1
        if isinstance(event, CuratedModel) and not listed and not given.json:
            listed = True
            print(f"\nPublished models, as of {event.dated}. Speeds are modelled, for plain decoding; --fetch NAME "
                  f"stores one in {event.folder}", flush=True)
        if given.json:
            print(json.dumps({"kind": type(event).__name__, **asdict(event)}), flush=True)
        elif isinstance(event, LoadProgress):
            print(f"\r\x1b[K{event.stage}" if sys.stderr.isatty() else event.stage, file=sys.stderr,
                  end="" if sys.stderr.isatty() else "\n", flush=True)
        else:
            print("\n".join(_words(event)), flush=True)
    return 0


def _events(given: argparse.Namespace,
            config: EngineConfig) -> Iterator[ModelFound | CuratedModel | ModelOffer | LoadProgress]:
    if given.offer or given.fetch:
        from .hub import Fetch, Offer

        yield from (Fetch if given.fetch else Offer)(config).check()
        return
    from .survey import Survey

    yield from Survey(config).check()


def _words(event: ModelFound | CuratedModel | ModelOffer) -> Iterator[str]:
    from .survey import millions

    if isinstance(event, ModelOffer):
        for name, nbytes in event.ggufs:
            yield f"{'* ' if name == event.file else '  '}{name} ({nbytes / 1e9:.2f} GB)"
        files = "1 file" if len(event.names) == 1 else f"{len(event.names)} files"
        yield (f"{event.repo}: {files}, {size(event.nbytes)}, {size(event.missing)} of it not here yet"
               f"; licence: {event.licence}; stored in {event.folder}, where {size(event.disk_free)} are free")
        return
    if isinstance(event, CuratedModel):
        yield from _suggestion(event)
        return
    source = "file" if event.source == "folder" and event.model.endswith(".gguf") else event.source
    yield f"{event.name} ({source}, {size(event.nbytes)} on disk)"
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
    yield from _ways(event)
    for choice in event.drafts:
        mark = f"may not draft: {choice.why_not}"
        if not choice.why_not:
            mark = f"may draft: --draft-model {choice.model} ({choice.words})"
        yield f"  {choice.name} {mark}"


def _ways(found: ModelFound) -> Iterator[str]:
    """Yield what fits with its weights so and so, and the best of it."""
    for weights in dict.fromkeys(fit.weights for fit in found.fits):
        yield f"  weights {weights}: {'; '.join(_fit(fit) for fit in found.fits if fit.weights == weights)}"
    if found.best and found.best.rounds:
        yield f"  best here: {' '.join(found.best.flags)}"


def _fit(fit: Fit) -> str:
    if not fit.mode:
        return f"{fit.context:,}: does not fit"
    rate = fit.tokens_per_second
    speed = f", at most about {rate:,.{0 if rate >= 10 else 1}f} tokens/s" if rate else ""
    return f"{fit.context:,}: {fit.way}, {size(fit.need)}{speed}"


def _suggestion(model: CuratedModel) -> Iterator[str]:
    from .survey import millions

    marks = [mark for mark, on in (("recommended here", model.recommended), ("already here", model.here)) if on]
    stored, form = [*model.downloads], model.form
    if model.gguf:
        stored.insert(0 if form is model.gguf else 1, (model.gguf.kind, model.gguf.nbytes))
    sizes = ", ".join(f"{precision} {nbytes / 1e9:.1f} GB" for precision, nbytes in stored)
    terms = ", terms to accept" if model.gated and form is model else ""
    yield f"{model.name} ({', '.join([*marks, sizes, model.licence])}{terms})"
    repos = ", ".join(dict.fromkeys((form.repo, model.repo)))
    yield (f"  {repos}, {millions(model.parameters)} weights, up to {model.max_context:,} tokens. {model.good_at}"
           + (f" Draft model: {form.drafter}." if form.drafter else ""))
    if form.plan:
        rounded = "" if model.weights == "same" else f" with --weights {model.weights}"
        how = f" as {form.kind}" if isinstance(form, GGUFDownload) else rounded
        yield (f"  fits here{how} with {form.plan.context:,} tokens, {size(form.plan.need)} of "
               f"{size(form.plan.have)}; writes at most about {form.tokens_per_second:.0f} tokens/s at "
               f"{form.rate_tokens:,} tokens, reads at most about {model.read_per_second:,.0f} tokens/s")
    else:
        yield f"  does not fit here: {model.problem}"
    fits = [f"{one.name} ({one.tokens:,} tokens{'' if one.weights == 'same' else f' with --weights {one.weights}'})"
            for one in model.classes if one.tokens]
    yield f"  fits: {', '.join(fits) or 'none of the usual machines'}"
