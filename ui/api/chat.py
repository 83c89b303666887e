"""``/v1/chat/completions``: a request becomes a run, which waits its turn with the page's questions; ``/v1/models``."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from triforce_core import Document, ModelInfo, Turn, chapter_ranges, metrics, page_ranges, ranges_text, together

from ..app import jobs
from ..app.folders import plainly
from ..app.jobs import Selection
from ..app.library import Entry, Ranges
from ..app.runs import Run
from ..app.services import Services
from ..page.formatting import wait_line
from ..page.html import STOPPED
from .files import Files
from .messages import FileRef, Wish, read_wish, sampling, shown
from .problems import Problem, answered

REASONS = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop", "loop": "stop"}
_SETTLE_EVERY = 0.05  # seconds between two looks whether the model is loaded
_LOOK_EVERY = 0.5  # seconds between two looks whether the asker is still there
_EARLY = 10.0  # seconds in which an error still gets a status of its own; after them the stream begins ...
_EARLY_FOUND = 2.0  # ... and after these where passages are there to be sent
_ALIVE_EVERY = 5.0  # seconds of silence after which a comment says how far the prefill is
_REMEMBERED = 256  # answers whose tokens are known when they come back as history
_LENT = 4  # documents that came as text
NEEDS = ('I only quote from a document, and this request has none: add a part {"type": "file", "file": {"file_id": '
         "...}} to a message (see /v1/files), send the document's text as the system message, or load a chat model.")
NO_DOCUMENT = "(There is no document in this conversation.)"  # what a chat model reads that is asked about none
ALONE = ("There is no document here, so what was said about documents and pages does not count. Answer the user by "
         "what the user says and by what you know.")


class Models:
    """The one model that answers, by a name that stays the same before and after it is loaded."""

    def __init__(self, services: Services) -> None:
        self._queue, self._services = services.queue, services
        self._since = int(time.time())

    @property
    def id(self) -> str:
        """The checkpoint's own name, without its path, or what a server elsewhere calls its model."""
        name = self._queue.config.model
        if self._services.sends_to:
            name = self._queue.model.name if self._queue.model else "remote"
        return re.sub(r"[^\w.-]+", "-", PurePath(name).name)

    async def loaded(self) -> ModelInfo:
        """Return the model, once the engine has it. Raises Problem where it could not be loaded."""
        await self._settled()
        if self._queue.model is None:
            raise Problem(503, "engine_not_running", self._queue.problem)
        return self._queue.model

    async def check(self, name: Any) -> None:
        """Raise Problem where the model has another name."""
        if self._services.sends_to:
            await self._settled()
        if name is not None and name != self.id:
            raise Problem(404, "model_not_found", f"There is no model {str(name)[:200]!r} here", param="model",
                          remedy=f"Ask for {self.id!r}.")

    def describe(self) -> dict[str, Any]:
        """Return the model; max_model_len, vLLM's name: tokens for document, conversation and answer, where known."""
        model = self._queue.model
        known = {"max_model_len": model.max_context} if model else {}
        return {"id": self.id, "object": "model", "created": self._since, "owned_by": "triforce-chat"} | known

    @answered
    async def all(self, request: Request) -> Response:
        await self._settled()
        return JSONResponse({"object": "list", "data": [self.describe()]})

    @answered
    async def one(self, request: Request) -> Response:
        await self.check(request.path_params["model"])
        await self._settled()
        return JSONResponse(self.describe())

    async def _settled(self) -> None:
        """Wait until the engine has a model or cannot have one: only then it is known how long a context is."""
        while self._queue.model is None and self._queue.state == "starting":
            await asyncio.sleep(_SETTLE_EVERY)


class Chat:
    def __init__(self, services: Services, files: Files, models: Models) -> None:
        self._services, self._files, self._models = services, files, models
        self._tokens: OrderedDict[str, tuple[int, ...]] = OrderedDict()  # digest of an answer -> its tokens
        self._ephemeral: OrderedDict[str, Document] = OrderedDict()

    @answered
    async def complete(self, request: Request) -> Response:
        body = await _body(request)
        await self._models.check(body.get("model"))
        wish = read_wish(body)
        chats = wish.files or wish.system.strip() or (await self._models.loaded()).instructions
        if not chats:
            return self._said(NEEDS, wish)
        settings = self._services.resolved_settings()
        chosen = sampling(body, settings.sampling())
        selection, system = await self._selection(wish)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped: nobody listens
                loop.call_soon_threadsafe(news.set)

        history = tuple(Turn(asked, self._tokens.get(_digest(answer), ()), answer) for asked, answer in wish.history)
        run = self._services.queue.answer(
            jobs.Request(selection, wish.question, chosen, (("", settings.speculation()),), history, system), heard)
        try:
            if not wish.stream:
                return await self._whole(request, run, news, wish)
            await self._begun(request, run, news)
            return StreamingResponse(self._parts(request, run, news, wish), media_type="text/event-stream",
                                     headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        except BaseException:
            self._services.queue.stop(run)
            raise

    async def _selection(self, wish: Wish) -> tuple[Selection, str]:
        """Return the pages that the wish is about, and its system text. Raises Problem."""
        if not wish.files:
            text, system = (wish.system, "") if wish.system.strip() else (NO_DOCUMENT, ALONE)
            return Selection.of_ephemeral(await asyncio.to_thread(self._lend, text)), system
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

    def _said(self, words: str, wish: Wish) -> Response:
        """Return an answer in the app's own words, for which nothing runs."""
        kind = "chat.completion.chunk" if wish.stream else "chat.completion"
        message = {"index": 0, "delta" if wish.stream else "message": {"role": "assistant", "content": words},
                   "logprobs": None, "finish_reason": "stop"}
        made = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()),
                "model": self._models.id, "choices": [message]}
        nothing = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        if not wish.stream:
            return JSONResponse(made | {"usage": nothing})
        last = event(made | {"choices": [], "usage": nothing}) if wish.include_usage else b""
        return Response(event(made) + last + b"data: [DONE]\n\n", media_type="text/event-stream")

    def _lend(self, text: str) -> Document:
        """Return a document that came as text, taken in by the reader that files go through (clean-up, sections)."""
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
        clock = asyncio.get_running_loop().time
        start = clock()
        while not run.ended and not run.accumulator.text and (
                clock() - start < (_EARLY_FOUND if run.passages else _EARLY)):
            await self._wait(request, run, news)
        if run.state == "failed":
            raise _failure(run)

    async def _whole(self, request: Request, run: Run, news: asyncio.Event, wish: Wish) -> Response:
        hit = False
        while not run.ended or run.searches or run.judges:
            await self._wait(request, run, news)
            if not hit and shown(run.accumulator.text, wish.stops, False)[1]:
                hit = True
                self._services.queue.stop(run)
        length, hit = shown(run.accumulator.text, wish.stops, True)
        reason = self._reason(run, hit)
        self._remember(run)
        return JSONResponse(completion(run, self._models.id, length, reason, hit))

    async def _parts(self, request: Request, run: Run, news: asyncio.Event, wish: Wish) -> AsyncIterator[bytes]:
        model, sent, hit, clock = self._models.id, 0, False, asyncio.get_running_loop().time
        sent_quotes: list[dict[str, Any]] = []
        sent_found: dict[str, Any] = {}
        told = 0
        try:
            yield event(chunk(run, model, {"role": "assistant", "content": ""}))
            spoken = clock()
            while True:
                # Before the text is looked at: nothing comes after it.
                ended = run.ended and not run.searches and not run.judges
                if (now := passages(run)) != sent_found:
                    yield event(chunk(run, model, {}) | now)
                    sent_found, spoken = now, clock()
                length, found = shown(run.accumulator.text, wish.stops, ended)
                if length > sent and not hit:
                    yield event(chunk(run, model, {"content": run.accumulator.text[sent:length]}))
                    sent, spoken = length, clock()
                known = quotes(run, sent)
                if known != sent_quotes:
                    new = [quote for quote in known if quote not in sent_quotes]
                    yield event(chunk(run, model, {}) | {"quotes": new})
                    sent_quotes = known
                if len(judged := support(run, sent).get("support", [])) > told:
                    yield event(chunk(run, model, {}) | {"support": judged[told:]})
                    told = len(judged)
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
            if not hit and (pages := _content(run)[len(run.accumulator.text) :]):
                yield event(chunk(run, model, {"content": pages}))
            yield event(chunk(run, model, {}, reason))
            if wish.include_usage:
                yield event(usage_chunk(run, model))
        except Problem as problem:
            yield event(problem.body)
        finally:
            self._services.queue.stop(run)  # of no effect when it has ended
        yield b"data: [DONE]\n\n"

    async def _wait(self, request: Request, run: Run, news: asyncio.Event) -> None:
        """Wait until something happened, or for a moment. Raises Problem where the asker has gone away."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _LOOK_EVERY)
        news.clear()
        if await request.is_disconnected():
            self._services.queue.stop(run)
            raise Problem(499, "client_closed_request", "The request was closed by the one who asked")

    def _comment(self, run: Run) -> bytes:
        """Return a line that clients skip: the stream is alive, and this is what it waits for."""
        prefill = self._services.queue.prefills.get(run.document)
        progress = prefill.progress if prefill else None
        wait = wait_line(self._services.queue.ahead(run)) if run.state == "queued" else ""
        done = f"reading {progress.tokens_done} of {progress.tokens_total} tokens" if progress else wait or run.state
        return f": {done}\n\n".encode()

    def _reason(self, run: Run, hit: bool) -> str:
        """Return finish_reason. Raises Problem where the answer is not whole."""
        if hit:
            return "stop"
        if run.state != "done":
            raise _failure(run)
        assert run.accumulator.finished is not None
        return REASONS[run.accumulator.finished.reason]

    def _remember(self, run: Run) -> None:
        """Keep the answer's tokens: the next question's history is then what is in the cache."""
        if run.accumulator.token_ids:
            for text in (run.accumulator.text, _content(run)):
                self._tokens[_digest(text)] = tuple(run.accumulator.token_ids)
            while len(self._tokens) > _REMEMBERED:
                self._tokens.popitem(last=False)


def _ranges(file: FileRef, entry: Entry, document: Document) -> Ranges:
    """Return the pages that a message wants of a document, or else those that were chosen on the page."""
    if file.pages:
        return page_ranges(file.pages, len(document.pages))
    return chapter_ranges(file.chapters, document) if file.chapters else entry.ranges


def _failure(run: Run) -> Problem:
    if run.fit is not None:
        return Problem(400, "context_length_exceeded", f"The document has {run.fit.tokens:,} tokens; "
                       f"{run.fit.max_tokens:,} fit beside questions and answers", param="messages",
                       remedy="Not one page of it fits beside your messages. Send fewer, or load a model with a longer "
                              "context.",
                       need=run.fit.tokens, have=run.fit.max_tokens)
    if run.state == "stopped":
        return Problem(503, "stopped", run.error or STOPPED)
    return Problem.of(run.cause) if run.cause else Problem(503, "not_answered", run.error)


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object that was sent. Raises Problem."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "The body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem(400, "invalid_json", "The body is not a JSON object")
    return body


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def usage(run: Run) -> dict[str, Any]:
    """Return the tokens of the whole context as the prompt's; those that were already in the cache stand apart."""
    figures = run.accumulator.figures()
    prompt = figures.prompt_tokens + figures.reused_tokens
    return {"prompt_tokens": prompt, "completion_tokens": figures.tokens, "total_tokens": prompt + figures.tokens,
            "prompt_tokens_details": {"cached_tokens": figures.reused_tokens}}


def timings(run: Run) -> dict[str, Any]:
    """Return draft_n, draft_n_accepted: drafted tokens that the full model tested and accepted; tiers: every tier's.

    Forced quotations are not drafts in that sense: they stand under tiers only."""
    figures = run.accumulator.figures()
    seconds = figures.tokens / figures.tokens_per_second if figures.tokens_per_second else 0.0
    drafted = [figures.acceptance[tier] for tier in ("retrieval", "draft", "n-gram") if tier in figures.acceptance][:1]
    tested, accepted = drafted[0] if drafted else (0, 0)
    return {
        "cache_n": figures.reused_tokens, "prompt_n": figures.prompt_tokens,
        "prompt_ms": figures.prefill_seconds * 1e3,
        "prompt_per_second": _rate(figures.prompt_tokens, figures.prefill_seconds),
        "predicted_n": figures.tokens, "predicted_ms": seconds * 1e3,
        "predicted_per_second": figures.tokens_per_second, "draft_n": tested, "draft_n_accepted": accepted,
        "full_passes": figures.full_passes, "engine": figures.engine,
        "tiers": {tier: {"tested": n, "accepted": good} for tier, (n, good) in figures.acceptance.items()},
    }


def quotes(run: Run, length: int) -> list[dict[str, Any]]:
    """Return what decoding found of the quotations in the answer's first ``length`` characters."""
    return [quote for quote in run.quotes if quote["end"] <= length]


def support(run: Run, length: int) -> dict[str, Any]:
    """Return which sentences of the answer's first ``length`` characters have a passage in the document; {} where
    nobody looked."""
    return {} if run.support is None else {"support": [one for one in run.support if one["end"] <= length]}


def passages(run: Run) -> dict[str, Any]:
    """Return the passages that answer the question, and how sure that is; {} while none are found."""
    if run.passages is None:
        return {"passages": [], "level": None, "passages_problem": run.search_problem} if run.search_problem else {}
    known = dataclasses.asdict(run.passages)
    return {name: known[name] for name in ("passages", "level", "request", "section", "words")}


def pages(run: Run) -> dict[str, Any]:
    """Return which pages an answer was written from, where not all that were asked about fit the model."""
    if not run.did_not_fit:
        return {}
    return {"pages_read": ranges_text(run.ranges), "pages_asked_about": ranges_text(run.asked_about)}


def _content(run: Run) -> str:
    """Return the whole answer, with the pages of passages that were spelled."""
    pages = len(run.searching.document.pages) if run.searching else 0
    return metrics.content(run.accumulator.text, run.passages if run.spelled else None, pages)


def completion(run: Run, model: str, length: int, reason: str, hit: bool) -> dict[str, Any]:
    """length: characters of the answer up to a stop sequence, if that was hit."""
    text = run.accumulator.text[:length]
    message = {"role": "assistant", "content": text if hit else _content(run), "refusal": None}
    return _head(run, model, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": usage(run), "timings": timings(run), "quotes": quotes(run, len(text)), **passages(run),
        **pages(run), **support(run, len(text))}


def chunk(run: Run, model: str, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    made = _head(run, model, "chat.completion.chunk") | {
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
    if reason is None:
        return made
    return made | {"timings": timings(run), **passages(run), **pages(run), **support(run, len(run.accumulator.text))}


def usage_chunk(run: Run, model: str) -> dict[str, Any]:
    return _head(run, model, "chat.completion.chunk") | {"choices": [], "usage": usage(run)}


def event(value: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{run.id}", "object": kind, "created": int(run.started_at), "model": model}


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
