"""Scripts and style sheets: compressed once, kept for ever under an address that names their text."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ui.page import theme
from ui.server import routes
from ui.server.routes import Assets


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "x-1.js").write_text("let x = 1;")
    (folder / "secret.txt").write_text("no")
    (tmp_path / "out.js").write_text("no")
    monkeypatch.setattr(routes, "FRONTEND", folder)
    return TestClient(Starlette(routes=Assets({"page.css": "p { color: red }"}).routes()))


@pytest.mark.parametrize("packing", ["gzip", "identity"])
def test_both_kinds_are_sent_and_kept(client: TestClient, packing: str) -> None:
    wanted = (("/assets/x-1.js", "let x = 1;", "javascript"), ("/own/page.css", "p { color: red }", "css"))
    for path, text, kind in wanted:
        for _ in range(2):  # the second comes from memory
            answer = client.get(path, headers={"accept-encoding": packing})
            assert answer.text == text and kind in answer.headers["content-type"]
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers.get("content-encoding", "identity") == packing


@pytest.mark.parametrize("path", ["/assets/gone.js", "/assets/secret.txt", "/assets/%2e%2e/out.js",
                                  "/assets/..%2fout.js", "/assets/.js", "/own/other.js"])
def test_nothing_else_is(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_another_text_has_another_address() -> None:
    assert Assets({"a.js": "1"}).address("a.js") != Assets({"a.js": "2"}).address("a.js")


def test_the_head_names_both_files() -> None:
    own = Assets(theme.files())
    head = theme.head(own.address)
    assert all(own.address(name) in head for name in (theme.SCRIPT, theme.STYLE)) and len(head) < 1000
