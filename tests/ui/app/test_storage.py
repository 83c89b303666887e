"""A full disk, a folder or database that cannot be used, two instances on one folder: said, and nothing is lost."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from little_books import asked, opened, read_quickly, wait_for, write_book
from running_app import ROOT, running
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import EngineConfig, NotEnoughDiskError
from triforce_core import __main__ as command
from ui.api import routes as api
from ui.app import folders as places
from ui.app.database import VERSION, Database
from ui.app.folders import FolderError, Hold, InUseError
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import document_head, layout
from ui.page.panel import noticing

SMALL = 8 << 20  # bytes of the disk that is filled


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)], capture_output=True,
                             text=True) if sys.platform == "linux" else None
    if mounted is None or mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr if mounted else sys.platform}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Every byte that is free."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def shown(services: Services, view: TabView) -> str:
    panel = next(panel for panel in document_head.panels(services) if panel.name == "notice")
    return panel.draw(view)


def test_a_full_file_system(disk: Path, tmp_path: Path) -> None:
    """The disk has no byte left from the middle of an answer on: it is shown to its end, kept as soon as there is room,
    and nothing is blocked."""
    script = EngineScript(load_seconds=0, triforce_tokens_per_second=300)
    folders = places.make_folders(disk / "home")

    def anew() -> Services:
        made = Services(folders, lambda config: ScriptedEngine(config, script), EngineConfig(), read_quickly)
        made.start([])
        return made

    services = anew()
    view = opened(services, tmp_path, "book.txt")
    run = services.ask(view, "How many ships?")
    wait_for(lambda: run.accumulator.text)
    ballast = fill(disk)
    wait_for(lambda: run.ended and services.conversations.problem)
    wait_for(lambda: services.conversations.answer(run.id).state != "running")
    kept = services.conversations.answer(run.id)
    assert run.state == kept.state == "done" and kept.text == run.accumulator.text
    assert services.database.row("select state from answers")["state"] != "done"
    assert document_head.DISK_TITLE in shown(services, view)
    with noticing(view):
        services.ask(view, "And now?")
    assert services.runs.active() == []
    kind, title, text = view.notice
    assert kind == "error" and "full" in title and "--data-dir" in text
    services.add(view, [(write_book(tmp_path, "other.txt", pages=400), "other.txt")])
    assert "full" in view.notice[2]
    services.open(other := TabView(), view.document)
    assert other.document == view.document
    ballast.unlink()
    wait_for(lambda: not services.conversations.problem)
    assert services.conversations.trace(run.id) and not shown(services, TabView())
    assert asked(services, other, "And now?").state == "done"
    services.close()
    services = anew()
    again = services.conversations.answer(run.id)
    services.close()
    assert (again.text, again.state, again.error) == (run.accumulator.text, "done", "")


def test_a_copy_that_the_disk_refuses_is_an_error_in_words(services, monkeypatch, tmp_path) -> None:
    def refuse(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", refuse)
    services.add(view := TabView(), [(write_book(tmp_path, "book.txt"), "book.txt")])
    assert "The disk is full" in view.notice[2] and "--data-dir" in view.notice[2]
    assert services.library.entries() == [] and not list(services.folders.library.rglob("original*"))


def test_an_upload_that_the_disk_has_no_room_for_says_so(served, monkeypatch) -> None:
    """Gradio shows the page what the answer says."""
    async def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradio.routes.GradioMultiPartParser.parse", refuse)
    answer = httpx.post(served.url + "gradio_api/upload", files={"files": ("x.txt", b"hello")})
    assert answer.status_code == 507 and "The disk is full" in answer.text and "--data-dir" in answer.text


def words_of_507(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert answer.status_code == 507 and error["code"] == "not_enough_disk" and "Free some space" in error["remedy"]
    return error["message"]


def test_an_upload_by_the_api_to_a_full_file_system(disk: Path) -> None:
    """No faults made up. A document that comes along with a question is refused in the same words."""
    services = Services(places.make_folders(disk / "home"), lambda config: ScriptedEngine(config, EngineScript()),
                        EngineConfig(), read_quickly)
    services.start([])
    client = TestClient(Starlette(routes=api.routes(services)))
    fill(disk)
    data = base64.b64encode(b"ship " * 9999).decode()
    brought = {"type": "file", "file": {"filename": "book.txt", "file_data": data}}
    question = {"model": "builtin", "messages": [{"role": "user", "content": [
        brought, {"type": "text", "text": "How many ships?"}]}]}
    long = {"model": "builtin", "messages": [{"role": "system", "content": "A ship lay there. " * 9999},
                                             {"role": "user", "content": "How many ships?"}]}
    answers = [client.post("/v1/files", files={"file": ("book.txt", b"ship " * 9999)}),
               client.post("/v1/chat/completions", json=question), client.post("/v1/chat/completions", json=long)]
    for answer in answers:
        assert str(services.folders.uploads) in words_of_507(answer)
    assert services.library.entries() == [] and not list(services.folders.uploads.iterdir())
    services.close()


def test_a_reading_that_is_not_saved_or_was_damaged_is_said(services, tmp_path) -> None:
    view = opened(services, tmp_path)
    panel = next(panel for panel in document_head.panels(services) if panel.name == "head")
    assert document_head.READING_UNSAVED_TITLE not in panel.draw(view)
    services.queue.opened[view.document] = replace(services.queue.opened[view.document], unsaved="The disk is full.")
    wait_for(lambda: services.queue.open_key and not services.queue.prefills)
    assert panel.draw(view).count(document_head.READING_UNSAVED_TITLE) == 1
    assert document_head.READING_DAMAGED not in panel.draw(view)
    services.queue.opened[view.document] = replace(services.queue.opened[view.document], damaged=True)
    assert panel.draw(view).count(document_head.READING_DAMAGED) == 1


def test_settings_that_cannot_be_kept_say_so(services, monkeypatch) -> None:
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(NotEnoughDiskError, match="full"):
        services.keep(services.settings)


# -- a folder that cannot be used ------------------------------------------------------------------------------------

def app(home: Path) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return ["-m", "tests.scripted_app", "--no-browser", "--port", str(port), "--data-dir", str(home)]


def start(home: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *app(home)], cwd=ROOT, capture_output=True, text=True, timeout=120)


def one_line(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("app.py: ") and "--data-dir" in line
    return line


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    assert f"{tmp_path / 'home'} is a file" in one_line(start(tmp_path / "home"))


def test_a_full_or_read_only_folder(disk: Path) -> None:
    fill(disk)
    assert "full" in one_line(start(disk / "home"))
    (disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert "Read-only file system" in one_line(start(disk / "home"))


@pytest.mark.parametrize(("number", "kind", "words"), [
    (28, NotEnoughDiskError, "full"), (30, FolderError, "Read-only file system"), (13, FolderError, "denied")])
def test_what_the_disk_refuses_is_told_in_words(tmp_path, monkeypatch, number, kind, words) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(kind, match=words):
        places.make_folders(tmp_path / "home")


@pytest.mark.parametrize("damage", ["no database", "a page inside"])
def test_a_damaged_database_is_set_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "triforce-chat.sqlite"
    base = Database(path)
    for number in range(200):
        base.write("insert into documents (id, name, extension, bytes, added_at, state) values (?,?,'.txt',1,1,'new')",
                   (str(number), "x" * 300))
    base.close()
    before = bytearray(path.read_bytes())
    if damage == "no database":
        before[:100] = b"?" * 100
    else:
        before[8192:40960] = b"\xff" * (40960 - 8192)
    path.write_bytes(before)
    base = Database(path)
    (aside,) = tmp_path.glob("*.damaged-*.sqlite")
    assert base.set_aside and str(aside) in base.set_aside[1] and aside.read_bytes() == before
    assert base.rows("select * from documents") == []
    base.close()
    assert Database(path).set_aside is None


def altered(path: Path, script: str) -> None:
    """A database with one document, changed by hand since."""
    base = Database(path)
    base.write("insert into documents (id, name, extension, bytes, added_at, state) values ('a','a','.txt',1,1,'new')")
    base.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_a_database_of_the_last_version_without_a_number_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    altered(path, "pragma user_version = 0")
    path.with_suffix(".reserve").write_bytes(b"kept free")
    base = Database(path)
    assert base.set_aside is None and [row["id"] for row in base.rows("select id from documents")] == ["a"]
    assert base.row("pragma user_version")[0] == VERSION == 1 and not path.with_suffix(".reserve").exists()
    base.close()


@pytest.mark.parametrize("script", ["alter table documents drop column notes; pragma user_version = 0",
                                    "drop table traces; pragma user_version = 0"])
def test_an_older_one_is_set_aside_and_says_how_it_can_be_read(tmp_path: Path, script: str) -> None:
    path = tmp_path / "app.sqlite"
    altered(path, script)
    base = Database(path)
    (aside,) = tmp_path.glob("app.older-*.sqlite")
    assert base.rows("select * from documents") == [] and f"“sqlite3 {aside} .dump”" in base.set_aside[1]
    base.close()
    with contextlib.closing(sqlite3.connect(aside)) as kept:
        assert kept.execute("select id from documents").fetchall() == [("a",)]


def test_a_newer_one_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    altered(path, "pragma user_version = 2")
    with pytest.raises(FolderError, match=r"newer version.*format 2; this one reads 1.*--data-dir"):
        Database(path)
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".sqlite"] == ["app.sqlite"]


def test_the_page_and_the_terminal_name_the_database_that_was_set_aside(tmp_path: Path) -> None:
    folders = places.make_folders(tmp_path / "home")
    folders.database.write_bytes(b"not a database at all, but long enough to be looked at" * 99)
    with running(app(tmp_path / "home")) as (_, url, said):
        (aside,) = folders.data.glob("*.damaged-*.sqlite")
        wait_for(lambda: any(str(aside) in line for line in said))
        assert httpx.get(url).status_code == 200
    made = Services(folders, ScriptedEngine, EngineConfig(), read_quickly)
    made.database.set_aside = "Damaged", f"See {aside}"
    tabs = layout.Tabs(made)
    assert str(aside) in tabs.open("one", None).notice[2] and tabs.open("two", None).notice is None
    made.close()


# -- two instances on one folder -------------------------------------------------------------------------------------

def test_the_second_instance_names_the_first_and_a_killed_one_blocks_nobody(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(app(home)) as (process, url, _):
        line = one_line(start(home))
        assert url in line and "in use" in line
        process.kill()
        process.wait()
    with running(app(home)) as (_, url, _):
        assert url in one_line(start(home))


def test_the_second_opens_the_first_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ui
    from ui.server import lifecycle

    seen: list[str] = []
    monkeypatch.setattr(lifecycle.webbrowser, "open", seen.append)
    monkeypatch.setattr(lifecycle, "has_display", lambda: True)
    hold = Hold(places.make_folders(tmp_path))
    hold.announce("http://127.0.0.1:1234/")
    for more in ([], ["--no-browser"]):
        with pytest.raises(InUseError, match=r"http://127\.0\.0\.1:1234/"):
            ui.launch(ui.parse(["--data-dir", str(tmp_path), *more]))
    hold.release()
    assert seen == ["http://127.0.0.1:1234/"]


def test_an_address_of_an_earlier_life_is_not_told(tmp_path: Path) -> None:
    folders = places.make_folders(tmp_path)
    first = Hold(folders)
    first.announce("http://old/")
    first.release()
    first = Hold(folders)
    with pytest.raises(InUseError, match="only just starting"):
        Hold(folders)
    first.release()


def test_the_command_line_reads_beside_a_running_app(tmp_path: Path, monkeypatch, capsys) -> None:
    """It shares saved readings and measurements with the app, which have locks of their own."""
    hold = Hold(places.make_folders(tmp_path / "home"))
    monkeypatch.setattr(command, "_make_engine", lambda config: ScriptedEngine(config, EngineScript(load_seconds=0)))
    book = write_book(tmp_path, "book.txt")
    assert command.main(["ask", str(book), "How many ships?", "--data-dir", str(tmp_path / "home")]) == 0
    assert "scripted engine" in capsys.readouterr().out
    hold.release()
