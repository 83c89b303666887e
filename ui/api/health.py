"""``/healthz``, which anybody may ask, and ``/metrics`` in Prometheus' text format: numbers, never words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..app.services import Services

_Handler = Callable[[Request], Awaitable[Response]]


def healthz(services: Services) -> _Handler:
    """200 while the app works, 503 where its engine cannot run."""
    async def handler(request: Request) -> Response:
        queue = services.queue
        state = "silent" if queue.silent_seconds else queue.state
        failed = state in ("failed", "silent")
        return JSONResponse({"name": "triforce-chat", "status": "failed" if failed else "ok", "engine": state},
                            503 if failed else 200)

    return handler


def metrics(services: Services) -> _Handler:
    async def handler(request: Request) -> Response:
        return PlainTextResponse("\n".join(_lines(services)) + "\n", media_type="text/plain; version=0.0.4; "
                                                                                "charset=utf-8")

    return handler


def _lines(services: Services) -> Iterator[str]:
    queue, counters = services.queue, services.queue.counters
    yield from _family("answers_total", "counter", "Answers and races that ended, by how.", "state", counters.answers)
    yield from _family("tokens_total", "counter", "Tokens by what became of them.", "kind", counters.tokens)
    yield from _family("draft_tested_total", "counter", "Drafted tokens that were tested.", "tier", counters.tested)
    yield from _family("draft_accepted_total", "counter", "Drafted tokens that were accepted.", "tier",
                       counters.accepted)
    yield from _single("full_passes_total", "counter", "Verifications by the full cache.", counters.full_passes)
    yield from _single("first_token_seconds_total", "counter", "Seconds until the first token, summed over answers.",
                       counters.first_token_seconds)
    yield from _single("engine_up", "gauge", "1 while a model is loaded and answers.",
                       int(queue.state == "ready" and not queue.silent_seconds))
    yield from _single("queue_length", "gauge", "Jobs that wait for the engine.", queue.waiting)
    yield from _single("documents", "gauge", "Documents in the library.", len(services.library.entries()))
    status = queue.status
    if status is not None:
        yield from _single("engine_resident_bytes", "gauge", "Memory of the engine's process.", status.rss_bytes)
        facts = status.facts
        if facts is not None and facts.device_used is not None:
            yield from _single("device_used_bytes", "gauge", "Memory in use on the GPU.", facts.device_used)


def _family(name: str, kind: str, words: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
    yield from _head(name, kind, words)
    for key, value in sorted(values.items()):
        yield f'triforce_{name}{{{label}="{key}"}} {value}'


def _single(name: str, kind: str, words: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, words)
    yield f"triforce_{name} {value}"


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP triforce_{name} {words}"
    yield f"# TYPE triforce_{name} {kind}"
