"""Taking text out: several files at once, each for the document that it was asked for, and nothing is ever stuck."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from little_books import wait_for

from triforce_core import READERS, DamagedDocumentError, Document, EncryptedDocumentError, Page, ReadCancelled
from ui.state.database import Database
from ui.state.extraction import ReadingRoom
from ui.state.library import Entry, Library
from ui.words import document_head as head_words

FILES = 5


class Call:
    """One file that the scripted reader is at. deaf: it does not heed cancelling."""

    def __init__(self, path: Path, password: str | None, deaf: bool) -> None:
        self.words, self.password, self.deaf = path.read_text(), password, deaf
        self.outcome: Callable[[], Document] | None = None


class Scripted:
    """Reads when it is told to: ``end`` says how a call ends, "read", "damaged" or "locked"."""

    def __init__(self, deaf: Callable[[], bool] = lambda: False) -> None:
        self._deaf, self.calls = deaf, list[Call]()
        self.begun = threading.Semaphore(0)

    def __call__(self, path: Path, password: str | None = None, *, progress, cancel: threading.Event) -> Document:
        call = Call(path, password, self._deaf())
        self.calls.append(call)
        self.begun.release()
        try:
            while call.outcome is None:
                if cancel.wait(0.001) and not call.deaf:
                    raise ReadCancelled(path.name)
            return call.outcome()
        finally:
            self.calls.remove(call)

    def end(self, call: Call, how: str = "read") -> None:
        def outcome() -> Document:
            if how == "damaged":
                raise DamagedDocumentError("original.txt is damaged")
            if how == "locked" and call.password is None:
                raise EncryptedDocumentError("original.txt is encrypted")
            return Document("", "txt", (Page("1", call.words),), "scripted")

        call.outcome = outcome


class Desk:
    """A library and its reading room, without a page. opened: documents handed on to be read."""

    def __init__(self, folder: Path, deaf: Callable[[], bool] = lambda: False) -> None:
        (folder / "library").mkdir()
        self.folder, self.reader, self.opened = folder, Scripted(deaf), list[str]()
        self.library = Library(Database(folder / "db.sqlite"), folder / "library")
        self.room = ReadingRoom(self.library, self.reader, self.opened.append)
        for number in range(FILES):
            (folder / f"{number}.txt").write_text(f"Words of file {number}.")

    def add(self, number: int, name: str | None = None) -> Entry:
        entry = self.library.add(self.folder / f"{number}.txt", name)
        if entry.state == "new":
            self.room.extract(entry.id)
        return entry

    def delete(self, key: str) -> None:
        self.room.cancel(key)
        self.library.delete(key)

    def state(self, entry: Entry) -> str:
        now = self.library.get(entry.id)
        return now.state if now else "gone"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.room.close()


def busy(desk: Desk) -> list[Entry]:
    """All readers at work."""
    entries = [desk.add(number) for number in range(READERS)]
    for _ in entries:
        assert desk.reader.begun.acquire(timeout=10)
    return entries


def test_one_file_holds_nobody_else(desk: Desk) -> None:
    slow, quick = desk.add(0), desk.add(1)
    assert desk.reader.begun.acquire(timeout=10) and desk.reader.begun.acquire(timeout=10)
    desk.reader.end(next(call for call in desk.reader.calls if "1" in call.words))
    wait_for(lambda: desk.state(quick) == "ready")
    assert desk.state(slow) == "extracting"
    others = [desk.add(number) for number in range(2, FILES)]
    for _ in others:
        assert desk.reader.begun.acquire(timeout=10)
        assert len(desk.reader.calls) <= READERS
        desk.reader.end(next(call for call in desk.reader.calls if "0" not in call.words and not call.outcome))
    wait_for(lambda: all(desk.state(entry) == "ready" for entry in others))
    assert list(desk.room.extractions) == [slow.id]


def test_deleted_while_it_waits_and_added_again(desk: Desk) -> None:
    held = busy(desk)
    waiting = desk.add(FILES - 1, "old.txt")
    desk.delete(waiting.id)
    assert waiting.id not in desk.room.extractions
    again = desk.add(FILES - 1, "new.txt")
    for call in list(desk.reader.calls):
        desk.reader.end(call)
    assert desk.reader.begun.acquire(timeout=10)
    wait_for(lambda: desk.reader.calls)
    desk.reader.end(desk.reader.calls[-1])
    wait_for(lambda: not desk.room.extractions)
    assert desk.state(again) == "ready" and desk.library.document(again.id).title == "new"
    assert all(desk.state(entry) == "ready" for entry in held)


def test_deleted_while_it_is_read_and_added_again(tmp_path: Path) -> None:
    """The first reader ends last, and what it says is not kept."""
    desk = Desk(tmp_path, deaf=lambda: True)
    desk.add(0, "old.txt")
    assert desk.reader.begun.acquire(timeout=10)
    (first,) = desk.reader.calls
    desk.delete(desk.library.entries()[0].id)
    entry = desk.add(0, "new.txt")
    assert desk.reader.begun.acquire(timeout=10)
    desk.reader.end(desk.reader.calls[1])
    wait_for(lambda: desk.state(entry) == "ready")
    desk.reader.end(first, "damaged")
    wait_for(lambda: not desk.reader.calls)
    desk.room.close()
    assert desk.state(entry) == "ready" and desk.library.document(entry.id).title == "new"


def test_cancelled_and_asked_for_at_once(desk: Desk) -> None:
    entry = desk.add(0)
    assert desk.reader.begun.acquire(timeout=10)
    desk.room.cancel(entry.id)
    now = desk.library.get(entry.id)
    assert (now.state, now.error) == ("failed", head_words.READING_CANCELLED)
    desk.room.extract(entry.id, then_read=True)
    assert desk.reader.begun.acquire(timeout=10)
    desk.reader.end(desk.reader.calls[-1])
    wait_for(lambda: desk.opened == [entry.id])
    assert desk.state(entry) == "ready"


def test_another_password_is_tried_at_once(desk: Desk) -> None:
    entry = desk.add(0)
    assert desk.reader.begun.acquire(timeout=10)
    desk.reader.end(desk.reader.calls[0], "locked")
    wait_for(lambda: desk.state(entry) == "locked")
    for password in ("wrong", "right"):
        desk.room.extract(entry.id, password=password, then_read=True)
        assert desk.reader.begun.acquire(timeout=10)
    wait_for(lambda: [call.password for call in desk.reader.calls] == ["right"])
    desk.reader.end(desk.reader.calls[0])
    wait_for(lambda: desk.opened == [entry.id])


def test_what_somebody_opened_goes_first(desk: Desk) -> None:
    busy(desk)
    later, sooner = desk.add(FILES - 2), desk.add(FILES - 1)
    desk.room.extract(sooner.id, then_read=True)
    desk.reader.end(desk.reader.calls[0])
    assert desk.reader.begun.acquire(timeout=10)
    assert desk.room.extractions[sooner.id].started and not desk.room.extractions[later.id].started


def test_closing_leaves_it_for_the_next_start(desk: Desk) -> None:
    entry = desk.add(0)
    assert desk.reader.begun.acquire(timeout=10)
    desk.room.close()
    assert desk.state(entry) == "extracting" and not desk.reader.calls
    assert Library(Database(desk.folder / "db.sqlite"), desk.folder / "library").get(entry.id).state == "new"


def test_the_same_file_twice_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second copy is made while the first is in use already."""
    real, arrived, go_on = shutil.copyfile, threading.Event(), threading.Event()

    def slow(source, target):
        if threading.current_thread() is second:
            arrived.set()
            assert go_on.wait(10)
            Path(target).write_bytes(b"")  # where another's copy would be cut off
            arrived.set()
            assert looked.wait(10)
        return real(source, target)

    looked = threading.Event()
    second = threading.Thread(target=lambda: desk.library.add(desk.folder / "0.txt", "second.txt"))
    monkeypatch.setattr(shutil, "copyfile", slow)
    second.start()
    assert arrived.wait(10)
    arrived.clear()
    entry = desk.library.add(desk.folder / "0.txt", "first.txt")
    go_on.set()
    assert arrived.wait(10)
    read = desk.library.file(entry).read_text()
    looked.set()
    second.join()
    assert read == "Words of file 0." and [each.name for each in desk.library.entries()] == ["first.txt"]
    assert sorted(path.name for path in (desk.folder / "library").iterdir()) == [entry.id]


@pytest.mark.parametrize("seed", range(20))
def test_a_random_walk_leaves_nothing_stuck(tmp_path: Path, seed: int) -> None:
    """Deeds and readers' ends in any order; some readers go on after they were cancelled."""
    chance, whim = random.Random(seed), random.Random(seed)
    desk = Desk(tmp_path, deaf=lambda: whim.random() < 0.3)
    keys: dict[int, str] = {}
    waited: dict[str, int] = {}  # opened while it was not there -> how many had been handed on before
    for step in range(100):
        deed = chance.choice(["add", "add", "open", "cancel", "delete", "unlock", "end"])
        number = chance.randrange(FILES)
        key = keys.get(number, "")
        if deed == "add":
            keys[number] = desk.add(number, f"{number} at {step}.txt").id
        elif deed == "open":
            known = desk.library.get(key)
            if known is not None and known.state in ("new", "failed", "extracting"):  # as ``Services.read``
                waited[key] = len(desk.opened)
                desk.room.extract(key, then_read=True)
        elif deed == "cancel":
            waited.pop(key, None)
            desk.room.cancel(key)
        elif deed == "delete":
            waited.pop(key, None)
            desk.delete(key)
        elif deed == "unlock":
            desk.room.extract(key, password=str(step), then_read=True)
        elif calls := [call for call in desk.reader.calls if call.outcome is None]:
            desk.reader.end(chance.choice(calls), chance.choice(["read", "read", "damaged", "locked"]))

    def all_ended() -> bool:
        for call in list(desk.reader.calls):
            desk.reader.end(call)
        return not desk.room.extractions and not desk.reader.calls

    wait_for(all_ended)
    desk.room.close()
    for entry in desk.library.entries():
        assert entry.state in ("ready", "failed", "locked")
        document = desk.library.document(entry.id)
        if entry.state == "ready":
            assert document is not None and document.title == Path(entry.name).stem
            assert document.pages[0].text == f"Words of file {entry.name[0]}."
            assert entry.id not in waited or entry.id in desk.opened[waited[entry.id]:]
    assert {path.name for path in (tmp_path / "library").iterdir()} == {entry.id for entry in desk.library.entries()}
