"""What a client can have the page read: uploads and nothing else, whichever event it posts to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

SECRET = "the wombat sleeps under the third stair"


def every_event(url: str) -> list[dict[str, Any]]:
    """Each event of the page that takes a component's value."""
    config = httpx.get(url + "config").json()
    return [event for event in config["dependencies"] if event["inputs"]]


def fire(url: str, event: dict[str, Any], value: Any, ways: Sequence[str] = ("run", "join", "call")) -> str:
    """Post ``value`` to each input of an event, by each way that Gradio offers; what it answered."""
    name, said = event["api_name"] or "predict", ""
    body = {"data": [value] * len(event["inputs"]), "fn_index": event["id"], "session_hash": "probe"}
    targets = {"run": f"gradio_api/run/{name}", "join": "gradio_api/queue/join", "call": f"gradio_api/call/{name}"}
    for way in ["join"] if event["types"]["generator"] else ways:  # a generator is the tab's loop: it never ends
        said += httpx.post(url + targets[way], json=body, timeout=20.0).text
    return said


def file_data(path: object) -> dict[str, Any]:
    return {"path": str(path), "orig_name": "x.txt", "meta": {"_type": "gradio.FileData"}}


def kept(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


def test_no_client_can_name_a_file_to_read(served, secret: Path) -> None:
    uploads, library = served.services.folders.uploads, served.services.library
    copies, before = kept(uploads), len(library.entries())
    link = secret.with_name("link.txt")
    link.symlink_to(secret)
    roundabout = f"{uploads}/../../../../{secret.relative_to(secret.parents[1])}"
    paths = (link, roundabout, os.path.relpath(secret), f"file://{secret}", served.services.folders.database)
    events = every_event(served.url)
    assert len(events) > 10 and any(event["types"]["generator"] for event in events)
    said = "".join(fire(served.url, event, [file_data(secret)]) + fire(served.url, event, file_data(secret))
                   + "".join(fire(served.url, event, [file_data(path)], ["run"]) for path in paths)
                   for event in events)
    time.sleep(0.5)  # what waits in the queue
    assert SECRET not in said
    assert kept(uploads) == copies and len(library.entries()) == before


def test_no_client_can_have_an_address_fetched(served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = socket.getaddrinfo

    def look_up(host: object, *more: Any, **named: Any) -> Any:
        if host in ("127.0.0.1", "localhost", None):
            return real(host, *more, **named)
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "nobody goes out in this test")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    address = "http://example.org/told.txt?q=secret"
    for event in every_event(served.url):
        fire(served.url, event, [file_data(address)])
    for way in ("file=", "file/", "proxy="):
        assert httpx.get(f"{served.url}gradio_api/{way}{address}").status_code in (400, 403, 404)
    assert asked == []


def test_an_upload_is_taken_and_leaves_no_copy(served, tmp_path: Path) -> None:
    uploads, library = served.services.folders.uploads, served.services.library
    copies = kept(uploads)
    (event,) = [event for event in every_event(served.url) if event["targets"][0][1] == "upload"]
    for name, taken in (("harbour.txt", True), ("harbour.exe", False)):
        before = len(library.entries())
        text = f"Twelve ships lay in the harbour, says {name} of {tmp_path}."
        (path,) = httpx.post(served.url + "gradio_api/upload", files={"files": (name, text.encode())}).json()
        body = {"data": [[file_data(path)]], "fn_index": event["id"], "session_hash": "probe"}
        answer = httpx.post(served.url + f"gradio_api/run/{event['api_name'] or 'predict'}", json=body)
        assert answer.status_code == 200, answer.text
        assert len(library.entries()) == before + taken
        assert kept(uploads) == copies
