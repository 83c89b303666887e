"""Errors, in OpenAI's form: {"error": {message, type, param, code}}, with need, have and remedy beside."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from triforce_core import (
    ConfigError,
    ContextTooLongError,
    DocumentError,
    EngineDiedError,
    ModelError,
    NotEnoughDiskError,
    NotEnoughMemoryError,
    TriForceError,
)

from ..app.folders import FULL, FolderError, refusal
from ..app.jobs import UNEXPECTED

log = logging.getLogger(__name__)
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, 400), (DocumentError, 400), (ContextTooLongError, 400), (NotEnoughMemoryError, 503),
    (NotEnoughDiskError, 507), (FolderError, 500), (EngineDiedError, 503), (ModelError, 503), (TriForceError, 400))


class Problem(Exception):
    """An answer that is an error. more: further fields, such as need and have (tokens)."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, remedy: str = "",
                 **more: Any) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        text = f"{message.rstrip('.')}. {remedy}".strip() if remedy else message
        details = {"message": text, "type": kind, "param": param, "code": code, **more}
        self.body = {"error": details | ({"remedy": remedy} if remedy else {})}

    @classmethod
    def of(cls, error: Exception) -> Problem:
        """Return anything that was raised as a Problem; the words of an unforeseen error stay in the log."""
        if isinstance(error, Problem):
            return error
        if isinstance(error, HTTPException):  # how Starlette's form parser speaks
            return cls(error.status_code, "invalid_request", error.detail)
        if isinstance(error, OSError) and error.errno in FULL:  # a large form's: it is put down before it is read
            error = refusal(error, Path(tempfile.gettempdir(), "form"))
        if isinstance(error, TriForceError):
            status = next(status for kind, status in _STATUS if isinstance(error, kind))
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()
            named = {ContextTooLongError: "context_length_exceeded", TriForceError: "invalid_request"}
            code = named.get(type(error), name)
            message = f"{error.message.rstrip('.')}. Allowed: {error.allowed}" if error.allowed else error.message
            # What does not fit is the conversation: a document's own pages are chosen until they do.
            param = "messages" if isinstance(error, ContextTooLongError) else None
            return cls(status, code, message, param=param, remedy=error.remedy)
        return cls(500, "unexpected", UNEXPECTED.format(kind=type(error).__name__))

    def about(self, names: Mapping[Any, str]) -> Problem:
        """Return the same, of a parameter that the client calls otherwise. names: theirs by ours."""
        details = self.body["error"]
        details["param"] = names.get(details["param"], details["param"])
        return self

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status)


async def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object that was sent. Raises Problem."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "The body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem(400, "invalid_json", "The body is not a JSON object")
    return body


def answered(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Return a handler whose errors become answers."""
    @wraps(handler)
    async def safe(*arguments: Any) -> Response:
        try:
            return await handler(*arguments)
        except (Problem, TriForceError, HTTPException) as error:
            return Problem.of(error).response()
        except Exception as error:
            log.exception("a request to %s failed", next(a.url.path for a in arguments if isinstance(a, Request)))
            return Problem.of(error).response()

    return safe
