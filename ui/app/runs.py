"""What is being answered, independent of any browser tab: id -> text, figures, state.

The engine thread writes, any number of tabs read; reload, a second tab and a closed lid change nothing here.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from triforce_core import (
    DocumentFit,
    SpeculationConfig,
    metrics,
)

from .accumulator import Accumulator

RunState = Literal["queued", "preparing", "answering", "done", "stopped", "failed"]
ENDED = ("done", "stopped", "failed")


class Cancellable(Protocol):
    @property
    def cancelled(self) -> bool: ...


@dataclass(eq=False)
class Run:
    """One answer (one lane) or one race (several) on its way. Only the engine thread changes state, save for what never
    began.

    ranges: the document's pages that it is answered from. asked_about: those that were asked about, where they are
    more: the rest was still being read. system: instructions for it. longest: tokens that it may have.
    began_at: when the writing of this lane began. heard: called after every change, by the thread that changes it.
    job: as what it stands in the queue, until it has ended."""

    document: str
    question: str
    conversation: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    race: bool = False
    lanes: tuple[tuple[str, SpeculationConfig], ...] = ()  # of a race: each lane's name and configuration
    system: str = ""
    longest: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: RunState = "queued"
    error: str = ""
    accumulators: list[Accumulator] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)
    began_at: float = 0.0
    ended_at: float = 0.0
    outcome: dict[str, Any] = field(default_factory=dict)  # of a race, once both lanes are in
    fit: DocumentFit | None = None  # of what did not fit
    cause: Exception | None = None  # of a failure
    support: list[dict[str, Any]] | None = None  # of an answer in free words, once it has ended: see ``Supports.of``
    heard: Callable[[], None] = lambda: None
    asked_about: tuple[tuple[int, int], ...] = ()
    job: Cancellable | None = None

    def __post_init__(self) -> None:
        self.accumulators.append(Accumulator(self.ranges))

    def about(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """These pages are meant. Before it has begun."""
        self.ranges = ranges
        self.accumulators[:] = [Accumulator(ranges)]

    def narrow(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Answer from these pages, a part of what was asked about. Before it has begun."""
        self.asked_about = self.asked_about or self.ranges
        self.about(ranges)

    @property
    def first_page(self) -> int:
        """The document's page that page_shares[0] stands for."""
        return self.ranges[0][0] if self.ranges else 1

    @property
    def accumulator(self) -> Accumulator:
        """The lane that is being written."""
        return self.accumulators[-1]

    @property
    def quotes(self) -> list[dict[str, Any]]:
        """What decoding has told of the answer's quotations, as plain JSON; pages count in the whole document."""
        return metrics.quotes_as_json(self.accumulator.quotes, self.ranges)

    def kept(self, model: str) -> dict[str, Any]:
        """Return what a conversation keeps of it beside its text, as plain JSON. model: which one writes it."""
        kept = self.accumulator.result() | {"first_page": self.first_page, "ranges": self.ranges, "system": self.system,
                                            "quotes": self.quotes, "model": model, "support": self.support or []}
        return kept | {"asked_about": self.asked_about} if self.asked_about else kept

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def stopping(self) -> bool:
        """A stop was asked for and is not confirmed yet."""
        job = self.job  # another thread may let go of it
        return job is not None and job.cancelled and not self.ended

    @property
    def version(self) -> tuple[Any, ...]:
        return (self.id, self.state, self.stopping, len(self.accumulators), self.accumulator.version)


class RunStore:
    """Runs by id; the last ``keep`` ended ones stay for tabs that come late. Answers live on in the database."""

    def __init__(self, keep: int = 20) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._keep = keep

    def add(self, run: Run) -> Run:
        with self._lock:
            self._runs[run.id] = run
            ended = [run.id for run in self._runs.values() if run.ended]
            for key in ended[: max(0, len(ended) - self._keep)]:
                del self._runs[key]
        return run

    def get(self, key: str) -> Run | None:
        with self._lock:
            return self._runs.get(key)

    def active(self) -> list[Run]:
        with self._lock:
            return [run for run in self._runs.values() if not run.ended]

    def of_conversation(self, conversation: str | None) -> Run | None:
        """The unfinished answer of a conversation, if there is one."""
        return next((run for run in self.active() if not run.race and run.conversation == conversation), None)

    def race_of(self, document: str | None) -> Run | None:
        """A document's newest race, running or ended."""
        with self._lock:
            races = [run for run in self._runs.values() if run.race and run.document == document]
        return races[-1] if races else None
