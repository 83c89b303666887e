"""A random walk over everything that changes what the engine is to do: nothing gets stuck, nothing is answered about
other pages than were asked about, nothing is drawn for others, and no question loses its place in the queue.

The engine moves only when the walk lets it, so that a seed is always the same walk. The long one:

    WALK_STEPS=10000 python -m pytest tests/ui/app/test_walk.py -s
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from held_engine import Held, quick_script, wait_for_text
from little_books import make_document, wait_for

from triforce_core import Document, EngineConfig, Page, TriForceError, merge_ranges
from ui.app import folders as places
from ui.app import queue as choice_words
from ui.app.runs import Run
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import strip as strip_panel

STEPS = int(os.environ.get("WALK_STEPS", "400"))
SEEDS = (1, 2, 3)
FILES = {"a.txt": 3, "b.txt": 8, "c.txt": 12, "long.txt": 40}  # pages; the last fits only in part
CONTEXT = 1024 + 2400
SETTLE_EVERY = 40  # steps, on average, after which everything is done that waits
LONGEST_TALK = 6  # answers
ENDS = (choice_words.CHOOSE_PAGES_FIRST, "The engine stopped while answering", "Memory ran out while answering")


@dataclass
class Asked:
    """An answer's due pages and history. name: of it in ``Held.asked``; history: the questions before it."""

    name: str
    text: str
    pages: set[int]
    history: tuple[str, ...]


class Library:
    """The files of the walk, and the reader that takes their text out when the walk lets it. Pages are labelled 1, 2,
    1, 2..., so that a label tells no page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.let = folder, threading.Event()
        for name, pages in FILES.items():
            text = "\f".join(page.text.replace("Ness", name) for page in make_document(pages).pages)
            (folder / name).write_text(text)

    def read(self, path: Path, password: str | None = None, *, progress=None, part=None, cancel=None) -> Document:
        while not self.let.wait(0.005):
            if cancel is not None and cancel.is_set():
                raise TriForceError("cancelled")
        pages = path.read_text().split("\f")
        return Document("", "txt", tuple(Page(str(1 + n % 2), text) for n, text in enumerate(pages)), "walk")


class Walk:
    """One walk: what it did, and what must come of it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.library, self.held = Library(folder), Held(quick_script())
        self.services = Services(places.make_folders(folder / "home"), self.held.make,
                                 EngineConfig(max_context=CONTEXT), self.library.read)
        self.views = [TabView(), TabView(), TabView()]
        self.done: Counter[str] = Counter()
        self.asked: dict[str, tuple[Run, Asked]] = {}  # that have not been looked at yet
        self.wanted: dict[str, tuple[str, int]] = {}  # document -> the pages to be read, and what was opened by then
        self.seen_places: dict[str, int] = {}
        self.number = 0
        self.services.start([])
        wait_for(lambda: self.services.queue.state == "ready")
        self.held.gate.set(False)

    # -- what a person does

    def step(self) -> None:
        choices = {self.add: 4, self.open: 8, self.choose: 8, self.read: 6, self.ask: 30, self.ask_again: 8,
                   self.new_talk: 3, self.stop: 5, self.cancel: 5, self.delete: 2, self.undo: 1, self.fault: 1,
                   self.advance: 40, self.take_text: 12}
        action = self.rng.choices(list(choices), list(choices.values()))[0]
        view = self.rng.choice(self.views)
        try:
            action(view)
            self.done[action.__name__] += 1
        except TriForceError:
            self.done["refused"] += 1
        self.rest()
        self.look()
        if self.rng.random() < 1 / SETTLE_EVERY:
            self.settle()

    def add(self, view: TabView) -> None:
        names = self.rng.sample(list(FILES), self.rng.choice((1, 1, 2)))
        self.services.add(view, [(self.library.folder / name, name) for name in names])
        self.want(view.document)

    def open(self, view: TabView) -> None:
        entries = self.services.library.entries()
        if entries:
            self.services.open(view, self.rng.choice(sorted(entry.id for entry in entries)))
            self.want(view.document)

    def choose(self, view: TabView) -> None:
        entry = self.services.library.get(view.document)
        if entry is None or entry.state != "ready":
            return
        pages = self.rng.sample(range(1, entry.pages + 1), self.rng.randint(1, min(9, entry.pages)))
        typed = ", ".join(f"{first}-{last}" for first, last in merge_ranges((page, page) for page in pages))
        self.services.choose_pages(view, typed if self.rng.random() < 0.8 else f"1-{entry.pages}")
        self.want(view.document)

    def read(self, view: TabView) -> None:
        self.services.read(view.document or "")
        self.want(view.document)

    def ask(self, view: TabView) -> None:
        self.number += 1
        run, entry = self.services.ask(view, f"Question {self.number}?"), self.services.library.get(view.document)
        if entry.state == "ready":  # else it waits for the text: of which pages, is said when that is there
            self.expect(run)

    def ask_again(self, view: TabView) -> None:
        answers = self.services.conversations.answers(view.conversation)
        if answers:
            self.expect(self.services.ask_again(view, self.rng.choice(answers).id))

    def new_talk(self, view: TabView) -> None:
        view.conversation = view.editing = None

    def stop(self, view: TabView) -> None:
        self.services.stop(view)

    def cancel(self, view: TabView) -> None:
        self.wanted.pop(view.document or "", None)
        self.services.cancel_reading(view.document or "")

    def delete(self, view: TabView) -> None:
        if view.document:
            self.wanted.pop(view.document, None)
            self.services.delete(view, view.document)

    def undo(self, view: TabView) -> None:
        deleted = self.services.trash.items()
        if not deleted or self.rng.random() < 0.5:
            return self.services.trash.empty()
        before = view.document
        self.services.undo(view)
        if view.document != before:
            self.want(view.document)

    def fault(self, view: TabView) -> None:
        self.held.script.fault = self.rng.choice(("crash", "memory"))

    def advance(self, view: TabView) -> None:
        self.held.let(self.services.queue, self.rng.randint(1, 4))

    def take_text(self, view: TabView) -> None:
        """Let every text be taken out of its file, and wait for what follows from that."""
        self.library.let.set()
        wait_for_text(self.services.extractor)
        self.library.let.clear()

    # -- what must come of it

    def want(self, document: str | None) -> None:
        """Its chosen pages are to be in the cache at some time from now on."""
        entry = self.services.library.get(document)
        if entry is None or entry.state == "failed":
            return
        text = ""  # whatever is chosen when its text is there
        if entry.state == "ready":
            text = self.services.library.document(entry.id).pick(entry.ranges).id
        mark = len(self.held.opened)
        known = self.services.queue._in_cache
        self.wanted[entry.id] = text, -1 if known is not None and known.text == text else mark

    def expect(self, run: Run | None) -> None:
        if run is None:
            return
        entry = self.services.library.get(run.document)
        pages = {page for first, last in entry.ranges for page in range(first, last + 1)}
        kept = {each.id: each for each in self.services.conversations.every_answer(run.conversation)}
        history, before = [], kept[run.id].parent
        while before:
            if kept[before].token_ids:
                history.append(kept[before].question)
            before = kept[before].parent
        text = self.services.library.document(entry.id).pick(entry.ranges).id
        seed = self.services.conversations.versions(run.conversation).get(run.id, (run.id,)).index(run.id)
        self.asked[run.id] = run, Asked(f"{run.question} {seed}", text, pages, tuple(reversed(history)))
        if len(kept) >= LONGEST_TALK:
            for view in self.views:
                view.conversation = None if view.conversation == run.conversation else view.conversation

    def rest(self) -> None:
        wait_for(lambda: self.held.at_rest(self.services.queue))

    def look(self) -> None:
        """At everything that a step may have changed."""
        jobs = self.services.queue.jobs()
        now = {job.run.id: place for short in (True, False)  # what is short passes what is not
               for place, job in enumerate(job for job in jobs if job.is_short is short) if job.run}
        for key, place in now.items():
            assert place <= self.seen_places.get(key, place), "a question lost its place"
        self.seen_places = now
        for key, (run, asked) in list(self.asked.items()):
            told = self.held.asked.get(asked.name)
            if self.services.queue.holds(run):  # for other pages: whichever are chosen then
                del self.asked[key]
                continue
            state, ended = run.state, run.ended  # before its pages, which are settled by then
            asked = self.due(run, asked)
            if state == "answering" and self.services.library.get(run.document):  # its document was not deleted
                assert told == (asked.text, asked.history)
            if ended:
                del self.asked[key]
                self.check(run, asked, told)

    def due(self, run: Run, asked: Asked) -> Asked:
        """Return the pages that are due: others than those asked about only where these do not fit."""
        pages = {page for first, last in run.ranges for page in range(first, last + 1)}
        fit = self.services.queue.fits.get(run.document)
        if pages == asked.pages or fit is None:
            return asked
        assert sum(fit.page_tokens[page - 1] for page in asked.pages) > fit.max_tokens, "other pages were taken"
        return replace(asked, text=self.services.library.document(run.document).pick(run.ranges).id, pages=pages)

    def check(self, run: Run, asked: Asked, told: tuple[str, tuple[str, ...]] | None) -> None:
        """An answer that has ended."""
        self.done[run.state] += 1
        if run.state == "failed":
            assert run.error.startswith(ENDS), run.error
        answer = self.services.conversations.answer(run.id)
        if answer is None or self.services.library.get(run.document) is None:  # its document was deleted
            return
        assert answer.state == run.state and answer.text == run.accumulator.text
        if run.state == "done":
            assert told == (asked.text, asked.history)
            self.check_drawing(run, asked)

    def check_drawing(self, run: Run, asked: Asked) -> None:
        view = TabView(document=run.document, conversation=run.conversation)
        if self.services.conversations.answers(run.conversation)[-1].id != run.id:
            return  # another branch is shown
        drawn = next(panel for panel in strip_panel.panels(self.services) if panel.name == "strip").draw(view)
        cells = re.findall(r'class="tf-page([^"]*)"[^>]*data-page="(\d+)"[^>]*--i:([\d.]+)', drawn)
        assert {int(page) for css, page, _ in cells if "tf-out" not in css} == asked.pages
        shares = enumerate(run.accumulator.page_shares(), run.first_page)
        assert {page for page, share in shares if share} == asked.pages
        assert {int(page) for _, page, high in cells if float(high)} <= asked.pages  # those above the usual
        passages = [int(page) for page in re.findall(r'class="tf-passage"[^>]*data-page="(\d+)"', drawn)]
        assert passages and set(passages) <= asked.pages
        self.done["drawn"] += 1

    def settle(self) -> None:
        """Everything is let go: nothing may be left."""
        services = self.services
        self.take_text(self.views[0])
        self.held.let_all(services.queue)
        for run in services.runs.active():
            assert services.queue.holds(run)
            services.queue.stop(run)
        assert not services.runs.active() and not services.queue.prefills
        for entry in services.library.entries():
            assert services.phase(entry) in ("ready", "resting", "unsaved", "closed", "too_long", "problem",
                                             "failed"), (
                services.phase(entry))
            assert not [each for talk in services.conversations.of(entry.id)
                        for each in services.conversations.every_answer(talk.id) if each.state == "running"]
        for key, (text, mark) in self.wanted.items():
            entry = services.library.get(key)
            opened = {self.held.opened[at] for at in range(max(mark, 0), len(self.held.opened))}
            assert mark < 0 or text in opened or (entry.id, entry.ranges) in services.queue.too_long or not text, (
                "a reading was dropped", entry.name, entry.chosen)
            assert text or entry.state != "ready" or services.phase(entry) != "closed", "a reading was dropped"
        self.wanted.clear()
        self.look()
        assert not self.asked
        self.done["settled"] += 1


@pytest.fixture(params=SEEDS)
def walk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Walk]:
    made = Walk(request.param, tmp_path)
    yield made
    made.library.let.set()
    made.held.gate.set(True)
    made.services.close()


def test_nothing_is_stuck_and_nothing_is_about_other_pages(walk: Walk) -> None:
    started = time.perf_counter()
    for _ in range(STEPS):
        walk.step()
    walk.settle()
    print(f"\n{STEPS} steps in {time.perf_counter() - started:.1f} s: {dict(walk.done)}")
    assert walk.done["done"] > STEPS / 50 and walk.done["drawn"] and walk.done["stopped"]
