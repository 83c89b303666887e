"""Every route that is not Gradio's, and who may use it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .. import api
from ..api.health import healthz
from ..app.services import Services
from . import answer_stream, page_routes
from .access import Access, behind


def own_routes(services: Services, access: Access) -> list[BaseRoute]:
    """Whoever adds a route adds it here, behind the door."""
    return [Route("/healthz", healthz(services)), *behind(access, api.routes(services)),
            *behind(access.of_the_page, [*page_routes.routes(services), *answer_stream.routes(services),
                                         *(Route(f"/gradio_api/file{sign}{{path:path}}", _no_file) for sign in "=/")])]


def _no_file(request: Request) -> Response:
    """In the place of Gradio's, which also fetches addresses from elsewhere; the page links to no file."""
    return Response(status_code=404)
