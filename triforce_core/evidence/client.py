"""Evidence for a process that must stay light: the page indexes documents and has answers checked without computing.

The process is started with the first document, ended when nobody has needed it for a while, and started anew by the
next request, also after a crash: the document is then indexed again."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass

from ..documents.document import Document
from ..errors import EvidenceDiedError
from ..events import SentenceSupport
from ..pipe import Child

IDLE_SECONDS = 300.0  # a chat pauses for less; starting and indexing 60 pages anew takes two seconds
_MODULE = "triforce_core.evidence.process"
# One thread: it runs beside an engine that has both cores.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Index:
    """Make ready what checking against this document needs, in place of the document before. No reply."""

    document: Document


@dataclass(frozen=True, slots=True)
class Check:
    """Compare the sentences of an answer with the document that was indexed last."""

    number: int
    answer: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The reply to ``Check``: the sentences that can be judged, in the answer's order."""

    number: int
    sentences: tuple[SentenceSupport, ...]


class EvidenceClient:
    """The evidence process as any thread uses it; callers wait for each other."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()  # held by whoever talks to the process, or starts or ends it
        self._child: Child | None = None
        self._indexed = ""  # id of the document that the process has
        self._numbers = itertools.count(1)
        self._used = 0.0  # by ``monotonic``
        self._closing = threading.Event()

    @property
    def pid(self) -> int | None:
        """Return the running process's id; None when there is none."""
        child = self._child
        return child.pid if child is not None and child.alive else None

    def index(self, document: Document) -> None:
        """Have the document indexed by the time that it is needed. Returns at once."""
        with self._lock:
            try:
                self._bring(document)
            except (OSError, EOFError):
                self._bury()  # whoever needs the index starts another process

    def check(self, document: Document, answer: str) -> tuple[SentenceSupport, ...]:
        """Return each sentence of an answer that can be judged with the passage that comes nearest to it.

        Waits for the index, then some milliseconds a sentence. Raises EvidenceDiedError if the process ends twice."""
        cause = ""
        with self._lock:
            for _ in range(2):
                try:
                    return self._check(document, answer)
                except (OSError, EOFError):
                    cause = self._bury()
        raise EvidenceDiedError(f"The answer could not be compared with its document: {cause}")

    def close(self) -> None:
        """End the process, whatever it does. Every request after this one raises EvidenceDiedError or does nothing."""
        self._closing.set()
        child = self._child
        if child is not None:
            child.end(1.0)  # whoever waits for it lets go of the lock
        with self._lock:
            self._bury()

    def _check(self, document: Document, answer: str) -> tuple[SentenceSupport, ...]:
        child, number = self._bring(document), next(self._numbers)
        child.send(Check(number, answer))
        while True:
            reply = child.receive()
            if isinstance(reply, Checked) and reply.number == number:
                self._used = time.monotonic()
                return reply.sentences

    def _bring(self, document: Document) -> Child:
        """Return a living process that has the document, or will have it before anything that is sent from now on."""
        if self._closing.is_set():
            raise EOFError
        if self._child is not None and not self._child.alive:
            self._bury()
        if self._child is None:
            self._child = Child(_MODULE, environment=_ENVIRONMENT)
            threading.Thread(target=self._end_when_idle, args=(self._child,), name="evidence-idle", daemon=True).start()
        self._used = time.monotonic()
        if self._indexed != (wanted := document.id):
            self._indexed = wanted
            self._child.send(Index(document))
        return self._child

    def _bury(self) -> str:
        """Forget the process and return how it ended."""
        child, self._child, self._indexed = self._child, None, ""
        if child is None:
            return "the app is closing"
        ending = child.how_it_ended()
        child.close_pipes()
        return ending

    def _end_when_idle(self, child: Child) -> None:
        """Wait until nobody has used this process for a while, then end it."""
        while child is self._child:
            left = self._used + self._idle_seconds - time.monotonic()
            if left > 0:
                if self._closing.wait(left):
                    return
                continue
            with self._lock:
                if child is self._child and self._used + self._idle_seconds <= time.monotonic():
                    child.end()
                    self._bury()
