"""Scripts and style sheets, Gradio's and our own: compressed once, sent from memory, and kept by the browser.

Gradio reads and compresses its seventy files anew each time, and says nothing of how long they are good. But each is
named after what is in it, so a browser that has one never needs to ask for it again.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import gradio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FRONTEND = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
KINDS = {".js": "text/javascript", ".css": "text/css"}  # Windows' registry may name others
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}


class Assets:
    """What is sent: Gradio's files as they are asked for, and our own, given here by name."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = {name: text.encode() for name, text in own.items()}
        self._packed: dict[str, bytes] = {}

    def address(self, name: str) -> str:
        """Of one of our own, for the page's head. Another text has another address."""
        return f"./own/{name}?v={hashlib.sha256(self._own[name]).hexdigest()[:16]}"

    def routes(self) -> list[Route]:
        """To be put before Gradio's. Open to all: what the login form is made of is among them."""
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
