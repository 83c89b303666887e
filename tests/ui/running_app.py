"""The app as a person starts it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(arguments: list[str], **more: str) -> Iterator[tuple[subprocess.Popen, str, list[str]]]:
    """The app, its address, and the lines that it wrote to stderr so far."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=os.environ | more)
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(process.stderr), daemon=True).start()
    try:
        line = process.stdout.readline()
        assert "running at" in line, "".join(said)
        yield process, line.split()[-1], said
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
