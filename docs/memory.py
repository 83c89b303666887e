"""What the app's own memory comes to while its page is opened again and again and questions are asked.

    python -m docs.memory [--reloads N] [--questions N] [--engine scripted|triforce]   (a line per 50, then a verdict)
    python -m docs.memory --minutes N [--pages N] [--engine ...]       (of real pages in Chromium, a line per minute)

A tab over plain HTTP does what a browser's does: the page, its assets, the settings' values, the loop that draws it,
the words of the answer being written; a reload leaves in the middle of that loop, as a browser does. The level is the
resident memory of the app's process, and of the engine's where it has one, after the first 50 (or the first two
minutes) and at the end. The real pages stay open and ask in turn, each in a new conversation after 20 questions, and
one of them is reloaded every minute.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import secrets
import shutil
import socket
import sys
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

from .screenshots import PATIENCE, QUESTIONS, SIZE, app, browser_of

SETTLED = 50  # reloads, or questions, after which the level is taken that the end is held against
ALLOWED = 40.0  # MB by which the end may be higher
IN_ONE = 20  # questions of one conversation
PAUSE = 1000.0  # ms that a person looks at an answer
QUICK = {"load_seconds": 0, "restore_seconds": 0, "triforce_tokens_per_second": 400.0}  # of the scripted engine
WAIT = 60.0  # seconds for anything to come
_ASSET = re.compile(r"""(?:src|href)=["'](\./[^"']+\.(?:js|css))["']""")
_RUN = re.compile(r"data-writing=.{1,2}([0-9a-f]{32})")


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


def levels(of: psutil.Process) -> dict[str, float]:
    """MB of the app's own process, and of the engine's where it has one of its own."""
    engines = [child for child in of.children(recursive=True) if "triforce_core.worker.process" in child.cmdline()]
    return {"app": round(of.memory_info().rss / 1e6, 1),
            "engine": round(sum(engine.memory_info().rss for engine in engines) / 1e6, 1)}


class Levels:
    """Tells the level now and then, and at the end whether it stayed."""

    def __init__(self) -> None:
        me = psutil.Process().children(recursive=True)
        self._app = next(child for child in me if "--no-browser" in child.cmdline())
        self._started = time.monotonic()
        self.told: list[dict[str, Any]] = []

    def tell(self, **what: int) -> None:
        now = {**what, "seconds": round(time.monotonic() - self._started), **levels(self._app)}
        self.told.append(now)
        print(json.dumps(now), flush=True)

    def verdict(self, name: str, settled: int) -> dict[str, Any]:
        """Of the samples that count ``name``: from the first at ``settled`` or later to the last."""
        ours = [sample for sample in self.told if sample.get(name, 0) >= settled]
        grown = {kind: round(ours[-1][kind] - ours[0][kind], 1) for kind in ("app", "engine")} if ours else {}
        return {name: ours[-1][name] if ours else 0, "grown_mb": grown, "allowed_mb": ALLOWED,
                "good": all(value <= ALLOWED for value in grown.values())}


def opened(tab: Tab, url: str) -> None:
    """The library's newest document, in a conversation of its own, read."""
    tab.click("documents", action="open", document=document(url))
    tab.wait(lambda line: "tf-dot-ok" in line)
    tab.click("documents", action="new-conversation")


def document(url: str) -> str:
    files = httpx.get(url + "v1/files", timeout=WAIT).raise_for_status().json()["data"]
    return str(files[0]["id"]).removeprefix("file-")


def count(url: str, reloads: int, questions: int) -> list[dict[str, Any]]:
    found, level = [], Levels()
    for number in range(1, reloads + 1):
        Tab(url).close()
        if number % SETTLED == 0:
            level.tell(reloads=number)
    if reloads:
        found.append(level.verdict("reloads", SETTLED))
    if questions:
        with Tab(url) as tab:
            opened(tab, url)
            for number in range(1, questions + 1):
                tab.ask(f"Question {number}: {QUESTIONS[number % len(QUESTIONS)]}")
                if number % SETTLED == 0:
                    level.tell(questions=number)
                if number % IN_ONE == 0:
                    tab.click("documents", action="new-conversation")
        found.append(level.verdict("questions", SETTLED))
    return found


def soak(url: str, minutes: int, pages: int) -> list[dict[str, Any]]:
    """Real pages that stay, and ask in turn."""
    from playwright.sync_api import sync_playwright

    level, asked = Levels(), 0
    with sync_playwright() as playwright:
        browser = browser_of(playwright)
        tabs = [browser.new_page(viewport=SIZE) for _ in range(pages)]
        for page in tabs:
            page.set_default_timeout(PATIENCE)
            page.goto(url)
            page.click("#documents .tf-doc-open >> nth=0")
            page.wait_for_selector("#head .tf-dot-ok")
        started = time.monotonic()
        for minute in range(1, minutes + 1):
            while time.monotonic() < started + 60 * minute:
                page = tabs[asked % pages]
                if asked // pages % IN_ONE == 0:
                    page.click("#new-conversation")
                    page.wait_for_selector("#transcript .tf-welcome")
                page.fill("#question textarea", f"Question {asked}: {QUESTIONS[asked % len(QUESTIONS)]}")
                page.press("#question textarea", "Enter")
                page.wait_for_selector("#stop", state="visible")
                page.wait_for_selector("#stop", state="hidden")
                asked += 1
                page.wait_for_timeout(PAUSE)
            level.tell(minutes=minute, asked=asked)
            tabs[minute % pages].reload()
            tabs[minute % pages].wait_for_selector("#head .tf-dot-ok")
        browser.close()
    return [level.verdict("minutes", 2)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.memory", description="What the app's memory comes to.")
    parser.add_argument("--reloads", type=int, default=1000, metavar="N")
    parser.add_argument("--questions", type=int, default=1000, metavar="N")
    parser.add_argument("--minutes", type=int, default=0, metavar="N", help="real pages for so long, instead of those")
    parser.add_argument("--pages", type=int, default=2, metavar="N", help="real pages (default: %(default)s)")
    parser.add_argument("--engine", choices=("scripted", "triforce"), default="scripted")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        script = home / "script.json"
        script.write_text(json.dumps(QUICK))
        with app(given.engine, home, model=script if given.engine == "scripted" else None) as url:
            found = soak(url, given.minutes, given.pages) if given.minutes else count(
                url, given.reloads, given.questions)
    finally:
        shutil.rmtree(home)
    print(json.dumps({"engine": given.engine, "found": found}))
    return 0 if all(each["good"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
