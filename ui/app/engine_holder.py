"""The engine as its one thread has it: started, a document put into its cache, asked, ended when it hangs.

Knows no queue: it is given a job, and how that ends is the queue's affair.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from triforce_core import (
    Document,
    DocumentFit,
    DocumentOpened,
    EngineConfig,
    EngineDiedError,
    Event,
    EvidenceClient,
    LoadProgress,
    ModelInfo,
    NotEnoughMemoryError,
    PrefillProgress,
    SamplingParams,
    Script,
    SpeculationConfig,
    TriForceError,
    Turn,
)

from .accumulator import ends_in_a_loop
from .checks import SentenceChecks
from .conversations import Conversations
from .jobs import UNEXPECTED, Estimates, Job, Request, Selection
from .library import Library, Ranges
from .passages import PassageSearch, script
from .runs import Run

ENGINE_HUNG = "The engine did not stop when it was told to, so it was ended. The next request starts a new one."
ENGINE_SILENT = ("The engine had not answered for {seconds} s: its process was stopped or stuck, so it was ended. The "
                 "next request starts a new one.")
ENGINE_STUCK = ("The engine came no step further for far longer than its steps take, so it was ended. The next request "
                "starts a new one.")

log = logging.getLogger(__name__)
SAVE_EVERY = 2.0  # seconds between two writes of an unfinished answer
SEARCH_TICK = 0.1  # seconds between two looks whether a question that waits for its passages was cancelled

HUNG_AFTER = 20.0  # seconds without a word in which nothing was computed, where no step had taken a third of that
STEPS = 3.0  # times the longest step so far, for an engine that computes nothing ...
LIMIT = 10.0  # ... and for one that does, ...
LEAST_LIMIT, FIRST_LIMIT = 120.0, 900.0  # ... at least this long, and so long where no step was ever seen to end
UNASKED = 20.0  # times all this where nobody asked for a stop: a step may be long
SILENT_LIMIT = 120  # seconds without a heartbeat: reading the libraries from a slow disk takes less
WORKING = 0.05  # seconds of a core per second: a process that waits uses next to none


class Engine(Protocol):
    """The verbs that the queue needs of an engine, such as ``triforce_core.EngineClient``."""

    def load(self) -> Iterator[LoadProgress | ModelInfo]: ...
    def measure(self, document: Document, heard: Callable[[PrefillProgress], None]) -> DocumentFit: ...
    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]: ...
    def ask(self, question: str, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[Event]: ...
    def cancel(self) -> None: ...
    def status(self) -> Any: ...
    def close(self) -> None: ...


class Stopped(Exception):
    """The person cancelled; not an error."""


@dataclasses.dataclass
class TooLong(Exception):
    """The chosen pages do not fit; the page asks for a range."""

    fit: DocumentFit


class Watchdog:
    """Tells an engine that hangs from one that is slow.

    A healthy engine hears a stop at the end of its step: a chunk of a document, a round, a part of the weights. 512
    tokens take an 8B model 0.02 s on a GPU and 40 s on a CPU, so it is waited for as long as its own steps took, and
    while its process computes. ``began`` and ``heard`` are called by the thread that works, ``hung`` by the one that
    watches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()  # the end of the last step
        self._doing = ""
        self._longest: dict[str, float] = {}  # step so far, of each kind of work
        self._seen: tuple[float, float] | None = None  # when the process was last looked at, and its CPU seconds
        self._idle_since = 0.0

    def began(self, doing: str) -> None:
        """Note that a kind of work begins, whose steps take about as long."""
        self._doing, self._last = doing, self._clock()

    def heard(self) -> None:
        """Note that a step has ended."""
        now = self._clock()
        self._longest[self._doing] = max(self._longest.get(self._doing, 0.0), now - self._last)
        self._last = now

    def hung(self, stop_asked: float | None, cpu_seconds: float) -> bool:
        """Return whether the engine hangs; to be called again and again, as two looks are needed.

        stop_asked: when, by the clock; None: nobody did, but it has work. cpu_seconds: its process's; 0: not known."""
        patience = UNASKED if stop_asked is None else 1.0
        stop_asked = self._last if stop_asked is None else stop_asked
        now, since = self._clock(), max(stop_asked, self._last)
        before, self._seen = self._seen, (now, cpu_seconds)
        if before is None or before[0] < stop_asked:
            self._idle_since = since
            return False
        working = cpu_seconds - before[1] > WORKING * (now - before[0])
        self._idle_since = now if working else max(self._idle_since, since)
        longest = self._longest.get(self._doing, 0.0)
        limit = max(LEAST_LIMIT, LIMIT * longest) if longest else FIRST_LIMIT
        idle = max(HUNG_AFTER, STEPS * longest)
        return now - self._idle_since > patience * idle or now - since > patience * limit


class EngineHolder:
    """The engine and all that is known of it; public attributes are read by the page at any time.

    ``version`` grows whenever one changes. All methods but ``_look_after_engine`` are for the engine's thread."""

    def __init__(self, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig, library: Library,
                 conversations: Conversations, vectors: Path) -> None:
        """vectors: the folder in which those of documents' passages are kept."""
        self._make_engine, self.config = make_engine, config
        self._library, self._conversations = library, conversations
        self._engine: Engine | None = None
        self._closing = threading.Event()
        self._watchdog = Watchdog()
        self._asked_to_stop: float | None = None  # when the engine's present work was cancelled
        self._why_ended = ""  # by us, because it hung
        self._in_cache: Selection | None = None
        self._counted: dict[str, str] = {}  # document -> the text that was counted last
        self.version = 0
        self.state = "starting"  # starting, ready, failed
        self.load_progress: LoadProgress | None = None
        self.model: ModelInfo | None = None
        self.status: Any = None
        self.problem = ""
        self.not_loaded: Callable[[str], None] = lambda why: None  # called with why, once until it is something else
        self.opened: dict[str, DocumentOpened] = {}
        self.fits: dict[str, DocumentFit] = {}
        self.too_long: set[tuple[str, Ranges]] = set()
        self._estimates = Estimates(
            self.fits, lambda: self._library.reading_rate(self.model.reader if self.model else ""))
        self._evidence = EvidenceClient(vectors)
        self.search = PassageSearch(self._evidence, self._evidence_came)
        self._checks = SentenceChecks(self._evidence, self._evidence_came)

    @property
    def open_key(self) -> tuple[str, Ranges] | None:
        """Return the document that is in the cache, and which of its pages."""
        return (self._in_cache.key, self._in_cache.ranges) if self._in_cache else None

    @property
    def silent_seconds(self) -> int:
        """Return for how long the engine's process has shown no sign of life; 0: it is alive, as far as is known."""
        return int(getattr(self.status, "silent_seconds", 0))

    def _load_anew(self, config: EngineConfig | None) -> None:
        """Have a loaded engine. config: in place of the present one; None: the present one will do."""
        if config is not None:
            if self._engine:
                self._engine.close()
            self._engine, self.config, self.model = None, config, None
            self._in_cache, self.state = None, "starting"
            self.opened.clear()
            self.fits.clear()
            self.too_long = set()
            self._estimates.forget()
            self._watchdog = Watchdog()
        with contextlib.suppress(TriForceError):  # shown in the engine panel; the next question tries again
            self._ensure_engine()

    def _ensure_engine(self) -> Engine:
        """Return a loaded engine, starting one if there is none."""
        if self._engine is not None and self.state == "ready":
            return self._engine
        before, self.state, self.problem, self.load_progress = self.problem, "starting", "", None
        self._watchdog.began("load")
        try:
            if self._engine is None:
                self._engine, self._in_cache = self._make_engine(self.config), None
            engine = self._engine
            for event in engine.load():
                self._watchdog.heard()
                if isinstance(event, ModelInfo):
                    self.model = event
                else:
                    self.load_progress = event
                self._changed()
        except TriForceError as error:
            self.state, self.problem = "failed", str(error)
            if self.problem != before and not self._closing.is_set():
                self.not_loaded(self.problem)
            raise
        self.state, self.config = "ready", dataclasses.replace(self.config, tune=False)  # once is enough
        self._changed()
        return engine

    def _open(self, job: Job) -> None:
        """Have a job's pages in the cache. Raises Stopped, TooLong or TriForceError."""
        selection = job.selection
        assert selection is not None, "it waits for its text"
        if job.cancelled:
            raise Stopped
        if selection.same(self._in_cache) and self._engine is not None:
            return
        self.too_long.discard((selection.key, selection.ranges))
        self._stands_at(job, "loading")
        engine = self._ensure_engine()
        self._stands_at(job, "tokenize")  # it reports itself after some pages
        opened = self._read(engine, selection, job)
        self._in_cache = selection
        self._estimates.opened(selection, opened)
        if not selection.ephemeral:
            self.opened[selection.key] = opened
            self._library.was_read(selection.key, selection.ranges, opened, self.model.reader if self.model else "")
        self._stands_at(job, "")

    def _stands_at(self, job: Job, stage: str) -> None:
        job.stage = stage
        self._changed()

    def _read(self, engine: Engine, selection: Selection, job: Job) -> DocumentOpened:
        def heard(progress: PrefillProgress) -> None:
            self._watchdog.heard()
            job.progress = progress
            self._stands_at(job, progress.stage)

        def go_on() -> None:
            if job.fate:
                raise Stopped

        go_on()
        self._watchdog.began("count")
        fit = self._fit(engine, selection, heard)
        go_on()
        if not fit.fits:
            if not selection.ephemeral:
                self.too_long.add((selection.key, selection.ranges))
            raise TooLong(fit)
        opened: DocumentOpened | None = None
        self._in_cache = None
        if not selection.ephemeral:
            self._library.begins_to_be_read(selection.key, selection.text)
        self._watchdog.began("read")
        for event in engine.open_document(selection.chosen):
            if isinstance(event, DocumentOpened):
                opened = event
            else:
                heard(event)
            if job.fate:
                engine.cancel()  # again: the first call may have come before there was something to cancel
        if opened is None:
            raise Stopped
        return opened

    def _fit(self, engine: Engine, selection: Selection, heard: Callable[[PrefillProgress], None]) -> DocumentFit:
        """Return how the chosen pages fit; the whole of a library's document is counted once."""
        if selection.ephemeral:
            return engine.measure(selection.chosen, heard)
        key, known = selection.key, self.fits.get(selection.key)
        text = selection.document.id
        # What is free changes, and a text may have been taken out anew.
        if known is None or known.limited_by == "memory" or self._counted.get(key) != text:
            known = engine.measure(selection.document, heard)
            self.fits.pop(key, None)  # the last that was counted is the last of them: what is free now goes by it
            self.fits[key], self._counted[key] = known, text
        return known if selection.chosen is selection.document else engine.measure(selection.chosen, heard)

    def _read_question(self, job: Job, request: Request) -> None:
        """Have a race's question read before its lanes begin: the first would pay for what the others find read.

        Raises Stopped or TriForceError."""
        engine = self._engine
        assert engine is not None, "the document was opened by it"
        self._watchdog.began("answer")
        for _ in engine.ask(request.question, request.history, dataclasses.replace(request.sampling, max_new_tokens=1),
                            request.lanes[0][1], request.system):
            self._watchdog.heard()
            if job.cancelled:
                engine.cancel()
        if job.cancelled:
            raise Stopped

    def _write(self, job: Job, run: Run, request: Request, lane: int) -> None:
        """Write an answer about what is in the cache. Raises Stopped or TriForceError."""
        says = self._script(job, run)
        if job.cancelled:
            raise Stopped
        engine, accumulator, saved = self._engine, run.accumulator, time.monotonic()
        assert engine is not None, "the document was opened by it"
        if opened := self.opened.get(run.document):
            accumulator.add(opened)
        run.state, run.began_at, run.spelled = "answering", time.time(), says is not None
        checked = job.kind == "answer" and not request.alone
        if checked and job.selection is not None and self.model is not None and self.model.instructions:
            self._checks.begin(run, job.selection)
        self._watchdog.began("answer")
        looped, watched = False, (bool(run.conversation) or request.unlimited) and not run.race and not run.spelled
        for event in engine.ask(request.question, request.history, request.sampling, request.lanes[lane][1],
                                request.system, says):
            self._watchdog.heard()
            accumulator.add(event)
            if run.conversation and time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                self._keep(run, "running")
            run.heard()
            looped = looped or (watched and ends_in_a_loop(accumulator.text))
            if job.cancelled or looped:
                engine.cancel()
        finished = accumulator.finished
        if finished is None or (finished.reason == "cancelled" and (job.cancelled or not looped)):
            raise Stopped
        if finished.reason == "cancelled":
            accumulator.finished = dataclasses.replace(finished, reason="loop")

    def _keep(self, run: Run, state: str) -> None:
        """Save what there is of an answer."""
        self._conversations.save(run.id, text=run.accumulator.text, token_ids=tuple(run.accumulator.token_ids),
                                 state=state, error=run.error, result=run.kept(self.model.name if self.model else ""))

    def _script(self, job: Job, run: Run) -> Script | None:
        """Return what a model that only quotes says, once the passages are found; None for other models. Raises
        TriForceError where there are none that it could say."""
        if self.model is None or self.model.instructions or job.selection is None:
            return None
        return script(run, job.selection.ranges) if self._found(job, run) else None

    def _found(self, job: Job, run: Run, stage: str = "") -> bool:
        """Wait until a run's passages are found. Return False where it was cancelled meanwhile. stage: what is said of
        it where its document is not read yet."""
        if stage:
            job.progress = None
            self._stands_at(job, stage)
        while not run.searched.wait(SEARCH_TICK):
            if job.cancelled or self._closing.is_set():
                return False
        return True

    def _search(self, job: Job) -> None:
        """Have a question's passages found, whatever the engine does."""
        request = job.request
        if job.run is not None and request is not None and job.selection is not None and not request.alone:
            self.search.begin(job.run, job.selection, request.history)

    def _evidence_came(self, run: Run) -> None:
        """Note that passages of a run are found, or sentences judged."""

    def _explain(self, error: Exception) -> str:
        """Return one sentence to show, and forget what a dead engine held."""
        if isinstance(error, NotEnoughMemoryError):
            self._in_cache = None  # the engine may have given the document back
        if isinstance(error, EngineDiedError):
            self.state, self._in_cache, self.load_progress = "starting", None, None
            if self._engine is None:
                return self._why_ended
        if isinstance(error, TriForceError):
            return str(error)
        log.exception("unexpected error", exc_info=error)
        return UNEXPECTED.format(kind=type(error).__name__)

    def _look_after_engine(self) -> bool:
        """Take note of the engine's state, and end one that hangs: its job then ends with EngineDiedError. Return
        whether it was ended. For the thread that polls."""
        engine, status = self._engine, None
        if engine is None:
            return False
        try:
            status = engine.status()
        except Exception as error:  # only a display: never worth stopping for
            log.debug("status: %s", type(error).__name__)
        why = self._why_hung(status)
        if why:
            log.warning("%s", why)
            self._why_ended, self._engine, status = why, None, None
            engine.close()
        if why or (status is not None and status != self.status):
            self.status = status
            self._changed()
        return bool(why)

    def _why_hung(self, status: Any) -> str:
        asked, computed = self._asked_to_stop, getattr(status, "cpu_seconds", 0.0)
        silent = getattr(status, "silent_seconds", 0)
        if silent > SILENT_LIMIT:
            return ENGINE_SILENT.format(seconds=silent)
        if asked is None and not (computed and status.state in ("busy", "loading")):
            return ""  # nothing is to be done, or it is a server elsewhere, which has a limit of its own
        if not self._watchdog.hung(asked, computed):
            return ""
        return ENGINE_STUCK if asked is None else ENGINE_HUNG

    def _changed(self) -> None:
        """Note that something that is shown has changed."""
        self.version += 1
