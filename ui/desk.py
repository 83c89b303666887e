"""The engine's desk: one thread that owns the engine and does one job after another; the page only leaves notes.

Gradio's own ``cancels=`` frees a queue slot while the work goes on; here the work has one owner, and Stop is
confirmed only when that owner has stopped. Nothing in this file knows of Gradio or HTML.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from triforce_core import (
    Document,
    DocumentFit,
    DocumentOpened,
    EngineConfig,
    EngineDiedError,
    LoadProgress,
    ModelInfo,
    NotEnoughMemoryError,
    PrefillProgress,
    SamplingParams,
    SpeculationConfig,
    TriForceError,
    Turn,
)

from . import race, strings
from .conversations import Conversations
from .engines import Engine
from .library import Library, Ranges
from .reading import Reading
from .runs import Fold, Run, RunState, RunStore
from .settings import Dials
from .tally import Tally

log = logging.getLogger(__name__)
SAVE_EVERY = 2.0  # seconds between two writes of an unfinished answer
POLL_EVERY = 2.0
HUNG_AFTER = 20.0  # seconds in which a Stop must be confirmed: far more than a round, or a chunk of a document, takes


class Stopped(Exception):
    """The person cancelled; not an error."""


class TooLong(Exception):
    """The chosen pages do not fit; the page asks for a range."""


class Desk:
    """Public attributes are read by the page at any time; ``version`` grows whenever one changes."""

    def __init__(self, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig, library: Library,
                 conversations: Conversations, runs: RunStore) -> None:
        self._make_engine, self.config = make_engine, config
        self._library, self._conversations, self._runs = library, conversations, runs
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._engine: Engine | None = None
        self._thread = threading.Thread(target=self._work, name="engine-desk", daemon=True)
        self._closing = threading.Event()
        self._current: threading.Event | None = None  # the cancel flag of what the engine is doing now
        self._asked_to_stop = 0.0  # when that flag was set
        self.version = 0
        self.state = "starting"  # starting, ready, failed
        self.load_progress: LoadProgress | None = None
        self.model: ModelInfo | None = None
        self.status: Any = None
        self.problem = ""
        self.open_key: tuple[str, Ranges] | None = None  # the document, and which of its pages
        self.opened: dict[str, DocumentOpened] = {}
        self.fits: dict[str, DocumentFit] = {}
        self.readings: dict[str, Reading] = {}
        self.problems: dict[str, str] = {}
        self.too_long: set[str] = set()
        self.tally = Tally()

    # -- notes from the page ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        threading.Thread(target=self._poll, name="engine-status", daemon=True).start()
        self._jobs.put(self._load_quietly)

    def read(self, document: str) -> None:
        """Put a document into the cache, unless that is under way."""
        if document in self.readings:
            return
        reading = self.readings[document] = Reading(document)
        self.problems.pop(document, None)
        self._changed()
        self._jobs.put(lambda: self._read_job(reading))

    def ask(self, run: Run, dials: Dials) -> Run:
        """Queue a question; its answer appears in the run store. Raises NotEnoughDiskError, FolderError."""
        self._conversations.begin(run.id, run.conversation, run.question, run.parent)  # first: the disk may refuse
        self._runs.add(run)
        self._changed()
        self._jobs.put(lambda: self._ask_job(run, dials))
        return run

    def answer(self, run: Run, history: Sequence[Turn], sampling: SamplingParams,
               speculation: SpeculationConfig) -> Run:
        """Queue a question that belongs to no conversation kept here."""
        self._runs.add(run)
        self._changed()
        self._jobs.put(lambda: self._serve(run, lambda: self._leg(run, history, sampling, speculation)))
        return run

    def race(self, run: Run, dials: Dials) -> Run:
        self._runs.add(run)
        self._changed()
        self._jobs.put(lambda: self._race_job(run, dials))
        return run

    def stop(self, run: Run) -> None:
        """Ask for a stop. The run is ``stopping`` until the engine has stopped."""
        if not run.ended:
            self._cancel(run.cancelled)

    def cancel_reading(self, document: str) -> None:
        reading = self.readings.get(document)
        if reading:
            self._cancel(reading.cancelled)

    def reconfigure(self, config: EngineConfig) -> None:
        """Start the engine anew with another configuration, after the jobs that are already queued."""
        if config != self.config:
            self._jobs.put(lambda: self._reconfigure(config))

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def close(self, patience: float = 2.0) -> None:
        """Stop what is running, keep what there is, end the engine."""
        self._closing.set()
        if self._current:
            self._cancel(self._current)
        self._jobs.put(None)
        if self._thread.is_alive():  # it never began where the page could not be opened
            self._thread.join(patience)
        for run in self._runs.active():  # their engine does not hear
            if run.conversation:
                run.error = strings.APP_ENDED
                self._keep(run, "failed")
        if self._engine:
            self._engine.close()
            self._thread.join(patience / 4)

    # -- the one thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closing.is_set():
            try:
                job()
            except Exception:  # the desk must outlive every job
                log.exception("a job of the engine desk failed")
            self._changed()

    def _load_quietly(self) -> None:
        try:
            self._ensure_engine()
        except TriForceError:
            pass  # shown in the engine panel; the next question tries again

    def _ensure_engine(self) -> Engine:
        """A loaded engine, starting one if there is none."""
        if self._engine is not None and self.state == "ready":
            return self._engine
        self.state, self.problem, self.load_progress = "starting", "", None
        try:
            engine = self._engine = self._engine or self._make_engine(self.config)
            for event in engine.load():
                if isinstance(event, ModelInfo):
                    self.model = event
                else:
                    self.load_progress = event
                self._changed()
        except TriForceError as error:
            self.state, self.problem = "failed", str(error)
            raise
        self.state, self.config = "ready", dataclasses.replace(self.config, tune=False)  # once is enough
        self._changed()
        return engine

    def _reconfigure(self, config: EngineConfig) -> None:
        if self._engine:
            self._engine.close()
        self._engine, self.config, self.model = None, config, None
        self.open_key, self.state = None, "starting"
        self.opened.clear()
        self.fits.clear()
        self._load_quietly()

    def _open(self, reading: Reading) -> None:
        """Make sure that the reading's document is in the cache. Raises Stopped, TooLong or TriForceError."""
        document, ranges = self._wanted(reading)
        name = reading.document
        key = (name, ranges)
        if key == self.open_key:
            return
        reading.stage = "loading"
        self.too_long.discard(name)
        self._changed()
        engine = self._ensure_engine()
        if reading.cancelled.is_set():
            raise Stopped

        def heard(progress: PrefillProgress) -> None:
            reading.progress, reading.stage = progress, progress.stage
            self._changed()

        known = self.fits.get(name)
        # What is free changes, and a text that was taken out anew may have other pages.
        if known is None or known.limited_by == "memory" or len(known.page_tokens) != len(document.pages):
            counted = engine.measure(document, heard)
            self.fits.pop(name, None)  # the last that was counted is the last of them: what is free now goes by it
            self.fits[name] = counted
        chosen = document if ranges == ((1, len(document.pages)),) else document.pick(ranges)
        if not (self.fits[name] if chosen is document else engine.measure(chosen, heard)).fits:
            self.too_long.add(name)
            raise TooLong
        self.open_key, opened = None, None
        for event in engine.open_document(chosen):
            if isinstance(event, DocumentOpened):
                opened = event
            else:
                heard(event)
            if reading.cancelled.is_set():
                engine.cancel()  # again: the first call may have come before there was something to cancel
            self._changed()
        if opened is None:
            raise Stopped
        self.opened[name], self.open_key = opened, key
        if reading.guest is None:
            self._library.was_read(name, opened, self.model.name if self.model else "")

    def _wanted(self, reading: Reading) -> tuple[Document, Ranges]:
        """The whole document, and the pages that were chosen."""
        if reading.guest is not None:
            return reading.guest, ((1, len(reading.guest.pages)),)
        entry, document = self._library.get(reading.document), self._library.document(reading.document)
        if entry is None or document is None:
            raise TriForceError(strings.DOCUMENT_GONE)
        return document, entry.ranges

    def _read_job(self, reading: Reading) -> None:
        self._current = reading.cancelled
        try:
            if reading.cancelled.is_set():
                raise Stopped
            self._open(reading)
        except Stopped:
            self.problems[reading.document] = strings.READING_CANCELLED
        except TooLong:
            pass  # the page shows the choice, from ``fits``
        except Exception as error:
            self.problems[reading.document] = self._explain(error)
        finally:
            self._current = None
            self.readings.pop(reading.document, None)
            self._changed()

    def _ask_job(self, run: Run, dials: Dials) -> None:
        history = self._conversations.history(run.conversation, run.id)
        last_saved = time.monotonic()

        def keep(fold: Fold) -> None:
            nonlocal last_saved
            if time.monotonic() - last_saved > SAVE_EVERY:
                last_saved = time.monotonic()
                self._keep(run, "running")

        self._serve(run, lambda: self._leg(run, history, dials.sampling(), dials.speculation(), keep))
        self._conversations.save_trace(run.id, run.fold.trace)
        self._keep(run, run.state)

    def _race_job(self, run: Run, dials: Dials) -> None:
        def one_by_one() -> None:
            for number, (_, speculation) in enumerate(run.lanes):
                if number:
                    run.legs.append(Fold(run.ranges))
                self._leg(run, (), dials.sampling(details=False), speculation)
            run.outcome = race.compare(run.legs, self.model, [name for name, _ in run.lanes])
            self._conversations.save_race(run.document, run.question, run.outcome)

        self._serve(run, one_by_one)

    def _serve(self, run: Run, work: Callable[[], None]) -> None:
        """Run ``work`` with the run's document open; whatever happens, the run ends in one of its end states."""
        self._current = run.cancelled
        state: RunState = "done"
        reading = Reading(run.document, cancelled=run.cancelled, guest=run.guest)
        try:
            if run.cancelled.is_set():
                raise Stopped
            run.state = "preparing"
            self.readings.setdefault(run.document, reading)
            self._open(reading)
            self.readings.pop(run.document, None)
            work()
        except Stopped:
            state = "stopped"
            if self._closing.is_set():
                state, run.error = "failed", strings.APP_ENDED
        except TooLong:
            state, run.error, run.fit = "failed", strings.CHOOSE_PAGES_FIRST, self.fits[run.document]
        except Exception as error:
            state, run.error, run.cause = "failed", self._explain(error), error.with_traceback(None)
        finally:
            self._current = None
            if self.readings.get(run.document) is reading:
                del self.readings[run.document]
            if run.guest is not None:
                for known in (self.fits, self.opened):
                    known.pop(run.document, None)
            run.ended_at = time.time()
            run.state = state
            self.tally.add(run)
            run.heard()
            self._changed()

    def _leg(self, run: Run, history: Sequence[Turn], sampling: SamplingParams, speculation: SpeculationConfig,
             keep: Callable[[Fold], None] = lambda fold: None) -> None:
        if run.cancelled.is_set():
            raise Stopped
        engine, fold = self._engine, run.fold
        assert engine is not None, "the document was opened by it"
        run.state = "answering"
        for event in engine.ask(run.question, history, sampling, speculation, run.system):
            fold.add(event)
            keep(fold)
            run.heard()
            if run.cancelled.is_set():
                engine.cancel()
        if fold.finished is None or fold.finished.reason == "cancelled":
            raise Stopped

    def _keep(self, run: Run, state: str) -> None:
        result = run.fold.result() | {"first_page": run.first_page, "system": run.system, "quotes": run.quotes,
                                      "model": self.model.name if self.model else ""}
        self._conversations.save(run.id, text=run.fold.text, token_ids=tuple(run.fold.token_ids), state=state,
                                 error=run.error, result=result)

    def _explain(self, error: Exception) -> str:
        """One sentence to show. A dead engine is forgotten, so that the next job starts a new one."""
        if isinstance(error, NotEnoughMemoryError):
            self.open_key = None  # the engine may have given the document back
        if isinstance(error, EngineDiedError):
            self.state, self.open_key, self.load_progress = "starting", None, None
            self._jobs.put(self._load_quietly)  # a new one, before it is asked for
            if self._engine is None:
                return strings.ENGINE_HUNG
        if isinstance(error, TriForceError):
            return str(error)
        log.exception("unexpected error", exc_info=error)
        return strings.UNEXPECTED.format(kind=type(error).__name__)

    def _cancel(self, flag: threading.Event) -> None:
        if not flag.is_set():
            self._asked_to_stop = time.monotonic()
        flag.set()
        if flag is self._current and self._engine:
            self._engine.cancel()
        self._changed()

    def _end_if_hung(self) -> None:
        """An engine that does not hear Stop is ended; the job that it was on ends with EngineDiedError."""
        current, engine = self._current, self._engine
        if current and engine and current.is_set() and time.monotonic() - self._asked_to_stop > HUNG_AFTER:
            log.warning("the engine did not confirm a stop within %.0f s: it is ended", HUNG_AFTER)
            self._engine = None
            engine.close()

    def _poll(self) -> None:
        while not self._closing.wait(POLL_EVERY):
            self._end_if_hung()
            self._conversations.settle()
            engine = self._engine
            if engine:
                try:
                    status = engine.status()
                except Exception as error:  # only a display: never worth stopping for
                    log.debug("status: %s", type(error).__name__)
                    continue
                if status != self.status:
                    self.status = status
                    self._changed()

    def _changed(self) -> None:
        self.version += 1


__all__ = ["Desk", "Reading"]
