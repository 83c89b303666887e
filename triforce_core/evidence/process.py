"""The evidence process: indexes one document and checks answers against it, until its parent ends it or is gone.

    python -m triforce_core.evidence.process    (started by ``client``)

It computes at low priority with one thread, so an engine that writes meanwhile keeps its cores. An error that nobody
foresaw ends it: the traceback is in the log, and the client starts another one.
"""

from __future__ import annotations

import os
import queue
import threading

from ..pipe import Close, Receiver, parents_pipes
from .client import Check, Checked, Index

_NICENESS = 10


def main() -> None:
    """Serve until asked to end."""
    receiver, sender = parents_pipes()
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)
    inbox: queue.SimpleQueue[Index | Check] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(receiver, inbox), name="listen", daemon=True).start()
    from .support import SupportFinder  # takes a while: messages are taken in meanwhile

    finder: SupportFinder | None = None
    while True:
        message = inbox.get()
        if isinstance(message, Index):
            finder = None  # one index is large enough
            finder = SupportFinder(message.document)
        else:
            assert finder is not None, "Index comes first"
            sender.send(Checked(message.number, finder.support(message.answer)))


def _listen(receiver: Receiver, inbox: queue.SimpleQueue[Index | Check]) -> None:
    """Take messages in while the main thread computes. The process keeps nothing, so it ends at once when asked to, and
    when its parent is gone."""
    try:
        while not isinstance(message := receiver.receive(), Close):
            inbox.put(message)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
