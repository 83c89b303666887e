"""The guard before everything else: host names, pages of other origins, response headers.

Localhost is no boundary for a browser: any web page, of another port too, may send requests to it, and a name that
suddenly resolves to 127.0.0.1 (DNS rebinding) may even read the answers. So a browser has to come from this very page,
whatever the method and the route, Gradio's own included; programs, which name no origin, come as they are. Plain ASGI,
so streams pass through untouched.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

import psutil
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triforce_core import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
API = ("/v1/", "/metrics", "/healthz")  # what pages of an allowed origin may ask for
POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'", "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:", "media-src 'self' blob: data:", "font-src 'self' data:", "connect-src 'self'",
    "frame-src 'self'", "worker-src 'self' blob:", "object-src 'none'", "base-uri 'self'", "form-action 'self'",
    "frame-ancestors 'self'"))
# Of these routes nothing is for another site, not even a picture: where a browser sends no Sec-Fetch-Site (over http it
# does so to loopback only), the resource policy keeps its page from using what it was sent.
HEADERS = ((b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff"),
           (b"referrer-policy", b"no-referrer"), (b"cross-origin-resource-policy", b"same-origin"))



class Guard:
    """ASGI middleware: 400 for a foreign Host, 403 for what another origin's page sends, on every method and route.

    origins: of other pages that may use the API nevertheless, with a key of their own; they get CORS headers, nobody
    else does."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = LOOPBACK, origins: Collection[str] = ()) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if host_name(headers.get(b"host", "")) not in self._hosts:
            await _refuse(scope, send, 400, b"Unknown host name.")
            return
        origin = headers.get(b"origin", "").lower()
        invited = origin in self._origins and scope["path"].startswith(API)
        if not invited and _foreign(scope, headers):
            await _refuse(scope, send, 403, b"Cross-site request refused.")
            return
        ours = {**dict(HEADERS), **(_cors(origin) if invited else {})}
        if invited and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _answer(send, 204, b"", ours)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", [])
                        if name.lower() not in ours and not name.lower().startswith(b"access-control-")]
                message = {**message, "headers": [*kept, *ours.items()]}
            await send(message)

        await self._app(scope, receive, with_headers)


def _foreign(scope: Scope, headers: Mapping[bytes, str]) -> bool:
    """Return whether another origin's page sent it. Browsers say so in Sec-Fetch-Site or, where they leave that out, in
    Origin (what they fetch and post) or Referer (what they load). A link to the page itself may be followed."""
    link = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        followed = headers.get(b"sec-fetch-mode") == "navigate" and headers.get(b"sec-fetch-dest") == "document"
        return site not in ("same-origin", "none") and not (link and followed)
    said = headers.get(b"origin") or (None if link else headers.get(b"referer"))
    here = _site(f"http://{headers.get(b'host', '')}")
    return said is not None and (here is None or _site(said) != here)


def _site(url: str) -> str | None:
    """'http://LOCALHOST:80/x' -> 'localhost'; None for what is no address. The scheme is left out: where another
    server in front of this one speaks TLS, this one does not hear of it."""
    try:
        parts = urlsplit(url.strip().lower())
        port = None if parts.port in (80, 443) else parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.hostname if port is None else f"{parts.hostname}:{port}"


def _cors(origin: str) -> dict[bytes, bytes]:
    """Return CORS headers without credentials: a page of another origin brings a key, never this page's login."""
    return {b"access-control-allow-origin": origin.encode("latin-1"), b"vary": b"Origin",
            b"access-control-allow-methods": b"GET, POST, DELETE",
            b"access-control-allow-headers": b"authorization, *", b"access-control-max-age": b"600",
            b"cross-origin-resource-policy": b"cross-origin"}


def host_name(host: str) -> str:
    """'LOCALHOST:7860' -> 'localhost', '[::1]:7860' -> '::1'."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str, more: Collection[str] = ()) -> set[str]:
    """Return names under which this server may be asked for: loopback, those given, off loopback our own addresses."""
    names = {*LOOPBACK, *more, host}
    if not is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
        names |= {address.address.partition("%")[0] for addresses in psutil.net_if_addrs().values()
                  for address in addresses if address.family in (socket.AF_INET, socket.AF_INET6)}
    return {name.lower() for name in names}


def read_origins(given: Sequence[str]) -> tuple[str, ...]:
    """Return origins as browsers write them. Raises ConfigError."""
    for origin in given:
        parts = urlsplit(origin)
        whole = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("http", "https") or _site(origin) is None or "@" in origin or origin != whole:
            raise ConfigError(f"--allow-origin is {origin!r}", allowed="scheme, host and port as a browser's "
                              "address bar begins, such as http://localhost:5173")
    return tuple(origin.lower() for origin in given)


async def _refuse(scope: Scope, send: Send, status: int, body: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await _answer(send, status, body, dict(HEADERS))

async def _answer(send: Send, status: int, body: bytes, headers: Mapping[bytes, bytes]) -> None:
    kind = [(b"content-type", b"text/plain; charset=utf-8")] if body else []
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *headers.items()]})
    await send({"type": "http.response.body", "body": body})
