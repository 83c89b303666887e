"""Malformed and hostile files: each ends in its own clear error or in its text; this process lives on."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core import errors
from triforce_core.documents import ReadLimits, read_document
from triforce_core.errors import DocumentError, DocumentTooLargeError

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(hostile.all_hostile())
LIMITS = ReadLimits(memory_bytes=768 << 20)  # less than the default, so that the bombs go off sooner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    hostile.write_all(path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_each_ends_clearly(folder: Path, name: str) -> None:
    expected = hostile.all_hostile()[name][1]
    if hasattr(errors, expected):
        with pytest.raises(getattr(errors, expected)) as caught:
            read_document(folder / name, limits=LIMITS)
        message = str(caught.value)
        assert "\n" not in message and name in message and len(message) < 400
        assert caught.value.remedy or caught.value.allowed or expected == "DocumentTooLargeError"
    else:
        document = read_document(folder / name, limits=LIMITS)
        text = "\n".join(page.text for page in document.pages)
        assert expected in text and "evil" not in text


def test_the_greediest_stay_within_their_memory(folder: Path) -> None:
    """In a process of its own: the peak over children counts every child that its process ever had."""
    greedy = [name for name in NAMES if any(part in name for part in ("bomb", "nested", "zeros", "billion", "line"))]
    assert len(greedy) >= 5
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from triforce_core.documents import ReadLimits, read_document\n"
        "from triforce_core.errors import DocumentError\n"
        "for name in sys.argv[2:]:\n"
        "    try:\n"
        f"        read_document(Path(sys.argv[1]) / name, limits=ReadLimits(memory_bytes={LIMITS.memory_bytes}))\n"
        "    except DocumentError:\n"
        "        pass\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder), *greedy], cwd=ROOT, capture_output=True,
                          text=True, check=True)
    assert 0 < int(done.stdout) < LIMITS.memory_bytes


def test_a_clock_ends_what_takes_too_long(folder: Path) -> None:
    with pytest.raises(DocumentTooLargeError, match="too long"):
        read_document(folder / "nested.html", limits=ReadLimits(seconds=0.3, page_seconds=0.3))


def test_memory_has_a_limit(folder: Path) -> None:
    with pytest.raises(DocumentError, match=r"memory|crash"):
        read_document(folder / "one-line.txt", limits=ReadLimits(memory_bytes=64 << 20))


def test_limits_of_size(folder: Path) -> None:
    for limits in (ReadLimits(file_bytes=1000), ReadLimits(characters=1000), ReadLimits(pages=5)):
        with pytest.raises(DocumentTooLargeError):
            read_document(folder / "one-line.txt", limits=limits)


def test_missing_folder_and_no_permission(folder: Path) -> None:
    with pytest.raises(DocumentError, match="no file"):
        read_document(folder / "nowhere.pdf")
    with pytest.raises(DocumentError, match="is a folder"):
        read_document(folder)
    closed = folder / "closed.txt"
    closed.write_text("x")
    closed.chmod(0)
    try:
        closed.read_bytes()
    except PermissionError:
        with pytest.raises(DocumentError, match="permission"):
            read_document(closed)


def test_a_crashing_page_is_named_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader dies on page 2 of every attempt that does not skip it."""
    from triforce_core.documents import read

    path = tmp_path / "three.pdf"
    path.write_bytes(hostile.scanned_pdf(3, with_text=3))
    real = read.ChildProcess
    asked: list[list[int]] = []

    class Dying(real):
        def ask(self, request, last=True):
            asked.append(request["skip"])
            super().ask(request)

        def next(self, timeout):
            message = None if getattr(self, "dead", False) else super().next(timeout)
            self.dead = bool(message) and message.get("at") == 1 and not asked[-1]
            return message

    monkeypatch.setattr(read, "ChildProcess", Dying)
    document = read_document(path)
    assert asked == [[], [1]] and [bool(page.text) for page in document.pages] == [True, False, True]
    assert document.warnings == ("Page 2 could not be read and is missing from the text.",)


def test_no_process_or_thread_stays_behind(folder: Path) -> None:
    for name in ("scripts.html", "xxe.docx", "truncated.pdf"):
        try:
            read_document(folder / name)
        except DocumentError:
            continue
    assert not [thread for thread in threading.enumerate() if thread.name == "reader_process"]
