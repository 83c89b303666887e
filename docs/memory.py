"""What the app's own memory comes to while its page is opened again and again and questions are asked.

    python -m docs.memory [--reloads N] [--questions N] [--engine scripted|triforce]          (a line per 50, then JSON)

A tab over plain HTTP does what a browser's does: the page, its assets, the settings' values, the loop that draws it,
the words of the answer being written; a reload leaves in the middle of that loop, as a browser does. The level is the
resident memory of the app's process, and of the engine's where it has one, after the first 50 and at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from .screenshots import QUESTIONS, app

SETTLED = 50  # reloads, or questions, after which the level is taken that the end is held against
ALLOWED = 40.0  # MB by which the end may be higher
_ASSET = re.compile(r"""(?:src|href)=["'](\./[^"']+\.(?:js|css))["']""")
_RUN = re.compile(r"data-writing=.{1,2}([0-9a-f]{32})")
WAIT = 60.0


class Tab:
    """One browser tab without a browser. Use as a context manager."""

    def __init__(self, url: str, remembered: Any = None) -> None:
        """Load the page and wait until it is drawn. remembered: what the browser kept of an earlier visit."""
        self._client, self.session = httpx.Client(base_url=url, timeout=WAIT), secrets.token_hex(6)
        page = self._client.get("/").raise_for_status().text
        for path in sorted(set(_ASSET.findall(page))):
            self._client.get(path)
        config = self._client.get("/config").raise_for_status().json()
        self._events = config["dependencies"]
        self._names = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
        loads = [each for each in self._events if any(kind == "load" for _, kind in each["targets"])]
        self._predict(next(each for each in loads if not each["queue"]), [])
        live = next(each for each in loads if each["queue"])
        self._client.post("/gradio_api/queue/join", json=self._body(live, [remembered])).raise_for_status()
        self._changed = threading.Condition()
        self._heard: list[str] = []
        place = urlsplit(url)
        self._stream = http.client.HTTPConnection(place.hostname or "", place.port, timeout=WAIT)
        self._stream.request("GET", f"/gradio_api/queue/data?session_hash={self.session}")
        self._answer = self._stream.getresponse()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.wait(lambda line: "process_generating" in line)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _body(self, event: dict[str, Any], data: list[Any], more: Any = None) -> dict[str, Any]:
        return {"data": data, "event_data": more, "fn_index": event["id"], "trigger_id": event["targets"][0][0],
                "session_hash": self.session}

    def _predict(self, event: dict[str, Any], data: list[Any], more: Any = None) -> Any:
        answer = self._client.post("/gradio_api/run/predict", json=self._body(event, data, more))
        return answer.raise_for_status().json()

    def _listen(self) -> None:
        """To the loop, until the connection is shut."""
        try:
            for line in self._answer:
                with self._changed:
                    self._heard.append(line.decode())
                    self._changed.notify_all()
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # we left

    def wait(self, wanted: Callable[[str], bool]) -> str:
        """The next line of the loop that is wanted; those before it are forgotten."""
        end = time.monotonic() + WAIT
        with self._changed:
            while time.monotonic() < end:
                while self._heard:
                    if wanted(line := self._heard.pop(0)):
                        return line
                self._changed.wait(1.0)
        raise TimeoutError("the page did not show what was waited for")

    def _event(self, name: str, kind: str) -> dict[str, Any]:
        target = [self._names[name], kind]
        return next(each for each in self._events if target in each["targets"])

    def click(self, panel: str, **data: str) -> None:
        """On something in a panel that has a ``data-action``."""
        self._predict(self._event(panel, "click"), [], data)

    def ask(self, question: str) -> None:
        """And follow the answer to its end, as writing.js does."""
        with self._changed:
            self._heard.clear()
        left = self._predict(self._event("question", "submit"), [question])["data"][0]
        assert left == "", f"the question was not taken: {left!r}"
        run = _RUN.search(self.wait(lambda line: bool(_RUN.search(line))))
        assert run is not None
        with self._client.stream("GET", f"/writing/{run[1]}") as words:
            for _ in words.iter_lines():
                pass

    def close(self) -> None:
        """As a browser leaves: in the middle of what the server is sending."""
        if self._stream.sock is not None:
            self._stream.sock.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._stream.close()
        self._client.close()


def levels(app_id: int) -> dict[str, float]:
    """MB of the app's own process, and of all others that it started together."""
    process = psutil.Process(app_id)
    return {"app": process.memory_info().rss / 1e6,
            "others": sum(child.memory_info().rss for child in process.children(recursive=True)) / 1e6}
