"""docs/api.md: what it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.routing import Mount

from ui.api.files import describe
from ui.app import arguments as cli_words
from ui.app.extraction import Extraction
from ui.app.library import Entry
from ui.server import guard
from ui.server.routes import own_routes

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_flag_and_variable_exists() -> None:
    paths = set()
    for route in own_routes(SimpleNamespace(queue=None, library=None), guard.Access()):
        inner = route.routes if isinstance(route, Mount) else [route]
        paths |= {(route.path if isinstance(route, Mount) else "") + each.path for each in inner}
    for path in re.findall(r"`(?:GET|POST) (/\S+?)`", PAGE):
        assert path.replace("/ID", "/{file}") in paths, path
    for flag in set(re.findall(r"--[a-z][a-z-]+", PAGE)):
        assert flag.removeprefix("--").replace("-", "_") in cli_words.FLAGS, flag
    assert guard.KEY_VARIABLE in PAGE and str(guard.SHORTEST_KEY) in PAGE


def test_a_file_whose_text_comes_says_how_far_it_is_and_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 130.0)
    entry = Entry("a", "a.pdf", ".pdf", 9, 0.0, None, "part", "", "", "", 0, 0, (), None, None)
    told = describe(entry, Extraction(entry, pages_done=12, pages_total=36, began=100.0))
    assert told["status"] == "uploaded"
    assert told["status_details"] == "Waiting for the text: page 12 of 36 extracted · about 60 s left"
    assert describe(entry, None)["status_details"] is None
