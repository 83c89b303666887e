"""``--check``: what this machine can run and why, in plain lines, without starting the page."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil

import psutil

from triforce_core import EngineClient, EngineConfig, ModelInfo, TriForceError

from . import figures as fmt
from . import folders, strings
from .arguments import VERSION, Arguments

PACKAGES = ("torch", "gradio", "transformers", "pypdfium2", "pypdf", "sentencepiece", "flash-attn", "triton")


def check(arguments: Arguments) -> int:
    """Print the report; 1 if the engine cannot be loaded."""
    places = folders.make_folders(arguments.data_dir)
    memory = psutil.virtual_memory()
    rows = [
        (strings.CHECK_APP, f"{strings.APP} {VERSION}, Python {platform.python_version()}, {platform.platform()}"),
        (strings.CHECK_CPU, strings.CHECK_CORES.format(cores=psutil.cpu_count(logical=False) or psutil.cpu_count(),
                                                       name=platform.processor() or platform.machine())),
        (strings.CHECK_MEMORY, strings.CHECK_FREE.format(free=fmt.size(memory.available),
                                                         total=fmt.size(memory.total))),
        (strings.CHECK_DISK, strings.CHECK_FREE.format(free=fmt.size(shutil.disk_usage(places.data).free),
                                                       total=fmt.size(shutil.disk_usage(places.data).total))),
        (strings.CHECK_PACKAGES, ", ".join(f"{name} {version(name)}" for name in PACKAGES)),
        (strings.CHECK_FOLDERS, f"{places.data}, {places.cache}"),
        (strings.CHECK_NETWORK, strings.CHECK_DOWNLOAD if arguments.allow_download else strings.CHECK_OFFLINE),
    ]
    for name, value in rows:
        print(f"{name:<10} {value}")
    try:
        model = load(arguments)
    except TriForceError as error:
        print(f"{strings.ENGINE:<10} {strings.CANNOT_RUN.format(why=error)}")
        return 1
    print(f"{strings.MODEL:<10} {model.name}, {strings.DRAFT.lower()} {model.draft_name or strings.NO_DRAFT}, "
          f"{fmt.size(model.model_bytes)}")
    print(f"{strings.ENGINE:<10} {model.mode}, {model.device}, {model.dtype}: {model.why}")
    cache = fmt.size(model.kv_bytes_per_token * model.max_context)
    print(f"{strings.CONTEXT:<10} {strings.CONTEXT_TOKENS.format(tokens=fmt.count(model.max_context))}, {cache}")
    return 0


def load(arguments: Arguments) -> ModelInfo:
    """Load the engine once, in its own process as always, and say what came of it."""
    config = EngineConfig(
        model=arguments.model, draft_model=arguments.draft_model, mode=arguments.mode, dtype=arguments.dtype or "auto",
        device=arguments.device, gpus=arguments.gpus, max_context=arguments.max_context or "auto",
        allow_download=arguments.allow_download)
    if arguments.engine == "fake":
        from .fake_engine import FakeEngine

        engine = FakeEngine(config)
    else:
        engine = EngineClient(config)
    try:
        return next(event for event in engine.load() if isinstance(event, ModelInfo))
    finally:
        engine.close()


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return strings.CHECK_MISSING
