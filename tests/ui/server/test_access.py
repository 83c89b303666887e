"""A served page with a login and a key: what may be seen without them, and what guessing costs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import httpx
import openai
import pytest
from little_books import read_quickly

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import ConfigError, EngineConfig
from ui.app import folders as places
from ui.app.services import Services
from ui.page import library as library_words
from ui.server import routes
from ui.server.guard import KEY_VARIABLE, Access, Patience, read_keys

KEY, USER, OTHER, PASSWORD = "k" * 32, "ana", "bob", "correct horse"
WAITS: list[float] = []
Result = TypeVar("Result")
OPEN = {"/healthz"}  # what anybody may ask


@contextmanager
def asking_for_a_login(folder: Path, sleep: Callable[[float], Awaitable[None]]) -> Iterator[str]:
    """The address of such a page."""
    from ui.server import lifecycle

    folders = places.make_folders(folder)
    before = os.environ.get("GRADIO_TEMP_DIR")
    lifecycle.quiet_environment(folders.uploads)
    services = Services(folders, lambda config: ScriptedEngine(config, EngineScript(load_seconds=0)), EngineConfig(),
                        read_quickly)
    services.start([])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, url = lifecycle.launch(services, folders, host="127.0.0.1", port=port,
                              access=Access([KEY, "another" * 4], {USER: PASSWORD, OTHER: PASSWORD}, sleep))
    yield url
    services.close()
    page.close(verbose=False)
    if before is None:
        os.environ.pop("GRADIO_TEMP_DIR", None)
    else:
        os.environ["GRADIO_TEMP_DIR"] = before


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """It waits for nobody, but writes down how long it would."""
    with asking_for_a_login(tmp_path_factory.mktemp("guarded"), note) as url:
        yield url


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """It waits, a quarter as long."""
    with asking_for_a_login(tmp_path_factory.mktemp("patient"), lambda seconds: asyncio.sleep(seconds / 4)) as url:
        yield url


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


    found = []
    for route in routes.own_routes(SimpleNamespace(queue=None, library=None), Access()):
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
    listed = own_routes()
    assert ("POST", "/v1/chat/completions") in listed and ("GET", "/metrics") in listed and len(listed) >= 8
    for method, path in listed:
        answer = httpx.request(method, guarded.rstrip("/") + path, headers=headers)
        assert answer.status_code == 401, path
        if method != "HEAD":
            assert answer.json()["error"]["code"] == "invalid_api_key"
    assert waits == [1.0] * len(listed)


def test_the_page_itself_asks_for_the_login_and_health_does_not(guarded: str) -> None:
    assert httpx.get(guarded + "config").status_code == 401
    assert httpx.post(guarded + "gradio_api/upload", files={"files": ("x.txt", b"x")}).status_code == 401
    assert httpx.get(guarded + "healthz").status_code == 200


def test_a_key_opens(guarded: str, waits: list[float]) -> None:
    good = openai.OpenAI(base_url=guarded + "v1", api_key=KEY, max_retries=0)
    assert good.models.list().data[0].id == "builtin"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=guarded + "v1", api_key=KEY[:-1], max_retries=0).models.list()


@contextmanager
def log_in(url: str, password: str = PASSWORD, user: str = USER) -> Iterator[httpx.Client]:
    """A browser that has tried."""
    with httpx.Client(base_url=url, timeout=20.0) as browser:
        answer = browser.post("login", data={"username": user, "password": password})
        assert answer.status_code == (200 if password == PASSWORD else 400)
        yield browser


def test_a_login_reads_no_file_of_the_host(guarded: str, tmp_path: Path) -> None:
    """Neither as an upload nor, had the library taken it, as a page of a document."""
    users = tmp_path / "users.txt"
    users.write_text(f"{USER}:{PASSWORD}\n")
    with log_in(guarded, user=OTHER) as browser:
        before = browser.get("v1/files").json()["data"]
        (event,) = [event for event in browser.get("config").json()["dependencies"]
                    if event["targets"] and event["targets"][0][1] == "upload"]
        file = {"path": str(users), "orig_name": "users.txt", "meta": {"_type": "gradio.FileData"}}
        body = {"data": [[file]], "fn_index": event["id"], "session_hash": "bob"}
        answer = browser.post(f"gradio_api/run/{event['api_name'] or 'predict'}", json=body)
        assert answer.status_code == 500 and answer.json()["error"] == library_words.UPLOAD_REFUSED
        document = hashlib.sha256(users.read_bytes()).hexdigest()
        for _ in range(20):  # while its text would be extracted
            page = browser.get(f"pages/{document}/1/text")
            assert page.status_code == 404 and PASSWORD not in page.text
            time.sleep(0.05)
        assert browser.get("v1/files").json()["data"] == before


def test_a_login_opens_our_routes_too(guarded: str, waits: list[float]) -> None:
    with log_in(guarded, "wrong") as browser:
        assert browser.get("v1/models").status_code == 401
    waits.clear()
    with log_in(guarded) as browser:
        assert browser.get("v1/models").status_code == browser.get("config").status_code == 200
        assert [0 < wait <= 8 for wait in waits] == [True]  # it waited because the first was wrong


def test_the_cookie_stays_at_home(guarded: str) -> None:
    with log_in(guarded) as browser:
        answer = browser.post("login/", data={"username": USER, "password": PASSWORD})
        (cookie,) = answer.headers.get_list("set-cookie")
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; ")) and "Secure" not in cookie
        behind_tls = browser.post("login", data={"username": USER, "password": PASSWORD},
                                  headers={"X-Forwarded-Proto": "https"})
        assert "; Secure" in behind_tls.headers["set-cookie"]


def test_only_the_page_itself_logs_out(guarded: str) -> None:
    with log_in(guarded) as browser:
        for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
                        {"Sec-Fetch-Site": "same-site"}, {"Referer": "http://127.0.0.1:9/"}):
            assert browser.get("logout", headers=headers).status_code == 403
        assert browser.get("config").status_code == 200
        with log_in(guarded) as other:
            assert other.get("logout", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 302
            assert browser.get("config").status_code == other.get("config").status_code == 401  # everywhere


def test_nothing_of_gradio_s_answers_without_the_login(guarded: str, waits: list[float]) -> None:
    asked = [("GET", "gradio_api/heartbeat/x"), ("POST", "gradio_api/reset"), ("POST", "gradio_api/cancel"),
             ("GET", "gradio_api/openapi.json"), ("GET", "gradio_api/startup-events"), ("GET", "gradio_api/app_id"),
             ("POST", "gradio_api/stream/x"), ("GET", "monitoring/summary"), ("GET", "gradio_api/no-such-thing"),
             ("GET", "openapi.json"), ("GET", "docs"), ("GET", "custom_component/x")]
    for method, path in asked:
        body = {"session_hash": "x", "fn_index": 0, "event_id": "x"} if method == "POST" else None
        assert httpx.request(method, guarded + path, json=body).status_code == 401, path
    form = httpx.get(guarded)
    assert form.status_code == 200 and '"auth_required":true' in form.text
    for path in set(re.findall(r'(?:src|href)="\.?/([^"]+)"', form.text)):
        assert httpx.get(guarded + path).status_code in (200, 404), path
    with log_in(guarded) as browser:
        assert browser.get("openapi.json").status_code == 404
        with browser.stream("GET", "gradio_api/heartbeat/x") as answer:
            assert answer.status_code == 200


def test_guessers_behind_the_same_address_lock_no_right_password_out(patient: str) -> None:
    with ThreadPoolExecutor(64) as people:
        guesses = [people.submit(httpx.post, patient + "login", timeout=60.0,
                                 data={"username": USER, "password": f"guess {n}"}) for n in range(30)]
        wait([guesses[0]])  # they are at it
        right = people.submit(httpx.post, patient + "login", timeout=60.0,
                              data={"username": USER, "password": PASSWORD})
        more = [people.submit(httpx.post, patient + "login", timeout=60.0,
                              data={"username": USER, "password": f"more {n}"}) for n in range(30)]
        started = time.monotonic()
        other = httpx.post(patient + "login", timeout=60.0, data={"username": OTHER, "password": PASSWORD})
        took = time.monotonic() - started
        assert right.result().status_code == other.status_code == 200
        assert {guess.result().status_code for guess in (*guesses, *more)} == {400}
        assert took < 3.0  # another name waits for nobody


def attempts(patience: Patience, *checks: tuple[str, bool]) -> list[bool]:
    """One after the other."""
    async def each() -> list[bool]:
        return [await patience.attempt(lambda good=good: good, name) for name, good in checks]

    return run(each())


@pytest.fixture
def clock() -> list[float]:
    """Seconds, moved on by ``patience``'s sleep, and after them how long each sleep was."""
    return [0.0]


@pytest.fixture
def patience(clock: list[float]) -> Patience:
    async def sleep(seconds: float) -> None:
        clock.append(seconds)
        clock[0] += seconds
        await asyncio.sleep(0)

    return Patience(lambda: clock[0], sleep)


def test_wrong_logins_wait_longer_and_longer(patience: Patience, clock: list[float]) -> None:
    assert attempts(patience, *[("a", False)] * 7, ("a", True), ("a", True)) == [False] * 7 + [True] * 2
    assert clock[1:] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]  # a right one forgives nothing
    clock[0] += 1000
    del clock[1:]
    assert attempts(patience, ("a", False), ("a", True)) == [False, True] and clock[1:] == [0.5]


def test_guessing_in_parallel_gains_nothing(patience: Patience, clock: list[float]) -> None:
    async def crowd() -> list[bool]:
        return await asyncio.gather(*(patience.attempt(lambda n=n: n == 39, "a") for n in range(40)))

    assert run(crowd()) == [False] * 39 + [True]
    assert sorted(clock[1:]) == [0.5, 1.0, 2.0, 4.0] + [8.0] * 35  # each waits as if the others had been wrong


def test_each_name_waits_for_itself(patience: Patience, clock: list[float]) -> None:
    attempts(patience, *[("a", False)] * 5)
    del clock[1:]
    assert attempts(patience, ("b", True)) == [True] and clock[1:] == []


def test_invented_names_take_no_memory(patience: Patience) -> None:
    before = len(patience._tries)
    attempts(patience, *[(f"nobody {n}", False) for n in range(20_000)])
    assert len(patience._tries) == before < 20_000


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
