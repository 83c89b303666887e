"""Jobs in the order in which they will be done.

Questions, and prefills of documents that somebody has open in front, go in the order in which they were asked for;
behind them the prefills of documents that nobody looks at now, and last what nobody asked for. So what is asked for
later never goes before a question, unless it is about a note, which is read in a second: that waits for no book.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection

from .jobs import Job


class JobQueue:
    """Any thread may put and withdraw; one takes, and says when it is done."""

    def __init__(self, in_front: Callable[[], Collection[str]]) -> None:
        """in_front: the documents that somebody looks at now."""
        self.in_front = in_front
        self._news = threading.Condition()
        self._waiting: list[Job] = []
        self._current: Job | None = None
        self._numbers = itertools.count(1)
        self._closed = False

    @property
    def current(self) -> Job | None:
        """The one that is being done."""
        return self._current

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, job: Job, number: int = 0) -> None:
        """number: of the job in whose place it comes; 0 for a place behind all others."""
        with self._news:
            job.number = number or next(self._numbers)
            self._waiting.append(job)
            self._news.notify()

    def to_the_end(self, document: str) -> None:
        """A document comes back to the front: its prefill goes behind the questions that were asked meanwhile."""
        with self._news:
            for job in self._waiting:
                if job.kind == "prefill" and job.selection and job.selection.key == document:
                    job.number = next(self._numbers)

    def withdraw(self, job: Job) -> bool:
        """Take a job back. False: too late, it is being done or done already."""
        with self._news:
            if job in self._waiting:
                self._waiting.remove(job)
                return True
            return False

    def jobs(self) -> list[Job]:
        """The one that is being done, then the others in the order in which they will be."""
        with self._news:
            return [*([self._current] if self._current else []), *self._ordered()]

    def take(self) -> Job | None:
        """The next job, as soon as there is one; None once the queue is closed."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._current = self._ordered()[0]
            self._waiting.remove(self._current)
            return self._current

    def done(self) -> None:
        with self._news:
            self._current = None

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _ordered(self) -> list[Job]:
        front = self.in_front()
        restarts = [job.number for job in self._waiting if job.kind == "engine"]  # nothing passes them
        return sorted(self._waiting, key=lambda job: (
            job.kind == "trial",
            job.kind == "prefill" and job.selection is not None and job.selection.key not in front,
            sum(number <= job.number for number in restarts), job.kind != "engine",
            not job.is_short, job.number))
