"""A process with limits for what may be hostile: the parent's end of it, and what it calls at its own.

It answers in frames: JSON messages with their length in front. Never pickle: the child is not trusted."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from math import ceil
from pathlib import Path
from typing import IO, Any

NOTHING: dict[str, Any] = {}  # a mark: nothing came yet
ROOT = Path(__file__).resolve().parents[2]
_TICK = 0.05
_SLACK = 5.0  # seconds beyond the parent's clock
_LENGTH = struct.Struct(">I")
_LONGEST = 256 << 20


class ChildProcess:
    """Requests go in as lines of JSON, frames come out; waiting works the same on every system."""

    def __init__(self, module: str) -> None:
        """module: run as ``python -m MODULE``; it calls ``restrict`` before it touches anything hostile."""
        self._process = subprocess.Popen(
            command(module), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
            env=environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # a group of its own, so that whatever it starts ends with it
        )  # fmt: skip
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=256)
        self._closed = threading.Event()
        self._listener = threading.Thread(target=self._listen, name=module, daemon=True)
        self._listener.start()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it now, whatever it does, and whatever it started."""
        self._closed.set()
        try:  # before it is waited for: its number may belong to another after that
            os.killpg(self._process.pid, signal.SIGKILL)
        except (AttributeError, ProcessLookupError, PermissionError):  # no groups on Windows; or all have ended
            self._process.kill()
        self._process.wait()
        self._listener.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]  # both are pipes

    def ask(self, request: dict[str, Any], last: bool = True) -> None:
        """Send a request through stdin: a password on the command line could be seen by others."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died at once; the listener says so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            if last:
                self._process.stdin.close()
            else:
                self._process.stdin.flush()

    def next(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message; NOTHING if none came in time, None behind the last."""
        try:
            return self._messages.get(timeout=timeout)
        except queue.Empty:
            return NOTHING

    def _listen(self) -> None:
        assert self._process.stdout is not None
        message: dict[str, Any] | None = NOTHING
        while message is not None and not self._closed.is_set():
            message = _read_frame(self._process.stdout)
            while not self._closed.is_set():
                try:
                    self._messages.put(message, timeout=_TICK)
                    break
                except queue.Full:
                    continue


def command(module: str) -> list[str]:
    """Return what runs a module, given its whole name."""
    return [sys.executable, "-X", "utf8", "-m", module]


def environment() -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return others | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}


def _read_frame(stream: IO[bytes]) -> dict[str, Any] | None:
    """Return the next message; None at the stream's end and where what came is none."""
    try:
        (size,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        message = json.loads(stream.read(size)) if size <= _LONGEST else None
    except (struct.error, OSError, ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


# -- the child's own end


def first_request() -> tuple[dict[str, Any], IO[bytes]]:
    """Return the first line of stdin, and the stream for frames: what libraries print must not spoil it."""
    request = json.loads(sys.stdin.buffer.readline())
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return request, out


def write_frame(stream: IO[bytes], message: dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=True).encode()
    assert len(data) <= _LONGEST
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def restrict(memory_bytes: int, cpu_seconds: int) -> None:
    """Limit memory and computing; no files written, no processes, no core dump. Where the system knows such limits (not
    on Windows; there the parent's clock is the only one)."""
    with contextlib.suppress(OSError):  # only on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out: this process before any other
    try:
        import resource
    except ImportError:
        return
    for kind, value in (("AS", memory_bytes), ("CPU", cpu_seconds), ("CORE", 0), ("FSIZE", 0), ("NPROC", 0)):
        with contextlib.suppress(ValueError, OSError):  # a lower limit is already in force
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (value, value))


def sign_of_life(seconds: float) -> None:
    """Have the system end this process, also when its parent is gone, unless called again within ``seconds``: to be
    called before each piece of work, and with 0 when nothing is being worked on."""
    if hasattr(signal, "alarm"):
        signal.alarm(ceil(seconds + _SLACK) if seconds else 0)
