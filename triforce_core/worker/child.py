"""The parent's handle on the engine process: start it, talk to it, see how it ended. Knows no verbs and no queue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ..config import EngineConfig
from .heartbeat import Pulse
from .protocol import Close, Receiver, Sender

_ROOT = Path(__file__).resolve().parents[2]
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


class Child:
    """A running engine process. ``receive`` is for one thread; the rest for any."""

    def __init__(self, config: EngineConfig, factory: str = ENGINE, *place: str) -> None:
        """place: rank and port, for a follower."""
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._pulse = Pulse() if os.name == "posix" else None  # elsewhere no further pipe can be handed on
        beats = (self._pulse.to_child,) if self._pulse else ()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "triforce_core.worker.process", factory, *place],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=beats,
            env=os.environ | engine_environment(config) | {"PYTHONPATH": path, HEARTBEAT: " ".join(map(str, beats))},
        )
        if self._pulse:
            self._pulse.started()
        self._killed = False  # by us
        self._sender = Sender(self._process.stdin)  # type: ignore[arg-type]
        self._receiver = Receiver(self._process.stdout)  # type: ignore[arg-type]
        with contextlib.suppress(OSError):  # already dead: the first request finds out
            self._sender.send(config)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def rss_bytes(self) -> int:
        """Memory in use, 0 when it cannot be known."""
        import psutil

        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.alive else 0
        except psutil.Error:
            return 0

    def cpu_seconds(self) -> float:
        """What it has computed so far, 0 when it cannot be known."""
        import psutil

        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def silent_seconds(self) -> float:
        """Return for how long it has shown no sign of life, see ``heartbeat``; 0 where that cannot be known."""
        return self._pulse.silent_seconds() if self._pulse else 0.0

    def send(self, message: object) -> None:
        """Raises OSError when the child is gone."""
        try:
            self._sender.send(message)
        except ValueError as error:  # the pipe is closed on our side
            raise BrokenPipeError(str(error)) from error

    def receive(self) -> Any:
        """The next message, however long it takes. Raises EOFError when the child is gone."""
        try:
            return self._receiver.receive()
        except (OSError, ValueError) as error:
            raise EOFError from error

    def end(self, grace: float = 3.0) -> None:
        """Ask it to end, then make it: gone within ``grace`` + 1 seconds."""
        # One that reads no more leaves whoever writes to it waiting, and whoever would write next: not this thread.
        threading.Thread(target=self._ask_to_end, name="ask to end", daemon=True).start()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def _ask_to_end(self) -> None:
        with contextlib.suppress(OSError):
            self.send(Close())

    def let_go(self) -> None:
        """Close the pipes of a process that has ended: a session may bury many."""
        if self._pulse:
            self._pulse.close()
        with contextlib.suppress(OSError):
            self._sender.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def how_it_ended(self) -> str:
        """In words, and no more than is known. Ends it first, if it has only closed its pipe."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._kill()
            code = self._process.wait()
        if self._killed:
            return "it answered no more and was ended"
        if code >= 0:
            return f"it ended with exit code {code}; what it said last is in the log"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        why = {"SIGKILL": ", perhaps because memory ran out", "SIGSEGV": ", a fault in compiled code",
               "SIGBUS": ", a fault in memory or on disk", "SIGILL": ", an instruction that this CPU does not have"}
        return f"it was killed by signal {-code} ({name}){why.get(name, '')}"

    def _kill(self) -> None:
        self._killed = self._process.poll() is None
        self._process.kill()
