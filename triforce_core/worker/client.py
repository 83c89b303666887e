"""The engine's verbs for a process that must stay light and alive: same names, same events, no torch.

A pipe, not a queue: a verb runs in the thread of whoever iterates over it, one at a time, and who calls a second one
meanwhile gets EngineBusyError. The child is started by the first verb that needs it, and again after it died: model
and document are brought back before the request that found it dead is served. Only a request that had already begun
when the child died fails (EngineDiedError), after all its events.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..errors import DocumentError, EngineBusyError, EngineDiedError, NotEnoughMemoryError
from ..events import (
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    Event,
    Finished,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    Script,
    Turn,
)
from ..metrics import answer_stats
from .child import ENGINE, EngineChild
from .protocol import (
    Accepted,
    Answer,
    Ask,
    Cancel,
    Check,
    Crashed,
    EngineState,
    EngineStatus,
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

_LONGEST_PAUSE = 5.0  # seconds without a heartbeat, of which one comes each second: a busy machine sends them sooner
_DOING: Mapping[type[Verb], str] = {
    Check: "looking around", Load: "starting", Tune: "measuring this machine", Measure: "measuring a document",
    OpenDocument: "reading", Ask: "answering", Prepare: "making ready for the next answer"}
_Events = Generator[Event, None, DocumentFit | None]
_Inbox = queue.SimpleQueue[Answer | None]  # the messages of one request; None: the child is gone


class _Cancelled(Exception):
    """The call was cancelled before its own request had begun."""


class _NotAccepted(Exception):
    """The child was dead before it took the request: nothing has happened, so it can be sent again."""


class _Call:
    """A verb that has begun and not ended. Its requests follow each other: load, open, ask."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.cancelled = False
        self.request = 0  # number of the one that is under way


class EngineClient:
    """See the module. ``cancel``, ``status`` and ``close`` may be called from any thread at any time. A verb begins
    with the first event that is taken from it; an iterator that is closed or forgotten cancels its request.

    An ``ask`` or ``open_document`` that has to start the engine first yields LoadProgress and, for a document that
    is read again, PrefillProgress before its own events."""

    def __init__(self, config: EngineConfig, *, factory: str = ENGINE) -> None:
        self.config = config
        self._factory = factory
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._call: _Call | None = None
        self._child: EngineChild | None = None
        self._reader: threading.Thread | None = None  # of the child's messages
        self._listening = False
        self._inboxes: dict[int, _Inbox] = {}  # of the child's requests that have not ended, by their numbers
        self._model: ModelInfo | None = None
        self._facts: EngineFacts | None = None
        self._in_cache: str | None = None  # id of the document that the child holds
        self._document: Document | None = None  # the last one opened: brought back after a death
        self._cause = ""
        self._closed = False

    # -- the engine's verbs

    def check(self) -> Iterator[Event]:
        """Yield MachineInfo, ModelInfo: what there is and what would be loaded. Loads nothing."""
        return self._serve(Check())

    def load(self) -> Iterator[Event]:
        """Yield LoadProgress..., ModelInfo."""
        return self._serve(Load())

    def tune(self, contexts: Sequence[int] = ()) -> Iterator[Event]:
        """Yield PrefillProgress..., ModelInfo: measure what passes cost here; closes the open document."""
        return self._serve(Tune(tuple(contexts)))

    def measure(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                ) -> DocumentFit:
        """Return how many tokens a document has, and whether they fit. heard: called as they are counted."""
        events = self._serve(Measure(document))
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                if end.value is None:  # it was cancelled before it began
                    raise self._gone() from None
                return end.value  # type: ignore[no-any-return]
            if isinstance(event, PrefillProgress):
                heard(event)

    def open_document(self, document: Document) -> Iterator[Event]:
        """Yield PrefillProgress..., DocumentOpened; without DocumentOpened if it was cancelled."""
        return self._serve(OpenDocument(document))

    def ask(self, question: str | None, history: Sequence[Turn] = (), sampling: SamplingParams | None = None,
            speculation: SpeculationConfig | None = None, system: str = "", script: Script | None = None, *,
            document: Document | None = None) -> Iterator[Event]:
        """Yield PrefillProgress, RoundEvent and TextDelta..., Finished; one that is cancelled ends with Finished too.

        document: the one that the question is about, opened first if another is in the cache; None: the last one
        opened. question None: continue the document's text. system, script: as of ``Engine.ask``."""
        verb = Ask(question, tuple(history), sampling or SamplingParams(), speculation or SpeculationConfig(), system,
                   script)
        return self._serve(verb, document)

    def prepare(self) -> Iterator[Event]:
        """Yield PrefillProgress...: see ``Engine.prepare``. The child does so by itself while nothing is asked for:
        this waits for it."""
        return self._serve(Prepare())

    def cancel(self) -> None:
        """End early what is under way. Of no effect where nothing is."""
        with self._changed:
            call, child = self._call, self._child
            if call is None:
                return
            call.cancelled = True
            number = call.request
        if child is not None and number:
            _send_cancel(child, number)

    def status(self) -> EngineStatus:
        with self._changed:
            child, model, cause = self._child, self._model, self._cause
            if child is None or not child.alive:
                dead = child is not None or bool(cause) or self._closed
                return EngineStatus("dead" if dead else "starting", None, None, 0, None,
                                    cause or (child.how_it_ended() if child is not None else ""))
            state: EngineState = "busy" if self._call else "idle"
            if model is None:
                state = "loading" if self._call else "starting"
            in_cache, facts = self._in_cache, self._facts
        pause = child.silent_seconds()
        return EngineStatus(state, model, child.pid, child.rss_bytes(), in_cache, facts=facts,
                            cpu_seconds=child.cpu_seconds(), silent_seconds=int(pause) if pause > _LONGEST_PAUSE else 0)

    def close(self) -> None:
        """End the child within five seconds, and what is under way. Afterwards every verb raises EngineDiedError."""
        with self._changed:
            self._closed = True
            child = self._child
            if self._call is not None:
                self._call.cancelled = True
        if child is not None:
            child.end()
            self._release(child)

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one call at a time, in its caller's thread

    def _serve(self, verb: Verb, about: Document | None = None) -> _Events:
        """Yield the events of a verb. Raises EngineBusyError, EngineDiedError and what the engine raises."""
        call = self._begin(_DOING[type(verb)])
        try:
            try:
                return (yield from self._steps(call, verb, about))
            except _NotAccepted:  # found dead on arrival: once more with a new child
                self._bury()
                return (yield from self._steps(call, verb, about))
        except _NotAccepted:
            raise EngineDiedError(f"The engine does not start: {self._bury()}") from None
        except _Cancelled:
            if isinstance(verb, Ask):
                stats = answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0.0, engine="",
                                     why="cancelled")
                yield Finished("cancelled", "", (), stats)
            return None
        finally:
            self._end(call)

    def _steps(self, call: _Call, verb: Verb, about: Document | None) -> _Events:
        """Yield the events of a verb, behind those of what has to be there before it: a child, a model, a document."""
        wanted = about or self._document if isinstance(verb, Ask) else None
        if isinstance(verb, Ask) and wanted is None:
            raise DocumentError("No document is open", remedy="Open one first.")
        self._start()
        if isinstance(verb, Load) and self._model is not None:
            yield self._model
            return None
        if self._model is None and not isinstance(verb, Load | Check):
            yield from _only(LoadProgress, self._request(call, Load()))
        if wanted is not None and wanted.id != self._in_cache:
            yield from _only(PrefillProgress, self._request(call, OpenDocument(wanted)))
            if self._in_cache is None:
                raise _Cancelled
        return (yield from self._request(call, verb))

    def _begin(self, doing: str) -> _Call:
        with self._changed:
            if self._call is not None:
                raise EngineBusyError(f"The engine is {self._call.doing} and takes one request at a time",
                                      remedy="Ask again when that has ended, or cancel it.")
            call = self._call = _Call(doing)
            self._changed.wait_for(lambda: self._closed or not self._inboxes)  # one that was forgotten is ending
            if self._closed:
                self._call = None
                raise self._gone()
        return call

    def _end(self, call: _Call) -> None:
        with self._changed:
            self._call = None
            child = self._child if call.request in self._inboxes else None
        if child is not None:  # nobody wants the rest
            _send_cancel(child, call.request)

    def _request(self, call: _Call, verb: Verb) -> _Events:
        """Yield the events of one request. Raises what the engine raised, or EngineDiedError."""
        child, number, accepted = self._child, next(self._numbers), False
        assert child is not None
        inbox: _Inbox = queue.SimpleQueue()
        with self._changed:
            if call.cancelled:
                raise _Cancelled
            call.request = 0
            if isinstance(verb, OpenDocument | Tune):
                self._in_cache = None
            if self._listening:
                self._inboxes[number] = inbox
            else:
                inbox.put(None)
        with contextlib.suppress(OSError):  # its pipe is closed: that stands in the inbox, behind what it still said
            child.send(Request(number, verb))
        with self._changed:
            call.request = number
            if call.cancelled:  # while it was being sent: a frame in the middle of another would break the pipe
                _send_cancel(child, number)
        while True:
            message = inbox.get()
            if isinstance(message, Accepted):
                accepted = True
            elif isinstance(message, Yielded):
                self._note(verb, message.event)
                yield message.event
            elif isinstance(message, Returned):
                if isinstance(verb, Load):  # a child that dies is no reason to measure again
                    self.config = replace(self.config, tune=False)
                return message.value
            elif isinstance(message, Failed):
                raise message.error
            elif isinstance(message, Crashed):
                raise self._died(call, message.cause)
            elif self._closed:
                raise self._gone()
            elif accepted:
                raise self._died(call)
            else:
                raise _NotAccepted

    def _note(self, verb: Verb, event: Event) -> None:
        """Keep what an event says of the child."""
        with self._changed:
            if isinstance(event, ModelInfo) and not isinstance(verb, Check):
                self._model = event
            elif isinstance(event, DocumentOpened) and isinstance(verb, OpenDocument):
                self._in_cache, self._document = verb.document.id, verb.document

    # -- the child

    def _start(self) -> None:
        """Have a living child."""
        if self._child is not None and not self._child.alive:
            self._bury()
        if self._child is None:
            child = EngineChild(self.config, self._factory)
            with self._changed:
                self._child, self._cause, self._inboxes, self._listening = child, "", {}, True
                self._reader = threading.Thread(target=self._listen, args=(child, self._inboxes), name="engine-client",
                                                daemon=True)
                self._reader.start()
                closed = self._closed
            if closed:
                child.end(0.0)
                raise self._gone()

    def _listen(self, child: EngineChild, inboxes: dict[int, _Inbox]) -> None:
        """Give every message to the request whose number it carries, until the child is gone."""
        try:
            while True:
                self._deliver(child.receive(), inboxes)
        except EOFError:
            pass
        finally:
            with self._changed:
                self._listening = False
                for inbox in inboxes.values():
                    inbox.put(None)
                inboxes.clear()
                self._changed.notify_all()

    def _deliver(self, message: Answer, inboxes: dict[int, _Inbox]) -> None:
        with self._changed:
            inbox = inboxes.get(message.number)
            if isinstance(message, Reported):
                self._facts = message.facts
            elif inbox is not None:
                if isinstance(message, Failed) and isinstance(message.error, NotEnoughMemoryError):
                    self._in_cache = None  # it may have given its document back
                if isinstance(message, Returned | Failed | Crashed):
                    del inboxes[message.number]
                    self._changed.notify_all()
                inbox.put(message)

    def _died(self, call: _Call, cause: str = "") -> EngineDiedError:
        return EngineDiedError(f"The engine stopped while {call.doing}: {self._bury(cause)}",
                               remedy="What it had written is kept; the next request starts a new engine.")

    def _bury(self, cause: str = "") -> str:
        """Forget the dead child. Returns how it ended."""
        with self._changed:
            child = self._child
            self._child, self._model, self._in_cache, self._facts = None, None, None, None
        ending = ""
        if child is not None:
            ending = child.how_it_ended()
            self._release(child)
        self._cause = cause or ending
        return self._cause

    def _release(self, child: EngineChild) -> None:
        """Close the pipes of a child that has ended."""
        if self._reader is not None:
            self._reader.join(0.5)
        child.close_pipes()

    def _gone(self) -> EngineDiedError:
        return EngineDiedError("The engine has been closed", remedy="Start the app again.")


def _only(kind: type, events: Iterator[Event]) -> Iterator[Event]:
    return (event for event in events if isinstance(event, kind))


def _send_cancel(child: EngineChild, number: int) -> None:
    with contextlib.suppress(OSError):  # it has died: its caller finds out
        child.send(Cancel(number))
