"""The child: owns the engine, does one request at a time, and ends when the parent does.

    python -m triforce_core.worker.process MODULE:CLASS [RANK PORT]    (started by ``child``, which speaks ``protocol``)

MODULE:FUNCTION:ARGUMENT works as well. With a rank it follows another such process, see ``followers``.

The main thread works. A reader thread takes messages meanwhile, so that a cancel is heard while a job streams,
and ends the process at once when the parent's end of the pipe closes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import EngineConfig
from ..errors import TriForceError
from ..events import DocumentFit, Event
from ..native_build import compile_ahead
from ..pipe import Close, Receiver, Sender, parents_pipes
from .child import HEARTBEAT
from .followers import Followers
from .heartbeat import beat
from .protocol import (
    Accepted,
    Ask,
    Cancel,
    Check,
    Crashed,
    Failed,
    Load,
    Measure,
    OpenDocument,
    Prepare,
    Reported,
    Request,
    Returned,
    Tune,
    Yielded,
)

if TYPE_CHECKING:
    from ..device.shard import Shard
    from ..engine.engine import Engine


_REPORT_EVERY = 1.0  # seconds, while a request is worked on


# large: the pipe, the engine, the thread that works and what it works on
class Process:
    """State of the child: the engine, the request in hand, and which requests are to be cancelled."""

    def __init__(self, config: EngineConfig, factory: str, receiver: Receiver, sender: Sender, rank: int = 0,
                 port: int = 0) -> None:
        """rank, port: of a follower, and where it finds the others."""
        self._config, self._factory, self._receiver, self._sender = config, factory, receiver, sender
        self._rank, self._port = rank, port
        self._shard: Shard | None = None
        self._followers: Followers | None = None
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._current = 0
        self._busy = False
        self._idle = False  # nothing was asked for: what the next answer needs is made ready
        self._cancelled: set[int] = set()
        self._closing = False

    def run(self) -> None:
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        threading.Thread(target=self._keep_reporting, name="report", daemon=True).start()
        while (request := self._inbox.get()) is not None:
            self._answer(request)
            if isinstance(request.verb, Ask):
                self._prepare(request.number)
        if self._followers is not None:
            self._followers.end()
        if self._engine is not None:
            self._engine.close()

    def _listen(self) -> None:
        while True:
            try:
                message = self._receiver.receive()
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone: nobody wants the answer
            if isinstance(message, Request):
                self._inbox.put(message)
                if self._idle and self._engine is not None:
                    self._engine.cancel()  # somebody waits
            elif isinstance(message, Cancel):
                self._cancel(message.number)
            elif isinstance(message, Close):
                self._closing = True
                self._cancel(self._current)
                self._inbox.put(None)

    def _keep_reporting(self) -> None:
        """In a thread of its own: the one that works is never held up."""
        while True:
            time.sleep(_REPORT_EVERY)
            if self._busy:
                self._report()

    def _report(self) -> None:
        facts = self._engine.facts() if self._engine is not None else None
        if facts is not None:
            with contextlib.suppress(OSError):  # the parent is gone: the listener ends this process
                self._sender.send(Reported(self._current, facts))

    def _cancel(self, number: int) -> None:
        if self._followers is not None:
            self._followers.cancel(number)
        with self._lock:
            if number >= self._current:
                self._cancelled.add(number)
            if number == self._current and self._engine is not None:
                self._engine.cancel()

    def _answer(self, request: Request) -> None:
        with self._lock:
            self._current, self._busy = request.number, True
        self._sender.send(Accepted(request.number))
        try:
            value = self._perform_together(request)
        except TriForceError as error:
            self._sender.send(Failed(request.number, error))
        except BaseException as error:
            if self._followers is not None:
                self._followers.await_news()
            traceback.print_exc()
            with contextlib.suppress(OSError):
                self._sender.send(Crashed(request.number, _in_words(error)))
            os._exit(1)
        else:
            self._report()
            self._sender.send(Returned(request.number, value))
        finally:
            with self._lock:
                self._current = request.number + 1  # a late cancel of this request finds nothing to cancel
                self._busy = False
                self._cancelled = {number for number in self._cancelled if number > request.number}

    def _prepare(self, number: int) -> None:
        """Until something is asked for. Nobody waits for it, so nobody is told but of a failure, by the log."""
        if self._rank or self._closing or not self._inbox.empty():
            return
        self._idle = True
        try:
            self._perform_together(Request(number, Prepare()))
        except TriForceError as error:
            print(f"triforce_core: the next answer is not prepared: {error}", file=sys.stderr, flush=True)
        finally:
            self._idle = False

    def _perform_together(self, request: Request) -> DocumentFit | None:
        """With every rank that this process leads. A check or a count of tokens needs but one."""
        if self._config.gpus == 1 or isinstance(request.verb, Check | Measure):
            return self._perform(request)
        if self._shard is None:
            self._meet(request)
        elif self._followers is not None:
            self._followers.begin(request)
        if self._followers is None:
            return self._perform(request)
        try:
            value = self._perform(request)
        except TriForceError as error:
            self._followers.settle(error)
            raise
        self._followers.settle(None)
        return value

    def _meet(self, request: Request) -> None:
        """Rank 0 starts the others, which get this request, and all wait for each other. Raises ConfigError."""
        from ..device.shard import meet, open_meeting, require_gpus

        config, listener = self._config, None
        require_gpus(config.gpus, config.on_cpu)
        if self._rank == 0:
            listener, self._port = open_meeting()
            self._followers = Followers(config, self._factory, self._port, self._lost)
            self._followers.begin(request)
        self._shard = meet(self._rank, config.gpus, self._port, not config.on_cpu, listener)

    def _lost(self, cause: str) -> None:
        """A follower is gone or out of step. The thread that works may wait for it for ever: end the process."""
        print(f"triforce_core: {cause}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            if self._busy:
                self._sender.send(Crashed(self._current, cause))
        os._exit(1)

    def _perform(self, request: Request) -> DocumentFit | None:
        verb = request.verb
        if isinstance(verb, Check):
            for event in _engine_maker(self._factory)(self._config).check():
                self._yield(request, event)
            return None
        if isinstance(verb, Load):
            make = _engine_maker(self._factory)
            engine = make(self._config) if self._shard is None else make(self._config, shard=self._shard)
            for event in engine.load():
                self._yield(request, event)
            self._engine = engine
            return None
        assert self._engine is not None, "Load comes first"
        if isinstance(verb, Measure):
            return self._engine.measure(verb.document, partial(self._yield, request))
        events: Iterator[Event]
        if isinstance(verb, Tune):
            events = self._engine.tune(verb.contexts)
        elif isinstance(verb, OpenDocument):
            events = self._engine.open_document(verb.document)
        elif isinstance(verb, Prepare):
            events = self._engine.prepare()
        else:
            assert isinstance(verb, Ask)
            events = self._engine.ask(verb.question, verb.history, verb.sampling, verb.speculation, verb.system)
        for event in events:
            self._yield(request, event)
            # A cancel may have come before the engine had begun (and cleared its flag): say it again.
            if self._closing or request.number in self._cancelled or (self._idle and not self._inbox.empty()):
                self._engine.cancel()
        return None

    def _yield(self, request: Request, event: Event) -> None:
        if self._followers is not None:
            self._followers.progressed()
        if self._rank == 0 and not self._idle:  # nobody wants a follower's
            self._sender.send(Yielded(request.number, event))


def _engine_maker(factory: str) -> Callable[..., Any]:
    module, name, *arguments = factory.split(":")
    return partial(getattr(importlib.import_module(module), name), *arguments)


def _in_words(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0][:300]
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text.lower():
        return f"it ran out of memory ({type(error).__name__}: {text})"
    return f"an unexpected error ({type(error).__name__}: {text})"


def _die_first() -> None:
    """Where memory runs out, the kernel shall end this process and not the page."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def main() -> None:
    _die_first()
    if descriptor := os.environ.pop(HEARTBEAT, ""):
        beat(int(descriptor))
    receiver, sender = parents_pipes()
    try:
        config = receiver.receive()
    except EOFError:
        return
    factory, *place = sys.argv[1:]
    compile_ahead()
    Process(config, factory, receiver, sender, *map(int, place)).run()
    sys.stderr.flush()
    os._exit(0)  # the reader thread still waits on its pipe


if __name__ == "__main__":
    main()
