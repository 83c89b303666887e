"""The app under load: many documents, many questions, Stop, reload, killed engines, a restart. Nothing may be lost.

Small here. At full size (100 documents, 500 questions, and every hostile document through the app's own reader):
``TRIFORCE_SOAK=full python -m pytest tests/ui/page/test_soak.py -s``; it prints what it counted.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import threading
from pathlib import Path

import psutil
import pytest
from little_books import read_quickly, wait_for, write_book

from tests.documents import hostile
from triforce_core import EngineClient, EngineConfig, read_document
from ui.app import folders as places
from ui.app.runs import ENDED, Run
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import chat, layout, library
from ui.page import document_head as head
from ui.page import figures as figures_panel
from ui.page import strip as strip_panel
from ui.page.layout import Painter

FULL = os.environ.get("TRIFORCE_SOAK") == "full"
DOCUMENTS, QUESTIONS = (100, 500) if FULL else (6, 36)
MOST_GROWTH = 24 << 20  # bytes from a fifth of the way to the end
SCRIPT = {"load_seconds": 0, "restore_seconds": 0, "prefill_tokens_per_second": 1e6, "answer_words": 60,
          "triforce_tokens_per_second": 2000.0, "fault_odds": 0.02}
ENGINE = "tests.scripted_engine:ScriptedEngine"


class Soak:
    """A person with many tabs and no patience, and someone who kills engines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng, self.kills = folder, random.Random(5), 0
        self.answers: dict[str, tuple[str, str]] = {}  # what was seen of every answer: its text and how it ended
        self.errors: list[str] = []
        script = folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        self.config = EngineConfig(model=str(script))
        self.services = self.open()

    def open(self) -> Services:
        made = Services(places.make_folders(self.folder / "home"), lambda config: EngineClient(config, factory=ENGINE),
                        self.config, read_quickly)
        made.start([])
        self.tabs = layout.Tabs(made)
        self.panels = [*library.panels(made), *head.panels(made), *chat.panels(made), *figures_panel.panels(made),
                       *strip_panel.panels(made)]
        return made

    def add(self, count: int) -> list[str]:
        for number in range(count):
            path = write_book(self.folder, f"book{number}.txt", 2 + number % 5)
            path.write_text(f"Book {number}. " + path.read_text())
            self.services.library.add(path)
        for entry in self.services.library.entries():
            self.services.extractor.extract(entry.id)
        wait_for(lambda: all(entry.state == "ready" for entry in self.services.library.entries()), 60.0)
        return [entry.id for entry in self.services.library.entries()]

    def ask(self, document: str, number: int) -> None:
        """One question, and whatever happens to it."""
        conversations = self.services.conversations.of(document)
        talk = self.rng.choice(conversations).id if conversations and self.rng.random() < 0.5 else None
        view = TabView(document=document, conversation=talk)
        run = self.services.ask(view, f"Question {number}: how many ships?")
        assert run is not None
        fate = self.rng.random()
        if fate < 0.15:
            self.services.stop(view)
        elif fate < 0.4:
            wait_for(lambda: run.accumulator.text or run.ended, 30.0)
            self.services.stop(view)
        elif fate < 0.45:
            wait_for(lambda: run.accumulator.text or run.ended, 30.0)
            self.kill()
        if self.rng.random() < 0.3:
            self.reload(view)
        wait_for(lambda: run.ended and settled(self, run), 60.0)
        self.answers[run.id] = (run.accumulator.text, run.state)
        self.errors.append(run.error)

    def kill(self) -> None:
        status = self.services.queue._engine.status()
        if status.pid:
            os.kill(status.pid, signal.SIGKILL)
            self.kills += 1

    def reload(self, view: TabView) -> None:
        """The tab is closed and opened again: everything is drawn anew from what is kept."""
        session = f"tab{self.rng.random()}"
        again = self.tabs.open(session, {"document": view.document, "conversation": view.conversation})
        drawn = Painter(self.panels, again).changes()
        assert again.document == view.document and drawn
        self.tabs.close(session)

    def restart(self) -> None:
        self.services.close()
        self.services = self.open()

    def kept(self) -> dict[str, tuple[str, str]]:
        rows = self.services.database.rows("select id, text, state from answers")
        return {row["id"]: (row["text"], row["state"]) for row in rows}


def settled(soak: Soak, run: Run) -> bool:
    """Its row says what its run says."""
    text, state = soak.kept().get(run.id, ("", ""))
    return (text, state) == (run.accumulator.text, run.state)


@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_memory_stays_flat(tmp_path: Path) -> None:
    soak, me = Soak(tmp_path), psutil.Process()
    documents = soak.add(DOCUMENTS)
    first: tuple[int, int, int] | None = None
    try:
        for number in range(QUESTIONS):
            soak.ask(soak.rng.choice(documents), number)
            if number == QUESTIONS // 2:
                soak.restart()
            if number == QUESTIONS // 5:
                gc.collect()
                first = me.memory_info().rss, threading.active_count(), me.num_fds()
        assert soak.kept() == soak.answers and len(soak.answers) == QUESTIONS
        states = [state for _, state in soak.answers.values()]
        assert soak.kills and states.count("done") > QUESTIONS // 3 and states.count("stopped") > QUESTIONS // 10
        assert set(states) <= set(ENDED)
        assert all("engine" in error.lower() or "memory" in error.lower() for error in soak.errors if error)
        gc.collect()
        last = me.memory_info().rss, threading.active_count(), me.num_fds()
        if FULL:
            print(f"\n{DOCUMENTS} documents, {QUESTIONS} questions: " + ", ".join(
                f"{states.count(state)} {state}" for state in ENDED) + f"; {soak.kills} engines killed, 1 restart; "
                f"memory {first[0] / 2**20:.0f} -> {last[0] / 2**20:.0f} MiB, threads {first[1]} -> {last[1]}, open "
                f"files {first[2]} -> {last[2]}")
        assert last[0] - first[0] < MOST_GROWTH
        assert last[1] <= first[1] + 4 and last[2] <= first[2] + 8
    finally:
        soak.services.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not FULL, reason="each hostile document is tested alone in tests/documents; TRIFORCE_SOAK=full")
def test_every_hostile_document_leaves_the_app_up(tmp_path: Path) -> None:
    services = Services(places.make_folders(tmp_path / "home"), lambda config: EngineClient(config, factory=ENGINE),
                        EngineConfig(), read_document)
    services.start([])
    hostile.write_all(tmp_path)
    names, view = sorted(hostile.all_hostile()), TabView()
    services.add(view, [(tmp_path / name, name) for name in names])
    for entry in services.library.entries():
        if entry.state == "new":
            services.extractor.extract(entry.id)
    wait_for(lambda: all(entry.state in ("ready", "failed", "locked") for entry in services.library.entries()), 600.0)
    counts = [entry.state for entry in services.library.entries()]
    for entry in services.library.entries():
        assert entry.state != "failed" or (entry.error and "\n" not in entry.error and "Traceback" not in entry.error)
    ready = next(entry for entry in services.library.entries() if entry.name == "web-page.pdf")
    run = services.ask(TabView(document=ready.id), "What is the whale?")
    wait_for(lambda: run.ended, 30.0)
    assert run.state == "done"
    print(f"\n{len(names)} hostile documents: " + ", ".join(f"{counts.count(s)} {s}" for s in sorted(set(counts))))
    services.close()
