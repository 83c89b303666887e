"""Fixtures of the page's tests: documents, services on the fake engine, a served page, a browser."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from little_books import read_quickly

from triforce_core import EngineConfig
from ui import folders as places
from ui.fake_engine import FakeEngine, FakeScript
from ui.services import Services


@pytest.fixture
def script() -> FakeScript:
    return FakeScript(load_seconds=0, triforce_tokens_per_second=4000, plain_tokens_per_second=2000)


@pytest.fixture
def services(tmp_path: Path, script: FakeScript) -> Iterator[Services]:
    folders = places.make_folders(tmp_path / "home")
    made = Services(folders, lambda config: FakeEngine(config, script), EngineConfig(), read_quickly)
    made.start([])
    yield made
    made.close()


@dataclass
class Served:
    """The page, served from this process on the fake engine."""

    url: str
    services: Services
    script: FakeScript
    folder: Path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from ui import server

    folder = tmp_path_factory.mktemp("served")
    folders = places.make_folders(folder / "home")
    before = {name: os.environ.get(name) for name in ("GRADIO_TEMP_DIR", "HF_HUB_OFFLINE")}
    server.quiet_environment(folders.uploads)
    script = FakeScript(load_seconds=0.1)
    services = Services(folders, lambda config: FakeEngine(config, script), EngineConfig(), read_quickly)
    services.start([], server.SAMPLE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, url = server.launch(services, folders, host="127.0.0.1", port=port)
    yield Served(url, services, script, folder)
    services.close()
    page.close(verbose=False)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
