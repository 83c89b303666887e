"""``--check``: what this machine can run and why, in plain lines, without starting the page or reading weights."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shutil
from collections.abc import Iterator

from triforce_core import (
    MachineInfo,
    MemoryPlan,
    ModelInfo,
    NotEnoughDiskError,
    NotEnoughMemoryError,
    SnapshotStore,
    TriForceError,
    __version__,
)

from ..page import number_format as fmt
from ..page.engine import CONTEXT, MODEL, NO_DRAFT
from ..page.number_format import CONTEXT_TOKENS
from ..state import folders
from ..state.arguments import Arguments, engine_config
from ..state.engines import engine_maker
from ..state.models import Models, model_is_open
from ..words import check as check_words
from ..words import page as page_words
from ..words import storage as storage_words

PACKAGES = ("torch", "gradio", "transformers", "pypdfium2", "pypdf", "sentencepiece", "triton")


def check(arguments: Arguments) -> int:
    """Print the report; 1 if the model cannot run."""
    places = folders.make_folders(arguments.data_dir)
    disk = shutil.disk_usage(places.data)
    rows = [
        (check_words.APP, f"{page_words.APP} {__version__}, Python {platform.python_version()}, {platform.platform()}"),
        (check_words.DISK, check_words.FREE.format(free=fmt.size(disk.free), total=fmt.size(disk.total))),
        (check_words.PACKAGES, ", ".join(f"{name} {version(name)}" for name in PACKAGES)),
        (check_words.FOLDERS, f"{places.data}, {places.cache}"),
        (check_words.NETWORK, network(arguments)),
    ]
    if dead := SnapshotStore(places.saved_readings, 0).dead():
        rows.append((check_words.READINGS, storage_words.DEAD_READINGS.format(
            count=len(dead), size=fmt.size(sum(info.bytes for info in dead)))))
    for name, value in rows:
        print(f"{name:<10} {value}")
    try:
        for event in look(arguments):
            for name, value in event.rows if isinstance(event, MachineInfo) else about(event):
                print(f"{name:<10} {value}", flush=True)
    except TriForceError as error:
        lacks = isinstance(error, NotEnoughMemoryError | NotEnoughDiskError)  # the machine; else it is not to blame
        words = check_words.CANNOT_RUN if lacks else check_words.CANNOT_LOAD
        print(f"{check_words.ROW_ENGINE:<10} {words.format(why=error)}")
        return 1
    return 0


def network(arguments: Arguments) -> str:
    if arguments.engine == "remote":
        return check_words.REMOTE.format(url=arguments.base_url)
    return check_words.DOWNLOAD if arguments.allow_download else check_words.OFFLINE


def look(arguments: Arguments) -> Iterator[MachineInfo | ModelInfo]:
    """Ask the engine, in its own process as always."""
    places = folders.make_folders(arguments.data_dir)
    config = engine_config(arguments, measurements=places.measurements)
    if model_is_open(arguments):
        config = Models(places.model, lambda: config).remembered(config)
    with contextlib.closing(engine_maker(arguments)(config)) as engine:
        yield from (event for event in engine.check() if isinstance(event, MachineInfo | ModelInfo))


def about(model: ModelInfo) -> Iterator[tuple[str, str]]:
    """The model, the mode and why, how much context there is, and what lies where."""
    if model.mode == "remote":
        yield MODEL, model.name
        yield check_words.ROW_ENGINE, f"{model.mode}, {model.device}: {model.why}"
        yield CONTEXT, fmt.context(model.max_context)
        return
    yield MODEL, check_words.MODEL.format(
        name=model.name, draft=model.draft_name or NO_DRAFT, size=fmt.size(model.model_bytes))
    yield check_words.ROW_ENGINE, f"{model.mode}, {model.device}, {model.dtype}: {model.why}"
    if model.weights:
        yield check_words.WEIGHTS, model.weights
    if model.drafting:
        yield check_words.DRAFTS, model.drafting
    if model.plan is None:
        yield CONTEXT, CONTEXT_TOKENS.format(tokens=fmt.count(model.max_context))
        return
    plan = model.plan
    yield CONTEXT, check_words.LONGEST.format(tokens=fmt.count(plan.longest),
                                                        most=fmt.count(model.max_context))
    if plan.longest_on_chip is not None and plan.longest_offloaded is not None:
        yield "", check_words.ON_CHIP.format(on_chip=fmt.count(plan.longest_on_chip),
                                             offloaded=fmt.count(plan.longest_offloaded))
    yield check_words.PLAN, check_words.PLAN_FOR.format(tokens=fmt.count(plan.context))
    for name, value in parts(plan):
        yield "", f"{name:<26} {value}"


def parts(plan: MemoryPlan) -> Iterator[tuple[str, str]]:
    """What lies in the GPU's memory (the host's where there is no GPU); then what an offloaded cache takes there."""
    token = f"{plan.kv_per_token / 1024:g}"
    for name, words in check_words.PARTS.items():
        nbytes = getattr(plan, name)
        if name == "resident_kv":
            shape = check_words.PER_TOKEN if plan.mode != "offload" else check_words.RESIDENT
            yield words, shape.format(size=fmt.memory(nbytes), token=token, resident=plan.resident_layers,
                                      layers=plan.num_layers)
        elif nbytes:
            yield words, fmt.memory(nbytes)
    yield check_words.TOGETHER, check_words.OF_FREE.format(need=fmt.memory(plan.need), have=fmt.memory(plan.have))
    if plan.host:
        yield check_words.HOST, check_words.OF_FREE.format(need=fmt.memory(plan.host),
                                                           have=fmt.memory(plan.host_have))


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return check_words.MISSING
