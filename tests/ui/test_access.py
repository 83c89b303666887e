"""A served page with a login and a key: what may be seen without them, and what guessing costs."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import httpx
import openai
import pytest
from little_books import read_quickly

from triforce_core import ConfigError, EngineConfig, EngineScript, ScriptedEngine
from ui import folders as places
from ui.access import KEY_VARIABLE, Access, Patience, read_keys
from ui.services import Services

KEY, USER, PASSWORD = "k" * 32, "ana", "correct horse"
WAITS: list[float] = []
Result = TypeVar("Result")
OPEN = {"/healthz"}  # what anybody may ask


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page that asks for a login."""
    from ui import server

    folders = places.make_folders(tmp_path_factory.mktemp("guarded"))
    before = os.environ.get("GRADIO_TEMP_DIR")
    server.quiet_environment(folders.uploads)
    services = Services(folders, lambda config: ScriptedEngine(config, EngineScript(load_seconds=0)), EngineConfig(),
                        read_quickly)
    services.start([])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, url = server.launch(services, folders, host="127.0.0.1", port=port,
                              access=Access([KEY, "another" * 4], {USER: PASSWORD}, note))
    yield url
    services.close()
    page.close(verbose=False)
    if before is None:
        os.environ.pop("GRADIO_TEMP_DIR", None)
    else:
        os.environ["GRADIO_TEMP_DIR"] = before


@pytest.fixture
def waits() -> list[float]:
    """What the guarded page waited, had it not been in a hurry."""
    WAITS.clear()
    return WAITS


def run(work: Coroutine[object, object, Result]) -> Result:
    """In a thread of its own: a browser's test may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(asyncio.run, work).result()


async def note(seconds: float) -> None:
    WAITS.append(seconds)


def own_routes() -> list[tuple[str, str]]:
    """Every method and path of ours, read from the server's own table, so that a new one is tested too."""
    from starlette.routing import Mount, Route

    from ui import server

    found = []
    for route in server.own_routes(SimpleNamespace(desk=None, library=None), Access()):
        inner = route.routes if isinstance(route, Mount) else [route]
        prefix = route.path if isinstance(route, Mount) else ""
        for each in inner:
            assert isinstance(each, Route)
            path = prefix + re.sub(r"{\w+(:\w+)?}", lambda slot: "1" if slot[1] == ":int" else "x", each.path)
            found += [(method, path) for method in sorted(each.methods or ()) if path not in OPEN]
    return found


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer " + "x" * 32}, {"Authorization": "Bearer"},
                                     {"Authorization": f"Basic {KEY}"}, {"Cookie": "access-token-unsecure-x=y"}])
def test_every_route_of_ours_is_behind_the_door(guarded: str, waits: list[float], headers: dict[str, str]) -> None:
    routes = own_routes()
    assert ("POST", "/v1/chat/completions") in routes and ("GET", "/metrics") in routes and len(routes) >= 8
    for method, path in routes:
        answer = httpx.request(method, guarded.rstrip("/") + path, headers=headers)
        assert answer.status_code == 401, path
        if method != "HEAD":
            assert answer.json()["error"]["code"] == "invalid_api_key"
    assert waits == [1.0] * len(routes)


def test_the_page_itself_asks_for_the_login_and_health_does_not(guarded: str) -> None:
    assert httpx.get(guarded + "config").status_code == 401
    assert httpx.post(guarded + "gradio_api/upload", files={"files": ("x.txt", b"x")}).status_code == 401
    assert httpx.get(guarded + "healthz").status_code == 200


def test_a_key_opens(guarded: str, waits: list[float]) -> None:
    good = openai.OpenAI(base_url=guarded + "v1", api_key=KEY, max_retries=0)
    assert good.models.list().data[0].id == "builtin"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=guarded + "v1", api_key=KEY[:-1], max_retries=0).models.list()


def test_a_login_opens_our_routes_too(guarded: str, waits: list[float]) -> None:
    with httpx.Client() as browser:
        assert browser.post(guarded + "login", data={"username": USER, "password": "wrong"}).status_code == 400
        assert browser.get(guarded + "v1/models").status_code == 401
        answer = browser.post(guarded + "login", data={"username": USER, "password": PASSWORD})
        assert answer.status_code == 200
        cookies = {name: value for name, value in answer.cookies.items() if "unsecure" in name}
        assert browser.get(guarded + "v1/models", cookies=cookies).status_code == 200
    assert 0.5 in waits  # the second login waited because the first was wrong


def test_wrong_logins_wait_longer_and_longer_and_in_line() -> None:
    now, waits, order = [0.0], [], []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds
        await asyncio.sleep(0)

    patience = Patience(lambda: now[0], sleep)

    async def attempts() -> None:
        for _ in range(7):
            assert not await patience.attempt(lambda: False)
        assert await patience.attempt(lambda: True)
        assert await patience.attempt(lambda: True)  # no failure before it: no wait

    run(attempts())
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    now[0] += 1000
    waits.clear()

    async def crowd() -> list[bool]:
        return await asyncio.gather(*(patience.attempt(lambda n=n: order.append(n) or n == 30) for n in range(40)))

    assert not any(run(crowd())) and len(order) == 17  # the rest were turned away unseen
    assert len(waits) == 16


def test_users_and_passwords() -> None:
    access = Access(users={"ana": "correct horse", "bob": ""})
    assert access._knows("ana", "correct horse") and not access._knows("ana", "correct hors")
    assert not access._knows("eve", "") and not access._knows("eve", "correct horse")


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert read_keys(None) == ()
    path = tmp_path / "keys"
    path.write_text(f"# mine\n{KEY}\n")
    assert read_keys(path) == (KEY,)
    monkeypatch.setenv(KEY_VARIABLE, "e" * 20)
    assert read_keys(path) == ("e" * 20, KEY)
    for bad in ("", "short\n"):
        path.write_text(bad)
        with pytest.raises(ConfigError):
            read_keys(path)
    with pytest.raises(ConfigError):
        read_keys(tmp_path / "nowhere")
