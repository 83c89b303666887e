"""Access: Gradio's login covers but some of its own routes and none of ours. And what guessing costs.

On this machine alone nobody is asked. Once there are users or keys, a request needs a key (``Authorization: Bearer``)
or the cookie of a page that has logged in. Comparisons take the same time whatever they find.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triforce_core import ConfigError

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
