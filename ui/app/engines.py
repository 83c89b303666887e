"""What the app needs of an engine, and which one the command line asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from triforce_core import (
    ConfigError,
    Document,
    DocumentFit,
    DocumentOpened,
    EngineClient,
    EngineConfig,
    Event,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    RemoteEngine,
    SamplingParams,
    SpeculationConfig,
    Turn,
)

from .arguments import Arguments

NEEDS_URL = "--engine remote has no server"
NEEDS_URL_REMEDY = "Give its address with --base-url http://HOST:PORT/v1."
URL_UNUSED = "--base-url and --remote-model belong to --engine remote"


class Engine(Protocol):
    """What the queue needs of an engine: ``triforce_core.EngineClient``, or another with its verbs."""

    def load(self) -> Iterator[LoadProgress | ModelInfo]: ...
    def measure(self, document: Document, heard: Callable[[PrefillProgress], None]) -> DocumentFit: ...
    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]: ...
    def ask(self, question: str, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "") -> Iterator[Event]: ...
    def cancel(self) -> None: ...
    def status(self) -> Any: ...
    def close(self) -> None: ...


def engine_maker(arguments: Arguments) -> Callable[[EngineConfig], Any]:
    """Configuration -> engine. Raises ConfigError."""
    if arguments.engine == "remote":
        if not arguments.base_url:
            raise ConfigError(NEEDS_URL, remedy=NEEDS_URL_REMEDY)
        make = partial(RemoteEngine, url=arguments.base_url, model=arguments.remote_model)
        make(EngineConfig())  # an address that cannot be one is refused before anything starts
        return make
    if arguments.base_url or arguments.remote_model:
        raise ConfigError(URL_UNUSED, remedy=NEEDS_URL_REMEDY)
    return EngineClient
