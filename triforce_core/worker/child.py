"""Start the engine's process, and hear that it lives: one byte a second, whatever its main thread is busy with.

The beats go through a pipe of their own, since the one for answers is read only while somebody waits for an answer. A
stopped process sends none, nor does one whose main thread sits in compiled code and holds the interpreter's lock. A
long pass does not stop it: computing releases the lock. Nor does a call to a driver that never returns but released the
lock: that shows only in that no step ends, see ``ui.app.watchdog``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from ..config import EngineConfig
from ..pipe import Child

EVERY = 1.0  # seconds
_LOOKED_AWAY = 5.0  # seconds: of a longer time between two looks this process itself has slept a part


def beat(descriptor: int) -> None:
    """Write a byte every second, from a thread of its own, as long as this process lives. Never blocks: where nobody
    reads, the pipe is full of beats already."""
    os.set_blocking(descriptor, False)

    def run() -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                try:
                    os.write(descriptor, b".")
                except OSError:  # nobody will ever read
                    return
            time.sleep(EVERY)

    threading.Thread(target=run, name="heartbeat", daemon=True).start()


class Pulse:
    """Hear the beats at the other end, and how long nothing was heard. Any thread may look, and somebody has to look
    now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.beats_here, self.to_child = os.pipe()
        os.set_blocking(self.beats_here, False)
        self._clock, self._lock = clock, threading.Lock()
        self._looked, self._pause, self._open = clock(), 0.0, True

    def silent_seconds(self) -> float:
        """Return how long the process has said nothing, as far as this one was awake itself to hear it."""
        with self._lock:
            now = self._clock()
            passed, self._looked = now - self._looked, now
            self._pause = 0.0 if self._heard() else self._pause + min(passed, _LOOKED_AWAY)
            return self._pause

    def started(self) -> None:
        """Close the child's end, which it has by now."""
        os.close(self.to_child)

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self.beats_here)

    def _heard(self) -> bool:
        try:
            return bool(self._open and os.read(self.beats_here, 65536))
        except BlockingIOError:
            return False


HEARTBEAT = "TRIFORCE_HEARTBEAT"  # environment variable: the descriptor to which the child's heartbeat goes
ENGINE = "triforce_core.engine.engine:Engine"
# OpenMP's threads spin for milliseconds while they wait for each other. Where another program has a core, as the
# browser does that shows the answer, whoever waits for its turn there is waited for by all: with one of two cores taken
# plain decoding wrote 22 to 30 tokens/s, and 43 to 55 when they give up this soon; with none taken no difference was
# seen.
_SPINS = "2000"


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """Return what must be set before a process imports the engine: no telemetry, no network unless allowed, threads."""
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

    def close_pipes(self) -> None:
        """Close its heartbeat's pipe too."""
        if self._pulse:
            self._pulse.close()
        super().close_pipes()
