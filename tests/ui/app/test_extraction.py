"""Taking text out: several files at once, each for the document that it was asked for, and nothing is ever stuck."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from little_books import wait_for

from triforce_core import READERS, Document, EncryptedDocumentError, Page
from triforce_core.documents import ReadCancelled
from triforce_core.errors import DamagedDocumentError
from ui.app.database import Database
from ui.app.extraction import TextExtractor
from ui.app.library import Entry, Library

FILES = 5


class Call:
    """One file that the scripted reader is at. deaf: it does not heed cancelling."""

    def __init__(self, path: Path, password: str | None, deaf: bool) -> None:
        self.words, self.password, self.deaf = path.read_text(), password, deaf
        self.outcome: Callable[[], Document] | None = None


class Scripted:
    """Reads when it is told to: ``end`` says how a call ends, "read", "damaged" or "locked". over: no call is deaf any
    more, that is begun now neither."""

    def __init__(self, deaf: Callable[[], bool] = lambda: False) -> None:
        self._deaf, self.calls = deaf, list[Call]()
        self.begun = threading.Semaphore(0)
        self.over = False

    def __call__(self, path: Path, password: str | None = None, *, progress, part, cancel: threading.Event) -> Document:
        call = Call(path, password, self._deaf())
        self.calls.append(call)
        self.begun.release()
        try:
            while call.outcome is None:
                if cancel.wait(0.001) and (self.over or not call.deaf):
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


class Extracting:
    """A library and its extractor, without a page. opened: documents handed on to be read."""

    def __init__(self, folder: Path, deaf: Callable[[], bool] = lambda: False) -> None:
        (folder / "library").mkdir()
        self.folder, self.reader, self.opened = folder, Scripted(deaf), list[str]()
        self.library = Library(Database(folder / "db.sqlite"), folder / "library")
        self.extractor = TextExtractor(self.library, self.reader, self.opened.append)
        for number in range(FILES):
            (folder / f"{number}.txt").write_text(f"Words of file {number}.")

    def add(self, number: int, name: str | None = None) -> Entry:
        entry = self.library.add(self.folder / f"{number}.txt", name)
        if entry.state == "new":
            self.extractor.extract(entry.id)
        return entry

    def begin(self, number: int) -> Entry:
        """Add a file, and wait until its reader is at it."""
        entry = self.add(number)
        assert self.reader.begun.acquire(timeout=10)
        return entry

    def delete(self, key: str) -> None:
        self.extractor.cancel(key)
        self.library.delete(key)

    def state(self, entry: Entry) -> str:
        now = self.library.get(entry.id)
        return now.state if now else "gone"


@pytest.fixture
def extracting(tmp_path: Path) -> Iterator[Extracting]:
    made = Extracting(tmp_path)
    yield made
    made.extractor.close()


def test_one_file_holds_nobody_else(extracting: Extracting) -> None:
    slow, quick = extracting.begin(0), extracting.begin(1)
    extracting.reader.end(next(call for call in extracting.reader.calls if "1" in call.words))
    wait_for(lambda: extracting.state(quick) == "ready")
    assert extracting.state(slow) == "extracting"
    others = [extracting.add(number) for number in range(2, FILES)]
    for _ in others:
        assert extracting.reader.begun.acquire(timeout=10)
        assert len(extracting.reader.calls) <= READERS
        extracting.reader.end(next(call for call in extracting.reader.calls
                                   if "0" not in call.words and not call.outcome))
    wait_for(lambda: all(extracting.state(entry) == "ready" for entry in others))
    assert list(extracting.extractor.extractions) == [slow.id]


def test_another_password_is_tried_at_once(extracting: Extracting) -> None:
    entry = extracting.begin(0)
    extracting.reader.end(extracting.reader.calls[0], "locked")
    wait_for(lambda: extracting.state(entry) == "locked")
    for password in ("wrong", "right"):
        extracting.extractor.extract(entry.id, password=password, then_read=True)
        assert extracting.reader.begun.acquire(timeout=10)
    wait_for(lambda: [call.password for call in extracting.reader.calls] == ["right"])
    extracting.reader.end(extracting.reader.calls[0])
    wait_for(lambda: extracting.opened == [entry.id])


def test_what_somebody_opened_goes_first(extracting: Extracting) -> None:
    for number in range(READERS):
        extracting.begin(number)
    later, sooner = extracting.add(FILES - 2), extracting.add(FILES - 1)
    extracting.extractor.extract(sooner.id, then_read=True)
    extracting.reader.end(extracting.reader.calls[0])
    assert extracting.reader.begun.acquire(timeout=10)
    under_way = extracting.extractor.extractions
    assert under_way[sooner.id].started and not under_way[later.id].started


def test_closing_leaves_it_for_the_next_start(extracting: Extracting) -> None:
    entry = extracting.begin(0)
    extracting.extractor.close()
    assert extracting.state(entry) == "extracting" and not extracting.reader.calls
    assert Library(Database(extracting.folder / "db.sqlite"),
                   extracting.folder / "library").get(entry.id).state == "new"


def test_the_same_file_twice_at_once(extracting: Extracting, monkeypatch: pytest.MonkeyPatch) -> None:
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
    second = threading.Thread(target=lambda: extracting.library.add(extracting.folder / "0.txt", "second.txt"))
    monkeypatch.setattr(shutil, "copyfile", slow)
    second.start()
    assert arrived.wait(10)
    arrived.clear()
    entry = extracting.library.add(extracting.folder / "0.txt", "first.txt")
    go_on.set()
    assert arrived.wait(10)
    read = extracting.library.file(entry).read_text()
    looked.set()
    second.join()
    assert read == "Words of file 0." and [each.name for each in extracting.library.entries()] == ["first.txt"]
    assert sorted(path.name for path in (extracting.folder / "library").iterdir()) == [entry.id]


@pytest.mark.parametrize("seed", range(20))
def test_a_random_walk_leaves_nothing_stuck(tmp_path: Path, seed: int) -> None:
    """Deeds and readers' ends in any order; some readers go on after they were cancelled."""
    chance, whim = random.Random(seed), random.Random(seed)
    extracting = Extracting(tmp_path, deaf=lambda: whim.random() < 0.3)
    keys: dict[int, str] = {}
    waited: dict[str, int] = {}  # opened while it was not there -> how many had been handed on before
    for step in range(100):
        deed = chance.choice(["add", "add", "open", "cancel", "delete", "unlock", "end"])
        number = chance.randrange(FILES)
        key = keys.get(number, "")
        if deed == "add":
            keys[number] = extracting.add(number, f"{number} at {step}.txt").id
        elif deed == "open":
            known = extracting.library.get(key)
            if known is not None and known.state in ("new", "failed", "extracting"):  # as ``Services.read``
                waited[key] = len(extracting.opened)
                extracting.extractor.extract(key, then_read=True)
        elif deed == "cancel":
            waited.pop(key, None)
            extracting.extractor.cancel(key)
        elif deed == "delete":
            waited.pop(key, None)
            extracting.delete(key)
        elif deed == "unlock":
            extracting.extractor.extract(key, password=str(step), then_read=True)
        elif calls := [call for call in extracting.reader.calls if call.outcome is None]:
            extracting.reader.end(chance.choice(calls), chance.choice(["read", "read", "damaged", "locked"]))

    def all_ended() -> bool:
        for call in list(extracting.reader.calls):
            extracting.reader.end(call)
        return not extracting.extractor.extractions and not extracting.reader.calls

    wait_for(all_ended)
    extracting.reader.over = True  # one that was cancelled between its turn and its first look may begin only now
    extracting.extractor.close()
    for entry in extracting.library.entries():
        assert entry.state in ("ready", "failed", "locked")
        document = extracting.library.document(entry.id)
        if entry.state == "ready":
            assert document is not None and document.title == Path(entry.name).stem
            assert document.pages[0].text == f"Words of file {entry.name[0]}."
            assert entry.id not in waited or entry.id in extracting.opened[waited[entry.id]:]
    assert {path.name for path in (tmp_path / "library").iterdir()} == {entry.id
                                                                        for entry in extracting.library.entries()}
