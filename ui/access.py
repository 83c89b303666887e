"""Who may use the routes that are not Gradio's: its login covers none of them. And what guessing costs.

On this machine alone nobody is asked. Once there are users or keys, a request needs a key (``Authorization: Bearer``)
or the cookie of a page that has logged in. Comparisons take the same time whatever they find.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount

from triforce_core import ConfigError

from . import strings

KEY_VARIABLE = "TRIFORCE_API_KEY"
SHORTEST_KEY = 20
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds before a login is looked at, after one and after many failures
_FORGET_AFTER = 300.0  # seconds
_MOST_WAITING = 16


class Patience:
    """Logins after failed ones wait, one behind the other, right or wrong: guessing in parallel gains nothing.

    The price: while somebody guesses, everybody's login takes seconds. Whoever is logged in notices nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._line = asyncio.Lock()
        self._failures, self._last, self._waiting = 0, 0.0, 0

    async def attempt(self, check: Callable[[], bool]) -> bool:
        """What ``check`` says, after the wait that is due; False at once where too many wait already."""
        if self._waiting >= _MOST_WAITING:
            return False
        self._waiting += 1
        try:
            async with self._line:
                if self._clock() - self._last > _FORGET_AFTER:
                    self._failures = 0
                if self._failures:
                    await self._sleep(min(_FIRST_WAIT * 2 ** (self._failures - 1), _LONGEST_WAIT))
                good = check()
                self._failures = 0 if good else min(self._failures + 1, 16)
                self._last = self._clock()
                return good
        finally:
            self._waiting -= 1


class Access:
    """keys: of the API. users: name -> password, of the page's login."""

    def __init__(self, keys: Collection[str] = (), users: Mapping[str, str] | None = None,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._keys = tuple(key.encode() for key in keys)
        self.users = dict(users or {})
        self.sleep = sleep
        self._logins = Patience(sleep=sleep)

    @property
    def needed(self) -> bool:
        return bool(self._keys or self.users)

    @property
    def of_the_page(self) -> Access:
        """For what only the page fetches: API keys alone lock no page, and a browser has none to show."""
        return self if self.users else Access()

    async def login(self, user: str, password: str) -> bool:
        """For Gradio's login form."""
        return await self._logins.attempt(lambda: self._knows(user, password))

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

    @staticmethod
    def _logged_in(connection: HTTPConnection) -> bool:
        """Gradio keeps the tokens of its sessions on the app, under cookies named after the app's own random id."""
        app = connection.app
        names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
        return any(app.tokens.get(connection.cookies.get(name)) for name in names)


class Door:
    """ASGI middleware in front of our own routes: 401 in OpenAI's form for whoever may not ask."""

    def __init__(self, app: Callable[..., Awaitable[None]], access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and not self._access.allows(HTTPConnection(scope)):
            await self._access.sleep(1.0)  # guessing takes time
            refusal = JSONResponse({"error": {"message": strings.NEEDS_KEY, "type": "invalid_request_error",
                                              "param": None, "code": "invalid_api_key"}},
                                   401, {"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def behind(access: Access, routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """The routes at the same addresses, behind the door."""
    made: list[BaseRoute] = []
    for route in routes:
        if isinstance(route, Mount):
            made.append(Mount(route.path, routes=route.routes, middleware=[Middleware(Door, access=access)]))
        else:
            route.app = Door(route.app, access)  # type: ignore[attr-defined]
            made.append(route)
    return made


def read_keys(path: Path | None) -> tuple[str, ...]:
    """The keys of a file, one a line, and of the environment. Raises ConfigError."""
    found = [os.environ[KEY_VARIABLE]] if os.environ.get(KEY_VARIABLE) else []
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(strings.KEY_FILE_MISSING.format(path=path), allowed=strings.KEYS_ALLOWED) from error
        in_file = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not in_file:
            raise ConfigError(strings.KEY_FILE_EMPTY.format(path=path), allowed=strings.KEYS_ALLOWED)
        found += in_file
    if any(len(key) < SHORTEST_KEY for key in found):
        raise ConfigError(strings.KEY_SHORT.format(least=SHORTEST_KEY), allowed=strings.KEYS_ALLOWED)
    return tuple(found)
