"""The evidence process: indexes one document, finds passages of it and checks answers against it, until its parent ends
it or is gone.

    python -m triforce_core.evidence.process [FOLDER]    (started by ``client``)

What somebody waits for is computed at the usual priority. The encoder's vectors of all passages are made by a thread of
low priority while nobody waits, and kept in FOLDER. An error that nobody foresaw ends the process: the traceback is in
the log, and the client starts another one.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..device.capability import thread_limit
from ..documents.document import Document
from ..pipe import Close, Receiver, Sender, parents_pipes
from .client import Cancel, Check, Checked, Find, Found, Index, Working

if TYPE_CHECKING:
    from .finder import PassageFinder
    from .support import SupportFinder

_NICENESS = 10  # of the thread that nobody waits for
_AT_ONCE = 4  # passages that it makes vectors of before it looks whether somebody asks
_THREADS = 4  # at most, for what somebody waits for
_SIGN_OF_LIFE = 10.0  # seconds


class _Server:
    """Does what messages ask for, one after the other, on the document that came last."""

    def __init__(self, sender: Sender, inbox: queue.SimpleQueue[Index | Check | Find], cancelled: set[int],
                 folder: Path | None) -> None:
        self._sender, self._inbox, self._cancelled, self._folder = sender, inbox, cancelled, folder
        self._finder: PassageFinder | None = None
        self._later: deque[Index | Check | Find] = deque()  # what came while sentences were judged
        self._idle = threading.Event()

    def run(self) -> None:
        """Serve until the process ends."""
        from .encoder import Encoder
        from .support import SupportFinder

        support: SupportFinder | None = None
        while True:
            if self._inbox.empty() and not self._later and self._finder is not None:
                _load_torch()
                Encoder.shipped()  # by this thread: the other one would need long beside an engine
                self._idle.set()
            message = self._later.popleft() if self._later else self._inbox.get()
            self._idle.clear()
            if isinstance(message, Index):
                self._finder = support = None  # one index is large enough
                self._index(message.document)
                continue
            assert self._finder is not None, "Index comes first"
            if isinstance(message, Find):
                self._find(message)
            else:
                _load_torch()
                support = support or SupportFinder(self._finder)
                self._check(message, support)

    def _check(self, message: Check, support: SupportFinder) -> None:
        """Judge sentences; questions that come meanwhile wait for one sentence only."""
        for judged in support.support(message.answer, message.question, message.start, message.whole):
            self._sender.send(Checked(message.number, judged))
            if message.number in self._cancelled:
                break
            while not self._inbox.empty():
                following = self._inbox.get()
                if isinstance(following, Find) and not self._later:
                    self._find(following)
                else:
                    self._later.append(following)
        self._cancelled.discard(message.number)
        self._sender.send(Checked(message.number, None))

    def _index(self, document: Document) -> None:
        from .finder import PassageFinder
        from .vector_cache import VectorCache

        self._finder = PassageFinder(document, VectorCache(self._folder) if self._folder else None)
        threading.Thread(target=self._make_vectors, args=(self._finder,), name="vectors", daemon=True).start()

    def _find(self, message: Find) -> None:
        assert self._finder is not None
        for found in self._finder.find(message.question, message.before, message.said):
            self._sender.send(Found(message.number, found))
            if message.number in self._cancelled:
                break
            _load_torch()
        self._cancelled.discard(message.number)

    def _make_vectors(self, finder: PassageFinder) -> None:
        if hasattr(os, "setpriority") and sys.platform == "linux":  # elsewhere a priority is the whole process's
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._idle.wait()  # the main thread has torch by then, and does not wait for this one's import
        import torch

        torch.set_num_threads(1)
        said = time.monotonic()
        while self._finder is finder and not finder.whole:
            self._idle.wait()
            finder.make_vectors(_AT_ONCE)
            if time.monotonic() - said > _SIGN_OF_LIFE:
                said = time.monotonic()
                self._sender.send(Working())


@cache
def _load_torch() -> None:
    """Import torch for the main thread: a second or two, for which a first order by words does not wait."""
    import torch

    # Of this thread. More of them than OpenMP gives, and a bfloat16 product leaves a part of its output as it was.
    torch.set_num_threads(min(_THREADS, os.cpu_count() or 1, thread_limit()))


def main() -> None:
    """Serve until asked to end."""
    receiver, sender = parents_pipes()
    inbox: queue.SimpleQueue[Index | Check | Find] = queue.SimpleQueue()
    cancelled: set[int] = set()
    threading.Thread(target=_listen, args=(receiver, inbox, cancelled), name="listen", daemon=True).start()
    _Server(sender, inbox, cancelled, Path(sys.argv[1]) if len(sys.argv) > 1 else None).run()


def _listen(receiver: Receiver, inbox: queue.SimpleQueue[Index | Check | Find], cancelled: set[int]) -> None:
    """Take messages in while the main thread computes. The process keeps nothing, so it ends at once when asked to, and
    when its parent is gone."""
    try:
        while not isinstance(message := receiver.receive(), Close):
            if isinstance(message, Cancel):
                cancelled.add(message.number)
            else:
                inbox.put(message)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
