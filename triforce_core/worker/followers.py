"""Rank 0's side of tensor parallelism: it starts a process per further rank and has each do what it is asked itself.

A follower is an engine process like this one, with a rank: it does each request with its own part of the heads, and
says only how it ended. All ranks must end a request alike. If one dies, fails alone or falls silent, the others wait
inside a GPU's collective, which nothing interrupts: so this process has to end (``lost``), and every follower with it,
because the pipes between them close. The client starts anew.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from ..config import EngineConfig
from ..errors import TriForceError
from .child import EngineChild
from .protocol import Cancel, Crashed, Failed, Load, Request, Returned

GRACE = 5.0  # seconds for all ranks to fail, if one did
PATIENCE = 300.0  # seconds without an event, or for the slowest rank to end what rank 0 has ended well


class Followers:
    """Ranks 1 to gpus - 1. Every method but the watchers' own belongs to the thread that works."""

    def __init__(self, config: EngineConfig, factory: str, port: int, lost: Callable[[str], None]) -> None:
        """lost: called with why this process can't go on, from any thread, does not return."""
        self._lost = lost
        self._open: Request | None = None
        self._ending = False
        self._progress = time.monotonic()
        self._children = [EngineChild(config, factory, str(rank), str(port)) for rank in range(1, config.gpus)]
        self._outcomes: list[queue.SimpleQueue[Failed | Returned]] = [queue.SimpleQueue() for _ in self._children]
        for index in range(len(self._children)):
            threading.Thread(target=self._watch, args=(index,), name=f"watch-{index + 1}", daemon=True).start()
        threading.Thread(target=self._keep_time, name="time", daemon=True).start()

    def begin(self, request: Request) -> None:
        """Have every follower do this request."""
        self._progress, self._open = time.monotonic(), request
        for child in self._children:
            with contextlib.suppress(OSError):  # dead: its watcher says so
                child.send(request)

    def cancel(self, number: int) -> None:
        """From any thread."""
        for child in self._children:
            with contextlib.suppress(OSError):
                child.send(Cancel(number))

    def progressed(self) -> None:
        """Rank 0 has yielded an event: nobody hangs."""
        self._progress = time.monotonic()

    def settle(self, error: TriForceError | None) -> None:
        """Rank 0 has ended the request, with this error or none: wait until all have, and make sure it was alike."""
        patience = PATIENCE if error is None or self._loading else GRACE
        for rank, outcomes in enumerate(self._outcomes, start=1):
            try:
                found = outcomes.get(timeout=patience)
            except queue.Empty:
                self._lost(f"rank 0: {error}" if error else f"rank {rank} did not end what rank 0 had ended")
                return
            theirs = found.error if isinstance(found, Failed) else None
            if type(theirs) is not type(error):
                self._lost(f"rank {rank}: {theirs or 'no error'}; rank 0: {error or 'no error'}")
        self._open = None

    def await_news(self) -> None:
        """Something broke here. If that was the connection to a rank that died, its watcher now ends this process and
        says why."""
        time.sleep(1.0)

    def end(self) -> None:
        self._ending = True
        for child in self._children:
            child.end(1.0)

    def _watch(self, index: int) -> None:
        child, rank = self._children[index], index + 1
        while True:
            try:
                message = child.receive()
            except EOFError:
                if not self._ending:
                    self._lost(f"the process of rank {rank} is gone: {child.how_it_ended()}")
                return
            if isinstance(message, Crashed):
                self._lost(f"rank {rank}: {message.cause}")
            elif isinstance(message, Failed | Returned):
                self._outcomes[index].put(message)
                if isinstance(message, Failed) and not self._loading:
                    threading.Timer(GRACE, self._overdue, (rank, message)).start()

    @property
    def _loading(self) -> bool:
        """No rank waits for another while it reads its weights, and a disk may be slow."""
        return self._open is not None and isinstance(self._open.verb, Load)

    def _overdue(self, rank: int, failed: Failed) -> None:
        if self._open is not None and self._open.number == failed.number:
            self._lost(f"rank {rank}: {failed.error}")

    def _keep_time(self) -> None:
        while True:
            time.sleep(PATIENCE / 10)
            silent = time.monotonic() - self._progress
            if self._open is not None and not self._loading and silent > PATIENCE:
                self._lost(f"nothing happened for {silent:.0f} seconds")
