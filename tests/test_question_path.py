"""The files that one question enters, in the page's process and the engine's, found by a trace of real calls.

    python -m tests.test_question_path      (prints the files, and the pairs that call each other)

The built-in pair answers over the served page's own HTTP; only the panels of ``page/chat`` are polled. Code that runs
while a module is imported does not count, nor do the app's timers.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.ui.little_books import wait_for
from triforce_core import EngineClient, EngineConfig, read_document

ROOT = Path(__file__).resolve().parents[1]
ROOMS = tuple(f"{ROOT / room}/" for room in ("triforce_core", "ui"))
MOST_FILES = 70
TIMERS = ("engine-status", "suggestions")  # threads that look at something every so often, also without a question
PATIENCE = 120.0  # seconds
QUESTION = "How many ships did the keeper of Ness 7 count?"


class Trace:
    """A profile function: the calls between files of this project while ``on``, as (caller, callee).

    A method that an object calls on itself enters its file, and is no call: it is inherited or overridden there."""

    def __init__(self) -> None:
        self.on = False
        self.calls: set[tuple[str, str]] = set()
        self._seen: set[tuple[object, object]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code, above = frame.f_code, frame.f_back
        if not self.on or event != "call" or not code.co_filename.startswith(ROOMS):
            return
        if threading.current_thread().name in TIMERS:
            return
        if (code, above and above.f_code) in self._seen:
            return
        calling: FrameType | None = None
        while above is not None:
            if above.f_code.co_filename == "<frozen importlib._bootstrap>":
                return
            if calling is None and above.f_code.co_filename.startswith(ROOMS):
                calling = above
            above = above.f_back
        self._seen.add((code, frame.f_back and frame.f_back.f_code))
        own = frame.f_locals.get("self")
        inherited = calling is None or (own is not None and calling.f_locals.get("self") is own)
        caller = code.co_filename if inherited or calling is None else calling.f_code.co_filename
        self.calls.add((caller.removeprefix(f"{ROOT}/"), code.co_filename.removeprefix(f"{ROOT}/")))


def engine(into: str, config: EngineConfig) -> Any:
    """Make an engine, in its own process, that writes the calls of each answer to a file."""
    from triforce_core.engine.engine import Engine

    class TracedEngine(Engine):
        def ask(self, *arguments: Any) -> Iterator[Any]:
            trace = Trace()
            threading.setprofile(trace)
            sys.setprofile(trace)
            trace.on = True
            yield from super().ask(*arguments)
            trace.on = False
            Path(into).write_text(json.dumps(sorted(trace.calls)))

    return TracedEngine(config)


def trace_a_question(home: Path) -> dict[str, set[tuple[str, str]]]:
    """Return the calls of one question in the page's process and in the engine's."""
    from docs.memory import Tab
    from ui.app import folders as places
    from ui.app.services import Services
    from ui.page import chat, layout
    from ui.server import lifecycle

    class ChatPainter(layout.Painter):
        def __init__(self, panels: Any, *more: Any) -> None:
            super().__init__([panel for panel in panels if panel.name in names], *more)

    trace, into, book = Trace(), home / "calls.json", home / "book.txt"
    book.write_text("\n\n".join(f"The keeper of Ness {n} counted {n * 7} ships before the storm." for n in range(300)))
    folders = places.make_folders(home / "home")
    with pytest.MonkeyPatch.context() as patch, socket.socket() as probe:
        for variable in ("GRADIO_TEMP_DIR", "HF_HUB_OFFLINE"):
            patch.setenv(variable, "")  # so that what the next line sets is undone
        lifecycle.quiet_environment(folders.uploads)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        threading.setprofile(trace)
        factory = f"tests.test_question_path:engine:{into}"
        services = Services(folders, lambda config: EngineClient(config, factory=factory), EngineConfig(mode="cpu"),
                            read_document)
        names = {panel.name for panel in chat.panels(services)}
        patch.setattr(layout, "Painter", ChatPainter)
        page, url = lifecycle.launch(services, folders, host="127.0.0.1", port=port)
        try:
            services.start([book])
            wait_for(lambda: services.queue.open_key is not None, PATIENCE)
            with Tab(url) as tab:
                trace.on = True
                tab.ask(QUESTION)
                wait_for(lambda: not services.runs.active() and into.exists(), PATIENCE)
                tab.wait(lambda line: "tf-foot" in line)
                trace.on = False
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
            services.close()
            page.close(verbose=False)
    return {"page": trace.calls, "engine": {(caller, callee) for caller, callee in json.loads(into.read_text())}}


def entered(calls: set[tuple[str, str]]) -> list[str]:
    return sorted({callee for _, callee in calls})


def both_ways(calls: set[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted((one, other) for one, other in calls if one < other and (other, one) in calls)


def report(found: dict[str, set[tuple[str, str]]]) -> str:
    together = set().union(*found.values())
    lines = [f"{process}: {len(entered(calls))} files\n  " + "\n  ".join(entered(calls))
             for process, calls in found.items()]
    pairs = [f"  {one} <-> {other}" for one, other in both_ways(together)]
    return "\n".join([*lines, "call each other:", *pairs,
                      f"together: {len(entered(together))} files (at most {MOST_FILES})"])


def test_a_question_is_traced_to_its_end(tmp_path: Path) -> None:
    found = trace_a_question(tmp_path)
    calls = set().union(*found.values())
    assert len(entered(calls)) <= MOST_FILES and not both_ways(calls), report(found)
    assert {"triforce_core/engine/session.py", "triforce_core/speculation/round.py"} <= set(entered(found["engine"]))
    assert {"ui/page/chat.py", "ui/app/queue.py"} <= set(entered(found["page"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        print(report(trace_a_question(Path(home))))
