"""Define what the page's process and the engine's say to each other over a ``pipe``.

A verb is one Request; the child answers Accepted, then Yielded for every event, then exactly one of Returned,
Failed and Crashed; Reported may come in between. After Crashed the child ends. Every message carries the number of its
request, so that answers to several requests may come interleaved; how many the child works on at once stands in
``EngineStatus.max_in_flight``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..config import SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..errors import TriForceError
from ..events import DocumentFit, EngineFacts, Event, ModelInfo, Script, Turn


@dataclass(frozen=True, slots=True)
class Check:
    """Say what there is and what would be loaded; needs no Load and replaces none."""


@dataclass(frozen=True, slots=True)
class Load:
    """Build the engine from the configuration that came first, and load it."""


@dataclass(frozen=True, slots=True)
class Tune:
    """Measure what passes cost on this machine, with so many tokens of context (none: the usual ones)."""

    contexts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    document: Document


@dataclass(frozen=True, slots=True)
class OpenDocument:
    document: Document


@dataclass(frozen=True, slots=True)
class Ask:
    question: str | None
    history: tuple[Turn, ...]
    sampling: SamplingParams
    speculation: SpeculationConfig
    system: str = ""
    script: Script | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Between answers: see ``Engine.prepare``."""


Verb = Check | Load | Tune | Measure | OpenDocument | Ask | Prepare


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    verb: Verb


@dataclass(frozen=True, slots=True)
class Cancel:
    """End request ``number`` early; of no effect when it has ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The child has begun this request: from here on it may have effects."""

    number: int


@dataclass(frozen=True, slots=True)
class Yielded:
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Reported:
    """Where things lie at this moment. Comes now and then while the request is worked on, and before it ends."""

    number: int
    facts: EngineFacts


@dataclass(frozen=True, slots=True)
class Returned:
    number: int
    value: DocumentFit | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem that a person can mend; the child stays usable."""

    number: int
    error: TriForceError


@dataclass(frozen=True, slots=True)
class Crashed:
    """A problem that nobody foresaw; the child ends after this, because its state can no longer be trusted."""

    number: int
    cause: str


Answer = Accepted | Yielded | Reported | Returned | Failed | Crashed


EngineState = Literal["starting", "loading", "idle", "busy", "dead"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """dead: the child ended (cause says how); the next request starts a new one. facts: the child's last word, at most
    a second old while it works; None before a model is loaded. cpu_seconds: what the child has computed in its life,
    by all its threads (0: not known): it grows while the child works and hardly while it waits. Two glances that
    differ in nothing else are equal. silent_seconds: for how long its process has shown no sign of life (see
    ``heartbeat``), once that is more than can happen to a healthy one; 0: it is alive, or that cannot be known.
    max_in_flight: how many requests it takes at once; one more gets EngineBusyError."""

    state: EngineState
    model: ModelInfo | None
    pid: int | None
    rss_bytes: int
    document_id: str | None  # of the document in the cache
    cause: str = ""
    facts: EngineFacts | None = None
    cpu_seconds: float = field(default=0.0, compare=False)
    silent_seconds: int = 0
    max_in_flight: int = 1
