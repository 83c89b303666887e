"""Fixtures of the page's tests: documents, services on the scripted engine, a served page, a browser."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from little_books import read_quickly, wait_for

from tests.scripted_engine import EngineScript, ScriptedEngine
from tests.scripted_evidence import ScriptedEvidence
from triforce_core import HANDBOOK, EngineConfig

if TYPE_CHECKING:  # what the page needs may be missing where only other tests run: see tests/conftest.py
    from gradio.queueing import Queue

    from ui.app.services import Services


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a browser test again, once, when the page was not in time: where two cores do much else at once, a frame or
    a key may come late. Nothing else that fails is tried again, and pytest's last line counts what was."""
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.flaky(reruns=1, only_rerun="TimeoutError"))


@pytest.fixture(scope="session", autouse=True)
def without_evidence_process() -> Iterator[None]:
    """Passages come from a script too; a test that wants the real process sets it back."""
    from ui.app import engine_holder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_holder, "EvidenceClient", ScriptedEvidence)
        yield


@pytest.fixture(scope="session", autouse=True)
def without_servers() -> Iterator[None]:
    """Whatever listens on this machine while tests run is not asked; a test that wants servers names them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ui.app.models.local_servers", list)
        yield


@pytest.fixture
def evidence(services: Services) -> ScriptedEvidence:
    """What finds the passages of ``services``."""
    return services.queue._evidence  # type: ignore[return-value]


@pytest.fixture
def script() -> EngineScript:
    return EngineScript(load_seconds=0, triforce_tokens_per_second=4000, plain_tokens_per_second=2000)


@pytest.fixture
def services(tmp_path: Path, script: EngineScript) -> Iterator[Services]:
    from ui.app import folders as places
    from ui.app.services import Services

    folders = places.make_folders(tmp_path / "home")
    made = Services(folders, lambda config: ScriptedEngine(config, script), EngineConfig(), read_quickly)
    made.start([])
    yield made
    made.close()


@dataclass
class Served:
    """The page, served from this process on the scripted engine."""

    url: str
    services: Services
    script: EngineScript
    folder: Path
    events: Queue  # Gradio's, of this page


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from ui.app import folders as places
    from ui.app.services import Services
    from ui.server import lifecycle

    folder = tmp_path_factory.mktemp("served")
    folders = places.make_folders(folder / "home")
    before = {name: os.environ.get(name) for name in ("GRADIO_TEMP_DIR", "HF_HUB_OFFLINE")}
    lifecycle.quiet_environment(folders.uploads)
    script = EngineScript(load_seconds=0.1)
    services = Services(folders, lambda config: ScriptedEngine(config, script), EngineConfig(), read_quickly)
    services.start([], HANDBOOK)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, url = lifecycle.launch(services, folders, host="127.0.0.1", port=port)
    yield Served(url, services, script, folder, page._queue)
    services.close()
    page.close(verbose=False)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)


@pytest.fixture
def fresh_script(served: Served) -> EngineScript:
    """The served engine's, reset for each test; answers and readings of other tests are over."""
    for field in dataclasses.fields(EngineScript):  # a slow reading that is under way goes on at the usual speed
        setattr(served.script, field.name, field.default)
    for run in served.services.runs.active():
        served.services.queue.stop(run)
    for document in tuple(served.services.queue.prefills):
        served.services.queue.cancel_prefill(document)
    wait_for(lambda: not served.services.runs.active() and not served.services.queue.prefills)
    return served.script


@pytest.fixture
def scripted(served, fresh_script) -> EngineScript:
    """A script that can be watched."""
    served.script.load_seconds = 0.05
    served.script.triforce_tokens_per_second, served.script.plain_tokens_per_second = 150.0, 90.0
    return fresh_script


@pytest.fixture(scope="session")
def profile(chromium) -> object:
    """One browser profile for all tests: the page's scripts are fetched and compiled once, which halves opening it."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(15_000)
    return context


@pytest.fixture
def tab(served, profile, scripted) -> Iterator[object]:
    """A fresh tab with the page open, of a profile that remembers nothing. Fails on outside requests and on errors of
    the page's own scripts."""
    outside, broken = [], []

    def requested(request) -> None:
        if not request.url.startswith((served.url, "data:", "blob:")):
            outside.append(request.url)

    profile.on("request", requested)
    page = profile.new_page()
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(served.url)
    page.wait_for_selector("#transcript .tf-welcome")
    yield page
    profile.remove_listener("request", requested)
    for left in profile.pages:
        left.evaluate("localStorage.clear()")
        left.close()
    profile.clear_cookies()
    profile.clear_permissions()
    assert outside == [] and broken == []
