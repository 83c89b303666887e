"""The API's addresses, and numbers of the app: ``/healthz``, which anybody may ask, and ``/metrics`` for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route

from ..app.services import Services
from .answers import Answers
from .chat import Chat
from .files import Files
from .models import Models
from .problems import Problem
from .responses import Responses

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_Handler = Callable[[Request], Awaitable[Response]]


def routes(services: Services) -> list[BaseRoute]:
    """Return everything under /v1, and /metrics; who may ask is decided before they are reached."""
    files, models = Files(services), Models(services)
    answers = Answers(services, files, models)
    chat, responses = Chat(answers), Responses(answers)
    inner = [
        Route("/models", models.all, methods=["GET"]),
        Route("/models/{model:path}", models.one, methods=["GET"]),
        Route("/chat/completions", chat.complete, methods=["POST"]),
        Route("/responses", responses.create, methods=["POST"]),
        Route("/files", files.add, methods=["POST"]),
        Route("/files", files.all, methods=["GET"]),
        Route("/files/{file}", files.one, methods=["GET"]),
        Route("/files/{file}", files.delete, methods=["DELETE"]),
    ]
    nothing = _nothing(inner)
    return [Mount("/v1", routes=[*inner, Route("/{path:path}", nothing, methods=_METHODS)]),
            Route("/v1", nothing, methods=_METHODS),
            Route("/metrics", metrics(services), methods=["GET"])]


def _nothing(routes: Sequence[Route]) -> _Handler:
    """Return the answer to what is none of these routes, in the form of every other error."""
    async def handler(request: Request) -> Response:
        allowed = ", ".join(sorted({method for route in routes if route.matches(request.scope)[0] is Match.PARTIAL
                                    for method in route.methods or ()}))
        said = f"There is no route {request.method} {request.url.path[:200]} here"
        if not allowed:
            return Problem(404, "unknown_url", said).response()
        answer = Problem(405, "method_not_allowed", said, remedy=f"Use {allowed}.").response()
        answer.headers["allow"] = allowed
        return answer

    return handler


def healthz(services: Services) -> _Handler:
    """Return a handler that answers 200 while the app works, 503 where its engine cannot run."""
    async def handler(request: Request) -> Response:
        queue = services.queue
        state = "silent" if queue.silent_seconds else queue.state
        failed = state in ("failed", "silent")
        return JSONResponse({"name": "triforce-chat", "status": "failed" if failed else "ok", "engine": state},
                            503 if failed else 200)

    return handler


def metrics(services: Services) -> _Handler:
    async def handler(request: Request) -> Response:
        return PlainTextResponse("\n".join(_lines(services)) + "\n",
                                 media_type="text/plain; version=0.0.4; charset=utf-8")

    return handler


def _lines(services: Services) -> Iterator[str]:
    """Yield the lines of Prometheus' text format: numbers, never words."""
    queue, counters, status = services.queue, services.queue.counters, services.queue.status
    up = int(queue.state == "ready" and not queue.silent_seconds)
    facts = status.facts if status else None
    for name, kind, words, label, value in (
            ("answers_total", "counter", "Answers and races that ended, by how.", "state", counters.answers),
            ("tokens_total", "counter", "Tokens by what became of them.", "kind", counters.tokens),
            ("draft_tested_total", "counter", "Drafted tokens that were tested.", "tier", counters.tested),
            ("draft_accepted_total", "counter", "Drafted tokens that were accepted.", "tier", counters.accepted),
            ("full_passes_total", "counter", "Verifications by the full cache.", "", counters.full_passes),
            ("first_token_seconds_total", "counter", "Seconds until the first token, summed over answers.", "",
             counters.first_token_seconds),
            ("engine_up", "gauge", "1 while a model is loaded and answers.", "", up),
            ("queue_length", "gauge", "Jobs that wait for the engine.", "", queue.waiting),
            ("documents", "gauge", "Documents in the library.", "", len(services.library.entries())),
            ("engine_resident_bytes", "gauge", "Memory of the engine's process.", "", status and status.rss_bytes),
            ("device_used_bytes", "gauge", "Memory in use on the GPU.", "", facts and facts.device_used)):
        if value is None:
            continue
        yield from (f"# HELP triforce_{name} {words}", f"# TYPE triforce_{name} {kind}")
        if isinstance(value, dict):
            yield from (f'triforce_{name}{{{label}="{key}"}} {each}' for key, each in sorted(value.items()))
        else:
            yield f"triforce_{name} {value}"
