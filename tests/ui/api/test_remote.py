"""The page on a remote engine: two processes, the app's own API in the other one is the server."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from little_books import read_quickly, wait_for, write_book
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.remote import scripted_servers as kinds
from tests.remote.scripted_servers import running
from tests.remote.small_server import SmallServer
from triforce_core import EngineConfig, RemoteEngine, TriForceError
from ui.api.models import Models
from ui.api.problems import Problem
from ui.api.routes import routes
from ui.app import folders
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import chat as welcome_view
from ui.page import figures as charts
from ui.page import html as html_of
from ui.page import settings as engine_status_view
from ui.page import strip
from ui.page.layout import _bar

ROOT = Path(__file__).resolve().parents[3]
KEY = "a-key-of-at-least-20-characters"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an app in another process, which wants a key."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scripted_app", "--no-browser", "--port", str(port), "--data-dir",
         str(tmp_path_factory.mktemp("elsewhere"))], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"TRIFORCE_API_KEY": KEY})
    assert "running at" in process.stdout.readline()
    yield f"http://127.0.0.1:{port}/v1"
    process.terminate()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def remote(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    monkeypatch.setenv("TRIFORCE_REMOTE_KEY", KEY)
    made = Services(folders.make_folders(tmp_path / "home"), lambda config: RemoteEngine(config, elsewhere),
                    EngineConfig(server=elsewhere), read_quickly)
    made.start([])
    yield made
    made.close()


def opened(services: Services, path: Path) -> TabView:
    view = TabView()
    services.add(view, [(path, path.name)])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready", 20.0)
    return view


def ask(services: Services, view: TabView, question: str):
    run = services.ask(view, question)
    wait_for(lambda: run.ended, 20.0)
    assert run.state == "done", run.error
    return run


def test_read_ask_and_ask_again(remote: Services, elsewhere: str, tmp_path: Path) -> None:
    view = opened(remote, write_book(tmp_path, "a.txt"))
    assert remote.queue.model.max_context == 32_768 and remote.queue.opened[view.document].tokens > 100
    first = ask(remote, view, "How many ships did the keeper of Ness 4 count?")
    assert first.accumulator.text.startswith("This is the scripted engine")
    figures = first.accumulator.figures()
    assert figures.engine == "remote" and figures.tokens > 20 and figures.reused_tokens > 100
    wait_for(lambda: remote.conversations.answers(view.conversation)[0].state == "done")
    second = ask(remote, view, "And of Ness 5?")
    grown = second.accumulator.figures().reused_tokens - figures.reused_tokens
    assert grown == figures.tokens  # the first answer is in the history, known again by its tokens
    counts = httpx.get(elsewhere.removesuffix("/v1") + "/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    assert 'triforce_answers_total{state="done"} 3' in counts  # one reading, two questions


def test_what_is_not_reported_is_shown_as_not_available(remote: Services, tmp_path: Path) -> None:
    view = opened(remote, write_book(tmp_path, "b.txt", 3))
    figures = ask(remote, view, "How many?").accumulator.figures()
    card, line = charts.figures_card(figures, "Last"), charts.figures_line(figures)
    assert charts.SPECULATION_REMOTE in card and charts.NOT_REPORTED in card
    assert charts.PER_PASS_SHORT not in line and charts.SPECULATION_OFF not in card + line
    document = remote.library.document(view.document)
    drawn = strip.strip_section(document, (), (), first_page=1, selected=None, read=((1, 3),),
                                reported=False)
    assert strip.STRIP_REMOTE in drawn
    engine = engine_status_view.engine_section("ready", remote.queue.model, None, None, 0, False)
    assert "stay on this machine" in engine and "0 B" not in engine and "Draft" not in engine
    with pytest.raises(TriForceError, match="race"):
        remote.race(view, "How many?")


def test_the_page_says_where_text_goes(remote: Services, elsewhere: str) -> None:
    far = "https://far.example/v1"
    assert html_of.STAYS_HERE.format(url=elsewhere) in _bar(remote.sends_to) and elsewhere not in _bar("")
    assert html_of.SENDS_TO.format(url=far) in _bar(far)
    assert "Nothing leaves this machine" in welcome_view.welcome(None, remote.sends_to)
    assert "Nothing leaves" not in welcome_view.welcome(None, far)


def test_the_api_calls_the_model_what_the_server_calls_it(tmp_path: Path) -> None:
    small = SmallServer()
    services = Services(folders.make_folders(tmp_path / "home"),
                        lambda config: RemoteEngine(config, small.url, "other"), EngineConfig(server=small.url),
                        read_quickly)
    models = Models(services)

    async def asked() -> str:
        await models.check("other")  # at once: it waits until it is known
        with pytest.raises(Problem, match="builtin"):
            await models.check("builtin")
        return models.id

    services.start([])
    with ThreadPoolExecutor(1) as elsewhere:  # a browser's test may have left a loop running in this thread
        assert elsewhere.submit(asyncio.run, asked()).result() == "other"
    services.close()
    small.close()


def test_what_shapes_an_answer_is_passed_on_or_refused_by_name(tmp_path: Path) -> None:
    with running(kinds.ollama(4096)) as server:
        services = Services(folders.make_folders(tmp_path / "home"), lambda config: RemoteEngine(config, server.url),
                            EngineConfig(server=server.url), read_quickly)
        services.start([])
        client = TestClient(Starlette(routes=routes(services)))
        asked = {"messages": [{"role": "user", "content": "Hello"}], "presence_penalty": 1.5}
        refused = client.post("/v1/chat/completions", json=asked | {"min_p": 0.2})
        answered = client.post("/v1/chat/completions", json=asked)
        services.close()
        error = refused.json()["error"]
        assert refused.status_code == 400 and error["param"] == "min_p" and "Ollama" in error["message"]
        assert answered.status_code == 200 and server.seen[-1][1]["presence_penalty"] == 1.5
        assert server.seen[-1][1]["messages"] == asked["messages"], "there is no document, and no word about one"


def test_a_wrong_key_is_a_clear_card(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORCE_REMOTE_KEY", "wrong" * 8)
    services = Services(folders.make_folders(tmp_path / "home"), lambda config: RemoteEngine(config, elsewhere),
                        EngineConfig(server=elsewhere), read_quickly)
    services.start([])
    wait_for(lambda: services.queue.state == "failed")
    assert "401" in services.queue.problem and "TRIFORCE_REMOTE_KEY" in services.queue.problem
    services.close()


def test_check_and_start_say_it_too(elsewhere: str, tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "app.py", "--check", "--engine", "remote", "--base-url", elsewhere,
                             "--data-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60,
                            env=os.environ | {"TRIFORCE_REMOTE_KEY": KEY})
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"the server at {elsewhere}" in result.stdout and "32,768" in result.stdout and KEY not in result.stdout
