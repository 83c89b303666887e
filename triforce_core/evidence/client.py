"""Evidence for a process that must stay light: the page indexes documents and has answers checked without computing.

The process is started with the first document, ended when nobody has needed it for a while, and started anew by the
next request, also after a crash: the document is then indexed again."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..documents.document import Document
from ..errors import EvidenceDiedError
from ..events import Passages, SentenceSupport
from ..pipe import Child

IDLE_SECONDS = 300.0  # a chat pauses for less; starting and indexing 60 pages anew takes two seconds
_MODULE = "triforce_core.evidence.process"
# One thread, unless somebody waits: it runs beside an engine that has all cores.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Index:
    """Make ready what checking against this document needs, in place of the document before. No reply."""

    document: Document


@dataclass(frozen=True, slots=True)
class Check:
    """Judge sentences of an answer by the document that was indexed last; see ``SupportFinder.support``."""

    number: int
    answer: str
    question: str
    start: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """A reply to ``Check``: a sentence that can be judged, in the answer's order; None: that was the last."""

    number: int
    sentence: SentenceSupport | None

    @property
    def final(self) -> bool:
        return self.sentence is None


@dataclass(frozen=True, slots=True)
class Find:
    """Find passages of the document that was indexed last. before: the question before; said: the answer to it."""

    number: int
    question: str
    before: str
    said: str


@dataclass(frozen=True, slots=True)
class Found:
    """A reply to ``Find``: one that is final ends it."""

    number: int
    passages: Passages

    @property
    def final(self) -> bool:
        return self.passages.final


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for what was asked under this number. No reply."""

    number: int


@dataclass(frozen=True, slots=True)
class Working:
    """The process computes what later questions need: it is not idle."""


class _Process:
    """A running process, the document that it has, and who waits for its replies."""

    def __init__(self, folder: Path | None) -> None:
        self.child = Child(_MODULE, *([str(folder)] if folder else []), environment=_ENVIRONMENT)
        self.indexed = ""  # id of the document that it has
        self.used = time.monotonic()
        self.waiting: dict[int, queue.SimpleQueue[Checked | Found | None]] = {}
        self._ended = False
        self._lock = threading.Lock()
        threading.Thread(target=self._receive, name="evidence-replies", daemon=True).start()

    def ask(self, message: Check | Find) -> queue.SimpleQueue[Checked | Found | None]:
        """Return where the replies come; None is the process's end."""
        replies: queue.SimpleQueue[Checked | Found | None] = queue.SimpleQueue()
        with self._lock:
            if self._ended:
                raise EOFError
            self.waiting[message.number] = replies
        self.child.send(message)
        return replies

    def _receive(self) -> None:
        try:
            while True:
                reply = self.child.receive()
                self.used = time.monotonic()
                replies = self.waiting.get(getattr(reply, "number", 0))
                if replies is not None:
                    replies.put(reply)
        except EOFError:
            with self._lock:
                self._ended = True
            for replies in list(self.waiting.values()):
                replies.put(None)


class EvidenceClient:
    """The evidence process as any thread uses it."""

    def __init__(self, folder: Path | None = None, idle_seconds: float = IDLE_SECONDS) -> None:
        """folder: where vectors of passages are kept, which anybody may delete; None: nowhere."""
        self._idle_seconds, self._folder = idle_seconds, folder
        self._lock = threading.Lock()  # held by whoever sends to the process, or starts or ends it
        self._process: _Process | None = None
        self._numbers = itertools.count(1)
        self._closing = threading.Event()

    def forget(self, documents: Collection[str]) -> None:
        """Delete the kept vectors of documents, by their ids."""
        names = [f"{document[:32]}-*.vectors" for document in documents]  # as ``vector_cache`` names them
        for file in (file for name in names for file in self._folder.glob(name)) if self._folder else ():
            with contextlib.suppress(OSError):
                file.unlink()

    @property
    def pid(self) -> int | None:
        """Return the running process's id; None when there is none."""
        process = self._process
        return process.child.pid if process is not None and process.child.alive else None

    def index(self, document: Document) -> None:
        """Have the document indexed by the time that it is needed. Returns at once."""
        with self._lock:
            try:
                self._bring(document)
            except (OSError, EOFError):
                self._bury()  # whoever needs the index starts another process

    def check(self, document: Document, answer: str, question: str = "", start: int = 0,
              whole: bool = True) -> Iterator[SentenceSupport]:
        """Yield each sentence of an answer that can be judged, with the verdict of the passages that come nearest.

        question: what it answers; start: the first character from which on sentences are judged; whole: False while it
        is being written. Takes about half a second a sentence. Closing the iterator cancels. Raises EvidenceDiedError
        if the process ends twice."""
        judged: list[SentenceSupport] = []

        def message(number: int) -> Check:
            return Check(number, answer, question, judged[-1].end if judged else start, whole)

        for reply in self._ask(document, message):
            if isinstance(reply, Checked) and reply.sentence is not None:
                judged.append(reply.sentence)
                yield reply.sentence

    def find(self, document: Document, question: str, before: str = "", said: str = "") -> Iterator[Passages]:
        """Yield the passages that answer a question: the first order, then the final one, or the final one alone.

        before: the question before; said: the answer to it. Closing the iterator cancels. Raises EvidenceDiedError if
        the process ends twice."""
        shown = False
        for reply in self._ask(document, lambda number: Find(number, question, before, said)):
            if isinstance(reply, Found) and (reply.passages.final or not shown):
                shown = True
                yield reply.passages

    def close(self) -> None:
        """End the process, whatever it does. Every request after this one raises EvidenceDiedError or does nothing."""
        self._closing.set()
        process = self._process
        if process is not None:
            process.child.end(1.0)  # whoever sends to it lets go of the lock
        with self._lock:
            self._bury()

    def _ask(self, document: Document, message: Callable[[int], Check | Find]) -> Iterator[Checked | Found]:
        """Yield replies, the last one being the end of them. Asked once more where the process ends before that."""
        cause = ""
        for _ in range(2):
            process, number = None, next(self._numbers)
            try:
                with self._lock:
                    process = self._bring(document)
                    replies = process.ask(message(number))
                while (reply := replies.get()) is not None:
                    yield reply
                    if reply.final:
                        return
            except GeneratorExit:
                self._cancel(process, number)
                raise
            except (OSError, EOFError):
                pass
            finally:
                if process is not None:
                    process.waiting.pop(number, None)
            with self._lock:
                cause = self._bury() if process is self._process else cause
        raise EvidenceDiedError(f"The document could not be searched: {cause or 'the process ended'}")

    def _cancel(self, process: _Process | None, number: int) -> None:
        if process is not None:
            try:
                process.child.send(Cancel(number))
            except (OSError, EOFError):
                return  # whoever asks next starts another process

    def _bring(self, document: Document) -> _Process:
        """Return a living process that has the document, or will have it before anything that is sent from now on."""
        if self._closing.is_set():
            raise EOFError
        if self._process is not None and not self._process.child.alive:
            self._bury()
        if self._process is None:
            self._process = _Process(self._folder)
            threading.Thread(target=self._end_when_idle, args=(self._process,), name="evidence-idle",
                             daemon=True).start()
        process = self._process
        process.used = time.monotonic()
        if process.indexed != (wanted := document.id):
            process.indexed = wanted
            process.child.send(Index(document))
        return process

    def _bury(self) -> str:
        """Forget the process and return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "the app is closing"
        ending = process.child.how_it_ended()
        process.child.close_pipes()
        return ending

    def _end_when_idle(self, process: _Process) -> None:
        """Wait until nobody has used this process for a while, then end it."""
        while process is self._process:
            left = process.used + self._idle_seconds - time.monotonic()
            if left > 0 or process.waiting:
                if self._closing.wait(max(left, 1.0)):
                    return
                continue
            with self._lock:
                if process is self._process and process.used + self._idle_seconds <= time.monotonic():
                    process.child.end()
                    self._bury()
