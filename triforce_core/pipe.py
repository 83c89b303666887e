"""Pipes between this program's own processes: start a child, exchange frames with it, see how it ended.

The parent writes to the child's stdin; the child answers on a private copy of its stdout. Both are anonymous pipes of
exactly these two processes: nobody else can reach them, so there is no password and no port. They are used raw: a
dying interpreter trips over the locks of buffered files. A frame is its length (u32) and a pickle. What the messages
mean is up to ``worker`` (the engine) and ``evidence``; nothing here knows a verb or a queue.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_LENGTH = struct.Struct("<I")
_AT_ONCE = 1024**2  # bytes


@dataclass(frozen=True, slots=True)
class Close:
    """Asks a child to end."""


class Sender:
    """Writes whole frames to an unbuffered pipe; any thread may send."""

    def __init__(self, pipe: RawIOBase) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, message: object) -> None:
        """Write one message. Raises OSError or ValueError when the pipe is gone."""
        data = pickle.dumps(message, protocol=5)
        rest = memoryview(_LENGTH.pack(len(data)) + data)
        with self._lock:
            while rest:
                rest = rest[self._pipe.write(rest) or 0 :]

    def close(self) -> None:
        """Close the pipe, never in the middle of a frame. Whoever sends afterwards gets ValueError."""
        with self._lock:
            self._pipe.close()


class Receiver:
    """Reads whole frames from an unbuffered pipe, blocking: waiting costs nothing. One thread reads."""

    def __init__(self, pipe: RawIOBase) -> None:
        self._pipe = pipe

    def receive(self) -> Any:
        """Return the next message. Raises EOFError when the other side is gone, also in the middle of a frame."""
        return pickle.loads(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._pipe.read(min(count - len(data), _AT_ONCE))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def parents_pipes() -> tuple[Receiver, Sender]:
    """Return a child's ends of its pipes, called once as it starts. From then on whatever is printed goes to stderr,
    stdin is empty, and Ctrl+C is ignored: the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands = io.FileIO(os.dup(0), "rb")
    answers = io.FileIO(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not write into our frames
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return Receiver(commands), Sender(answers)


class Child:
    """A running child process. ``receive`` is for one thread; the rest for any."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str],
                 inherited: Sequence[int] = ()) -> None:
        """Start ``python -m module arguments``, with ``environment`` added to this process's own. inherited: further
        descriptors that it gets (on POSIX only)."""
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, bufsize=0, pass_fds=inherited,
                                         env={**os.environ, **environment, "PYTHONPATH": path})
        self._killed = False  # by us
        self._sender = Sender(self._process.stdin)  # type: ignore[arg-type]
        self._receiver = Receiver(self._process.stdout)  # type: ignore[arg-type]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def rss_bytes(self) -> int:
        """Return the memory in use, 0 when it cannot be known."""
        import psutil

        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.alive else 0
        except psutil.Error:
            return 0

    def cpu_seconds(self) -> float:
        """Return what it has computed so far, 0 when it cannot be known."""
        import psutil

        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def send(self, message: object) -> None:
        """Write one message. Raises OSError when the child is gone."""
        try:
            self._sender.send(message)
        except ValueError as error:  # the pipe is closed on our side
            raise BrokenPipeError(str(error)) from error

    def receive(self) -> Any:
        """Return the next message, however long it takes. Raises EOFError when the child is gone."""
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

    def close_pipes(self) -> None:
        """Close the pipes of a process that has ended: a session may bury many."""
        with contextlib.suppress(OSError):
            self._sender.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def how_it_ended(self) -> str:
        """Return in words what is known of its end. Ends it first, if it has only closed its pipe."""
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
