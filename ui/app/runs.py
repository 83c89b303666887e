"""Answers on their way, independent of any browser tab: the engine's thread writes them, any number of tabs read."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from triforce_core import DocumentFit, SpeculationConfig, metrics

from .accumulator import Accumulator

RunState = Literal["queued", "preparing", "answering", "done", "stopped", "failed"]
ENDED = ("done", "stopped", "failed")
KEPT = 20  # ended runs that stay for tabs that come late; answers live on in the database


@dataclass(eq=False)
class Run:
    """One answer (one lane) or one race (several) on its way.

    ranges: the document's pages that it is answered from. asked_about: the pages that were asked about where they are
    more. system: instructions for it. longest: tokens that it may have. began_at: when the writing of this lane began.
    outcome: of a race, once all lanes are in. fit: of pages that did not fit. support: of an answer in free words, its
    sentences compared with the document (None: they are not). heard: called after every change, by the thread that
    changes it. stop_asked: it was cancelled, and is to end."""

    document: str
    question: str
    conversation: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    race: bool = False
    lanes: tuple[tuple[str, SpeculationConfig], ...] = ()
    system: str = ""
    longest: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: RunState = "queued"
    error: str = ""
    accumulators: list[Accumulator] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)
    began_at: float = 0.0
    ended_at: float = 0.0
    outcome: dict[str, Any] = field(default_factory=dict)
    fit: DocumentFit | None = None
    cause: Exception | None = None
    support: list[dict[str, Any]] | None = None
    heard: Callable[[], None] = lambda: None
    asked_about: tuple[tuple[int, int], ...] = ()
    stop_asked: bool = False

    def __post_init__(self) -> None:
        self.accumulators.append(Accumulator(self.ranges))

    def about(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Set the pages to answer from, before it has begun."""
        self.ranges = ranges
        self.accumulators[:] = [Accumulator(ranges)]

    def narrow(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Answer from a part of the pages that were asked about, before it has begun."""
        self.asked_about = self.asked_about or self.ranges
        self.about(ranges)

    @property
    def first_page(self) -> int:
        """Return the document's page that page_shares[0] stands for."""
        return self.ranges[0][0] if self.ranges else 1

    @property
    def accumulator(self) -> Accumulator:
        """Return that of the lane that is being written."""
        return self.accumulators[-1]

    @property
    def quotes(self) -> list[dict[str, Any]]:
        """Return the quotations that decoding has reported, as plain JSON; pages count in the whole document."""
        return metrics.quotes_as_json(self.accumulator.quotes, self.ranges)

    def kept(self, model: str) -> dict[str, Any]:
        """Return everything a conversation keeps beside the text, as plain JSON. model: the one that writes it."""
        kept = self.accumulator.result() | {"first_page": self.first_page, "ranges": self.ranges, "system": self.system,
                                            "quotes": self.quotes, "model": model, "support": self.support or []}
        return kept | {"asked_about": self.asked_about} if self.asked_about else kept

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def stopping(self) -> bool:
        """Return whether a stop was asked for and is not confirmed yet."""
        return self.stop_asked and not self.ended

    @property
    def version(self) -> tuple[Any, ...]:
        return (self.id, self.state, self.stopping, len(self.accumulators), self.accumulator.version)


class RunStore:
    """Runs by id: those on their way and the last that ended. Thread-safe."""

    def __init__(self, keep: int = KEPT) -> None:
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
        return self._runs.get(key)

    def active(self) -> list[Run]:
        with self._lock:
            return [run for run in self._runs.values() if not run.ended]

    def of_conversation(self, conversation: str | None) -> Run | None:
        """Return the unfinished answer of a conversation, if there is one."""
        return next((run for run in self.active() if not run.race and run.conversation == conversation), None)

    def race_of(self, document: str | None) -> Run | None:
        """Return a document's newest race, running or ended."""
        with self._lock:
            races = [run for run in self._runs.values() if run.race and run.document == document]
        return races[-1] if races else None


class Counters:
    """Counts over every answer since the start, for ``/metrics``: numbers only, no word of a document.

    answers: by end state. tokens: "prompt", "reused" and "generated". tested, accepted: drafted tokens by tier. Written
    under the queue's lock."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.tested: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.full_passes = 0
        self.first_token_seconds = 0.0

    def add(self, run: Run) -> None:
        """Count an answer or a race that has ended."""
        self.answers[run.state] += 1
        for figures in (answer.figures() for answer in run.accumulators):
            self.tokens.update(prompt=figures.prompt_tokens, reused=figures.reused_tokens, generated=figures.tokens)
            self.full_passes += figures.full_passes
            self.first_token_seconds += figures.time_to_first_token
            for tier, (tested, accepted) in figures.acceptance.items():
                self.tested[tier] += tested
                self.accepted[tier] += accepted
