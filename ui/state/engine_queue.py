"""The engine's queue: one thread that owns the engine and does one job after another; the page only leaves requests.

Gradio's own ``cancels=`` frees a queue slot while the work goes on; here the work has one owner, and Stop is
confirmed only when that owner has stopped. Nothing in this file knows of Gradio or HTML.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import cast

from triforce_core import EngineConfig, EngineDiedError

from ..words import chat as chat_words
from ..words import document_head as head_words
from ..words import page_choice as choice_words
from . import race
from .accumulator import Accumulator
from .conversations import Conversations
from .counters import Counters
from .engine_holder import EngineHolder, Stopped, TooLong
from .engines import Engine
from .job_queue import JobQueue
from .jobs import Job, JobKind, Prefill, Request, Selection
from .library import Library, Ranges
from .runs import Run, RunState, RunStore
from .wait_estimates import Ahead, read_by

log = logging.getLogger(__name__)
SAVE_EVERY = 2.0  # seconds between two writes of an unfinished answer
POLL_EVERY = 2.0
PAUSABLE = ("waiting", "loading", "tokenize", "read")  # stages of a prefill: of the others little is left


class EngineQueue(EngineHolder):
    """Any thread may ask; see ``EngineHolder`` for what the page reads."""

    def __init__(self, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig, library: Library,
                 conversations: Conversations, runs: RunStore,
                 in_front: Callable[[], Collection[str]] = tuple) -> None:
        """in_front: the documents that somebody looks at now."""
        super().__init__(make_engine, config, library)
        self._conversations, self._runs = conversations, runs
        self._jobs = JobQueue(in_front)
        self._asking = threading.RLock()  # held by whoever looks at what is queued and then changes it
        self._thread = threading.Thread(target=self._work, name="engine-queue", daemon=True)
        self.prefills: dict[str, Prefill] = {}  # of each document the one to show; replaced, never changed
        self.problems: dict[str, str] = {}
        self.counters = Counters()

    # -- requests from the page ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        threading.Thread(target=self._poll, name="engine-status", daemon=True).start()
        self._add(Job("engine", self._load_quietly))

    def read(self, selection: Selection) -> None:
        """Put a document into the cache, instead of what else was to be read of it."""
        with self._asking:
            self.problems.pop(selection.key, None)
            jobs = self._jobs.jobs()
            if selection.same(self._in_cache) and all(selection.same(job.selection) for job in jobs):
                return self._changed()  # and nothing that is queued changes that
            for job, prefill in self._prefills_of(selection.key):
                if selection.same(job.selection) and not prefill.cancelled.is_set():
                    self._make_way(job)
                    return self._changed()
                prefill.superseded = True
                if not self._jobs.withdraw(job):
                    self._cancel(job)
            self._add(self._prefill_of(selection))
            self._changed()

    def ask(self, request: Request, conversation: str, parent: str | None = None,
            too_long: Callable[[Run], bool] = lambda run: False) -> Run:
        """Queue a question of a conversation; its answer appears in the run store. parent: the answer that it follows
        (None: the last that is shown; "": none). too_long: as of ``Run``. Raises NotEnoughDiskError, FolderError:
        nothing is queued then."""
        run = request.run(conversation, too_long=too_long)
        self._conversations.begin(run.id, conversation, run.question, parent)
        return self._put("answer", run, request)

    def take_over(self, run: Run, request: Request) -> None:
        """A question that has waited elsewhere, for its document's text."""
        run.about(request.selection.ranges)
        self._put("answer", run, request)

    def answer(self, request: Request, heard: Callable[[], None] = lambda: None) -> Run:
        """Queue a question that belongs to no conversation kept here. heard: called after every change of its run."""
        return self._put("answer", request.run(heard=heard), request)

    def try_out(self, request: Request, heard: Callable[[], None]) -> Run:
        """Answer a question that nobody asked, of what is in the cache; whatever is asked for stops it at once. It is
        neither shown nor counted."""
        run = request.run(heard=heard)
        prefill = Prefill(run.document, cancelled=run.cancelled)
        self._jobs.put(Job("trial", lambda: self._trial(run, request), request.selection, prefill, run))
        return run

    def pages_read(self, run: Run) -> Ranges:
        """The pages of its document that are read by now, while a question waits for the others; () where it does not,
        or where its reading cannot make way."""
        job, reading = self._waiting_for(run)
        progress = reading.prefill.progress if reading and reading.prefill else None
        if (job is None or job.selection is None or reading is None or reading.prefill is None or progress is None
                or reading.prefill.stage != "read" or reading.prefill.stopping):
            return ()
        fit = self.fits.get(job.selection.key)
        return read_by(progress.tokens_done, fit.page_tokens, job.selection.ranges) if fit else ()

    def _waiting_for(self, run: Run) -> tuple[Job | None, Job | None]:
        """(the job of a question that waits for its document's reading, the job that reads it)."""
        jobs = self._jobs.jobs()
        job, current = next((job for job in jobs if job.run is run), None), self._jobs.current
        if job is None or job.selection is None or job.kind != "answer" or current is None or not current.opening:
            return None, None
        mine = job is current or (current.kind == "prefill" and job.selection.same(current.selection))
        return (job, current) if mine else (None, None)

    def answer_from(self, run: Run, part: Selection) -> bool:
        """Answer a question that waits for its document's reading from a part of the pages, before the reading goes on.
        False: it waits no more."""
        with self._asking:
            job, reading = self._waiting_for(run)
            if job is None or reading is None or job.request is None or run.cancelled.is_set():
                return False
            anew = self._job_of(job.kind, run, dataclasses.replace(job.request, selection=part))
            if job is reading:
                if not self._pause(job):
                    return False
                job.instead = anew  # unless all is read by then
            elif not self._jobs.withdraw(job):
                return False
            else:
                run.narrow(part.ranges)
                self._jobs.put(anew, job.number)
                self._pause(reading)
        self._changed()
        return True

    def race(self, request: Request) -> Run:
        return self._put("race", request.run(race=True), request)

    def stop(self, run: Run) -> None:
        """Ask for a stop. The run is ``stopping`` until the engine has stopped; one that waits has ended at once."""
        with self._asking:
            job = next((job for job in self._jobs.jobs() if job.run is run), None)
            if job is not None and self._jobs.withdraw(job):
                run.cancelled.set()
                self.end(run, "stopped")
            elif job is not None:
                self._cancel(job)

    def cancel_prefill(self, document: str) -> None:
        """Also where an answer needs it, if that is what is shown of the document."""
        with self._asking:
            shown = self.prefills.get(document)
            for job, prefill in self._prefills_of(document):
                if self._jobs.withdraw(job):
                    self._not_read(prefill, head_words.READING_CANCELLED)
                else:
                    self._cancel(job)
            current = self._jobs.current
            if current is not None and current.prefill is shown:
                self._cancel(current)
            self._changed()

    def forget(self, document: str) -> None:
        """It is deleted: nothing that is under way is told of it any more."""
        with self._asking:
            for _, prefill in self._prefills_of(document):
                prefill.superseded = True
            self.cancel_prefill(document)
            for known in (self.problems, self.fits, self._counted):
                known.pop(document, None)
            self.too_long = {place for place in self.too_long if place[0] != document}

    def comes_to_front(self, document: str) -> None:
        """Before a document is shown that nobody looked at: its prefill passes no question that was asked meanwhile."""
        self._jobs.to_the_end(document)

    def reconfigure(self, config: EngineConfig) -> None:
        """Start the engine anew with another configuration, after the questions that are already queued."""
        if config != self.config:
            self._add(Job("engine", lambda: self._reconfigure(config)))

    @property
    def idle(self) -> bool:
        """Nothing is being done, and nothing waits."""
        return self.state == "ready" and not self._jobs.jobs()

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def ahead(self, waiting: Run | Prefill) -> Ahead | None:
        """What stands before a question or a prefill; None where nothing does."""
        jobs = [job for job in self._jobs.jobs() if job.kind != "trial"]
        place = next((n for n, job in enumerate(jobs) if job.run is waiting or job.prefill is waiting), 0)
        return self._estimates.ahead(jobs[:place], self._in_cache)

    def close(self, patience: float = 2.0) -> None:
        """Stop what is running, keep what there is, end the engine."""
        self._closing.set()
        job = self._jobs.current
        if job:
            self._cancel(job)
        self._jobs.close()
        if self._thread.is_alive():  # it never began where the page could not be opened
            self._thread.join(patience)
        for run in self._runs.active():  # their engine does not hear
            if run.conversation:
                run.error = chat_words.APP_ENDED
                self._keep(run, "failed")
        if self._engine:
            self._engine.close()
            self._thread.join(patience / 4)
        self._supports.close()

    def _put(self, kind: JobKind, run: Run, request: Request) -> Run:
        with self._asking:
            self._runs.add(run)
            self._add(self._job_of(kind, run, request))
        self._changed()
        return run

    def _job_of(self, kind: JobKind, run: Run, request: Request) -> Job:
        keep = self._every_so_often(run) if run.conversation else lambda: None
        job = Job(kind, lambda: self._serve(job, run, request, keep), request.selection,
                  Prefill(run.document, cancelled=run.cancelled), run, request)
        return job

    def _add(self, job: Job) -> None:
        """Queue what somebody wants; what nobody asked for makes way."""
        with self._asking:
            for other in self._jobs.jobs():
                if other.kind == "trial" and other.run is not None:
                    if self._jobs.withdraw(other):
                        other.run.state = "stopped"
                        other.run.heard()
                    else:
                        self._cancel(other)
            self._jobs.put(job)
            self._make_way(job)

    def _make_way(self, job: Job) -> None:
        """What is being read is paused for what somebody waits for: where nobody looks at it, or for a short one."""
        current = self._jobs.current
        if current is None or current.selection is None or job.selection is None:
            return
        front, reading = self._jobs.in_front(), current.selection.key
        waited_for = job.kind in ("answer", "race") or job.selection.key in front
        unseen = current.kind == "prefill" and reading not in front
        passes = current.opening and job.is_short and not current.is_short
        if reading != job.selection.key and waited_for and (unseen or passes):
            self._pause(current)

    def _pause(self, job: Job) -> bool:
        """Have what is being read end at its next chunk, to be gone on with. False: too late, it is nearly done."""
        if job.prefill is None or job.prefill.stage not in PAUSABLE or job.prefill.stopping:
            return False
        job.prefill.paused = True
        self._interrupt()
        return True

    def _interrupt(self) -> None:
        if self._engine:
            self._asked_to_stop = self._asked_to_stop or time.monotonic()
            self._engine.cancel()

    def _prefill_of(self, selection: Selection, before: Prefill | None = None) -> Job:
        """before: it was paused, so far as this tells."""
        wanted = Prefill(selection.key, progress=before.progress if before else None)
        return Job("prefill", lambda: self._prefill_job(selection, wanted), selection, wanted)

    def _prefills_of(self, document: str) -> list[tuple[Job, Prefill]]:
        """That are queued or under way for their own sake."""
        return [(job, job.prefill) for job in self._jobs.jobs()
                if job.kind == "prefill" and job.prefill is not None and job.prefill.document == document]

    # -- the one thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.take()) is not None:
            try:
                job.work()
            except Exception:  # the queue must outlive every job
                log.exception("a job of the engine queue failed")
            with self._asking:  # a stop that is on its way reaches this job, never the next one
                self._jobs.done()
                self._asked_to_stop = None
            self._changed()

    def _prefill_job(self, selection: Selection, prefill: Prefill) -> None:
        try:
            if prefill.cancelled.is_set():
                raise Stopped
            self._open(selection, prefill)
        except Stopped:
            with self._asking:
                if prefill.paused and not prefill.cancelled.is_set() and not prefill.superseded:
                    return self._jobs.put(self._prefill_of(selection, prefill))
            self._not_read(prefill, head_words.READING_CANCELLED)
        except TooLong:
            pass  # the page shows the choice, from ``fits``
        except Exception as error:
            self._not_read(prefill, self._explain(error))

    def _not_read(self, prefill: Prefill, why: str) -> None:
        if not prefill.superseded:
            self.problems[prefill.document] = why

    def _serve(self, job: Job, run: Run, request: Request, keep: Callable[[], None]) -> None:
        """Whatever happens, the run ends in one of its end states, or is queued anew."""
        prefill, state = job.prefill, cast(RunState, "done")
        assert prefill is not None
        try:
            if run.cancelled.is_set():
                raise Stopped
            run.state = "preparing"
            self._open(request.selection, prefill)
            if not run.race:
                self._expect_answers(request.selection)  # again: the process may have ended since, being idle
            for lane in range(len(request.lanes)):
                if lane:
                    run.accumulators.append(Accumulator(run.ranges))
                self._write_lane(run, request, lane, keep)
                self._estimates.answered(time.time() - run.began_at)
            if run.race:
                run.outcome = race.compare(run.accumulators, self.model, [name for name, _ in request.lanes]) | {
                    "ranges": run.ranges}
        except Stopped:
            if self._queued_instead(job, run):
                return
            state = "stopped"
        except TooLong as error:
            run.state = "queued"
            if not run.cancelled.is_set() and run.too_long(run):
                return self._changed()
            state, run.error, run.fit = "failed", choice_words.CHOOSE_PAGES_FIRST, error.fit
        except Exception as error:
            state, run.error, run.cause = "failed", self._explain(error), error.with_traceback(None)
        if not run.race and run.accumulator.text and self.model is not None and self.model.instructions:
            run.support = self._supports.of(request.selection, run.accumulator.text)
        self.end(run, state)

    def _queued_instead(self, job: Job, run: Run) -> bool:
        """Whether it was paused: to be answered from fewer pages, and the reading goes on behind that; or for something
        short."""
        with self._asking:
            if run.cancelled.is_set() or job.prefill is None or not job.prefill.paused or job.request is None:
                return False
            run.state = "queued"
            if job.instead is None or job.instead.selection is None:
                again = self._job_of(job.kind, run, job.request)
                again.prefill = dataclasses.replace(job.prefill, stage="waiting", paused=False)
                self._jobs.put(again, job.number)
                return True
            run.narrow(job.instead.selection.ranges)
            self._jobs.put(job.instead, job.number)
            if job.selection is not None:
                self._jobs.put(self._prefill_of(job.selection, job.prefill))
            return True

    def _trial(self, run: Run, request: Request) -> None:
        state: RunState = "stopped"
        try:
            if request.selection.same(self._in_cache) and not run.cancelled.is_set():
                self._write_lane(run, request, 0, lambda: None)
                state = "done"
        except Stopped:
            pass
        except Exception as error:  # nobody asked, so nobody is told
            log.debug("a trial ended: %s", self._explain(error))
        run.state = state
        run.heard()

    def _write_lane(self, run: Run, request: Request, lane: int, keep: Callable[[], None]) -> None:
        if run.cancelled.is_set():
            raise Stopped
        engine, accumulator = self._engine, run.accumulator
        assert engine is not None, "the document was opened by it"
        if opened := self.opened.get(run.document):
            accumulator.add(opened)
        run.state, run.began_at = "answering", time.time()
        self._watchdog.began("answer")
        for event in engine.ask(request.question, request.history, request.sampling, request.lanes[lane][1],
                                request.system):
            self._watchdog.heard()
            accumulator.add(event)
            keep()
            run.heard()
            if run.cancelled.is_set():
                engine.cancel()
        if accumulator.finished is None or accumulator.finished.reason == "cancelled":
            raise Stopped

    def end(self, run: Run, state: RunState, why: str = "") -> None:
        """Keep what came of it, then say that it is over: the next question's history is read from what is kept."""
        run.error = why or run.error if state != "done" else ""  # a stop that came too late
        if state == "stopped" and self._closing.is_set():
            state, run.error = "failed", chat_words.APP_ENDED
        try:
            if run.conversation:
                self._conversations.save_trace(run.id, run.accumulator.trace)
                self._keep(run, state)
            elif run.outcome:
                self._conversations.save_race(run.document, run.question, run.outcome)
        except Exception:
            log.exception("an answer could not be kept")
        finally:
            run.ended_at, run.state = time.time(), state
            self.counters.add(run)
            run.heard()
            self._changed()

    def _every_so_often(self, run: Run) -> Callable[[], None]:
        """Keeps what there is of an answer, but not at each call."""
        last_saved = time.monotonic()

        def keep() -> None:
            nonlocal last_saved
            if time.monotonic() - last_saved > SAVE_EVERY:
                last_saved = time.monotonic()
                self._keep(run, "running")

        return keep

    def _keep(self, run: Run, state: str) -> None:
        result = run.accumulator.result() | {"first_page": run.first_page, "ranges": run.ranges, "system": run.system,
                                      "quotes": run.quotes, "model": self.model.name if self.model else "",
                                      "support": run.support or []}
        result |= {"asked_about": run.asked_about} if run.asked_about else {}
        self._conversations.save(run.id, text=run.accumulator.text, token_ids=tuple(run.accumulator.token_ids),
                                 state=state,
                                 error=run.error, result=result)

    def _explain(self, error: Exception) -> str:
        text = super()._explain(error)
        if isinstance(error, EngineDiedError):
            self._add(Job("engine", self._load_quietly))  # a new one, before it is asked for
        return text

    def _cancel(self, job: Job) -> None:
        with self._asking:
            if job.prefill is None:
                return
            job.prefill.cancelled.set()
            if job is self._jobs.current:
                self._interrupt()
        self._changed()

    def _poll(self) -> None:
        while not self._closing.wait(POLL_EVERY):
            self._conversations.settle()
            engine, status = self._engine, None
            if engine:
                try:
                    status = engine.status()
                except Exception as error:  # only a display: never worth stopping for
                    log.debug("status: %s", type(error).__name__)
            ended = self._end_if_hung(status)
            if ended:
                self._add(Job("engine", self._load_quietly))
                status = None
            if ended or (status is not None and status != self.status):
                self.status = status
                self._changed()

    def _changed(self) -> None:
        with self._asking:  # so that the newest list is the last to be put up
            listed: dict[str, Prefill] = {}
            for job in self._jobs.jobs():
                if job.prefill is not None and (job.kind == "prefill" or job.opening):
                    before = listed.get(job.prefill.document)
                    if before is None or (before.cancelled.is_set() and not job.prefill.cancelled.is_set()):
                        listed[job.prefill.document] = job.prefill
            self.prefills = listed
            super()._changed()


__all__ = ["EngineQueue", "Prefill"]
