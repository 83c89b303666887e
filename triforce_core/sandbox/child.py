"""A child process for what may be hostile, and a thread that listens to it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from .frames import BrokenFrameError, read_frame

NOTHING: dict[str, Any] = {}  # a mark: nothing came yet
_TICK = 0.05
ROOT = Path(__file__).resolve().parents[2]


def command(module: str) -> list[str]:
    """module: its whole name."""
    return [sys.executable, "-X", "utf8", "-m", module]


def environment() -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return others | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}


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
        if hasattr(os, "killpg"):  # before it is waited for: its number may belong to another after that
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # all of them have ended
                self._process.kill()
        else:
            self._process.kill()
        self._process.wait()
        self._listener.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def ask(self, request: dict[str, Any], last: bool = True) -> None:
        """The request goes through stdin: a password on the command line could be seen by others."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            if last:
                self._process.stdin.close()
            else:
                self._process.stdin.flush()
        except OSError:
            return  # it died at once; the listener says so

    def next(self, timeout: float) -> dict[str, Any] | None:
        try:
            return self._messages.get(timeout=timeout)
        except queue.Empty:
            return NOTHING

    def _listen(self) -> None:
        assert self._process.stdout is not None
        message: dict[str, Any] | None = NOTHING
        while message is not None and not self._closed.is_set():
            try:
                message = read_frame(self._process.stdout)
            except (BrokenFrameError, OSError, ValueError):
                message = None
            while not self._closed.is_set():
                try:
                    self._messages.put(message, timeout=_TICK)
                    break
                except queue.Full:
                    continue
