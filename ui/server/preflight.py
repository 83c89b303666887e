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

from ..app import folders
from ..app.arguments import Arguments, engine_config, engine_maker
from ..app.models import model_is_open, remembered
from ..page import number_format as fmt
from ..page.engine import CONTEXT, MODEL, NO_DRAFT
from ..page.html import APP
from ..page.number_format import CONTEXT_TOKENS

ROW_ENGINE = "Engine"
CANNOT_RUN = "This machine cannot run it: {why}"
CANNOT_LOAD = "It cannot be loaded: {why}"
FREE = "{free} free of {total}"
READINGS = "Readings"
DOWNLOAD = "a model named by repo id may be downloaded"
WEIGHTS = "Weights"
LONGEST = "{tokens} tokens fit, of {most} that the model can"
ON_CHIP = "all on the GPU {on_chip}, with keys and values in host memory {offloaded}"
PLAN = "Plan"
PARTS = {
    "weights": "weights", "draft_weights": "draft model", "weight_copy": "quantised copy for drafts",
    "resident_kv": "keys and values", "retrieval": "retrieval cache", "draft_cache": "draft model's cache",
    "streams": "stream buffers", "workspace": "workspace", "reserve": "kept free",
}
PER_TOKEN = "{size} ({token} KiB per token)"
RESIDENT = "{size} ({resident} of {layers} layers; {token} KiB per token in all)"
TOGETHER = "together"
OF_FREE = "{need} of {have}"
HOST = "in host memory"

DEAD_READINGS = "{count} of an earlier version or damaged, {size}: removed when the app starts"

PACKAGES = ("torch", "gradio", "transformers", "pypdfium2", "pypdf", "sentencepiece", "triton")


def check(arguments: Arguments) -> int:
    """Print the report; 1 if the model cannot run."""
    places = folders.make_folders(arguments.data_dir)
    disk = shutil.disk_usage(places.data)
    rows = [
        ("App", f"{APP} {__version__}, Python {platform.python_version()}, {platform.platform()}"),
        ("Disk", FREE.format(free=fmt.size(disk.free), total=fmt.size(disk.total))),
        ("Packages", ", ".join(f"{name} {version(name)}" for name in PACKAGES)),
        ("Folders", f"{places.data}, {places.cache}"),
        ("Network", network(arguments)),
    ]
    if dead := SnapshotStore(places.saved_readings, 0).dead():
        rows.append((READINGS, DEAD_READINGS.format(count=len(dead), size=fmt.size(sum(info.bytes for info in dead)))))
    for name, value in rows:
        print(f"{name:<10} {value}")
    try:
        for event in look(arguments):
            for name, value in event.rows if isinstance(event, MachineInfo) else about(event):
                print(f"{name:<10} {value}", flush=True)
    except TriForceError as error:
        lacks = isinstance(error, NotEnoughMemoryError | NotEnoughDiskError)  # the machine; else it is not to blame
        words = CANNOT_RUN if lacks else CANNOT_LOAD
        print(f"{ROW_ENGINE:<10} {words.format(why=error)}")
        return 1
    return 0


def network(arguments: Arguments) -> str:
    if arguments.engine == "remote":
        return f"documents and questions are sent to {arguments.base_url}"
    return DOWNLOAD if arguments.allow_download else "off (models are only taken from this machine)"


def look(arguments: Arguments) -> Iterator[MachineInfo | ModelInfo]:
    """Ask the engine, in its own process as always."""
    places = folders.make_folders(arguments.data_dir)
    config = engine_config(arguments, measurements=places.measurements)
    if model_is_open(arguments):
        config = remembered(places.model, config)
    with contextlib.closing(engine_maker(arguments)(config)) as engine:
        yield from (event for event in engine.check() if isinstance(event, MachineInfo | ModelInfo))


def about(model: ModelInfo) -> Iterator[tuple[str, str]]:
    """The model, the mode and why, how much context there is, and what lies where."""
    if model.mode == "remote":
        yield MODEL, model.name
        yield ROW_ENGINE, f"{model.mode}, {model.device}: {model.why}"
        yield CONTEXT, fmt.context(model.max_context)
        return
    yield MODEL, f"{model.name}, draft {model.draft_name or NO_DRAFT}, {fmt.size(model.model_bytes)} on disk"
    yield ROW_ENGINE, f"{model.mode}, {model.device}, {model.dtype}: {model.why}"
    if model.weights:
        yield WEIGHTS, model.weights
    if model.drafting:
        yield "Drafts", model.drafting
    if model.plan is None:
        yield CONTEXT, CONTEXT_TOKENS.format(tokens=fmt.count(model.max_context))
        return
    plan = model.plan
    yield CONTEXT, LONGEST.format(tokens=fmt.count(plan.longest), most=fmt.count(model.max_context))
    if plan.longest_on_chip is not None and plan.longest_offloaded is not None:
        yield "", ON_CHIP.format(on_chip=fmt.count(plan.longest_on_chip), offloaded=fmt.count(plan.longest_offloaded))
    yield PLAN, f"for {fmt.count(plan.context)} tokens"
    for name, value in parts(plan):
        yield "", f"{name:<26} {value}"


def parts(plan: MemoryPlan) -> Iterator[tuple[str, str]]:
    """What lies in the GPU's memory (the host's where there is no GPU); then what an offloaded cache takes there."""
    token = f"{plan.kv_per_token / 1024:g}"
    for name, words in PARTS.items():
        nbytes = getattr(plan, name)
        if name == "resident_kv":
            shape = PER_TOKEN if plan.mode != "offload" else RESIDENT
            yield words, shape.format(size=fmt.memory(nbytes), token=token, resident=plan.resident_layers,
                                      layers=plan.num_layers)
        elif nbytes:
            yield words, fmt.memory(nbytes)
    yield TOGETHER, OF_FREE.format(need=fmt.memory(plan.need), have=fmt.memory(plan.have))
    if plan.host:
        yield HOST, OF_FREE.format(need=fmt.memory(plan.host), have=fmt.memory(plan.host_have))


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
