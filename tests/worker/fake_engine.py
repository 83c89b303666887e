"""The engine's verbs with scripted tokens and no torch; runs in the real child. Questions steer it:

"slow": rounds for ever, until cancelled; "die": SIGKILL of its own process after three rounds; "bug": an unexpected
exception; "oom"; "exit": ends with status 3; "mute": closes the pipe that it answers on and stays; "compute": without a
word, until cancelled; "hold": stays in compiled code with the interpreter's lock; "sleep": there without it; "print":
writes to stdout; "error": a TriForceError. "prepare for long" and "prepare with a bug": what it does behind the answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document
from triforce_core.errors import ContextTooLongError, ModelNotFoundError
from triforce_core.events import (
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    Event,
    Finished,
    LoadProgress,
    MachineInfo,
    ModelInfo,
    PageSpan,
    PrefillProgress,
    RoundEvent,
    Script,
    TextDelta,
    TierCount,
    Turn,
)
from triforce_core.metrics import answer_stats


def _close_what_is_written_to() -> None:
    """Only that: without the pipe of requests the child would take its parent for gone, and end by itself."""
    import fcntl  # not on every system that can import this module

    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                os.close(descriptor)


class FakeEngine:
    def __init__(self, config: EngineConfig) -> None:
        self._config, self._document, self._cancelled = config, None, threading.Event()
        self._looks = 0
        self._asked: str | None = None

    def check(self) -> Iterator[Event]:
        yield MachineInfo((("CPU", "one"),))
        yield ModelInfo(self._config.model, "none", "cpu", "", "cpu", "float32", 1000, 0, 0)

    def facts(self) -> EngineFacts:
        self._looks += 1
        return EngineFacts("cpu", f"look {self._looks}", 1, 2)

    def load(self) -> Iterator[Event]:
        yield LoadProgress("weights", 0.5)
        if self._config.model == "missing":
            raise ModelNotFoundError("There is no model 'missing'", remedy="Give a folder.")
        if self._config.model == "unloadable":
            os.kill(os.getpid(), signal.SIGSEGV)
        assert "torch" not in sys.modules
        yield ModelInfo(self._config.model, "none", "cpu", "", "cpu", "float32", 1000, 0, 0)

    def measure(self, document: Document, heard=lambda progress: None) -> DocumentFit:
        heard(PrefillProgress(1, 3, 1.0, 2.0, "tokenize"))
        tokens = tuple(len(page.text) for page in document.pages)
        return DocumentFit(sum(tokens), 900, tokens)

    def open_document(self, document: Document) -> Iterator[Event]:
        self._cancelled.clear()
        self._document = None
        if not self.measure(document).fits:
            raise ContextTooLongError("too long")
        for done in range(1, 4):
            if document.title == "slow":
                while not self._cancelled.wait(0.01):
                    yield PrefillProgress(0, 3, 1.0, None)
            if self._cancelled.is_set():
                return
            yield PrefillProgress(done, 3, 1.0, None)
        self._document = document
        yield DocumentOpened(document.id, 3, (PageSpan("1", 0, 3),), 0.1, 0.1, False, 1000)

    def prepare(self) -> Iterator[Event]:
        self._cancelled.clear()
        if self._asked == "prepare with a bug":
            raise RuntimeError("a bug between answers")
        while self._asked == "prepare for long" and not self._cancelled.wait(0.01):
            yield PrefillProgress(0, 3, 1.0, None, "warm-up")
        yield PrefillProgress(3, 3, 1.0, 0.0, "warm-up")

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[Event]:
        self._cancelled.clear()
        self._asked = question
        if question == "print":
            print("noise on stdout")
            os.write(1, b"more noise\n")
        if question == "error":
            raise ContextTooLongError("The question is too long", allowed="9 words", remedy="Ask less.")
        rounds: list[RoundEvent] = []
        reason = "length"
        words = f"{os.getpid()} {self._document.title if self._document else None} {len(history)}".split()
        while question == "compute" and not self._cancelled.is_set():
            sum(range(10_000))
        if question == "hold":
            ctypes.PyDLL(None).sleep(60)
        if question == "sleep":
            ctypes.CDLL(None).sleep(20)
        for i in range(10**9 if question == "slow" else 6):
            if self._cancelled.is_set():
                reason = "cancelled"
                break
            if question == "slow":
                time.sleep(0.005)
            if i == 3 and question == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if i == 3 and question == "bug":
                raise RuntimeError("CUDA error: device-side assert triggered")
            if i == 3 and question == "oom":
                raise MemoryError
            if i == 3 and question == "exit":
                os._exit(3)
            if i == 3 and question == "mute":
                _close_what_is_written_to()
                time.sleep(60)
            rounds.append(RoundEvent(i, (i,), ("draft",), (TierCount("draft", 2, 1),), {"verify": 1.0}, None, i * 0.1))
            yield rounds[-1]
            yield TextDelta(words[i] + " " if i < len(words) else "x")
        stats = answer_stats(rounds, prompt_tokens=1, reused_tokens=3, prefill_seconds=0.0, engine="triforce", why="")
        yield Finished(reason, " ".join(words), tuple(range(len(rounds))), stats)  # type: ignore[arg-type]

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        if self._config.draft_model == "stubborn":
            time.sleep(60)
