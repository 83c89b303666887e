"""``/v1/chat/completions``: a request becomes a run, which waits its turn with the page's questions."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from triforce_core import Document, Turn, chapter_ranges, page_ranges, together

from ..app import jobs
from ..app.folders import plainly
from ..app.jobs import Selection
from ..app.library import Entry, Ranges
from ..app.runs import Run
from ..app.services import Services
from ..page.html import STOPPED
from ..page.wait_line import wait_line
from .files import Files
from .messages import FileRef, Wish, read_wish, sampling, shown
from .models import Models
from .problems import Problem, answered
from .replies import REASONS, chunk, completion, event, quotes, usage_chunk

_LOOK_EVERY = 0.5  # seconds between two looks whether the asker is still there
_EARLY = 10.0  # seconds in which an error still gets a status of its own; after them the stream begins
_ALIVE_EVERY = 5.0  # seconds of silence after which a comment says how far the prefill is
_MOST_BODY = 64 << 20  # bytes: a document may come along as text
_REMEMBERED = 256  # answers whose tokens are known when they come back as history
_LENT = 4  # documents that came as text


class Chat:
    """See the module."""

    def __init__(self, services: Services, files: Files, models: Models) -> None:
        self._services, self._files, self._models = services, files, models
        self._tokens: OrderedDict[str, tuple[int, ...]] = OrderedDict()  # digest of an answer -> its tokens
        self._ephemeral: OrderedDict[str, Document] = OrderedDict()

    @answered
    async def complete(self, request: Request) -> Response:
        body = await _body(request)
        await self._models.check(body.get("model"))
        wish = read_wish(body)
        settings = self._services.resolved_settings()
        chosen = sampling(body, settings.sampling())
        selection, system = await self._selection(wish)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped: nobody listens
                loop.call_soon_threadsafe(news.set)

        history = tuple(Turn(asked, self._tokens.get(_digest(told), ()), told) for asked, told in wish.history)
        run = self._services.queue.answer(
            jobs.Request(selection, wish.question, chosen, (("", settings.speculation()),), history, system), heard)
        stream = wish.stream
        try:
            if not stream:
                return await self._whole(request, run, news, wish)
            await self._begun(request, run, news)
            answer = StreamingResponse(self._parts(request, run, news, wish), media_type="text/event-stream",
                                       headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        except BaseException:
            self._services.queue.stop(run)
            raise
        return answer

    async def _selection(self, wish: Wish) -> tuple[Selection, str]:
        """The pages that the wish is about, and its system text. Raises Problem."""
        if not wish.files:
            return Selection.of_ephemeral(await asyncio.to_thread(self._lend, wish.system)), ""
        found = [await self._files.read(file) for file in wish.files]
        if wish.system.strip():
            model = await self._models.loaded()
            if not model.instructions:
                raise Problem(400, "system_prompt_unsupported", f"{model.name} follows no system prompt: it only "
                              "answers questions about the document", param="messages",
                              remedy="Leave the system message out, or choose a chat model with --model.")
        system = wish.system.strip()
        parts = [(entry, document, _ranges(file, entry, document))
                 for file, (entry, document) in zip(wish.files, found, strict=True)]
        if len(parts) > 1:
            return Selection.of_ephemeral(together([document.pick(ranges) for _, document, ranges in parts])), system
        (entry, document, ranges), (file,) = parts[0], wish.files
        if not file.pages and not file.chapters:
            return Selection(entry.id, document, ranges), system
        return Selection.of_ephemeral(document, ranges), system

    def _lend(self, text: str) -> Document:
        """A document that came as text, taken in by the reader that files go through (clean-up, sections)."""
        key = _digest(text)
        if key not in self._ephemeral:
            path = self._services.folders.uploads / f"{uuid.uuid4().hex}.txt"
            try:
                with plainly(path):
                    path.touch(0o600)
                    path.write_text(text, encoding="utf-8")
                self._ephemeral[key] = self._services.take_text(path)
            finally:
                path.unlink(missing_ok=True)
            while len(self._ephemeral) > _LENT:
                self._ephemeral.popitem(last=False)
        return self._ephemeral[key]

    async def _begun(self, request: Request, run: Run, news: asyncio.Event) -> None:
        """Wait a little for the first word, so that a refusal is a refusal and not a stream that breaks off."""
        end = asyncio.get_running_loop().time() + _EARLY
        while not run.ended and not run.accumulator.text and asyncio.get_running_loop().time() < end:
            await self._wait(request, run, news)
        if run.state == "failed":
            raise _failure(run)

    async def _whole(self, request: Request, run: Run, news: asyncio.Event, wish: Wish) -> Response:
        hit = False
        while not run.ended:
            await self._wait(request, run, news)
            if not hit and shown(run.accumulator.text, wish.stops, False)[1]:
                hit = True
                self._services.queue.stop(run)
        length, hit = shown(run.accumulator.text, wish.stops, True)
        reason = self._reason(run, hit)
        self._remember(run)
        return JSONResponse(completion(run, self._models.id, run.accumulator.text[:length], reason))

    async def _parts(self, request: Request, run: Run, news: asyncio.Event, wish: Wish) -> AsyncIterator[bytes]:
        model, sent, hit, clock = self._models.id, 0, False, asyncio.get_running_loop().time
        told: list[dict[str, Any]] = []
        try:
            yield event(chunk(run, model, {"role": "assistant", "content": ""}))
            spoken = clock()
            while True:
                ended = run.ended  # before the text is looked at: nothing comes after it
                length, found = shown(run.accumulator.text, wish.stops, ended)
                if length > sent and not hit:
                    yield event(chunk(run, model, {"content": run.accumulator.text[sent:length]}))
                    sent, spoken = length, clock()
                known = quotes(run, sent)
                if known != told:
                    yield event(chunk(run, model, {}) | {"quotes": [quote for quote in known if quote not in told]})
                    told = known
                if found and not hit:
                    hit = True
                    self._services.queue.stop(run)
                if ended:
                    break
                if clock() - spoken > _ALIVE_EVERY:
                    yield self._comment(run)
                    spoken = clock()
                await self._wait(request, run, news)
            reason = self._reason(run, hit)
            self._remember(run)
            yield event(chunk(run, model, {}, reason))
            if wish.include_usage:
                yield event(usage_chunk(run, model))
        except Problem as problem:
            yield event(problem.body)
        finally:
            self._services.queue.stop(run)  # of no effect when it has ended
        yield b"data: [DONE]\n\n"

    async def _wait(self, request: Request, run: Run, news: asyncio.Event) -> None:
        """Until something happened, or for a moment. Raises Problem where the asker has gone away."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _LOOK_EVERY)
        news.clear()
        if await request.is_disconnected():
            self._services.queue.stop(run)
            raise Problem(499, "client_closed_request", "The request was closed by the one who asked")

    def _comment(self, run: Run) -> bytes:
        """A line that clients skip: the stream is alive, and this is what it waits for."""
        prefill = self._services.queue.prefills.get(run.document)
        progress = prefill.progress if prefill else None
        wait = wait_line(self._services.queue.ahead(run)) if run.state == "queued" else ""
        done = f"reading {progress.tokens_done} of {progress.tokens_total} tokens" if progress else wait or run.state
        return f": {done}\n\n".encode()

    def _reason(self, run: Run, hit: bool) -> str:
        """finish_reason. Raises Problem where the answer is not whole."""
        if hit:
            return "stop"
        if run.state != "done":
            raise _failure(run)
        assert run.accumulator.finished is not None
        return REASONS[run.accumulator.finished.reason]

    def _remember(self, run: Run) -> None:
        """So that the next question's history is the very tokens that are in the cache."""
        if run.accumulator.token_ids:
            self._tokens[_digest(run.accumulator.text)] = tuple(run.accumulator.token_ids)
            while len(self._tokens) > _REMEMBERED:
                self._tokens.popitem(last=False)


def _ranges(file: FileRef, entry: Entry, document: Document) -> Ranges:
    """The pages that a message wants of a document, or else those that were chosen on the page."""
    if file.pages:
        return page_ranges(file.pages, len(document.pages))
    return chapter_ranges(file.chapters, document) if file.chapters else entry.ranges


def _failure(run: Run) -> Problem:
    if run.fit is not None:
        return Problem(400, "context_length_exceeded", f"The document has {run.fit.tokens:,} tokens; "
                       f"{run.fit.max_tokens:,} fit beside questions and answers", param="messages",
                       remedy='Ask about some of its pages: "pages": "1-20" beside the file_id.',
                       need=run.fit.tokens, have=run.fit.max_tokens)
    if run.state == "stopped":
        return Problem(503, "stopped", run.error or STOPPED)
    return Problem.of(run.cause) if run.cause else Problem(503, "not_answered", run.error)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises Problem."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > _MOST_BODY:
            raise Problem(413, "request_too_large", f"The request is larger than {_MOST_BODY >> 20} MB",
                          remedy="Upload the document with /v1/files.")
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "The body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem(400, "invalid_json", "The body is not a JSON object")
    return body


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
