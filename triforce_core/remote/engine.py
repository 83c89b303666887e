"""Answer the engine's verbs by a server elsewhere: the whole document and the conversation are sent to it.

The server's silence is not filled: no tiers, no attention, no tokens by number. Tokens are counted by the
server (its usage, or its tokenizer where it has one); where it counts nothing they are estimated, and marked so.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..documents.cleanup import neutralise
from ..documents.document import Document
from ..errors import ConfigError, ContextTooLongError, EngineDiedError
from ..events import (
    AnswerStats,
    DocumentFit,
    DocumentOpened,
    Event,
    Finished,
    FinishReason,
    LoadProgress,
    MachineInfo,
    ModelInfo,
    PageSpan,
    PrefillProgress,
    Script,
    TextDelta,
    Turn,
)
from ..surrogates import whole_text
from ..worker.protocol import EngineState, EngineStatus
from .served import ServedModel, served
from .server import Cancelled, Part, RemoteServer, stays_here
from .wishes import as_asked

KEY_VARIABLE = "TRIFORCE_REMOTE_KEY"
_FIRST_ANSWER = 640  # tokens left beside a document at least: for a question and a short answer
_BYTES_PER_TOKEN = 4.0  # of English text, until the server has counted some
_INSTRUCTION = ("Below is a document. A line such as [page 85] shows where a page begins. Use nothing but this "
                "document to answer the questions about it, and name the pages that you rely on. Quote word for word, "
                "in quotation marks.")


class RemoteEngine:
    """See the module. One job at a time; ``cancel``, ``status`` and ``close`` from any thread."""

    def __init__(self, config: EngineConfig, url: str, model: str = "", *, keyless: bool = False) -> None:
        """model: of those that the server lists; "" for its first. The key is taken from TRIFORCE_REMOTE_KEY. keyless:
        the server gets none, as it is not the one that the key is for."""
        self._key = "" if keyless else os.environ.get(KEY_VARIABLE, "")
        self._server, self._wanted, self._config = RemoteServer(url, self._key), model, config
        self._model: ModelInfo | None = None
        self._served: ServedModel | None = None
        self._document: Document | None = None
        self._prompt = ""
        self._opened: dict[str, tuple[int, float, bool]] = {}  # id -> tokens, seconds of the first reading, estimated
        self._bytes_per_token = _BYTES_PER_TOKEN
        self._counts = False  # whether the server has a tokenizer to ask
        self._state: EngineState = "starting"
        self._cancel = threading.Event()

    def check(self) -> Iterator[MachineInfo | ModelInfo]:
        """Raises RemoteServerError."""
        keyed = f"from {KEY_VARIABLE}" if self._key else f"none ({KEY_VARIABLE} is not set)"
        yield MachineInfo((("Server", self._server.url), ("Key", keyed)))
        yield self._about(self._look())

    def load(self) -> Iterator[LoadProgress | ModelInfo]:
        """Raises RemoteServerError where it cannot be reached, ConfigError where it has no such model."""
        self._cancel.clear()
        self._state = "loading"
        yield LoadProgress(f"Asking {self._server.host} what it serves")
        try:
            found = self._look()
            if found.known_loaded:
                yield LoadProgress(f"{self._server.host} loads {found.shown}")
                body = {"model": found.name, "messages": [{"role": "user", "content": "Ready?"}], "max_tokens": 1}
                for _ in self._server.chat(body, self._cancel):
                    pass
                found = self._look()
            self._model, self._served = self._about(found), found
            self._counts = self._server.count(found.name, "one two three", self._cancel) is not None
        except Cancelled:
            raise EngineDiedError("The engine has been closed", remedy="Start the app again.") from None
        self._state = "idle"
        yield self._model

    def measure(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                ) -> DocumentFit:
        """Share the whole count out by the length of the pages. heard: never; a server says only the end of it."""
        text, counted = _system(document), None
        if self._counts:
            with suppress(Cancelled):
                counted = self._server.count(self._need_served().name, text, self._cancel)
        tokens = counted or math.ceil(len(text.encode()) / self._bytes_per_token)
        pages = [stop - start for start, stop in
                 _shares(tokens, [len(page.text.encode()) + 12 for page in document.pages])]
        context = self._need_model().max_context
        room = context - min(_FIRST_ANSWER, context // 4) if context else tokens
        return DocumentFit(tokens, room, tuple(pages), estimated=counted is None)

    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        """Have the server read the document once, so that its prefix cache holds it and its count is known.

        Raises RemoteServerError, ContextTooLongError. Cancelled: ends without DocumentOpened."""
        self._cancel.clear()
        fit, started = self.measure(document), time.monotonic()
        if not fit.fits:
            raise _too_long(fit.tokens, fit.max_tokens)
        self._state, self._document = "busy", None
        text, restored = _system(document), document.id in self._opened
        if not text:
            self._opened[document.id], restored = (0, 0.0, False), True  # there is nothing to read
        try:
            if not restored:
                body = self._body([{"role": "system", "content": text}, {"role": "user", "content": "Ready?"}])
                used: Mapping[str, Any] = {}
                reading = _Reading(fit.tokens)
                yield reading.heard(Part())
                for part in self._server.chat(body | {"max_tokens": 1}, self._cancel):
                    used = part.usage or used
                    yield reading.heard(part)
                tokens = int(used.get("prompt_tokens") or fit.tokens)
                if used.get("prompt_tokens"):
                    if self._need_model().max_context and tokens > fit.max_tokens:
                        raise _too_long(tokens, fit.max_tokens)  # Ollama would have cut it off by now
                    self._bytes_per_token = len(text.encode()) / tokens
                self._opened[document.id] = tokens, time.monotonic() - started, not used and fit.estimated
        except Cancelled:
            return
        finally:
            self._state = "idle"
        tokens, seconds, estimated = self._opened[document.id]
        self._document, self._prompt = document, text
        yield PrefillProgress(tokens, tokens, tokens / max(seconds, 1e-9), 0.0, "restore" if restored else "read")
        spans = tuple(PageSpan(page.label, *share) for page, share in
                      zip(document.pages, _shares(tokens, fit.page_tokens), strict=True))
        yield DocumentOpened(document.id, tokens, spans, time.monotonic() - started, seconds, restored,
                             self._need_model().max_context, estimated)

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[Event]:
        """Raises RemoteServerError, ContextTooLongError. system: begins the first question, where the system message is
        the document, the same for every conversation. script: not heeded, a server writes what it likes."""
        assert self._document is not None, "a document is opened before a question is asked"
        self._cancel.clear()
        started = time.monotonic()
        question, system, begins = whole_text(question or ""), neutralise(whole_text(system).strip()), self._prompt
        if not begins:
            begins, system = system, ""
        messages = [{"role": "system", "content": begins}] if begins else []
        for turn in history:
            messages += [{"role": "user", "content": neutralise(turn.question)},
                         {"role": "assistant", "content": turn.answer}]
        messages.append({"role": "user", "content": neutralise(question or "Go on with the document's text.")})
        if system:
            messages[1]["content"] = f"{system}\n\n{messages[1]['content']}"
        self._check_room(messages)
        body = self._body(messages) | as_asked(self._need_served().program, sampling)
        texts, reading = list[str](), _Reading(0)
        times: list[float] = []
        reason: FinishReason = "stop"
        usage: Mapping[str, Any] = {}
        self._state = "busy"
        try:
            for part in self._server.chat(body, self._cancel):
                usage = part.usage or usage
                reason = "length" if part.reason == "length" else reason
                if part.text:
                    texts.append(part.text)
                    times.append(time.monotonic() - started)
                    yield TextDelta(part.text, times[-1], tokens=1)
                elif not texts:
                    yield reading.heard(part)
        except Cancelled:
            reason = "cancelled"
        finally:
            self._state = "idle"
        yield Finished(reason, "".join(texts), (), self._stats(times, usage))

    def cancel(self) -> None:
        self._cancel.set()

    def status(self) -> EngineStatus:
        return EngineStatus(self._state, self._model, None, 0, self._document.id if self._document else None)

    def close(self) -> None:
        self._cancel.set()

    def _look(self) -> ServedModel:
        found = served(self._server, self._cancel)
        wanted = [one for one in found if self._wanted in (one.name, one.shown)] if self._wanted else found
        if not wanted:
            raise ConfigError(f"The server {self._server.host} has no model {self._wanted or 'at all'}",
                              allowed=", ".join(one.shown for one in found[:8]),
                              remedy="Name one with --remote-model, or choose one under Models.")
        if wanted[0].problem:
            raise ConfigError(f"{wanted[0].shown} is not for this: {wanted[0].problem}",
                              remedy="Choose another under Models.")
        return wanted[0]

    def _about(self, model: ServedModel) -> ModelInfo:
        own = self._config.max_context
        lengths = [*([model.context] if model.context else []), *([own] if isinstance(own, int) else [])]
        where = "stay on" if stays_here(self._server.url) else "leave"
        return ModelInfo(model.shown, "", "remote", f"documents and questions {where} this machine: they are sent to "
                         f"{self._server.url}", self._server.host, "", min(lengths, default=0), 0, 0, instructions=True)

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        tells = {"return_progress": True} if self._need_served().program == "llama-server" else {}
        return {"model": self._need_served().name, "messages": messages} | tells

    def _check_room(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Raise ContextTooLongError for what a server would refuse, or cut off without a word."""
        context = self._need_model().max_context
        needed = math.ceil(sum(len(message["content"].encode()) for message in messages) / self._bytes_per_token)
        if context and needed > context:
            raise ContextTooLongError(f"Document and conversation have about {needed:,} tokens",
                                      allowed=f"{context:,}", remedy="Start a new conversation.")

    def _need_served(self) -> ServedModel:
        assert self._served is not None, "load first"
        return self._served

    def _need_model(self) -> ModelInfo:
        assert self._model is not None, "load first"
        return self._model

    def _stats(self, times: Sequence[float], usage: Mapping[str, Any]) -> AnswerStats:
        """usage empty: the answer was stopped, or the server counts nothing; then each part counts as one token."""
        generated = int(usage.get("completion_tokens") or len(times))
        details = usage.get("prompt_tokens_details") or {}
        reused, prompt = int(details.get("cached_tokens") or 0), int(usage.get("prompt_tokens") or 0)
        first, last = (times[0], times[-1]) if times else (0.0, 0.0)
        seconds = last - first
        rate = (generated - 1) / seconds if seconds > 0 and generated > 1 else 0.0
        counted = "" if usage else "; it did not count the tokens, each part of the stream is taken for one"
        why = f"answered by {self._server.host}, which reports no tiers and no attention{counted}"
        return AnswerStats(max(0, prompt - reused), reused, generated, 0, first, first, seconds, rate, 0.0, {}, {},
                           "remote", why, verifier="")


class _Reading:
    """How far a server is with what it was sent: by its own count, or else by the time that it takes."""

    def __init__(self, tokens: int) -> None:
        """tokens: that there are; 0: not known."""
        self._started = self._told = time.monotonic()
        self._last = PrefillProgress(0, tokens, 0.0, None, "served")

    def heard(self, part: Part) -> PrefillProgress:
        now = time.monotonic()
        if part.read:
            done, total, kept, spent = (int(part.read.get(name) or 0) for name in
                                        ("processed", "total", "cache", "time_ms"))
            rate = 1000 * (done - kept) / max(spent, 1)
            left = (total - done) / rate if rate else None
            self._told, self._last = now, PrefillProgress(done, total, rate, left, "read")
        left = self._last.eta_seconds
        return replace(self._last, seconds=now - self._started,
                       eta_seconds=None if left is None else max(0.0, left - (now - self._told)))


def _too_long(tokens: int, most: int) -> ContextTooLongError:
    return ContextTooLongError(f"The document has about {tokens:,} tokens",
                               allowed=f"{most:,} beside questions and answers", remedy="Choose a page range.")


def _system(document: Document) -> str:
    """Return the document as it is sent, the same for every question: the server's prefix cache depends on that. "" of
    a blank one: the server is asked plainly."""
    if document.blank:
        return ""
    pages = "".join(f"[page {' '.join(page.label.split())}]\n{page.text.strip()}\n\n" for page in document.pages)
    return f"{_INSTRUCTION}\n\n--- document ---\n{neutralise(pages)}--- end of document ---"


def _shares(tokens: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Share tokens out by size: yield where each part begins and ends."""
    ends = [tokens * done // max(sum(sizes), 1) for done in accumulate(sizes)]
    return pairwise([0, *ends])
