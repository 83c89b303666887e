"""A Hugging Face hub on this machine, of one repo: just what looking it up and fetching it need."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

REVISION = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """break_after: bytes of the weights after which every connection breaks off. promised: bytes that are said to be in
    a file, where that is not true. cut: bytes that a file's headers promise and that never come. also: another repo."""

    def __init__(self, repo: str, folder: Path) -> None:
        self.repo = repo
        self.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.break_after: int | None = None
        self.promised: dict[str, int] = {}
        self.cut: dict[str, int] = {}
        self.also: FakeHub | None = None
        self.asked: list[tuple[str, str | None]] = []  # (file, Range) of each file that was asked for
        self.url = ""

    def etag(self, name: str) -> str:
        return hashlib.sha256(self.files[name]).hexdigest()

    def about(self) -> dict[str, object]:
        siblings = [{"rfilename": name, "size": self.promised.get(name, len(data)),
                     "lfs": {"size": len(data), "sha256": self.etag(name), "pointerSize": 130}}
                    for name, data in self.files.items()]
        return {"id": self.repo, "modelId": self.repo, "sha": REVISION, "siblings": siblings, "private": False,
                "tags": ["safetensors", "license:apache-2.0"]}


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            for one in (hub, hub.also):
                if one and path.startswith(f"/api/models/{one.repo}"):
                    self._send(json.dumps(one.about()).encode(), {"Content-Type": "application/json"})
                    return
                if one and path.startswith(f"/{one.repo}/resolve/"):
                    name = unquote(path.partition("/resolve/")[2].partition("/")[2])
                    if name in one.files:
                        self._send_file(name)
                        return
            self._send(b"{}", {"X-Error-Code": "RepoNotFound"}, 404)

        def _send_file(self, name: str) -> None:
            data, wanted = hub.files[name], self.headers.get("Range")
            start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
            headers = {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": REVISION, "Accept-Ranges": "bytes"}
            if wanted:
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            if self.command == "GET":
                hub.asked.append((name, wanted))
            self._send(data[start:], headers, 206 if wanted else 200, name)

        def _send(self, body: bytes, headers: dict[str, str], status: int = 200, name: str = "") -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body) + hub.cut.get(name, 0))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.break_after is not None and name.endswith((".safetensors", ".gguf")):
                self.wfile.write(body[: hub.break_after])
                self.wfile.flush()
                hub.break_after -= min(hub.break_after, len(body))
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(body)
            self.close_connection = name in hub.cut

    return Handler


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
