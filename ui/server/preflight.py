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
from ..page import formatting as fmt
from ..page.html import APP, where_text_goes

PARTS = {
    "weights": "weights", "draft_weights": "draft model", "weight_copy": "quantised copy for drafts",
    "resident_kv": "keys and values", "retrieval": "retrieval cache", "draft_cache": "draft model's cache",
    "streams": "stream buffers", "workspace": "workspace", "reserve": "kept free",
}
PACKAGES = ("torch", "gradio", "transformers", "pypdfium2", "pypdf", "sentencepiece", "triton")


def check(arguments: Arguments) -> int:
    """Print the report; return 1 if the model cannot run."""
    places = folders.make_folders(arguments.data_dir)
    disk = shutil.disk_usage(places.data)
    rows = [
        ("App", f"{APP} {__version__}, Python {platform.python_version()}, {platform.platform()}"),
        ("Disk", f"{fmt.size(disk.free)} free of {fmt.size(disk.total)}"),
        ("Packages", ", ".join(f"{name} {version(name)}" for name in PACKAGES)),
        ("Folders", f"{places.data}, {places.cache}"),
        ("Network", network(arguments)),
    ]
    if dead := SnapshotStore(places.saved_readings, 0).dead():
        size = fmt.size(sum(info.bytes for info in dead))
        rows.append(("Readings", f"{len(dead)} of an earlier version or damaged, {size}: removed when the app starts"))
    for name, value in rows:
        print(f"{name:<10} {value}")
    try:
        for event in look(arguments):
            for name, value in event.rows if isinstance(event, MachineInfo) else about(event):
                print(f"{name:<10} {value}", flush=True)
    except TriForceError as error:
        lacks = isinstance(error, NotEnoughMemoryError | NotEnoughDiskError)  # the machine; else it is not to blame
        print(f"{'Engine':<10} {'This machine cannot run it' if lacks else 'It cannot be loaded'}: {error}")
        return 1
    return 0


def network(arguments: Arguments) -> str:
    if arguments.engine == "remote":
        return where_text_goes(arguments.base_url)
    return ("a model named by repo id may be downloaded" if arguments.allow_download
            else "off (models are only taken from this machine)")


def look(arguments: Arguments) -> Iterator[MachineInfo | ModelInfo]:
    """Yield what the engine finds, in its own process as always."""
    places = folders.make_folders(arguments.data_dir)
    config = engine_config(arguments, measurements=places.measurements)
    if model_is_open(arguments):
        config = remembered(places.model, config, own=arguments.engine is not None)
    with contextlib.closing(engine_maker(arguments)(config)) as engine:
        yield from (event for event in engine.check() if isinstance(event, MachineInfo | ModelInfo))


def about(model: ModelInfo) -> Iterator[tuple[str, str]]:
    """Yield the model, the mode and why, how much context there is, and what lies where."""
    if model.mode == "remote":
        yield "Model", model.name
        yield "Engine", f"{model.mode}, {model.device}: {model.why}"
        yield "Context", fmt.context(model.max_context)
        return
    yield "Model", f"{model.name}, draft {model.draft_name or 'none'}, {fmt.size(model.model_bytes)} on disk"
    yield "Engine", f"{model.mode}, {model.device}, {model.dtype}: {model.why}"
    if model.weights:
        yield "Weights", model.weights
    if model.drafting:
        yield "Drafts", model.drafting
    if model.plan is None:
        yield "Context", f"{fmt.count(model.max_context)} tokens"
        return
    plan = model.plan
    yield "Context", f"{fmt.count(plan.longest)} tokens fit, of {fmt.count(model.max_context)} that the model can"
    if plan.longest_on_chip is not None and plan.longest_offloaded is not None:
        yield "", (f"all on the GPU {fmt.count(plan.longest_on_chip)}, with keys and values in host memory "
                   f"{fmt.count(plan.longest_offloaded)}")
    yield "Plan", f"for {fmt.count(plan.context)} tokens"
    for name, value in parts(plan):
        yield "", f"{name:<26} {value}"


def parts(plan: MemoryPlan) -> Iterator[tuple[str, str]]:
    """Yield what lies in the GPU's memory (the host's without one); then what an offloaded cache takes there."""
    token = f"{plan.kv_per_token / 1024:g}"
    for name, words in PARTS.items():
        nbytes = getattr(plan, name)
        if name == "resident_kv":
            layers = f"{plan.resident_layers} of {plan.num_layers} layers; " if plan.mode == "offload" else ""
            yield words, f"{fmt.memory(nbytes)} ({layers}{token} KiB per token{' in all' if layers else ''})"
        elif nbytes:
            yield words, fmt.memory(nbytes)
    yield "together", f"{fmt.memory(plan.need)} of {fmt.memory(plan.have)}"
    if plan.host:
        yield "in host memory", f"{fmt.memory(plan.host)} of {fmt.memory(plan.host_have)}"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
