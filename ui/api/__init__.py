"""The OpenAI-compatible API on the page's port: the same documents, the same engine, the same queue.

Conventions where OpenAI's leave room: a document is a file part of a user message, ``{"type": "file", "file":
{"file_id": "file-..."}}`` (or ``file_data``), with ``"pages": "3-9"`` beside it for some of its pages; without a file
the system message *is* the document. Answers carry ``timings`` under llama.cpp's names. Knows no Gradio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route

from ..app.services import Services
from .chat import Chat
from .files import Files
from .health import metrics
from .models import Models
from .problems import Problem

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def routes(services: Services) -> list[BaseRoute]:
    """Everything under /v1, and /metrics; who may ask is decided before they are reached."""
    files, models = Files(services), Models(services)
    chat = Chat(services, files, models)
    inner = [
        Route("/models", models.all, methods=["GET"]),
        Route("/models/{model:path}", models.one, methods=["GET"]),
        Route("/chat/completions", chat.complete, methods=["POST"]),
        Route("/files", files.add, methods=["POST"]),
        Route("/files", files.all, methods=["GET"]),
        Route("/files/{file}", files.one, methods=["GET"]),
        Route("/files/{file}", files.delete, methods=["DELETE"]),
    ]
    nothing = _nothing(inner)
    return [Mount("/v1", routes=[*inner, Route("/{path:path}", nothing, methods=_METHODS)]),
            Route("/v1", nothing, methods=_METHODS),
            Route("/metrics", metrics(services), methods=["GET"])]


def _nothing(routes: Sequence[Route]) -> Callable[[Request], Awaitable[Response]]:
    """What is no route of these, in the form of every other error."""
    async def handler(request: Request) -> Response:
        allowed = {method for route in routes if route.matches(request.scope)[0] is Match.PARTIAL
                   for method in route.methods or ()}
        asked = f"{request.method} {request.url.path[:200]}"
        if not allowed:
            return Problem(404, "unknown_url", f"There is no route {asked} here").response()
        answer = Problem(405, "method_not_allowed", f"There is no route {asked} here",
                         remedy=f"Use {', '.join(sorted(allowed))}.").response()
        answer.headers["allow"] = ", ".join(sorted(allowed))
        return answer

    return handler


__all__ = ["routes"]
