"""Says that a process can still do anything at all, whatever its main thread is busy with: one byte a second.

It goes through a pipe of its own, since the one for answers is read only while somebody waits for an answer. A stopped
process sends none, nor does one whose main thread sits in compiled code and holds the interpreter's lock. A long pass
does not stop it: computing releases the lock. Nor does a call to a driver that never returns but released the lock:
that shows only in that no step ends, see ``ui.app.engine_holder.Watchdog``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

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
    """The other end: how long nothing was heard. Any thread may look, and somebody has to look now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.beats_here, self.to_child = os.pipe()
        os.set_blocking(self.beats_here, False)
        self._clock, self._lock = clock, threading.Lock()
        self._looked, self._silent, self._open = clock(), 0.0, True

    def silent_seconds(self) -> float:
        """Return how long the process has said nothing, as far as this one was awake itself to hear it."""
        with self._lock:
            now = self._clock()
            passed, self._looked = now - self._looked, now
            self._silent = 0.0 if self._heard() else self._silent + min(passed, _LOOKED_AWAY)
            return self._silent

    def started(self) -> None:
        """The child has its end now: this process lets go of it."""
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
