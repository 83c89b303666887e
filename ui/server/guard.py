"""Access: the guard before everything else, the login and keys, and what a request may bring along.

Localhost is no boundary for a browser: any web page, of another port too, may send requests to it, and a name that
suddenly resolves to 127.0.0.1 (DNS rebinding) may even read the answers. So a browser has to come from this very page,
whatever the method and the route, Gradio's own included; programs, which name no origin, come as they are. Plain ASGI,
so streams pass through untouched.

Gradio's login covers but some of its own routes and none of ours. On this machine alone nobody is asked. Once there are
users or keys, a request needs a key (``Authorization: Bearer``) or the cookie of a page that has logged in. Comparisons
take the same time whatever they find.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triforce_core import ConfigError, is_loopback

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


NEEDS_KEY = "This needs an API key (Authorization: Bearer ...) or the cookie of a page that has logged in."
KEY_VARIABLE = "TRIFORCE_API_KEY"
SHORTEST_KEY = 20
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds before a login is looked at, after one and after many failures
_FORGET_AFTER = 300.0  # seconds
_COUNTS = 4096
MOST = 64 << 20  # bytes: a document may come along as text
DEEPEST = 200  # brackets in each other
_CHARSET = re.compile(r"charset(?!\s*=\s*\"?utf-?8\"?\s*(?:;|$))")
_FORMS = ("multipart/", "application/x-www-form-urlencoded")
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"(?P<half>(?!" + _PAIR + rb")\\u[dD][89a-fA-F][0-9a-fA-F]{2})|" + _PAIR + rb"|\\.", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class Patience:
    """Logins under one name are looked at a while after they came, the longer the more of them were wrong or are still
    waiting: guessing is slow, in parallel too. None is refused unseen, so that guessers never lock the right password
    out, and other names do not wait for theirs. A login that succeeds forgives no guesses.

    Names share a fixed number of counts: inventing names takes no memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._tries = [(0, 0.0)] * _COUNTS  # how many, and when the last came

    async def attempt(self, check: Callable[[], bool], name: str = "") -> bool:
        """Return what ``check`` says, after the wait that is due."""
        slot, now = zlib.crc32(name.encode("utf-8", "replace")) % _COUNTS, self._clock()
        tries, last = self._tries[slot]
        if now - last > _FORGET_AFTER:
            tries = 0
        self._tries[slot] = (tries + 1, now)
        if tries:
            await self._sleep(min(_FIRST_WAIT * 2 ** min(tries - 1, 16), _LONGEST_WAIT))
        good = check()
        if good:
            tries, last = self._tries[slot]
            self._tries[slot] = (max(tries - 1, 0), last)
        return good


class Access:
    """keys: of the API. users: name -> password, of the page's login."""

    def __init__(self, keys: Collection[str] = (), users: Mapping[str, str] | None = None,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._keys = tuple(key.encode() for key in keys)
        self.users = dict(users or {})
        self.sleep = sleep
        self._logins = Patience(sleep=sleep)
        self._page: Any = None

    @property
    def needed(self) -> bool:
        return bool(self._keys or self.users)

    @property
    def of_the_page(self) -> Access:
        """For what only the page fetches: API keys alone lock no page, and a browser has none to show."""
        return self if self.users else Access()

    def guards(self, page: Any) -> None:
        """page: Gradio's app, which keeps who has logged in: ``tokens``, token -> user, sent as a cookie that is named
        after the app's own random ``cookie_id``."""
        self._page = page

    @property
    def cookie(self) -> str:
        return f"access-token-unsecure-{self._page.cookie_id}"

    async def login(self, user: str, password: str) -> str | None:
        """Return a token for the cookie, or None."""
        if not await self._logins.attempt(lambda: self._knows(user, password), user):
            return None
        token = secrets.token_urlsafe(32)
        self._page.tokens[token] = user
        return token

    def logout(self, connection: HTTPConnection) -> None:
        """Log the user out, everywhere."""
        tokens = self._page.tokens
        user = tokens.get(connection.cookies.get(self.cookie))
        for token in [token for token, its in tokens.items() if its == user]:
            del tokens[token]

    def allows(self, connection: HTTPConnection) -> bool:
        return not self.needed or self._has_key(connection) or self._logged_in(connection)

    def _knows(self, user: str, password: str) -> bool:
        kept = self.users.get(user)
        same = hmac.compare_digest((kept or "").encode(), password.encode("utf-8", "replace"))
        return kept is not None and same

    def _has_key(self, connection: HTTPConnection) -> bool:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(key, given.strip().encode()) for key in self._keys]  # every one, always
        return scheme.lower() == "bearer" and any(matches)

    def _logged_in(self, connection: HTTPConnection) -> bool:
        return self._page is not None and connection.cookies.get(self.cookie) in self._page.tokens


class Door:
    """ASGI middleware: 401 in OpenAI's form for whoever may not ask. open_to_all: addresses, or their beginnings where
    they end in a slash, that nobody needs to be known for."""

    def __init__(self, app: ASGIApp, access: Access, open_to_all: Collection[str] = ()) -> None:
        self._app, self._access, self._open = app, access, frozenset(open_to_all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["type"] in ("http", "websocket") and not self._is_open(scope["path"])
        if asks and not self._access.allows(HTTPConnection(scope)):
            await self._access.sleep(1.0)  # guessing takes time
            refusal = JSONResponse({"error": {"message": NEEDS_KEY, "type": "invalid_request_error",
                                              "param": None, "code": "invalid_api_key"}},
                                   401, {"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or f"/{path[1:].partition('/')[0]}/" in self._open


class Bodies:
    """ASGI middleware: 400 and 413, in OpenAI's form, for a body that nobody could parse; others keep their length.

    JSON may spell half a surrogate pair, which no database, tokenizer or answer can hold: it arrives as U+FFFD.
    Python's parser also takes UTF-16, and bytes that are half a pair; RFC 8259 does not, and nor does this. A form may
    choose an encoding that spells such halves, too: forms are UTF-8."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kinds = [value.decode("latin-1").lower() for name, value in scope.get("headers", ()) if name == b"content-type"]
        form = any(kind.startswith(_FORMS) for kind in kinds)
        if form and any(_CHARSET.search(kind) for kind in kinds):
            await self._refuse(400, "invalid_form", "The form is in another encoding than UTF-8.", scope, receive, send)
            return
        if form or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # hung up: nobody waits for an answer
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > MOST:
                words = f"The request is larger than {MOST >> 20} MB. Upload the document with /v1/files."
                await self._refuse(413, "request_too_large", words, scope, receive, send)
                return
        body = b"".join(parts)
        if not _is_text(body) or _depth(body) > DEEPEST:
            words = f"The body is not JSON in UTF-8, or has more than {DEEPEST} brackets in each other."
            await self._refuse(400, "invalid_json", words, scope, receive, send)
            return
        read: list[Message] = [{"type": "http.request", "body": whole(body), "more_body": False}]

        async def once() -> Message:
            return read.pop() if read else await receive()

        await self._app(scope, once, send)

    async def _refuse(self, status: int, code: str, words: str, *asgi: Any) -> None:
        error = {"message": words, "type": "invalid_request_error", "param": None, "code": code}
        await JSONResponse({"error": error}, status)(*asgi)


def whole(body: bytes) -> bytes:
    """Return the same JSON with \\ufffd for each escape that is half a surrogate pair."""
    if not _SURROGATE.search(body):
        return body
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], body)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except ValueError:
        return False
    return b"\0" not in body


def _depth(body: bytes) -> int:
    """Return how many brackets stand in each other; strings do not count."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(body):
        if found[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def behind(access: Access, routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return the routes at the same addresses, behind the door; who has come in sends text that is text."""
    made: list[BaseRoute] = []
    for route in routes:
        if isinstance(route, Mount):
            made.append(Mount(route.path, routes=route.routes,
                              middleware=[Middleware(Door, access=access), Middleware(Bodies)]))
        else:
            route.app = Door(Bodies(route.app), access)  # type: ignore[attr-defined]
            made.append(route)
    return made


def login_routes(access: Access) -> list[Route]:
    """Return login and logout in the place of Gradio's, whose cookie goes along with other sites' requests."""
    async def login(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=8) as form:
            user, password = (value if isinstance(value := form.get(name), str) else ""
                              for name in ("username", "password"))
        token = await access.login(user.strip(), password)
        if token is None:
            return JSONResponse({"detail": "Incorrect credentials."}, 400)
        answer = JSONResponse({"success": True})
        secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        answer.set_cookie(access.cookie, token, httponly=True, samesite="strict", secure=secure)
        return answer

    async def logout(request: Request) -> Response:
        access.logout(request)
        answer = RedirectResponse("./", 302)
        answer.delete_cookie(access.cookie, httponly=True, samesite="strict")
        return answer

    return [Route(path, login, methods=["POST"]) for path in ("/login", "/login/")] + [Route("/logout", logout)]


def read_keys(path: Path | None) -> tuple[str, ...]:
    """Return the keys of a file, one a line, and of the environment. Raises ConfigError."""
    allowed = "one key per line, at least 20 characters long (for example from: openssl rand -hex 24)"
    found = [os.environ[KEY_VARIABLE]] if os.environ.get(KEY_VARIABLE) else []
    if path is not None:
        in_file = [line for line in map(str.strip, _lines(path, allowed)) if line]
        if not in_file:
            raise ConfigError(f"{path} has no key", allowed=allowed)
        found += in_file
    if any(len(key) < SHORTEST_KEY for key in found):
        raise ConfigError(f"An API key is shorter than {SHORTEST_KEY} characters", allowed=allowed)
    return tuple(found)


def read_users(path: Path) -> dict[str, str]:
    """Return user -> password from an --auth-file. Raises ConfigError."""
    allowed = "one user:password per line, the password at least 8 characters long"
    users = dict(line.strip().split(":", 1) for line in _lines(path, allowed) if ":" in line)
    users = {user: password for user, password in users.items() if user and len(password) >= 8}
    if not users:
        raise ConfigError(f"{path} has no usable line", allowed=allowed)
    return users


def _lines(path: Path, allowed: str) -> list[str]:
    """Return the lines of a file that are no comments. Raises ConfigError."""
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read", allowed=allowed) from error
