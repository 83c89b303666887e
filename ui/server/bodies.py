"""Bodies of requests on their way to whoever parses them, Gradio's routes and ours alike.

JSON may spell half a surrogate pair, which no database, tokenizer or answer can hold: it arrives as U+FFFD. Python's
parser also takes UTF-16, and bytes that are half a pair; RFC 8259 does not, and nor does this. A form may choose an
encoding that spells such halves, too: forms are UTF-8.
"""

from __future__ import annotations

import re

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON_BAD = "The body is not JSON in UTF-8, or has more than {deepest} brackets in each other."

MOST = 64 << 20  # bytes: a document may come along as text
DEEPEST = 200  # brackets in each other
_CHARSET = re.compile(r"charset(?!\s*=\s*\"?utf-?8\"?\s*(?:;|$))")
_FORMS = ("multipart/", "application/x-www-form-urlencoded")
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"(?P<half>(?!" + _PAIR + rb")\\u[dD][89a-fA-F][0-9a-fA-F]{2})|" + _PAIR + rb"|\\.", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class Bodies:
    """ASGI middleware: 400 and 413, in OpenAI's form, for a body that nobody could parse; others keep their length."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kinds = [value.decode("latin-1").lower() for name, value in scope.get("headers", ()) if name == b"content-type"]
        form = any(kind.startswith(_FORMS) for kind in kinds)
        if form and any(_CHARSET.search(kind) for kind in kinds):
            await _problem(400, "invalid_form", "The form is in another encoding than UTF-8.")(scope, receive, send)
            return
        if form or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # hung up: nobody waits for an answer
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > MOST:
                too_large = _problem(413, "request_too_large", f"The request is larger than {MOST >> 20} MB. Upload "
                                                               "the document with /v1/files.")
                await too_large(scope, receive, send)
                return
        body = b"".join(parts)
        if not _is_text(body) or _depth(body) > DEEPEST:
            await _problem(400, "invalid_json", JSON_BAD.format(deepest=DEEPEST))(scope, receive, send)
            return
        told = False

        async def once() -> Message:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": whole(body), "more_body": False}

        await self._app(scope, once, send)


def whole(body: bytes) -> bytes:
    """The same JSON with \\ufffd for each escape that is half a surrogate pair."""
    if not _SURROGATE.search(body):
        return body
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], body)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except ValueError:
        return False
    return b"\0" not in body


def _depth(body: bytes) -> int:
    """Of brackets; what stands in strings counts for nothing."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(body):
        if found[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def _problem(status: int, code: str, words: str) -> JSONResponse:
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status)
