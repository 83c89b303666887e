"""The one queue: it alone decides in which order the engine does things, and what becomes of each of them.

One thread owns the engine and does one job after another; the page only leaves requests. Stop is confirmed only when
that thread has stopped (Gradio's own ``cancels=`` frees a queue slot while the work goes on). ``jobs.in_order`` is the
order; a question about a note, which is read in a second, waits for no reading of a book.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from triforce_core import DocumentFit, EngineConfig, EngineDiedError, TriForceError

from .accumulator import Accumulator
from .conversations import Conversations
from .engine_holder import Engine, EngineHolder, Stopped, TooLong
from .jobs import (
    PAUSABLE,
    READING_CANCELLED,
    Ahead,
    Fate,
    Job,
    JobKind,
    Request,
    Selection,
    fit_of,
    in_order,
    outgrown,
    room_for_pages,
)
from .library import Library, Ranges
from .passages import fitting_pages
from .runs import Counters, Run, RunState, RunStore, compare_lanes

APP_ENDED = "The app was closed while this answer was being written. Ask again for the rest."

CHOOSE_PAGES_FIRST = "Not all of the document fits. Choose the pages to read, then ask again."

log = logging.getLogger(__name__)
POLL_EVERY = 2.0


class Queue(EngineHolder):
    """Any thread may ask; see ``EngineHolder`` for what the page reads.

    prefills: by document the job to show that reads it. problems: by document why it was not read. on_poll: called
    every POLL_EVERY seconds."""

    def __init__(self, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig, library: Library,
                 conversations: Conversations, runs: RunStore, in_front: Callable[[], Collection[str]],
                 vectors: Path) -> None:
        """in_front: returns the documents that somebody looks at now. vectors: see ``EngineHolder``."""
        super().__init__(make_engine, config, library, conversations, vectors)
        self._runs, self._in_front = runs, in_front
        self._news = threading.Condition()  # held by whoever looks at the queued jobs and then changes them
        self._waiting: list[Job] = []
        self.current: Job | None = None  # the one that is being done
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._work, name="queue", daemon=True)
        self.prefills: dict[str, Job] = {}
        self.problems: dict[str, str] = {}
        self.on_poll: Callable[[], None] = lambda: None
        self.counters = Counters()

    # -- requests -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        threading.Thread(target=self._poll, name="engine-status", daemon=True).start()
        self._add(Job("engine"))

    def reconfigure(self, config: EngineConfig) -> None:
        """Start the engine anew with another configuration, after the questions that are already queued; the last one
        that was wanted counts."""
        with self._news:
            self._waiting = [job for job in self._waiting if job.kind != "engine" or job.config is None]
            if config != self.config:
                self._add(Job("engine", config=config))
                for job in self._waiting:  # readings are for the other engine, also the one that is under way
                    if job.kind == "prefill":
                        job.number, job.progress = next(self._numbers), None
                if self.current and self.current.kind == "prefill":
                    self._pause(self.current)
            self._changed()

    @property
    def wanted(self) -> EngineConfig:
        """Return the configuration that the engine has once what is queued is done."""
        with self._news:
            coming = [job.config for job in self._waiting if job.kind == "engine" and job.config is not None]
        return coming[-1] if coming else self.config

    def read(self, selection: Selection) -> None:
        """Put a document into the cache, instead of other pages of it that were to be read."""
        self.search.index(selection)
        with self._news:
            self.problems.pop(selection.key, None)
            if selection.same(self._in_cache) and all(selection.same(job.selection) for job in self.jobs()):
                return self._changed()  # and nothing that is queued changes that
            for job in self._prefills_of(selection.key):
                if selection.same(job.selection) and not job.cancelled:
                    self._make_way(job)
                    return self._changed()
                if not self._withdraw(job):
                    self._cancel(job, Fate.DROP)
            self._add(Job("prefill", selection.key, selection))
            self._changed()

    def ask(self, request: Request, document: str, conversation: str, parent: str | None = None) -> Run:
        """Queue a question of a conversation; it waits for its document's text, and for pages that fit.

        parent: the answer that it follows (None: the last that is shown; "": none). Raises NotEnoughDiskError,
        FolderError: nothing is queued then."""
        run = request.run(conversation, document)
        self._conversations.begin(run.id, conversation, run.question, parent)
        return self._add_run("answer", run, request)

    def answer(self, request: Request, heard: Callable[[], None] = lambda: None, *, race: bool = False) -> Run:
        """Queue a question that belongs to no conversation kept here. heard: called after every change of its run."""
        return self._add_run("race" if race else "answer", request.run(race=race, heard=heard), request)

    def text_is_there(self, document: str, selection: Callable[[], Selection]) -> None:
        """Put the questions that waited for a document's text into line, in their order.

        selection: returns the pages that are chosen now."""
        for job, run in self._held(document):
            try:
                chosen = selection()
            except TriForceError as error:
                if self._withdraw(job):
                    self._end(job, run, "failed", str(error))
                continue
            with self._news:
                if self._withdraw(job):
                    job.selection = chosen
                    run.about(chosen.ranges)
                    self._add(job)
                    self._search(job)
                    self._changed()

    def no_text(self, document: str, why: str) -> None:
        """End the questions about a document whose text will not come."""
        for job, run in self._held(document):
            if self._withdraw(job):
                self._end(job, run, "failed", why)

    def answer_from(self, run: Run, part: Selection) -> bool:
        """Answer a question that waits for its document's reading from a part of the pages, before the reading goes on.
        Return False where it waits no more."""
        with self._news:
            job, reading = self._waiting_for(run)
            if job is None or reading is None or job.cancelled or not (self._pause(reading) or job is not reading):
                return False
            if job is reading:
                job.part = part  # unless all is read by then
            else:
                job.selection = part
                run.narrow(part.ranges)
        self._changed()
        return True

    def stop(self, run: Run, why: str = "") -> None:
        """Stop a run: it is ``stopping`` until the engine has stopped; one that waits has ended at once.

        why: where it was not the person who stopped it."""
        run.error = why
        with self._news:
            job = next((job for job in [*self.jobs(), *self._waiting] if job.run is run), None)
            if job is not None and self._withdraw(job):
                self._end(job, run, "stopped")
            elif job is not None:
                self._cancel(job)

    def cancel_prefill(self, document: str) -> None:
        """Cancel a document's reading, also where an answer needs it if that is what is shown of the document."""
        with self._news:
            shown = self.prefills.get(document)
            for job in self._prefills_of(document):
                if self._withdraw(job):
                    self._not_read(job, READING_CANCELLED)
                else:
                    self._cancel(job)
            if self.current and self.current is shown:
                self._cancel(shown)
            self._changed()

    def forget(self, document: str) -> None:
        """Drop all that is known and under way of a document that is deleted."""
        with self._news:
            for job in self._prefills_of(document):
                job.fate = Fate.DROP
            self.cancel_prefill(document)
            for known in (self.problems, self.fits, self._counted):
                known.pop(document, None)
            self.too_long = {place for place in self.too_long if place[0] != document}

    def comes_to_front(self, document: str) -> None:
        """Note that a document will be shown: its reading passes no question that was asked meanwhile."""
        with self._news:
            for job in self._waiting:
                if job.kind == "prefill" and job.document == document:
                    job.number = next(self._numbers)

    def close(self, patience: float = 2.0) -> None:
        """Stop the present job, keep what there is, end the engine."""
        with self._news:
            self._closing.set()
            self._news.notify_all()
        if self.current:
            self._cancel(self.current)
        if self._thread.is_alive():  # it never began where the page could not be opened
            self._thread.join(patience)
        for run in self._runs.active():  # their engine does not hear
            if run.conversation:
                run.error = APP_ENDED
                self._keep(run, "failed")
        if self._engine:
            self._engine.close()
            self._thread.join(patience / 4)
        self._evidence.close()

    # -- order and place ----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Return how many wait for the engine, without those that wait for their document's text."""
        return sum(not job.held for job in self._waiting)

    @property
    def idle(self) -> bool:
        return self.state == "ready" and not self.jobs()

    def jobs(self) -> list[Job]:
        """Return the one that is being done, then the others in the order in which they will be."""
        with self._news:
            return [*([self.current] if self.current else []), *in_order(self._waiting, self._in_front())]

    def holds(self, run: Run) -> bool:
        """Return whether a question waits for its document's text, or until pages are chosen that fit."""
        with self._news:
            return any(job.held and job.run is run for job in self._waiting)

    def ahead(self, waiting: Run | Job) -> Ahead | None:
        """Return what stands before a question or a reading; None where nothing does."""
        jobs = self.jobs()
        place = next((n for n, job in enumerate(jobs) if job is waiting or job.run is waiting), 0)
        return self._estimates.ahead(jobs[:place], self._in_cache)

    def reading_seconds(self, job: Job) -> float | None:
        """Return what reading a job's pages takes, before it has begun; None where nothing is known of it."""
        return self._estimates.reading(job.selection) if job.selection else None

    def question_seconds(self, run: Run) -> float:
        """Return what reading a run's question takes, before it has begun; 0 where nothing is known of it."""
        return self._estimates.of_letters(len(run.question)) or 0.0

    def pages_read(self, run: Run) -> Ranges:
        """Return the pages of its document that are read while a question waits for the others; () where it does not,
        or where its reading cannot make way."""
        job, reading = self._waiting_for(run)
        return self._estimates.pages_read(job, reading) if job and reading else ()

    def _waiting_for(self, run: Run) -> tuple[Job | None, Job | None]:
        """Return the job of a question that waits for its document's reading, and the job that reads it."""
        job, current = next((job for job in self.jobs() if job.run is run), None), self.current
        if job is None or job.selection is None or job.kind != "answer" or current is None or not current.opening:
            return None, None
        mine = job is current or (current.kind == "prefill" and job.selection.same(current.selection))
        return (job, current) if mine else (None, None)

    def _held(self, document: str) -> list[tuple[Job, Run]]:
        with self._news:
            return [(job, job.run) for job in self._waiting if job.run and job.held and job.document == document]

    def _prefills_of(self, document: str) -> list[Job]:
        return [job for job in self.jobs() if job.kind == "prefill" and job.document == document]

    def _add_run(self, kind: JobKind, run: Run, request: Request) -> Run:
        job = Job(kind, run.document, request.selection, request, run)
        with self._news:
            self._runs.add(run)
            self._add(job)
        self._search(job)
        self._changed()
        return run

    def _evidence_came(self, run: Run) -> None:
        """Keep them with the answer, also where that has ended before: it failed, or was stopped. Once the app is
        closing there is nothing to keep them in."""
        with self._news:
            if run.conversation and not self._closing.is_set():
                self._keep(run, run.state if run.ended else "running")
        run.heard()
        self._changed()

    def _add(self, job: Job) -> None:
        with self._news:
            self._put(job)
            self._make_way(job)

    def _put(self, job: Job, number: int = 0) -> None:
        """Let a job wait at its place; number: 0 for one behind all others."""
        with self._news:
            job.number = number or next(self._numbers)
            self._waiting.append(job)
            self._news.notify()

    def _withdraw(self, job: Job) -> bool:
        """Take a job back. Return False where it is being done or done already."""
        with self._news:
            found = job in self._waiting
            if found:
                self._waiting.remove(job)
            return found

    def _make_way(self, job: Job) -> None:
        """Pause what is being read for a job that somebody waits for: where nobody looks at it, or for a short one."""
        current = self.current
        if current is None or current.selection is None or job.selection is None:
            return
        front = self._in_front()
        waited_for = job.kind in ("answer", "race") or job.document in front
        unseen = current.kind == "prefill" and current.document not in front
        passes = current.opening and job.is_short and not current.is_short
        if current.document != job.document and waited_for and (unseen or passes):
            self._pause(current)

    # -- fate ---------------------------------------------------------------------------------------------------

    def _pause(self, job: Job) -> bool:
        """Have a reading end at its next chunk, to be gone on with. Return False where it is nearly done."""
        if job.stage not in PAUSABLE or job.fate:
            return False
        job.fate = Fate.PAUSE
        self._interrupt()
        return True

    def _cancel(self, job: Job, fate: Fate = Fate.STOP) -> None:
        with self._news:
            if job.kind == "engine":
                return
            job.fate = max(job.fate, fate)
            if job.run:
                job.run.stop_asked = True
            if job is self.current:
                self._interrupt()
        self._changed()

    def _interrupt(self) -> None:
        if self._engine:
            self._asked_to_stop = self._asked_to_stop or time.monotonic()
            self._engine.cancel()

    def _goes_on(self, job: Job) -> bool:
        """Queue a job again that has only made way: a reading behind all others, a question in its place; where it is
        to be answered from fewer pages, the reading of all goes on behind it. Return False where it has ended."""
        with self._news:
            if job.fate is not Fate.PAUSE:
                return False
            if job.run and job.part:
                self._put(Job("prefill", job.document, job.selection, progress=job.progress))
                job.run.narrow(job.part.ranges)
                job.selection, job.progress = job.part, None
            self._wait_again(job)
            return True

    def _asks_of_part(self, job: Job, run: Run, fit: DocumentFit) -> bool:
        """Have a question, whose pages do not fit, answered from those on which its passages stand. Return False where
        it was cancelled, or not one of its pages fits."""
        selection, request = job.selection, job.request
        if selection is None or request is None or not self._found(job, run, "find"):
            return False
        most = room_for_pages(fit, self.model.max_context if self.model else 0, request)
        pages = [page for first, last in selection.ranges for page in range(first, last + 1)]
        ranges = fitting_pages(run.passages, pages, fit.page_tokens, most)
        with self._news:
            if not ranges or ranges == selection.ranges or job.cancelled:
                return False
            run.narrow(ranges)
            run.did_not_fit = True
            job.selection, job.progress = Selection(selection.key, selection.document, ranges), None
            self._wait_again(job)
        return True

    def _wait_again(self, job: Job) -> None:
        job.fate, job.stage, job.part = Fate.GO_ON, "waiting", None
        if job.run is not None:
            job.run.state = "queued"
        self.current = None
        self._put(job, job.number if job.run else 0)
        self._changed()

    def _not_read(self, job: Job, why: str) -> None:
        if job.fate is not Fate.DROP:
            self.problems[job.document] = why

    def _end(self, job: Job, run: Run, state: RunState, why: str = "") -> None:
        """Keep what came of a run, then say that it is over: the next question's history is read from what is kept."""
        run.written.set()
        run.error = why or run.error if state != "done" else ""  # a stop that came too late
        if state == "stopped" and self._closing.is_set():
            state, run.error = "failed", APP_ENDED
        with self._news:  # so that passages which come now are kept with it, and nothing is kept of it but its end
            try:
                if run.conversation:
                    self._conversations.save_trace(run.id, run.accumulator.trace)
                    self._keep(run, state)
                elif run.outcome:
                    self._conversations.save_race(run.document, run.question, run.outcome)
            except Exception:
                log.exception("an answer could not be kept")
            run.ended_at, run.state = time.time(), state
            self.counters.add(run)
        run.heard()
        self._changed()

    # -- the one thread -----------------------------------------------------------------------------------------

    def _take(self) -> Job | None:
        """Return the next job, as soon as there is one; None once the queue is closed."""
        with self._news:
            self._news.wait_for(lambda: self._closing.is_set() or self.jobs())
            if self._closing.is_set():
                return None
            self.current = self.jobs()[0]
            self._waiting.remove(self.current)
            return self.current

    def _work(self) -> None:
        while (job := self._take()) is not None:
            try:
                self._do(job)
            except Exception:  # the queue must outlive every job
                log.exception("a job of the queue failed")
            with self._news:  # a stop that is on its way reaches this job, never the next one
                self.current = self._asked_to_stop = None
            self._changed()

    def _do(self, job: Job) -> None:
        """Do a job: whatever happens, it ends in one of its end states, or is queued anew."""
        state: RunState = "done"
        run, why = job.run, ""
        try:
            if not self._perform(job):
                return
        except Stopped:
            if self._goes_on(job):
                return
            state, why = "stopped", "" if run else READING_CANCELLED
        except TooLong as error:
            if run is None or self._asks_of_part(job, run, error.fit):
                return  # the page says so, from ``fits``
            state, why, run.fit = ("stopped", "", None) if job.cancelled else ("failed", CHOOSE_PAGES_FIRST, error.fit)
        except Exception as error:
            state, why = "failed", self._explain(error)
            if run is not None:
                run.cause = error.with_traceback(None)
            if isinstance(error, EngineDiedError):
                self._add(Job("engine"))  # a new one, before it is asked for
        if run is not None:
            self._end(job, run, state, why)
        elif why:
            self._not_read(job, why)

    def _perform(self, job: Job) -> bool:
        """Do a job; return False where it was queued anew. Raises Stopped, TooLong, or what goes wrong."""
        run, request, selection = job.run, job.request, job.selection
        if job.kind == "engine":
            self._load_anew(job.config)
            for waiting in self._waiting if job.config else ():
                waiting.progress = None  # another engine's
            return True
        if run is not None:
            run.state, run.taken_at = "preparing", run.taken_at or time.time()
        self._open(job)
        if run is None or request is None or selection is None:
            return True
        fit = fit_of(self.fits.get(selection.key), selection.ranges)
        if not run.race and fit and outgrown(fit, self.model.max_context if self.model else 0, request) \
                and self._asks_of_part(job, run, fit):
            return False
        if run.race:
            self._read_question(job, request)
        for lane in range(len(request.lanes)):
            if lane:
                run.accumulators.append(Accumulator(run.ranges))
            self._write(job, run, request, lane)
            self._estimates.answered(time.time() - run.began_at)
        if run.race:
            run.outcome = compare_lanes(run.accumulators, self.model, [name for name, _ in request.lanes]) | {
                "ranges": run.ranges}
        return True

    def _poll(self) -> None:
        while not self._closing.wait(POLL_EVERY):
            try:
                self.on_poll()
            except Exception:  # the engine must be looked after whatever happens
                log.exception("a poll failed")
            if self._look_after_engine():
                self._add(Job("engine"))

    def _changed(self) -> None:
        with self._news:  # so that the newest list is the last to be put up
            listed: dict[str, Job] = {}
            for job in self.jobs():
                if job.opening or (job.kind == "prefill" and job.stage):
                    before = listed.get(job.document)
                    if before is None or (before.cancelled and not job.cancelled):
                        listed[job.document] = job
            self.prefills = listed
            super()._changed()
