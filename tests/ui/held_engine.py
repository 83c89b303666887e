"""The scripted engine, one event at a time: each waits until the test lets it go, so that a test is the clock."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from little_books import wait_for

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import (
    Document,
    DocumentFit,
    EngineConfig,
    PrefillProgress,
    SamplingParams,
    Script,
    SpeculationConfig,
    Turn,
)
from triforce_core.worker.protocol import EngineStatus

INSTANTLY = 1e9


def quick_script(**more: Any) -> EngineScript:
    """Nothing takes time but what is held."""
    return EngineScript(load_seconds=0, restore_seconds=0, prefill_tokens_per_second=INSTANTLY, prefill_chunk=150,
                        triforce_tokens_per_second=INSTANTLY, plain_tokens_per_second=INSTANTLY, answer_words=40,
                        **more)


def wait_for_text(extractor: Any) -> None:
    """Until every text is taken out of its file, and what was to follow from that has followed."""
    wait_for(lambda: not extractor.extractions)
    workers = extractor._pool._max_workers
    meeting = threading.Barrier(workers + 1)  # who comes to it has nothing else to do
    for _ in range(workers):
        extractor._pool.submit(meeting.wait)
    meeting.wait(10.0)


class Gate:
    """Open, it lets everything through; closed, as many as ``let`` says."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._open, self._allowed, self._held = True, 0, 0

    @property
    def holds(self) -> bool:
        """Return whether somebody stands before it and may not go on."""
        with self._news:
            return self._held > 0 and not self._open and not self._allowed

    def pass_through(self) -> None:
        with self._news:
            self._held += 1
            self._news.wait_for(lambda: self._open or self._allowed)
            self._held -= 1
            self._allowed = max(0, self._allowed - 1)

    def let(self, number: int) -> None:
        with self._news:
            self._allowed = number
            self._news.notify_all()

    def set(self, is_open: bool) -> None:
        with self._news:
            self._open, self._allowed = is_open, 0
            self._news.notify_all()


class HeldEngine(ScriptedEngine):
    """It hears a cancel only when it is let go on, as a real one does in a long step."""

    def __init__(self, config: EngineConfig, held: Held) -> None:
        super().__init__(config, held.script)
        self._all, self._gate = held, held.gate

    def load(self) -> Iterator[Any]:
        yield from self._held(super().load())

    def measure(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                ) -> DocumentFit:
        self._gate.pass_through()
        return super().measure(document, heard)

    def open_document(self, document: Document) -> Iterator[Any]:
        yield from self._held(super().open_document(document))
        if self._document is document:
            self._all.opened.append(document.id)

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[Any]:
        assert self._document is not None
        self._all.asked[f"{question} {sampling.seed}"] = self._document.id, tuple(turn.question for turn in history)
        yield from self._held(super().ask(question, history, sampling, speculation, system, script))

    def status(self) -> EngineStatus:
        self._all.looks += 1
        return dataclasses.replace(super().status(), cpu_seconds=time.monotonic() if self._all.computes else 0.0)

    def close(self) -> None:
        self._gate.set(True)
        super().close()

    def _held(self, events: Iterator[Any]) -> Iterator[Any]:
        for event in events:
            self._gate.pass_through()
            yield event


class Held:
    """The engine of a test: ``make`` is for the services. One that died is followed by another behind the same gate.

    opened: the id of every document that was put into the cache. asked: "question seed" -> the document's id and the
    questions of its history. looks: how often its state was asked for; computes: whether its process seems to."""

    def __init__(self, script: EngineScript) -> None:
        self.script, self.gate = script, Gate()
        self.opened: list[str] = []
        self.looks, self.computes = 0, False
        self.asked: dict[str, tuple[str, tuple[str, ...]]] = {}

    def make(self, config: EngineConfig) -> HeldEngine:
        return HeldEngine(config, self)

    def at_rest(self, queue: Any) -> bool:
        """It stands before the gate, or has nothing to do."""
        return self.gate.holds or (queue.current is None and not queue.waiting)

    def let(self, queue: Any, number: int = 1) -> None:
        """So many events, and what follows from them."""
        self.gate.let(number)
        wait_for(lambda: self.at_rest(queue))

    def let_all(self, queue: Any) -> None:
        """Until nothing is left to do; the gate is closed again then."""
        self.gate.set(True)
        wait_for(lambda: queue.current is None and not queue.waiting, 30.0)
        self.gate.set(False)
