"""``/v1/chat/completions``: the shapes of its answers, whole and in a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..app.runs import Run
from .answers import NEEDS, Answers, Asked, counts, pages, passages, quotes, support, timings
from .messages import Wish, read_wish
from .problems import Problem, answered, body_of


class Chat:
    def __init__(self, answers: Answers) -> None:
        self._answers, self._models = answers, answers.models

    @answered
    async def complete(self, request: Request) -> Response:
        body = await body_of(request)
        await self._models.check(body.get("model"))
        wish = read_wish(body)
        asked = await self._answers.ask(wish, body)
        if asked is None:
            return self._said(NEEDS, wish)
        try:
            if wish.stream:
                await self._answers.begun(request, asked)
                return streaming(self._parts(request, asked))
            await self._answers.whole(request, asked)
            return JSONResponse(completion(asked, self._models.id))
        except BaseException:
            self._answers.stop(asked)
            raise

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

    async def _parts(self, request: Request, asked: Asked) -> AsyncIterator[bytes]:
        model, run = self._models.id, asked.run
        try:
            yield event(chunk(run, model, {"role": "assistant", "content": ""}))
            async for kind, value in self._answers.follow(request, asked):
                if kind == "silence":  # a line that clients skip: the stream is alive
                    yield f": {value}\n\n".encode()
                elif kind == "text":
                    yield event(chunk(run, model, {"content": value}))
                else:
                    yield event(chunk(run, model, {}) | (value if kind == "found" else {kind: value}))
            yield event(chunk(run, model, {}, asked.reason))
            if asked.wish.include_usage:
                yield event(_head(run, model, "chat.completion.chunk") | {"choices": [], "usage": usage(asked)})
        except Problem as problem:
            yield event(problem.body)
        finally:
            self._answers.stop(asked)
        yield b"data: [DONE]\n\n"


def usage(asked: Asked) -> dict[str, Any]:
    """Return the tokens of the whole context as the prompt's; those that were already in the cache stand apart."""
    prompt, cached, written = counts(asked)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached}}


def completion(asked: Asked, model: str) -> dict[str, Any]:
    run, length = asked.run, asked.length
    message = {"role": "assistant", "content": asked.content, "refusal": None}
    return _head(run, model, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": asked.reason}],
        "usage": usage(asked), "timings": timings(run), "quotes": quotes(run, length), **passages(run),
        **pages(run), **support(run, length)}


def chunk(run: Run, model: str, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    made = _head(run, model, "chat.completion.chunk") | {
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
    if reason is None:
        return made
    return made | {"timings": timings(run), **passages(run), **pages(run), **support(run, len(run.accumulator.text))}


def streaming(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream",
                             headers={"cache-control": "no-cache", "x-accel-buffering": "no"})


def event(value: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{run.id}", "object": kind, "created": int(run.started_at), "model": model}
