"""Every route that is not Gradio's, and who may use it."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from .. import api
from ..api.health import healthz
from ..state.services import Services
from . import answer_stream, page_routes
from .access import Access, behind


def own_routes(services: Services, access: Access) -> list[BaseRoute]:
    """Whoever adds a route adds it here, behind the door."""
    return [Route("/healthz", healthz(services)), *behind(access, api.routes(services)),
            *behind(access.of_the_page, [*page_routes.routes(services), *answer_stream.routes(services)])]
