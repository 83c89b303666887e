"""Every route that is not Gradio's, and who may use it: the page view's pages, the answer that is being written, and
scripts and style sheets."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import gradio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from triforce_core import Document, layout_of_words

from ..api import routes as api
from ..app.library import Entry
from ..app.quotes import places, spot
from ..app.runs import Run
from ..app.services import Services
from ..page import formatting as fmt
from ..page import reader
from ..page.chat import inside, wait
from ..page.panel import pace
from .guard import Access, behind

WIDTHS = (160, 800, 1200, 1600, 2400)  # of pictures, so that few are drawn
MOST_HITS = 200
AROUND = 50  # characters shown before and after a hit
TICK = 0.1  # seconds
SAME_ORIGIN = {"cross-origin-resource-policy": "same-origin"}  # nobody else may load it, not even as an image
HEADERS = SAME_ORIGIN | {"cache-control": "private, max-age=300"}  # the browser keeps a page a while, in its own cache
NOT_KEPT = SAME_ORIGIN | {"cache-control": "no-store"}
FRONTEND = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
KINDS = {".js": "text/javascript", ".css": "text/css"}  # Windows' registry may name others
NO_SUCH_PAGE = HTTPException(404, headers=NOT_KEPT)
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}


def own_routes(services: Services, access: Access) -> list[BaseRoute]:
    """Return all routes of ours, behind the door."""
    return [Route("/healthz", api.healthz(services)), *behind(access, api.routes(services)),
            *behind(access.of_the_page, [*page_routes(services), *writing_routes(services),
                                         *(Route(f"/gradio_api/file{sign}{{path:path}}", _no_file) for sign in "=/")])]


def _no_file(request: Request) -> Response:
    """Refuse in the place of Gradio's route, which also fetches addresses from elsewhere; the page links to no file."""
    return Response(status_code=404)


def page_routes(services: Services) -> list[Route]:
    """Return the page view's routes: a page's picture, its text with places, and a search."""

    def picture(request: Request) -> Response:
        entry, _, number = _asked(services, request)
        wide = request.query_params.get("width", "")
        width = next((w for w in WIDTHS if wide.isdecimal() and len(wide) < 6 and w >= int(wide)), WIDTHS[-1])
        part, there = services.library.place(entry, number) if number else (entry, 0)
        pictured = number and part.is_drawn
        drawn = services.pages.picture(services.library.file(part), there, width) if pictured else None
        if drawn is None:
            raise NO_SUCH_PAGE
        return Response(drawn, media_type="image/png", headers=HEADERS)

    def text(request: Request) -> Response:
        entry, document, number = _asked(services, request)
        if not number:
            raise NO_SUCH_PAGE
        page = document.pages[number - 1]
        ranges = sorted((place.start, min(place.end, len(page.text)))
                        for place in places(request.query_params.get("spot", ""))
                        if place.page == number and place.start < place.end)
        answer: dict[str, Any] = {"page": number, "title": fmt.page_title(document, number)}
        part, there = services.library.place(entry, number)
        layout = services.pages.layout(services.library.file(part), there) if part.is_drawn else None
        if layout is not None and page.words:
            layout = layout_of_words(layout, page.words)
        if layout is None:
            answer |= {"text": page.text, "ranges": ranges}
        else:
            answer |= {"ratio": layout.height / layout.width, "pieces": reader.pieces(layout),
                       "marks": reader.marks(page.text, ranges, layout)}
        return JSONResponse(answer, headers=NOT_KEPT)

    def find(request: Request) -> Response:
        _, document, _ = _asked(services, request)
        words = request.query_params.get("words", "")[:500]
        hits, total = services.finders.of(document).search(words, MOST_HITS)
        listed = []
        for hit in hits:
            page = document.pages[hit.page - 1]
            listed.append({"page": hit.page, "spot": spot([hit]),
                           "before": page.text[max(0, hit.start - AROUND) : hit.start],
                           "words": page.text[hit.start : hit.end], "after": page.text[hit.end : hit.end + AROUND]})
        return JSONResponse({"total": total, "hits": listed}, headers=NOT_KEPT)

    return [Route("/pages/{document}/{page}/picture", picture), Route("/pages/{document}/{page}/text", text),
            Route("/pages/{document}/find", find)]


def _asked(services: Services, request: Request) -> tuple[Entry, Document, int]:
    """Return the document and page (0: none was named) that an address means. Raises HTTPException."""
    entry = services.library.get(request.path_params["document"])
    document = services.library.document(entry.id) if entry and entry.has_text else None
    given = request.path_params.get("page", "0")
    number = int(given) if given.isdecimal() and len(given) < 10 else -1
    if entry is None or document is None or not 0 <= number <= len(document.pages):
        raise NO_SUCH_PAGE
    return entry, document, number


def writing_routes(services: Services) -> list[Route]:
    """Return the route of the answer that is being written: its words go to the page as server-sent events.

    Through Gradio each update cost 10 ms of a core here and 15 in the browser; so the screen's stream says only that an
    answer has begun or ended, and writing.js asks here. A connection that was lost begins anew, with everything."""
    async def writing(request: Request) -> Response:
        run = services.runs.get(request.path_params["run"])
        if run is None or run.race or not run.conversation:
            return Response(status_code=404, headers=NOT_KEPT)
        return StreamingResponse(_events(services, run, request.query_params.get("tokens") == "1"),
                                 media_type="text/event-stream", headers=NOT_KEPT)

    return [Route("/writing/{run}", writing)]


async def _events(services: Services, run: Run, by_token: bool) -> AsyncIterator[str]:
    """Yield what has changed inside, as ``change`` says it; words when ``pace`` says so, everything else at once."""
    sent: object = None
    shown = ""
    while not run.ended:
        stands = _stands(services, run)
        if sent != (news := (stands, run.version, services.queue.pages_read(run))):
            sent = news
            before, shown = shown, await asyncio.to_thread(inside, services, run, by_token)
            yield f"data: {json.dumps(change(before, shown))}\n\n"
        slept = 0.0
        while slept < pace(services.queue, services.runs).words and _stands(services, run) == stands:
            await asyncio.sleep(TICK)
            slept += TICK
    yield "event: end\ndata:\n\n"


def change(before: str, after: str) -> tuple[int, str, int]:
    """Return how many characters stay at the beginning, the new ones behind them, and how many stay at the end: a long
    answer is not sent anew for each word. Characters as JavaScript counts them."""
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    return _units(after[:start]), after[start : len(after) - end], _units(after[len(after) - end :])


def _alike(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, its) in pairs if mine != its), min(len(one), len(other)))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _stands(services: Services, run: Run) -> object:
    return run.state, run.stopping, wait(services, run), bool(run.accumulator.text)


class Assets:
    """Scripts and style sheets, Gradio's as they are asked for and our own, given here by name: compressed once, sent
    from memory. Each is named after what is in it, so a browser that has one never asks for it again."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = {name: text.encode() for name, text in own.items()}
        self._packed: dict[str, bytes] = {}

    def address(self, name: str) -> str:
        """Return the address of one of our own, for the page's head. Another text has another address."""
        return f"./own/{name}?v={hashlib.sha256(self._own[name]).hexdigest()[:16]}"

    def routes(self) -> list[Route]:
        """Return the routes to put before Gradio's, open to all: what the login form is made of is among them."""
        async def frontend(request: Request) -> Response:
            path = FRONTEND / request.path_params["name"]
            if path.suffix not in KINDS or path.parent != FRONTEND or not path.is_file():
                return Response(status_code=404)
            return self._send(request, path.read_bytes)

        async def own(request: Request) -> Response:
            name = request.path_params["name"]
            return self._send(request, lambda: self._own[name]) if name in self._own else Response(status_code=404)

        return [Route("/assets/{name:str}", frontend), Route("/own/{name:str}", own)]

    def _send(self, request: Request, read: Callable[[], bytes]) -> Response:
        path = request.url.path
        headers = FOR_EVER | {"content-type": f"{KINDS[Path(path).suffix]}; charset=utf-8"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(read(), headers=headers)
        if path not in self._packed:
            self._packed[path] = gzip.compress(read(), 6)
        return Response(self._packed[path], headers=headers | {"content-encoding": "gzip"})
