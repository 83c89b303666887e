"""A glance at the engine, for a screen and for whoever wonders whether it still works."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..events import EngineFacts, ModelInfo

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
