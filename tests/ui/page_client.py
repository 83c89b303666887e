"""The page view's routes, asked without a server."""

from __future__ import annotations

import pytest

from ui.app.services import Services
from ui.server.guard import Guard
from ui.server.routes import page_routes

testclient = pytest.importorskip("starlette.testclient")


def client(services: Services):
    from starlette.applications import Starlette

    app = Starlette(routes=page_routes(services))
    return testclient.TestClient(Guard(app), base_url="http://127.0.0.1:7860")
