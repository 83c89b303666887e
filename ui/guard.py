"""What stands between the page and other web pages: host names, cross-site requests, response headers.

Localhost is no boundary for a browser: any web page may send requests to it, and a name that suddenly resolves to
127.0.0.1 (DNS rebinding) may even read the answers. Plain ASGI, so streams pass through untouched.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from pathlib import Path
from typing import Any

import psutil

from triforce_core import ConfigError

from . import strings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'", "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:", "media-src 'self' blob: data:", "font-src 'self' data:", "connect-src 'self'",
    "frame-src 'self'", "worker-src 'self' blob:", "object-src 'none'", "base-uri 'self'", "form-action 'self'",
    "frame-ancestors 'self'"))
HEADERS = ((b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff"),
           (b"referrer-policy", b"no-referrer"))


class Guard:
    """ASGI middleware: 400 for a foreign Host, 403 for a cross-site request that could change something."""

    def __init__(self, app: Callable[..., Awaitable[None]], hosts: Collection[str] = LOOPBACK) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if host_name(headers.get(b"host", "")) not in self._hosts:
            await _refuse(scope, send, 400, b"Unknown host name.")
            return
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if changes and self._foreign(headers):
            await _refuse(scope, send, 403, b"Cross-site request refused.")
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in names]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        await self._app(scope, receive, with_headers)

    def _foreign(self, headers: dict[bytes, str]) -> bool:
        """Sent by another site's page. Browsers say so in Sec-Fetch-Site, older ones in Origin; scripts say nothing."""
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            return site in ("cross-site", "same-site")
        origin = headers.get(b"origin")
        return origin is not None and host_name(origin.partition("://")[2]) not in self._hosts


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
    """Names under which this server may be asked for: loopback, those given, and off loopback our own addresses."""
    names = {*LOOPBACK, *more, host}
    if not is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
        names |= {address.address.partition("%")[0] for addresses in psutil.net_if_addrs().values()
                  for address in addresses if address.family in (socket.AF_INET, socket.AF_INET6)}
    return {name.lower() for name in names}


def read_users(path: Path) -> dict[str, str]:
    """user -> password from an --auth-file. Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(strings.AUTH_FILE_MISSING.format(path=path), allowed=strings.AUTH_FILE_ALLOWED) from error
    users = dict(line.strip().split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    users = {user: password for user, password in users.items() if user and len(password) >= 8}
    if not users:
        raise ConfigError(strings.AUTH_FILE_BAD.format(path=path), allowed=strings.AUTH_FILE_ALLOWED)
    return users


async def _refuse(scope: MutableMapping[str, Any], send: Send, status: int, body: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]})
    await send({"type": "http.response.body", "body": body})
