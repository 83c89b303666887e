"""The whole app in a process of its own: what it logs, whom it talks to, and how it leaves."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from little_books import wait_for
from running_app import running

WITHIN = 5.0 * float(os.environ.get("SLOW_MACHINE", "6"))  # seconds to leave in; 1 for a machine that is left alone
WORDS = ("xylophonist", "marmalade", "quokka")  # of the document, the question and the answer
HOSTILE = ("![x](http://evil.example/a.png) <img src=http://evil.example/b> [c](http://evil.example/) "
           "<video src=//evil.example/d></video> <style>@import 'http://evil.example/e.css'</style>")

# Every Python process of the app imports this on its own; it writes down whom each of them looks up or connects to.
WATCH = """
import os, sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        target = arguments[1] if len(arguments) > 1 else None
        host = target[0] if isinstance(target, tuple) else ""
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    kind = "inside" if host in (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0", "::") else "outside"
    with open(os.environ["WATCH_FILE"], "a") as file:
        file.write(f"{kind} {event} {host} {os.getpid()}\\n")
sys.addaudithook(watch)
"""

# The app, and a person who opens a document and asks as soon as it stands.
PERSON = """
import sys, threading, time
from pathlib import Path
import ui
from tests.scripted_engine import ScriptedEngine
from ui.server import lifecycle
from ui.app.tab_view import TabView
opened = lifecycle.launch
def launch(services, *more, **named):
    page = opened(services, *more, **named)
    def person():
        view = TabView()
        services.add(view, [(Path(sys.argv[1]), "book.txt")])
        while services.library.get(view.document).state != "ready":
            time.sleep(0.02)
        run = services.ask(view, "How many ships?")
        while len(run.accumulator.text) < 20:
            time.sleep(0.02)
        print("answering", flush=True)
    threading.Thread(target=person, daemon=True).start()
    return page
lifecycle.launch = launch
sys.exit(ui.main(sys.argv[2:], ScriptedEngine))
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A script that answers with hostile Markdown and a word of its own."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"load_seconds": 0, "triforce_tokens_per_second": 500.0,
                                "answer": f"The {WORDS[2]} said: {HOSTILE}"}))
    yield path


def test_no_word_in_the_log_and_no_connection_to_the_outside(tmp_path: Path, script: Path) -> None:
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    seen = tmp_path / "seen.txt"
    document = f"The {WORDS[0]} played in the harbour until the storm. <script src=http://evil.example/></script>"
    with running(["-m", "tests.scripted_app", "--model", str(script), "--no-browser", "--log-level", "debug",
                  "--data-dir", str(tmp_path / "home")], PYTHONPATH=str(tmp_path / "watch"),
                 WATCH_FILE=str(seen)) as (process, url, said):
        assert httpx.get(url).status_code == httpx.get(url + "config").status_code == 200
        part = {"type": "file", "file": {"filename": f"{WORDS[0]}.html", "file_data":
                                         base64.b64encode(document.encode()).decode()}}
        for stream in (False, True):
            body = {"model": "script.json", "stream": stream, "messages": [{"role": "user", "content": [
                part, {"type": "text", "text": f"Where is the {WORDS[1]}?"}]}]}
            answer = httpx.post(url + "v1/chat/completions", json=body, timeout=30.0)
            assert WORDS[2] in answer.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0
    log = "".join(said).lower()
    assert "debug" in log and not any(word in log for word in WORDS)
    met = seen.read_text().splitlines()
    assert any("socket" in line for line in met), "the watch saw nothing at all: it was not there"
    assert [line for line in met if line.startswith("outside")] == []


@pytest.mark.parametrize(("number", "fault"), [(signal.SIGTERM, ""), (signal.SIGINT, "hang")])
def test_leaving_in_the_middle_of_an_answer_keeps_it(tmp_path: Path, number: int, fault: str) -> None:
    book, path = tmp_path / "book.txt", tmp_path / "slow.json"
    book.write_text("The keeper of the harbour counted ships until the storm. " * 20)
    path.write_text(json.dumps({"load_seconds": 0, "triforce_tokens_per_second": 20.0, "fault": fault}))
    home = tmp_path / "home"
    with running(["-c", PERSON, str(book), "--model", str(path), "--no-browser", "--data-dir",
                  str(home)]) as (process, _, said):
        while "answering" not in process.stdout.readline():
            assert process.poll() is None, "".join(said)
        if fault:
            time.sleep(1.0)  # until it hangs
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(30.0) == 0
        assert time.monotonic() - started < WITHIN
    with sqlite3.connect(home / "data" / "triforce-chat.sqlite") as database:
        (row,) = database.execute("select text, state, question from answers").fetchall()
    assert row[2] == "How many ships?" and row[1] != "done"
    assert row[0].startswith("This is the scripted"), row


def test_the_terminal_says_once_why_the_model_was_not_loaded(tmp_path: Path) -> None:
    script = tmp_path / "nowhere.json"
    with running(["-m", "tests.scripted_app", "--model", str(script), "--no-browser", "--data-dir",
                  str(tmp_path / "home")]) as (process, url, said):
        wait_for(lambda: httpx.get(f"{url}healthz").json()["engine"] == "failed", WITHIN)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30.0) == 0
        wait_for(lambda: "".join(said).endswith("leave it out.\n"))
    (line,) = said
    assert line.startswith(f"The model could not be loaded: The script {str(script)!r} cannot be read")


def test_the_watch_sees_what_goes_outside(tmp_path: Path) -> None:
    """The test above would fail if there were a connection: this one makes one (to an address that is nobody's)."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    program = ("import socket, contextlib\n"
               "with contextlib.suppress(OSError), socket.socket() as s: s.settimeout(0.01); "
               "s.connect(('192.0.2.1', 9))")
    subprocess.run([sys.executable, "-P", "-c", program], check=True,
                   env=os.environ | {"PYTHONPATH": str(tmp_path), "WATCH_FILE": str(tmp_path / "seen.txt")})
    wait_for(lambda: (tmp_path / "seen.txt").read_text().startswith("outside socket.connect 192.0.2.1"))
