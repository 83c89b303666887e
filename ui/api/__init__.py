"""The OpenAI-compatible API on the page's port: the same documents, the same engine, the same queue.

Conventions where OpenAI's leave room: a document is a file part of a user message, ``{"type": "file", "file":
{"file_id": "file-..."}}`` (or ``file_data``), with ``"pages": "3-9"`` beside it for some of its pages; without a file
the system message *is* the document. Answers carry ``timings`` under llama.cpp's names. Knows no Gradio.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount, Route

from ..services import Services
from .chat import Chat
from .files import Files
from .health import metrics
from .models import Models


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
    return [Mount("/v1", routes=inner), Route("/metrics", metrics(services), methods=["GET"])]


__all__ = ["routes"]
