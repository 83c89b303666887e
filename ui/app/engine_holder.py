"""The engine as its one thread has it: started, a document put into its cache, asked, ended when it hangs.

Knows no queue: what is asked of it is a job, and how that ends is the queue's affair.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from triforce_core import (
    DocumentFit,
    DocumentOpened,
    EngineConfig,
    EngineDiedError,
    LoadProgress,
    ModelInfo,
    NotEnoughMemoryError,
    PrefillProgress,
    TriForceError,
)

from . import watchdog
from .engines import Engine
from .estimates import Estimates
from .jobs import UNEXPECTED, Job, Request, Selection
from .library import Library, Ranges
from .runs import Run
from .supports import Supports

ENGINE_HUNG = "The engine did not stop when it was told to, so it was ended. The next request starts a new one."
ENGINE_SILENT = ("The engine had not answered for {seconds} s: its process was stopped or stuck, so it was ended. The "
                 "next request starts a new one.")
ENGINE_STUCK = ("The engine came no step further for far longer than its steps take, so it was ended. The next request "
                "starts a new one.")

log = logging.getLogger(__name__)
SAVE_EVERY = 2.0  # seconds between two writes of an unfinished answer


class Stopped(Exception):
    """The person cancelled; not an error."""


class TooLong(Exception):
    """The chosen pages do not fit; the page asks for a range."""

    def __init__(self, fit: DocumentFit) -> None:
        super().__init__()
        self.fit = fit


class EngineHolder:
    """Public attributes are read by the page at any time; ``version`` grows whenever one changes. All methods but
    ``_look_after_engine`` are for the engine's thread."""

    def __init__(self, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig, library: Library) -> None:
        self._make_engine, self.config, self._library = make_engine, config, library
        self._engine: Engine | None = None
        self._closing = threading.Event()
        self._watchdog = watchdog.Watchdog()
        self._asked_to_stop: float | None = None  # when what the engine is doing now was cancelled
        self._why_ended = ""  # by us, because it hung
        self._in_cache: Selection | None = None
        self._counted: dict[str, str] = {}  # document -> the text that was counted last
        self.version = 0
        self.state = "starting"  # starting, ready, failed
        self.load_progress: LoadProgress | None = None
        self.model: ModelInfo | None = None
        self.status: Any = None
        self.problem = ""
        self.not_loaded: Callable[[str], None] = lambda why: None  # told why, once until it is something else
        self.opened: dict[str, DocumentOpened] = {}
        self.fits: dict[str, DocumentFit] = {}
        self.too_long: set[tuple[str, Ranges]] = set()
        self._estimates = Estimates(self.fits)
        self._supports = Supports()

    @property
    def open_key(self) -> tuple[str, Ranges] | None:
        """The document that is in the cache, and which of its pages."""
        return (self._in_cache.key, self._in_cache.ranges) if self._in_cache else None

    @property
    def silent_seconds(self) -> int:
        """For how long the engine's process has shown no sign of life; 0: it is alive, as far as is known."""
        return int(getattr(self.status, "silent_seconds", 0))

    def _load_anew(self, config: EngineConfig | None) -> None:
        """Have a loaded engine. config: in place of the one that there is; None: the one that there is will do."""
        if config is not None:
            if self._engine:
                self._engine.close()
            self._engine, self.config, self.model = None, config, None
            self._in_cache, self.state = None, "starting"
            self.opened.clear()
            self.fits.clear()
            self.too_long = set()
            self._estimates.forget()
            self._watchdog = watchdog.Watchdog()
        with contextlib.suppress(TriForceError):  # shown in the engine panel; the next question tries again
            self._ensure_engine()

    def _ensure_engine(self) -> Engine:
        """A loaded engine, starting one if there is none."""
        if self._engine is not None and self.state == "ready":
            return self._engine
        told, self.state, self.problem, self.load_progress = self.problem, "starting", "", None
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
            if self.problem != told and not self._closing.is_set():
                self.not_loaded(self.problem)
            raise
        self.state, self.config = "ready", dataclasses.replace(self.config, tune=False)  # once is enough
        self._changed()
        return engine

    def _open(self, job: Job) -> None:
        """Make sure that its pages are in the cache. Raises Stopped, TooLong or TriForceError."""
        selection = job.selection
        assert selection is not None, "it waits for its text"
        if job.cancelled:
            raise Stopped
        if selection.same(self._in_cache) and self._engine is not None:
            return
        self.too_long.discard((selection.key, selection.ranges))
        self._stands_at(job, "loading")
        engine = self._ensure_engine()
        self._stands_at(job, "tokenize")  # it tells of itself after some pages
        opened = self._read(engine, selection, job)
        self._in_cache = selection
        self._estimates.opened(selection, opened)
        if not selection.ephemeral:
            self.opened[selection.key] = opened
            self._library.was_read(selection.key, selection.ranges, opened, self.model.name if self.model else "")
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
        self._expect_answers(selection)
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

    def _expect_answers(self, selection: Selection) -> None:
        """Have evidence ready for answers about these pages, where the model writes in words of its own."""
        if self.model is not None and self.model.instructions:
            self._supports.expect(selection)

    def _fit(self, engine: Engine, selection: Selection, heard: Callable[[PrefillProgress], None]) -> DocumentFit:
        """Of the chosen pages; the whole of a library's document is counted once."""
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

    def _write(self, job: Job, run: Run, request: Request, lane: int) -> None:
        """Write an answer about what is in the cache. Raises Stopped or TriForceError."""
        if job.cancelled:
            raise Stopped
        engine, accumulator, saved = self._engine, run.accumulator, time.monotonic()
        assert engine is not None, "the document was opened by it"
        if opened := self.opened.get(run.document):
            accumulator.add(opened)
        run.state, run.began_at = "answering", time.time()
        self._watchdog.began("answer")
        for event in engine.ask(request.question, request.history, request.sampling, request.lanes[lane][1],
                                request.system):
            self._watchdog.heard()
            accumulator.add(event)
            if run.conversation and time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                self._keep(run, "running")
            run.heard()
            if job.cancelled:
                engine.cancel()
        if accumulator.finished is None or accumulator.finished.reason == "cancelled":
            raise Stopped

    def _explain(self, error: Exception) -> str:
        """One sentence to show. What a dead engine held is forgotten."""
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
        """Take note of its state. End one that shows no sign of life, or does not hear Stop: the job that it was on
        ends with EngineDiedError. Return whether it was ended. For the thread that polls."""
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
        if silent > watchdog.SILENT_LIMIT:
            return ENGINE_SILENT.format(seconds=silent)
        if asked is None and not (computed and status.state in ("busy", "loading")):
            return ""  # nothing is to be done, or it is a server elsewhere, which has a limit of its own
        if not self._watchdog.hung(asked, computed):
            return ""
        return ENGINE_STUCK if asked is None else ENGINE_HUNG

    def _keep(self, run: Run, state: str) -> None:
        """Save what there is of an answer."""
        raise NotImplementedError

    def _changed(self) -> None:
        """Something that is shown has changed."""
        self.version += 1
