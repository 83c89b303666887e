"""A request's body -> what is asked: pure, so that every refusal can be tested without a server.

What would change the answer and cannot be granted is refused by name, and so is what nobody here knows; what cannot
change it (user, metadata) is not looked at. Nothing is dropped silently.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triforce_core import ConfigError, SamplingParams

from ..app.jobs import LONGEST_ANSWER
from .problems import Problem

INSTRUCTION = 2_000  # characters of a system message up to which it is an instruction; a longer one is a document
MOST_STOPS = 16
_LONGEST_QUESTION = 500  # characters of a paragraph that asks about the text around it
_TEXT_PARTS = ("text", "input_text")
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # parameters that only their default can be granted for
    "n": (1,), "logprobs": (False,), "top_logprobs": (0,), "tools": ([],), "tool_choice": ("none", "auto"),
    "functions": ([],), "function_call": ("none",), "modalities": (["text"],),
    "audio": (), "best_of": (1,), "suffix": ("",), "echo": (False,),
    "reasoning_effort": ("none",), "verbosity": ("medium",), "min_tokens": (0,), "ignore_eos": (False,),
    "length_penalty": (1,), "skip_special_tokens": (True,), "use_beam_search": (False,),
}
_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "seed": "seed",
             "max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "min_p": "min_p",
             "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
             "repeat_penalty": "repeat_penalty", "repetition_penalty": "repeat_penalty", "logit_bias": "logit_bias"}
GRANTED = frozenset(("model", "messages", "stream", "stream_options", "stop", "response_format", *_SAMPLING))
_HARMLESS = frozenset((  # what an answer is kept under, paid from or hurried by
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "parallel_tool_calls", "prediction", "cache_prompt", "request_id"))


@dataclass(frozen=True)
class FileRef:
    """A document that a message names: by the id of an upload, or brought along (data, name). pages, chapters: which of
    them, as ``page_ranges`` and ``chapter_ranges`` take them ("": all). encoding: of a text that does not say it."""

    id: str = ""
    data: bytes = b""
    name: str = ""
    pages: str = ""
    chapters: str = ""
    encoding: str = ""


@dataclass(frozen=True)
class Wish:
    """A request. history: (question, answer) pairs before the question. system: instructions. text: the document's, of
    long system messages where there is no file. files: the documents, each once, in the order in which they were named.
    Without both there is none."""

    question: str
    history: tuple[tuple[str, str], ...]
    system: str
    text: str
    files: tuple[FileRef, ...]
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool


def _bad(code: str, message: str, param: str = "messages", remedy: str = "") -> Problem:
    return Problem(400, code, message, param=param, remedy=remedy)


def read_wish(body: Mapping[str, Any]) -> Wish:
    """Return what a body asks for. Raises Problem, with the parameter's name."""
    for name, value in body.items():
        known = name in GRANTED or name in _HARMLESS or value in _NEUTRAL.get(name, ())
        if value is not None and not known:
            raise _bad("unsupported_parameter", f"{name[:80]} is not supported", param=name[:80],
                          remedy="Leave it out.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("invalid_messages", "messages must be a list that ends with a question")
    said, turns, files = _turns(messages)
    instructions = [text for text in said if files or len(text) <= INSTRUCTION]
    documents = [text for text in said if text not in instructions and text.strip()]
    if not turns or turns[-1][0] != "user" or not turns[-1][1].strip():
        raise _bad("no_question", "The last message is not a question by the user")
    pairs = tuple((question, answer) for (_, question), (_, answer) in zip(turns[:-1:2], turns[1:-1:2], strict=True))
    options, stream = body.get("stream_options") or {}, body.get("stream") or False
    if not isinstance(stream, bool):
        raise _bad("invalid_stream", "stream is neither true nor false", param="stream")
    return Wish(turns[-1][1], pairs, "\n\n".join(instructions).strip(), "\n\n".join(documents), tuple(files),
                _stops(body.get("stop")), stream, isinstance(options, dict) and bool(options.get("include_usage")))


def own_context(wish: Wish) -> Wish | None:
    """Return the same wish about a document that a user's message brings along, which is then the question about it;
    None where no message is long. For a model that reads nothing but documents and questions."""
    said = [*(question for question, _ in wish.history), wish.question]
    for at in reversed(range(len(said))):
        found = _parted(said[at]) if len(said[at]) > INSTRUCTION else None
        if found is not None:
            said[at], text = found
            history = tuple((question, answer) for question, (_, answer) in zip(said, wish.history, strict=False))
            return replace(wish, question=said[-1], history=history, text=text)
    return None


def _parted(text: str) -> tuple[str, str] | None:
    """Return the question and the document of one text: the question is its last paragraph, or its first, if only that
    has a question mark. Words that call for the answer ("Answer:") are neither."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text.strip())]
    if len(parts) == 1:
        parts = [part.strip() for part in text.strip().split("\n")]
    while len(parts) > 2 and parts[-1].endswith((":", "：")):
        parts.pop()
    asks = [at for at in (-1, 0) if len(parts[at]) <= _LONGEST_QUESTION]
    if len(parts) < 2 or not asks:
        return None
    at = next((at for at in asks if re.search("[?？؟]", parts[at])), asks[0])
    return parts.pop(at), "\n\n".join(parts)


def sampling(body: Mapping[str, Any], default: SamplingParams, *, here: bool = True) -> SamplingParams:
    """Return the body's sampling; the rest as the app's settings have it, but an answer without a limit goes on to its
    end. Raises Problem.

    here: False where a server elsewhere answers, which refuses limits beyond its context."""
    made = replace(default, max_new_tokens=LONGEST_ANSWER) if here else default
    for theirs, ours in _SAMPLING.items():
        value = body.get(theirs)
        if value is None:
            continue
        if value == -1 and ours == "max_new_tokens":  # llama.cpp's word for: to the end
            value = LONGEST_ANSWER if here else default.max_new_tokens
        if value == -1 and ours == "top_k":  # vLLM's word for all
            value = 0
        if value == -1 and ours == "seed":  # llama.cpp's word for: another one every time
            value = secrets.randbits(63)
        if ours == "logit_bias":
            value = _biases(value)
        try:
            made = replace(made, **{ours: value})
        except ConfigError as error:
            raise _bad("invalid_value", f"{theirs} is {body[theirs]!r}. Allowed: {error.allowed}", theirs) from None
    return replace(made, schema=_schema(body.get("response_format")))


def _schema(given: Any) -> str:
    """Return the JSON schema of a response_format, "" where it is none. Raises Problem."""
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind in (None, "text"):
        return ""
    if kind == "json_object":
        return json.dumps({"type": "object"})
    named = given.get("json_schema") if kind == "json_schema" else None
    if not isinstance(named, Mapping) or not isinstance(named.get("schema"), Mapping):
        raise _bad("invalid_value", 'response_format is none of {"type": "text"}, {"type": "json_object"} and {"type": '
                   '"json_schema", "json_schema": {"name": ..., "schema": {...}}}', "response_format")
    return json.dumps(named["schema"])


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    """Return a logit_bias as pairs. Raises Problem."""
    try:
        return tuple({int(token): float(bias) for token, bias in given.items()}.items())
    except (AttributeError, TypeError, ValueError):
        raise _bad("invalid_value", "logit_bias is no object of tokens' numbers and biases", "logit_bias") from None


def _turns(messages: Sequence[Any]) -> tuple[list[str], list[tuple[str, str]], list[FileRef]]:
    """Return the system texts; (role, text) in turn, neighbours of one role joined; the documents, each once."""
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    files: list[FileRef] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant"):
            raise _bad("unsupported_role", f"A message has the role {role!r}", remedy="Use system, user and assistant.")
        text, found = _content(message.get("content"))
        files += [file for file in found if file not in files]
        if role in ("system", "developer"):
            if turns:
                raise _bad("late_system_message", "A system message stands after the conversation's begin",
                              param="messages", remedy="Put it first.")
            system.append(text)
        elif turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{text}")
        elif not turns and role == "assistant":
            raise _bad("no_question", "The conversation begins with an answer", remedy="Begin with a user message.")
        else:
            turns.append((role, text))
    return system, turns, files


def _content(content: Any) -> tuple[str, list[FileRef]]:
    if content is None or isinstance(content, str):
        return content or "", []
    if not isinstance(content, list):
        raise _bad("invalid_content", "A message's content is neither text nor a list of parts", param="messages")
    texts, files = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "file" and isinstance(part.get("file"), dict):
            files.append(_file(part["file"]))
        else:
            raise _bad("unsupported_content", f"A message has a part of the type {kind!r}",
                          remedy="Use text and file parts: the model sees neither pictures nor sound.")
    return "\n\n".join(texts), files


def _file(given: Mapping[str, Any]) -> FileRef:
    pages, chapters = given.get("pages"), given.get("chapters")
    if pages is not None and (not isinstance(pages, str) or not re.fullmatch(r"[\d\s,–-]+", pages)):
        raise _bad("invalid_pages", f"pages is {pages!r}", remedy='Give them as "3-9, 12".')
    if chapters is not None and (not isinstance(chapters, str) or not chapters.strip() or pages is not None):
        raise _bad("invalid_chapters", f"chapters is {chapters!r}",
                      remedy='Give them as "3, 5-7" or one by its title, and no pages beside them.')
    encoding = given.get("encoding") or ""
    if not isinstance(encoding, str):
        raise _bad("invalid_encoding", f"encoding is {encoding!r}", remedy='Name it, such as "windows-1251".')
    part = FileRef(pages=pages or "", chapters=chapters or "", encoding=encoding)
    if isinstance(given.get("file_id"), str):
        return replace(part, id=given["file_id"])
    data = given.get("file_data")
    if not isinstance(data, str):
        raise _bad("invalid_file", "A file part has neither file_id nor file_data")
    try:
        content = base64.b64decode(data.partition("base64,")[2] or data, validate=True)
    except binascii.Error:
        raise _bad("invalid_file", "file_data is not base64") from None
    return replace(part, data=content, name=str(given.get("filename") or "document"))


def _stops(given: Any) -> tuple[str, ...]:
    stops = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(stop, str) for stop in stops):
        raise _bad("invalid_stop", "stop is neither a text nor a list of texts", param="stop")
    if "" in stops:
        raise _bad("invalid_stop", "stop is an empty text, which would end every answer before it begins"
                      if stops == [""] else "stop holds an empty text", param="stop", remedy="Leave it out.")
    if len(stops) > MOST_STOPS:
        raise _bad("invalid_stop", f"stop holds {len(stops)} texts", param="stop", remedy=f"Give at most {MOST_STOPS}.")
    return tuple(stops)


def shown(text: str, stops: Sequence[str], ended: bool) -> tuple[int, bool]:
    """Return how much of an answer may be shown, and whether a stop text ends it there.

    While it goes on, an end that may become a stop text is held back."""
    found = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    if found:
        return min(found), True
    if ended:
        return len(text), False
    held = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
    return len(text) - held, False
