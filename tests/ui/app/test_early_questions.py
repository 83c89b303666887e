"""A question may be asked while the text of its document is still being taken out: it waits, and is answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from held_engine import quick_script, wait_for_text
from little_books import make_document, phase, wait_for, write_book

from tests.scripted_engine import ScriptedEngine
from triforce_core import Document, EngineConfig, TriForceError
from ui.app import folders as places
from ui.app import jobs as head_words
from ui.app.services import DOCUMENT_DELETED, Services
from ui.app.tab_view import TabView
from ui.page import chat, wait_line


class HeldReader:
    """It gives the text when the test lets it."""

    def __init__(self) -> None:
        self.let, self.broken = threading.Event(), False

    def __call__(self, path: Path, password: str | None = None, *, progress=None, cancel=None) -> Document:
        progress(2, 8)
        while not self.let.wait(0.005):
            if cancel is not None and cancel.is_set():
                raise TriForceError("cancelled")
        if self.broken:
            raise TriForceError("The file is broken")
        return make_document(8)


@pytest.fixture
def reader() -> HeldReader:
    return HeldReader()


@pytest.fixture
def services(tmp_path: Path, reader: HeldReader) -> Iterator[Services]:
    made = Services(places.make_folders(tmp_path / "home"), lambda config: ScriptedEngine(config, quick_script()),
                    EngineConfig(), reader)
    made.start([])
    yield made
    reader.let.set()
    made.close()


@pytest.fixture
def view(services: Services, tmp_path: Path) -> TabView:
    """Of a document whose text is being taken out."""
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt"), "book.txt")])
    wait_for(lambda: services.extractor.extractions[view.document].pages_done)
    return view


def test_they_are_answered_in_their_order(services: Services, view: TabView, reader: HeldReader) -> None:
    first, other = services.ask(view, "First?"), TabView(document=view.document)
    second = services.ask(other, "Second?")
    assert first.state == second.state == "queued" and services.active_run(view) is first
    reader.let.set()
    wait_for(lambda: first.ended and second.ended)
    assert first.state == second.state == "done" and first.ranges == ((1, 8),) and first.ended_at < second.ended_at
    (answer,) = services.conversations.answers(view.conversation)
    assert answer.text == first.accumulator.text and answer.result["ranges"] == [[1, 8]]


def test_it_says_what_it_waits_for_and_how_long(services: Services, view: TabView,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_line, "LEAST_LEFT", 0.0)  # nothing takes long here
    run = services.ask(view, "First?")
    said = chat.inside(services, run, False)
    assert wait_line.FOR_TEXT_PAGES.format(done=2, total=8) in said and "left" in said


def test_stop_reaches_it(services: Services, view: TabView, reader: HeldReader) -> None:
    run = services.ask(view, "First?")
    services.stop(view)
    assert run.state == "stopped" and services.active_run(view) is None
    reader.let.set()
    wait_for_text(services.extractor)
    assert run.state == "stopped"


@pytest.mark.parametrize("how", ["cancelled", "broken", "deleted"])
def test_where_no_text_comes_it_ends(services: Services, view: TabView, reader: HeldReader, how: str) -> None:
    run = services.ask(view, "First?")
    if how == "cancelled":
        services.cancel_reading(view.document)
    elif how == "deleted":
        services.delete(view, view.document)
    else:
        reader.broken = True
        reader.let.set()
    wait_for(lambda: run.ended)
    assert (run.state, run.error) == {"cancelled": ("failed", head_words.READING_CANCELLED),
                                      "deleted": ("stopped", DOCUMENT_DELETED),
                                      "broken": ("failed", "The file is broken.")}[how]


def test_it_waits_until_pages_are_chosen_that_fit(services: Services, view: TabView, reader: HeldReader) -> None:
    services.queue.reconfigure(EngineConfig(max_context=1024 + 400))
    run = services.ask(view, "First?")
    reader.let.set()
    wait_for(lambda: phase(services, view) == "too_long")
    wait_for(lambda: services.queue.holds(run))
    assert run.state == "queued" and wait_line.FOR_PAGES in chat.inside(services, run, False)
    services.choose_pages(view, "3-4")
    wait_for(lambda: run.ended)
    assert (run.state, run.ranges, run.asked_about) == ("done", ((3, 4),), ())
