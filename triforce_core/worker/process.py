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
from typing import TYPE_CHECKING

from ..config import EngineConfig
from ..errors import TriForceError
from ..events import DocumentFit, Event
from ..native_build import compile_ahead
from ..pipe import Close, Receiver, Sender, parents_pipes
from .child import HEARTBEAT, beat
from .followers import Followers
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
    Verb,
    Yielded,
)

if TYPE_CHECKING:
    from ..device.shard import Shard
    from ..engine.engine import Engine


_REPORT_EVERY = 1.0  # seconds, while a request is worked on


class Rank:
    """One rank's engine: does what is asked with it, together with the other ranks where there are any."""

    def __init__(self, config: EngineConfig, factory: str, lost: Callable[[str], None], rank: int, port: int) -> None:
        """lost: ends this process, whose followers are gone or out of step, and says why. rank, port: of a follower,
        and where it finds the others."""
        self.number, self._port = rank, port
        self._config, self._factory, self._lost = config, factory, lost
        self._shard: Shard | None = None
        self.followers: Followers | None = None
        self.engine: Engine | None = None

    def perform(self, request: Request, say: Callable[[Event], None], ended: Callable[[], bool]) -> DocumentFit | None:
        """Do a request with every rank that this one leads; a check or a count of tokens needs but one. say: takes its
        events. ended: asked after each event whether it shall end early. Raises what the engine raises."""
        if self._config.gpus > 1 and not isinstance(request.verb, Check | Measure):
            if self._shard is None:
                self._meet(request)
            elif self.followers is not None:
                self.followers.begin(request)
            if self.followers is not None:
                try:
                    value = self._perform(request.verb, say, ended)
                except TriForceError as error:
                    self.followers.settle(error)
                    raise
                self.followers.settle(None)
                return value
        return self._perform(request.verb, say, ended)

    def _perform(self, verb: Verb, say: Callable[[Event], None], ended: Callable[[], bool]) -> DocumentFit | None:
        if isinstance(verb, Measure):
            assert self.engine is not None, "Load comes first"
            return self.engine.measure(verb.document, say)
        for event in self._events(verb):
            if self.followers is not None:
                self.followers.progressed()
            say(event)
            # A cancel may have come before the engine had begun (and cleared its flag): say it again.
            if self.engine is not None and ended():
                self.engine.cancel()
        return None

    def _events(self, verb: Verb) -> Iterator[Event]:
        if isinstance(verb, Check):
            yield from self._make().check()
        elif isinstance(verb, Load):
            engine = self._make()
            yield from engine.load()
            self.engine = engine
        else:
            assert self.engine is not None, "Load comes first"
            if isinstance(verb, Tune):
                yield from self.engine.tune(verb.contexts)
            elif isinstance(verb, OpenDocument):
                yield from self.engine.open_document(verb.document)
            elif isinstance(verb, Prepare):
                yield from self.engine.prepare()
            elif isinstance(verb, Ask):
                yield from self.engine.ask(verb.question, verb.history, verb.sampling, verb.speculation, verb.system,
                                           verb.script)

    def _make(self) -> Engine:
        module, name, *arguments = self._factory.split(":")
        shard = {} if self._shard is None else {"shard": self._shard}
        made: Engine = getattr(importlib.import_module(module), name)(*arguments, self._config, **shard)
        return made

    def _meet(self, request: Request) -> None:
        """Have rank 0 start the others, which get this request, and wait until all are there. Raises ConfigError."""
        from ..device.shard import meet, open_meeting, require_gpus

        config, listener = self._config, None
        require_gpus(config.gpus, config.on_cpu)
        if self.number == 0:
            listener, self._port = open_meeting()
            self.followers = Followers(config, self._factory, self._port, self._lost)
            self.followers.begin(request)
        self._shard = meet(self.number, config.gpus, self._port, not config.on_cpu, listener)


class Process:
    """The child's state: the request in hand, and which requests are to be cancelled."""

    def __init__(self, config: EngineConfig, factory: str, receiver: Receiver, sender: Sender, rank: int = 0,
                 port: int = 0) -> None:
        self._receiver, self._sender = receiver, sender
        self._rank = Rank(config, factory, self._lost, rank, port)
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._current = 0
        self._busy = False
        self._idle = False  # nothing was asked for: what the next answer needs is made ready
        self._cancelled: set[int] = set()
        self._closing = False

    def run(self) -> None:
        """Do requests, one at a time, until asked to end."""
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        threading.Thread(target=self._keep_reporting, name="report", daemon=True).start()
        while (request := self._inbox.get()) is not None:
            self._answer(request)
            if isinstance(request.verb, Ask):
                self._prepare(request.number)
        if self._rank.followers is not None:
            self._rank.followers.end()
        if self._rank.engine is not None:
            self._rank.engine.close()

    def _listen(self) -> None:
        while True:
            try:
                message = self._receiver.receive()
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone: nobody wants the answer
            if isinstance(message, Request):
                self._inbox.put(message)
                if self._idle and self._rank.engine is not None:
                    self._rank.engine.cancel()  # somebody waits
            elif isinstance(message, Cancel):
                self._cancel(message.number)
            elif isinstance(message, Close):
                self._closing = True
                self._cancel(self._current)
                self._inbox.put(None)

    def _keep_reporting(self) -> None:
        """Report now and then, in a thread of its own: the one that works is never held up."""
        while True:
            time.sleep(_REPORT_EVERY)
            if self._busy:
                self._report()

    def _report(self) -> None:
        facts = self._rank.engine.facts() if self._rank.engine is not None else None
        if facts is not None:
            with contextlib.suppress(OSError):  # the parent is gone: the listener ends this process
                self._sender.send(Reported(self._current, facts))

    def _cancel(self, number: int) -> None:
        if self._rank.followers is not None:
            self._rank.followers.cancel(number)
        with self._lock:
            if number >= self._current:
                self._cancelled.add(number)
            if number == self._current and self._rank.engine is not None:
                self._rank.engine.cancel()

    def _answer(self, request: Request) -> None:
        with self._lock:
            self._current, self._busy = request.number, True
        self._sender.send(Accepted(request.number))
        try:
            value = self._perform(request)
        except TriForceError as error:
            self._sender.send(Failed(request.number, error))
        except BaseException as error:
            if self._rank.followers is not None:
                self._rank.followers.await_news()
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

    def _perform(self, request: Request) -> DocumentFit | None:
        def say(event: Event) -> None:
            if self._rank.number == 0 and not self._idle:  # nobody wants a follower's
                self._sender.send(Yielded(request.number, event))

        return self._rank.perform(request, say, lambda: (
            self._closing or request.number in self._cancelled or (self._idle and not self._inbox.empty())))

    def _prepare(self, number: int) -> None:
        """Make the next answer ready until something is asked for. Nobody waits for it, so a failure goes to the log.
        """
        if self._rank.number or self._closing or not self._inbox.empty():
            return
        self._idle = True
        try:
            self._perform(Request(number, Prepare()))
        except TriForceError as error:
            print(f"triforce_core: the next answer is not prepared: {error}", file=sys.stderr, flush=True)
        finally:
            self._idle = False

    def _lost(self, cause: str) -> None:
        """End the process: the thread that works may wait for ever for a follower that is gone or out of step."""
        print(f"triforce_core: {cause}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            if self._busy:
                self._sender.send(Crashed(self._current, cause))
        os._exit(1)


def _in_words(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0][:300]
    if isinstance(error, MemoryError) or "out of memory" in text.lower() or "can't allocate memory" in text.lower():
        return f"it ran out of memory ({type(error).__name__}: {text})"
    return f"an unexpected error ({type(error).__name__}: {text})"


def _die_first() -> None:
    """Have the kernel end this process and not the page where memory runs out."""
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
