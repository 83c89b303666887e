"""``/v1/responses``: the same answers in the shapes of OpenAI's newer interface, whole and in a stream."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .answers import NEEDS, Answers, Asked, Source, Update, counts, pages, passages, quotes, support, timings
from .chat import streaming
from .messages import read_wish
from .problems import Problem, answered, body_of

_KEPT = 1 << 26  # characters of conversations that answers may go on with
_CHAT = {"max_output_tokens": "max_completion_tokens"}  # our names of parameters that chat completions have too
_THEIRS = {"messages": "input", "max_completion_tokens": "max_output_tokens", "response_format": "text.format",
           "verbosity": "text.verbosity"}
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # parameters that only their default can be granted for
    "truncation": ("disabled",), "background": (False,), "include": ([], ["reasoning.encrypted_content"]),
    "reasoning": ({}, {"effort": "none"}), "max_tool_calls": (0,)}
_EVENTS = {"found": "response.passages", "quotes": "response.quotes", "support": "response.support"}  # beside OpenAI's
_OWN = ("input", "instructions", "previous_response_id", "text")


class _Kept(NamedTuple):
    messages: list[Any]  # of the conversation up to an answer and with it
    size: int


class _Answer:
    """One answer's name and place in the shapes. asked: None where the app itself speaks, in words that need no run."""

    def __init__(self, body: Mapping[str, Any], model: str, asked: Asked | None) -> None:
        self.asked, self._body = asked, body
        self.citations: list[dict[str, Any]] = []
        name = asked.run.id if asked else uuid.uuid4().hex
        self.id, self.item = f"resp_{name}", f"msg_{name}"
        self._head: dict[str, Any] = {
            "id": self.id, "object": "response", "created_at": int(asked.run.started_at if asked else time.time()),
            "model": model, "error": None, "incomplete_details": None, "parallel_tool_calls": False, "tools": [],
            "tool_choice": "none", "truncation": "disabled", "metadata": body.get("metadata") or {},
            "text": body.get("text") or {"format": {"type": "text"}}, "store": body.get("store") is not False,
            **{name: body.get(name) for name in ("instructions", "previous_response_id", "temperature", "top_p",
                                                 "max_output_tokens", "user")}}

    @property
    def text(self) -> str:
        return self.asked.content if self.asked else NEEDS

    def message(self, status: str, text: str | None) -> dict[str, Any]:
        """Return the one item of the output. text: None before there is any."""
        return {"id": self.item, "type": "message", "role": "assistant", "status": status,
                "content": [] if text is None else [_part(text, self.citations)]}

    def cited(self, update: Update) -> list[tuple[int, dict[str, Any]]]:
        """Keep the pages that an update of the run names as annotations of the text, and return those that are new, by
        number: of quotations that have closed, and of sentences that the document says. Text that came without a file
        has none."""
        if self.asked is None or update.kind not in ("quotes", "support"):
            return []
        told = [one for one in update.value if one.get("closed") or one.get("verdict") == "supported"]
        places = [(one["end"] + bool(one.get("closed")), next(iter(_places(one)), None)) for one in told]  # its mark
        new = [made for end, place in places if place and (made := _citation(self.asked.sources, end, place))
               and made not in self.citations]
        before = len(self.citations)
        self.citations += new
        return list(enumerate(new, before))

    def begun(self) -> dict[str, Any]:
        return self._head | {"status": "in_progress", "output": [], "usage": None}

    def failed(self, problem: Problem) -> dict[str, Any]:
        return self.begun() | {"status": "failed", "error": {"code": "server_error", "message": str(problem)}}

    def ended(self) -> dict[str, Any]:
        """Return the whole response."""
        cut = self.asked is not None and self.asked.reason == "length"
        status = "incomplete" if cut else "completed"
        made = self._head | {"status": status, "output": [self.message(status, self.text)], "usage": self._usage()}
        if cut:
            made["incomplete_details"] = {"reason": "max_output_tokens"}
        if self.asked is None:
            return made
        run, length = self.asked.run, self.asked.length
        return made | {"timings": timings(run), "quotes": quotes(run, length), **passages(run), **pages(run),
                       **support(run, length)}

    def _usage(self) -> dict[str, Any]:
        prompt, cached, written = counts(self.asked) if self.asked else (0, 0, 0)
        return {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + written}


class Responses:
    def __init__(self, answers: Answers) -> None:
        self._answers, self._models = answers, answers.models
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # by the response's id

    @answered
    async def create(self, request: Request) -> Response:
        body = await body_of(request)
        await self._models.check(body.get("model"))
        try:
            chat = as_chat(body, self._earlier(body.get("previous_response_id")))
            wish = read_wish(chat)
            asked = await self._answers.ask(wish, chat)
        except Problem as problem:
            raise problem.about(_THEIRS) from None
        answer = _Answer(body, self._models.id, asked)
        try:
            if wish.stream:
                if asked is not None:
                    await self._answers.begun(request, asked)
                return streaming(self._events(request, answer, chat["messages"]))
            if asked is not None:
                async for update in self._answers.follow(request, asked):
                    answer.cited(update)
            self._keep(answer, chat["messages"])
            return JSONResponse(answer.ended())
        except BaseException as error:
            if asked is not None:
                self._answers.stop(asked)
            if isinstance(error, Problem):
                error.about(_THEIRS)
            raise

    async def _events(self, request: Request, answer: _Answer, messages: Sequence[Any]) -> AsyncIterator[bytes]:
        numbers, asked = itertools.count(), answer.asked
        place = {"output_index": 0, "item_id": answer.item, "content_index": 0}

        def event(name: str, **more: Any) -> bytes:
            data = json.dumps({"type": name, "sequence_number": next(numbers), **more}, ensure_ascii=False)
            return f"event: {name}\ndata: {data}\n\n".encode()

        def words(text: str) -> bytes:
            return event("response.output_text.delta", **place, delta=text, logprobs=[])

        try:
            yield event("response.created", response=answer.begun())
            yield event("response.in_progress", response=answer.begun())
            yield event("response.output_item.added", output_index=0, item=answer.message("in_progress", None))
            yield event("response.content_part.added", **place, part=_part(""))
            if asked is None:
                yield words(NEEDS)
            else:
                async for update in self._answers.follow(request, asked):
                    kind, value = update
                    if kind == "text":
                        yield words(value)
                    elif kind == "silence":  # a line that clients skip: the stream is alive
                        yield f": {value}\n\n".encode()
                    else:
                        yield event(_EVENTS[kind], **place, **(value if kind == "found" else {kind: value}))
                    for number, citation in answer.cited(update):
                        yield event("response.output_text.annotation.added", **place, annotation_index=number,
                                    annotation=citation)
            self._keep(answer, messages)
            made = answer.ended()
            yield event("response.output_text.done", **place, text=answer.text, logprobs=[])
            yield event("response.content_part.done", **place, part=_part(answer.text, answer.citations))
            yield event("response.output_item.done", output_index=0, item=made["output"][0])
            yield event(f"response.{made['status']}", response=made)
        except Problem as problem:
            error = problem.about(_THEIRS).body["error"]
            yield event("error", **{name: error[name] for name in ("code", "message", "param")})
            yield event("response.failed", response=answer.failed(problem))
        finally:
            if asked is not None:
                self._answers.stop(asked)

    def _earlier(self, name: Any) -> list[Any]:
        """Return the messages up to an answer of that id. Raises Problem."""
        if name is None:
            return []
        if name not in self._kept:
            raise Problem(404, "previous_response_not_found", f"There is no response {str(name)[:80]!r} here",
                          param="previous_response_id", remedy="The newest are kept while the app runs: send "
                          "the conversation along as input.")
        self._kept.move_to_end(name)
        return self._kept[name].messages

    def _keep(self, answer: _Answer, messages: Sequence[Any]) -> None:
        """Keep a conversation to be gone on with, its instructions apart: each request brings its own."""
        if not answer.ended()["store"]:
            return
        said = [message for message in messages if message is not messages[0] or not answer.ended()["instructions"]]
        said.append({"role": "assistant", "content": answer.text})
        self._kept[answer.id] = _Kept(said, len(json.dumps(said)))
        while sum(kept.size for kept in self._kept.values()) > _KEPT:
            self._kept.popitem(last=False)


def as_chat(body: Mapping[str, Any], earlier: Sequence[Any]) -> dict[str, Any]:
    """Return the body of chat completions that asks for the same. earlier: messages before the input. Raises Problem.

    What neither interface has is left for that one's reader to refuse."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise Problem(400, "invalid_input", "input is neither a text nor a list", param="input")
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise Problem(400, "invalid_value", "instructions is no text", param="instructions")
    told = [{"role": "system", "content": instructions}] if instructions else []
    made = {_CHAT.get(name, name): value for name, value in body.items()
            if name not in _OWN and not (name in _NEUTRAL and _is_neutral(name, value))}
    text = body.get("text")
    if isinstance(text, Mapping):
        made |= {"response_format": _format(text.get("format")), "verbosity": text.get("verbosity")}
    return made | {"messages": [*told, *earlier, *map(_message, items)]}


def _is_neutral(name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        value = {key: each for key, each in value.items() if each is not None}
    return value is None or value in _NEUTRAL[name]


def _format(given: Any) -> Any:
    """Return what chat completions call response_format."""
    if isinstance(given, Mapping) and given.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: each for name, each in given.items() if name != "type"}}
    return given


def _message(item: Any) -> Any:
    """Return an item of the input as a message. Raises Problem."""
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        kind = item.get("type") if isinstance(item, Mapping) else None
        raise Problem(400, "unsupported_input", f"input has an item of the type {kind!r}", param="input",
                      remedy="Send messages: there are no tools here.")
    content = item.get("content")
    if isinstance(content, list):
        content = [_chat_part(part) for part in content]
    return {"role": item.get("role"), "content": content}


def _chat_part(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") == "output_text":
        return {"type": "text", "text": part.get("text")}
    if isinstance(part, Mapping) and part.get("type") == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return part


def _part(text: str, annotations: Sequence[Any] = ()) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def _places(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where in the document a quotation stands first, or what a sentence is supported by."""
    return told["places"] if "places" in told else [each for one in told["occurrences"][:1] for each in one["places"]]


def _citation(sources: Sequence[Source], index: int, place: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return OpenAI's file_citation, with the page beside it. index: in the text, behind what is cited. None: no file
    has that page."""
    page = place["page"]
    for source in sources:
        if page <= source.pages:
            return {"type": "file_citation", "file_id": source.file_id, "filename": source.filename, "index": index,
                    "page": page, "label": place["label"]}
        page -= source.pages
    return None
