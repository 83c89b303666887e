"""The reader's process: within its limits, ended with all that it started, also when nobody is there to end it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core.documents import READERS, ReadCancelled, ReadLimits, limits, read, read_document
from triforce_core.errors import DocumentError
from triforce_core.sandbox import child

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("resource")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_it_starts_no_processes_and_is_the_first_to_go() -> None:
    done = run("import resource\n"
               "from triforce_core.documents import ReadLimits\n"
               "ReadLimits(memory_bytes=1 << 30).enforce()\n"
               "for kind in ('AS', 'CORE', 'FSIZE', 'NPROC'):\n"
               "    print(resource.getrlimit(getattr(resource, 'RLIMIT_' + kind))[1])\n"
               "try:\n    print(open('/proc/self/oom_score_adj').read().strip())\n"
               "except OSError:\n    print(1000)\n")
    assert done.stdout.split() == [str(1 << 30), "0", "0", "0", "1000"], done.stderr


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="no such clock here")
def test_the_system_ends_it_when_its_parent_is_gone() -> None:
    """Inside a pattern that never ends, where no Python code gets a turn."""
    done = run("import re\n"
               "from triforce_core.sandbox import child\n"
               "child._SLACK = 0\n"
               "child.sign_of_life(0.5)\n"
               "re.match('(a+)+$', 'a' * 60 + 'b')\n")
    assert done.returncode == -signal.SIGALRM


def test_what_it_imports_is_compiled_before(tmp_path: Path) -> None:
    """It may write no files itself."""
    kept = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([*child.command(read._READER), "--compile"], cwd=ROOT, env=kept, check=True, timeout=60)
    files = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc") if path.parent.name in (
        "readers", "documents", "pypdfium2")}
    assert files >= {"epub", "pdf", "rst", "docx", "html", "reader_process", "page_process", "sniff", "raw"}


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[list[str]] = []
    monkeypatch.setattr(read.subprocess, "run", lambda command, **options: compiled.append(command))
    monkeypatch.setattr(read.sys, "dont_write_bytecode", False)
    read.keep_bytecode.cache_clear()
    path = tmp_path / "note.txt"
    path.write_text("A note.")
    for _ in range(2):
        read_document(path)
    assert [command[-1] for command in compiled] == ["--compile"]


@pytest.mark.parametrize("said", [
    b"\0\0\0\3[1]", b"\0\0\0\1{", b"\xff\xff\xff\xff{}", b"\0\0", b"\0\1\0\0" + b"[" * 65_536])
def test_a_message_that_is_none_ends_the_conversation(said: bytes) -> None:
    """The last one is nested deeper than a parser goes: the listener must not die of it, or nobody is told."""
    assert child._read_frame(io.BytesIO(said)) is None


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_what_it_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own child holds the stream open that the listener reads, and closing would wait for it."""
    script = tmp_path / "forking"
    script.write_text("""#!/bin/sh\nsleep 60 &\nprintf '\\000\\000\\000\\007{"a":1}'\nwait\n""")
    script.chmod(0o700)
    monkeypatch.setattr(child.sys, "executable", str(script))
    process = child.ChildProcess("triforce_core.documents.reader_process")
    assert process.next(10) == {"a": 1}
    closing = threading.Thread(target=process.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive() and not process._listener.is_alive()


def test_a_few_at_once_and_cancelling_while_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("The whale is a mammal.")
    begun, go_on = threading.Semaphore(0), threading.Event()

    class Slow(child.ChildProcess):
        def next(self, timeout: float):
            begun.release()
            assert go_on.wait(20)
            return super().next(timeout)

    monkeypatch.setattr(read, "ChildProcess", Slow)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(read_document(tmp_path / "a.txt").pages[0].text))
               for _ in range(READERS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=20)
    monkeypatch.setattr(read, "ChildProcess", None)  # nobody else gets as far
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(ReadCancelled):
        read_document(tmp_path / "a.txt", cancel=cancel)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert found == ["The whale is a mammal."] * READERS


def test_readers_share_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (6 << 30) // 4096}
    monkeypatch.setattr(limits.os, "sysconf", sizes.__getitem__)
    assert 0.9 * (3 << 30) < READERS * ReadLimits().memory_bytes <= 3 << 30
    sizes["SC_PHYS_PAGES"] = 1 << 18
    assert ReadLimits().memory_bytes == 512 << 20  # with less, real books cannot be read
    sizes["SC_PHYS_PAGES"] = 1 << 26
    assert ReadLimits().memory_bytes == 2048 << 20


def test_half_a_surrogate_in_a_title_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(hostile.text_pdf(
        trailer=b"/Info 6 0 R", more=[b"<</Title<FEFFD83D00410042>>>"]))
    document = read_document(tmp_path / "a.pdf")
    assert document.reader.startswith("pypdfium2") and document.title == "a"


@pytest.mark.parametrize(("packages", "name", "content"), [
    (["justhtml"], "a.html", b"<!doctype html><html><body><p>A whale.</p></body></html>"),
    (["markdown_it"], "a.md", b"# A whale\n\nIt *swims*.\n\n- far\n- deep\n"),
    (["pypdfium2", "pypdf"], "a.pdf", hostile.text_pdf())])
def test_a_package_that_is_missing_is_named_and_the_file_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                      packages: list[str], name: str, content: bytes
                                                                      ) -> None:
    program = (f"import runpy, sys; sys.modules |= dict.fromkeys({packages}); "
               "runpy.run_module(sys.argv[1], run_name='__main__')")
    monkeypatch.setattr(child, "command", lambda module: [sys.executable, "-c", program, module])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentError, match=f"{packages[-1]} is not installed.*pip install"):
        read_document(tmp_path / name)
