"""Start the engine's process."""

from __future__ import annotations

import contextlib
import os

from ..config import EngineConfig
from ..pipe import Child
from .heartbeat import Pulse

HEARTBEAT = "TRIFORCE_HEARTBEAT"  # environment variable: the descriptor to which the child's heartbeat goes
ENGINE = "triforce_core.engine.engine:Engine"
# OpenMP's threads spin for milliseconds while they wait for each other. Where another program has a core, as the
# browser does that shows the answer, whoever waits for its turn there is waited for by all: with one of two cores taken
# plain decoding wrote 22 to 30 tokens/s, and 43 to 55 when they give up this soon; with none taken no difference was
# seen.
_SPINS = "2000"


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """What must be set before a process imports the engine: no telemetry, no network unless allowed, threads."""
    offline = "0" if config.allow_download else "1"
    settings = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": offline, "TRANSFORMERS_OFFLINE": offline}
    if config.threads != "auto":
        settings |= {name: str(config.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        settings["GOMP_SPINCOUNT"] = _SPINS
    return settings


class EngineChild(Child):
    """A running engine process."""

    def __init__(self, config: EngineConfig, factory: str = ENGINE, *place: str) -> None:
        """Start it and send it its configuration. place: rank and port, for a follower."""
        self._pulse = Pulse() if os.name == "posix" else None  # elsewhere no further pipe can be handed on
        beats = (self._pulse.to_child,) if self._pulse else ()
        environment = engine_environment(config) | {HEARTBEAT: " ".join(map(str, beats))}
        super().__init__("triforce_core.worker.process", factory, *place, environment=environment, inherited=beats)
        if self._pulse:
            self._pulse.started()
        with contextlib.suppress(OSError):  # already dead: the first request finds out
            self.send(config)

    def silent_seconds(self) -> float:
        """Return for how long it has shown no sign of life, see ``heartbeat``; 0 where that cannot be known."""
        return self._pulse.silent_seconds() if self._pulse else 0.0

    def let_go(self) -> None:
        """Close its heartbeat's pipe too."""
        if self._pulse:
            self._pulse.close()
        super().let_go()
