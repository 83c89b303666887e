"""The engine's verbs for a process that must stay light and alive: same names, same events, no torch.

Jobs of any thread stand in one queue and run one at a time in the child. The child is started by the first job
that needs it, and again after it died: model and document are brought back before the job that found it dead is
served. Only a job that had already begun when the child died fails (EngineDiedError), with all its events kept.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..errors import DocumentError, EngineDiedError, NotEnoughMemoryError
from ..events import (
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    Event,
    Finished,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    Turn,
)
from ..metrics import answer_stats
from .child import ENGINE, EngineChild
from .job import DOING, Job, JobKind
from .protocol import (
    Accepted,
    Ask,
    Cancel,
    Check,
    Crashed,
    Failed,
    Load,
    Measure,
    OpenDocument,
    Prepare,
    Reported,
    Request,
    Tune,
    Verb,
    Yielded,
)
from .status import EngineState, EngineStatus

_SILENT = 5.0  # seconds without one of the heartbeats that come each second: also a busy machine sends them sooner


class _Cancelled(Exception):
    """The job was cancelled before its own verb had begun."""


class _NotAccepted(Exception):
    """The child was dead before it took the request: nothing has happened, so it can be sent again."""


# large: the process, its queue, and what it told last
class EngineClient:
    """See the module. Every method may be called from any thread.

    An ``ask`` or ``open_document`` that has to start the engine first yields LoadProgress and, for a document that
    is read again, PrefillProgress before its own events."""

    def __init__(self, config: EngineConfig, *, factory: str = ENGINE) -> None:
        self.config = config
        self._factory = factory
        self._changed = threading.Condition()
        self._waiting: collections.deque[tuple[Job, Callable[[Job], None]]] = collections.deque()
        self._running: Job | None = None
        self._thread: threading.Thread | None = None
        self._numbers = itertools.count(1)
        self._request = 0  # number of the running job's request in the child
        self._child: EngineChild | None = None
        self._model: ModelInfo | None = None
        self._facts: EngineFacts | None = None
        self._in_cache: str | None = None  # id of the document that the child holds
        self._document: Document | None = None  # the last one opened: brought back after a death
        self._cause = ""
        self._closed = False

    # -- the engine's verbs

    def check(self) -> Job:
        """Events MachineInfo, ModelInfo: what there is and what would be loaded. Loads nothing."""

        def run(job: Job) -> None:
            self._start()
            self._call(job, Check(), job.deliver)

        return self._enqueue("check", run)

    def load(self) -> Job:
        """Events LoadProgress..., ModelInfo."""
        return self._enqueue("load", self._bring_up)

    def tune(self, contexts: Sequence[int] = ()) -> Job:
        """Events PrefillProgress..., ModelInfo: measure what passes cost here; closes the open document."""

        def run(job: Job) -> None:
            self._bring_up(job)
            with self._changed:
                self._in_cache = None
            self._call(job, Tune(tuple(contexts)), self._described(job.deliver))

        return self._enqueue("tune", run)

    def measure(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                ) -> DocumentFit:
        """Waits for the jobs before it. heard: called by the thread that waits."""
        result: list[DocumentFit] = []

        def run(job: Job) -> None:
            self._bring_up(job)
            fit = self._call(job, Measure(document), job.deliver)
            assert fit is not None
            result.append(fit)

        for event in self._enqueue("measure", run):
            if isinstance(event, PrefillProgress):
                heard(event)
        if not result:
            raise self._gone()
        return result[0]

    def open_document(self, document: Document) -> Job:
        """Events PrefillProgress..., DocumentOpened; without DocumentOpened if it was cancelled."""

        def run(job: Job) -> None:
            self._bring_up(job)
            self._open(job, document, job.deliver)

        return self._enqueue("open", run)

    def ask(self, question: str | None, history: Sequence[Turn] = (), sampling: SamplingParams | None = None,
            speculation: SpeculationConfig | None = None, system: str = "", *,
            document: Document | None = None) -> Job:
        """Events PrefillProgress, RoundEvent and TextDelta..., Finished.

        document: the one that the question is about, opened first if another is in the cache (two tabs);
        None: the last one opened. question None: continue the document's text. system: as of ``Engine.ask``."""
        verb = Ask(question, tuple(history), sampling or SamplingParams(), speculation or SpeculationConfig(), system)

        def run(job: Job) -> None:
            wanted = document or self._document
            if wanted is None:
                raise DocumentError("No document is open", remedy="Open one first.")
            self._bring_up(job)
            if wanted.id != self._in_cache:
                self._open(job, wanted, _only(job, PrefillProgress))
                if self._in_cache is None:
                    raise _Cancelled
            self._call(job, verb, job.deliver)

        return self._enqueue("ask", run)

    def prepare(self) -> Job:
        """Events PrefillProgress...: see ``Engine.prepare``. The child does so by itself while nothing is asked for:
        this waits for it."""

        def run(job: Job) -> None:
            self._bring_up(job)
            self._call(job, Prepare(), job.deliver)

        return self._enqueue("prepare", run)

    def cancel(self, job: Job | None = None) -> None:
        """End a job early (None: the running one), waiting or running. Of no effect when it has ended."""
        with self._changed:
            job = job or self._running
            if job is None or job.ended:
                return
            job.cancelled = True
            if job is self._running:
                if self._child is not None and self._request:
                    with contextlib.suppress(OSError):
                        self._child.send(Cancel(self._request))
                return
            self._waiting = collections.deque(entry for entry in self._waiting if entry[0] is not job)
        _end_cancelled(job)

    def status(self) -> EngineStatus:
        with self._changed:
            child, model, cause = self._child, self._model, self._cause
            if child is None or not child.alive:
                dead = child is not None or bool(cause) or self._closed
                return EngineStatus("dead" if dead else "starting", None, None, 0, len(self._waiting), None,
                                    cause or (child.how_it_ended() if child is not None else ""))
            state: EngineState = "busy" if self._running else "idle"
            if model is None:
                state = "loading" if self._request else "starting"
            queue_length, in_cache, facts = len(self._waiting), self._in_cache, self._facts
        silent = child.silent_seconds()
        return EngineStatus(state, model, child.pid, child.rss_bytes(), queue_length, in_cache, facts=facts,
                            cpu_seconds=child.cpu_seconds(), silent_seconds=int(silent) if silent > _SILENT else 0)

    def close(self) -> None:
        """End the child within five seconds, and every job. Afterwards every verb raises EngineDiedError."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, collections.deque()
            child, running, thread = self._child, self._running, self._thread
            if running is not None:
                running.cancelled = True
            self._changed.notify_all()
        for job, _ in waiting:
            _end_cancelled(job)
        if child is not None:
            child.end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the queue

    def _enqueue(self, kind: JobKind, run: Callable[[Job], None]) -> Job:
        job = Job(kind, self.cancel, self._position)
        with self._changed:
            if self._closed:
                raise self._gone()
            self._waiting.append((job, run))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="engine-client", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job

    def _position(self, job: Job) -> int | None:
        with self._changed:
            if job is self._running:
                return 0
            places = (place for place, (waiting, _) in enumerate(self._waiting, start=1) if waiting is job)
            return next(places, None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job, run = self._waiting.popleft()
                self._running = job
            error: BaseException | None = None
            try:
                self._serve(job, run)
            except _Cancelled:
                pass
            except BaseException as caught:
                error = caught
            finally:
                with self._changed:
                    self._running, self._request = None, 0
            if error is None and job.cancelled:
                _end_cancelled(job)
            else:
                job.end(error)

    def _serve(self, job: Job, run: Callable[[Job], None]) -> None:
        try:
            run(job)
        except _NotAccepted:  # found dead on arrival: once more with a new child
            self._bury()
            try:
                run(job)
            except _NotAccepted:
                raise EngineDiedError(f"The engine does not start: {self._bury()}") from None

    # -- the child; only the client's thread runs what follows

    def _start(self) -> None:
        """A living child."""
        if self._child is not None and not self._child.alive:
            self._bury()
        if self._child is None:
            child = EngineChild(self.config, self._factory)
            with self._changed:
                self._child, self._cause = child, ""
                closed = self._closed
            if closed:
                child.end(0.0)
                raise self._gone()

    def _bring_up(self, job: Job) -> None:
        """A living child with a loaded model."""
        self._start()
        if self._model is not None:
            if job.kind == "load":
                job.deliver(self._model)
            return

        told = job.deliver if job.kind == "load" else _only(job, LoadProgress)
        self._call(job, Load(), self._described(told))
        self.config = replace(self.config, tune=False)  # a child that dies is no reason to measure again

    def _described(self, deliver: Callable[[Event], None]) -> Callable[[Event], None]:
        """``deliver``, but a ModelInfo on its way is the model from then on."""

        def described(event: Event) -> None:
            if isinstance(event, ModelInfo):
                with self._changed:
                    self._model = event
            deliver(event)

        return described

    def _open(self, job: Job, document: Document, deliver: Callable[[Event], None]) -> None:
        def opened(event: Event) -> None:
            if isinstance(event, DocumentOpened):
                with self._changed:
                    self._in_cache, self._document = document.id, document
            deliver(event)

        with self._changed:
            self._in_cache = None
        self._call(job, OpenDocument(document), opened)

    def _call(self, job: Job, verb: Verb, deliver: Callable[[Event], None]) -> DocumentFit | None:
        """One request and its events. Raises what the engine raised, or EngineDiedError."""
        child = self._child
        assert child is not None
        number, accepted = next(self._numbers), False
        with self._changed:
            if job.cancelled:
                raise _Cancelled
            self._request = number
        try:
            child.send(Request(number, verb))
            while True:
                message = child.receive()
                if isinstance(message, Accepted):
                    accepted = True
                elif isinstance(message, Yielded):
                    deliver(message.event)
                elif isinstance(message, Reported):
                    with self._changed:
                        self._facts = message.facts
                elif isinstance(message, Failed):
                    if isinstance(message.error, NotEnoughMemoryError):  # it may have given its document back
                        with self._changed:
                            self._in_cache = None
                    raise message.error
                elif isinstance(message, Crashed):
                    raise self._died(job, message.cause)
                else:
                    fit: DocumentFit | None = message.value
                    return fit
        except (OSError, EOFError):
            if self._closed:
                raise self._gone() from None
            if not accepted:
                raise _NotAccepted from None
            raise self._died(job) from None

    def _died(self, job: Job, cause: str = "") -> EngineDiedError:
        cause = self._bury(cause)
        return EngineDiedError(f"The engine stopped while {DOING[job.kind]}: {cause}",
                               remedy="What it had written is kept; the next request starts a new engine.")

    def _bury(self, cause: str = "") -> str:
        """Forget the dead child. Returns how it ended."""
        with self._changed:
            child = self._child
            self._child, self._model, self._in_cache, self._facts = None, None, None, None
        ending = child.how_it_ended() if child is not None else ""
        if child is not None:
            child.let_go()
        self._cause = cause or ending
        return self._cause

    def _gone(self) -> EngineDiedError:
        return EngineDiedError("The engine has been closed", remedy="Start the app again.")


def _only(job: Job, kind: type) -> Callable[[Event], None]:
    return lambda event: job.deliver(event) if isinstance(event, kind) else None


def _end_cancelled(job: Job) -> None:
    """A cancelled answer ends with Finished like every other; if the engine did not write it, we do."""
    if job.kind == "ask" and not job.finished:
        stats = answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0.0, engine="", why="cancelled")
        job.deliver(Finished("cancelled", "", (), stats))
    job.end()
