"""The page view's own routes: one page's picture, its text with places, and a search. Read only, addressed by the
document's id; ``guard`` stands before them as before everything else, and the door of ``access``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triforce_core import Document

from ..app.library import Entry
from ..app.quotes import places, spot
from ..app.services import Services
from ..page import text_layer

WIDTHS = (160, 800, 1200, 1600, 2400)  # of pictures, so that few are drawn
MOST_HITS = 200
AROUND = 50  # characters shown before and after a hit
# The same origin alone may load them, also as an image; the browser keeps a page a while, in its private cache.
HEADERS = {"cross-origin-resource-policy": "same-origin", "cache-control": "private, max-age=300"}
NOT_KEPT = {**HEADERS, "cache-control": "no-store"}


def routes(services: Services) -> list[Route]:
    """To be put behind the door: they ask nobody who he is."""

    def picture(request: Request) -> Response:
        found = _asked(services, request)
        if isinstance(found, Response):
            return found
        entry, _, number = found
        wide = request.query_params.get("width", "")
        width = next((w for w in WIDTHS if wide.isdecimal() and len(wide) < 6 and w >= int(wide)), WIDTHS[-1])
        part, there = services.library.place(entry, number) if number else (entry, 0)
        pictured = number and part.kind == "pdf"
        drawn = services.pages.picture(services.library.file(part), there, width) if pictured else None
        if drawn is None:
            return Response(status_code=404, headers=NOT_KEPT)
        return Response(drawn, media_type="image/png", headers=HEADERS)

    def text(request: Request) -> Response:
        found = _asked(services, request)
        if isinstance(found, Response):
            return found
        entry, document, number = found
        if not number:
            return Response(status_code=404, headers=NOT_KEPT)
        page = document.pages[number - 1]
        ranges = sorted((place.start, min(place.end, len(page.text)))
                        for place in places(request.query_params.get("spot", ""))
                        if place.page == number and place.start < place.end)
        answer: dict[str, Any] = {"page": number, "label": page.label}
        part, there = services.library.place(entry, number)
        layout = services.pages.layout(services.library.file(part), there) if part.kind == "pdf" else None
        if layout is None:
            answer |= {"text": page.text, "ranges": ranges}
        else:
            answer |= {"ratio": layout.height / layout.width, "pieces": text_layer.pieces(layout),
                       "marks": text_layer.marks(page.text, ranges, layout)}
        return JSONResponse(answer, headers=NOT_KEPT)

    def find(request: Request) -> Response:
        found = _asked(services, request)
        if isinstance(found, Response):
            return found
        _, document, _ = found
        finder = services.finders.of(document)
        hits, total = finder.search(request.query_params.get("words", "")[:500], MOST_HITS)
        listed = []
        for hit in hits:
            page = document.pages[hit.page - 1]
            listed.append({"page": hit.page, "label": page.label, "spot": spot([hit]),
                           "before": page.text[max(0, hit.start - AROUND) : hit.start],
                           "words": page.text[hit.start : hit.end], "after": page.text[hit.end : hit.end + AROUND]})
        return JSONResponse({"total": total, "hits": listed}, headers=NOT_KEPT)

    return [Route("/pages/{document}/{page}/picture", picture), Route("/pages/{document}/{page}/text", text),
            Route("/pages/{document}/find", find)]


def _asked(services: Services, request: Request) -> tuple[Entry, Document, int] | Response:
    """The document and page (0: none was named) that an address means, or why not."""
    entry = services.library.get(request.path_params["document"])
    document = services.library.document(entry.id) if entry and entry.state == "ready" else None
    given = request.path_params.get("page", "0")
    number = int(given) if given.isdecimal() and len(given) < 10 else -1
    if entry is None or document is None or not 0 <= number <= len(document.pages):
        return Response(status_code=404, headers=NOT_KEPT)
    return entry, document, number
