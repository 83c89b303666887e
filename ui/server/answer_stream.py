"""The answer that is being written: its words go to the page on a connection of their own, as server-sent events.

Through Gradio each update cost 10 ms of a core here and 15 in the browser, whatever it brought; so the screen's stream
says only that an answer has begun or ended, and writing.js asks here for what is in it. A connection that was lost
begins anew, with everything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..app.runs import Run
from ..app.services import Services
from ..page.chat import inside, wait
from ..page.panel import pace

TICK = 0.1
NOT_KEPT = {"cache-control": "no-store", "cross-origin-resource-policy": "same-origin"}


def routes(services: Services) -> list[Route]:
    """To be put behind the door: they ask nobody who he is."""

    async def writing(request: Request) -> Response:
        run = services.runs.get(request.path_params["run"])
        if run is None or run.race or not run.conversation:
            return Response(status_code=404, headers=NOT_KEPT)
        return StreamingResponse(_events(services, run, request.query_params.get("tokens") == "1"),
                                 media_type="text/event-stream", headers=NOT_KEPT)

    return [Route("/writing/{run}", writing)]


async def _events(services: Services, run: Run, by_token: bool) -> AsyncIterator[str]:
    """Each one what has changed inside, as of ``change``; words when ``pace`` says so, everything else at once."""
    told: object = None
    shown = ""
    while not run.ended:
        stands = _stands(services, run)
        if told != (news := (stands, run.version, services.queue.pages_read(run))):
            told = news
            before, shown = shown, await asyncio.to_thread(inside, services, run, by_token)
            yield f"data: {json.dumps(change(before, shown))}\n\n"
        slept = 0.0
        while slept < pace(services.queue, services.runs).words and _stands(services, run) == stands:
            await asyncio.sleep(TICK)
            slept += TICK
    yield "event: end\ndata:\n\n"


def change(before: str, after: str) -> tuple[int, str, int]:
    """How many characters stay at the beginning, the new ones behind them, and how many stay at the end: a long answer
    is not sent anew for each word. Characters as JavaScript counts them."""
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    return _units(after[:start]), after[start : len(after) - end], _units(after[len(after) - end :])


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next((at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its),
                min(len(one), len(other)))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _stands(services: Services, run: Run) -> object:
    return run.state, run.stopping, wait(services, run), bool(run.accumulator.text)
