"""The library's cards: what they say of a document, and saved readings that can be deleted alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch
from hostile_words import ENTRY
from little_books import read_quickly, wait_for, write_book

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import EngineConfig, SnapshotStore
from triforce_core.kv_cache.snapshot import BUILTIN_TARGETS, SnapshotKey
from ui.app import folders as places
from ui.app.library import Snapshots, SnapshotSpace
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.app.tabs import Tabs
from ui.page import document_head, library


def save(folder: Path, document: str, tokens: int = 64, model: str = "model") -> int:
    layer = torch.zeros(2, tokens, 8)
    key = SnapshotKey(document, "t", model, "tokenizer", "float32", "1")
    list(SnapshotStore(folder, 1 << 30).save_steps(key, [(layer, layer)], read_seconds=130.0))
    return (folder / f"{key.digest}.kv").stat().st_size


def drawn_head(services: Services, entry) -> str:
    panels = document_head.panels(services)
    return next(panel for panel in panels if panel.name == "head").draw(TabView(document=entry.id))


def test_a_saved_reading_can_be_deleted_alone(services: Services, tmp_path: Path) -> None:
    view = TabView()
    for name in ("one.txt", "two.txt"):
        services.add(view, [(write_book(tmp_path, name, 3 if name == "one.txt" else 4), name)])
        wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    two, one = services.library.entries()
    assert one.words == sum(len(page.text.split()) for page in services.library.document(one.id).pages) > 0
    assert one.read_with == services.queue.model.name and len(one.readings) == 1
    assert services.phase(one) == "unsaved" and "in about" in drawn_head(services, one)
    size = save(services.folders.saved_readings, one.readings[0])
    save(services.folders.saved_readings, two.readings[0], 128)
    services.snapshots.refresh()
    assert services.snapshots.size(one.readings) == size < services.snapshots.space().used
    assert services.phase(one) == "resting" and document_head.RESTING in drawn_head(services, one)
    services.delete_snapshots(one.id)
    assert services.snapshots.size(one.readings) == 0 < services.snapshots.size(two.readings)
    one = services.library.get(one.id)
    assert one.state == "ready" and services.phase(one) == "closed"
    services.delete(view, two.id)
    assert services.snapshots.space().used > 0  # as long as there is Undo
    services.trash.empty()  # takes its saved reading along
    assert services.snapshots.space().used == 0


def test_a_reading_of_another_model_is_none_of_this_one(services: Services, tmp_path: Path) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "a.txt"), "a.txt"), (write_book(tmp_path, "b.txt", 3), "b.txt")])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    services.library.update(view.document, read_with="Another model")
    services.queue._in_cache = None
    assert services.phase(services.library.get(view.document)) == "closed"


def test_sizes_follow_the_folder(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "readings", 1000)
    assert snapshots.refresh() == 0 and snapshots.space() == SnapshotSpace(0, 1000, 0)
    size = save(tmp_path / "readings", "d")
    assert snapshots.refresh() == 1 and snapshots.size(("d", "e")) == size and snapshots.space().free > 0
    assert snapshots.refresh() == 1


def test_about_says_all_there_is() -> None:
    entry = replace(ENTRY, name="a.txt", words=12_345, read_with="Small", opened_at=time.time(), readings=("x",))
    html = library.about(entry, 41_000_000, "Small", time.time())
    for text in ("12,345", "4,213", "Small", "41.0 MB", library.FORGET, "a.txt"):
        assert text in html
    other = library.about(entry, 0, "Large", time.time())
    assert library.OTHER_MODEL.format(model="Small") in other and library.FORGET not in other
    assert library.day(time.time() - 86_400, time.time()) == "yesterday"
    assert "<img" not in library.about(ENTRY, 1, "", 2.0) + library.cover(ENTRY)
    entries = [replace(ENTRY, id=name, title=f"<{name}>") for name in ("small", "large", "none")]
    line = library.room_line(SnapshotSpace(10**9, 2 * 10**10, 5 * 10**10),
                             list(zip(entries, (10**8, 9 * 10**8, 0), strict=True)))
    assert "1.0 GB of 20.0 GB" in line and line.index("900 MB") < line.index("100 MB") and "none" not in line
    assert 'data-action="forget-reading" data-document="large"' in line and "&lt;large&gt;" in line


def test_readings_of_a_former_built_in_pair_are_removed_at_the_start_and_told_once(tmp_path: Path) -> None:
    folders = places.make_folders(tmp_path)
    for model in ("a checkpoint on another disk", BUILTIN_TARGETS[0]):
        save(folders.saved_readings, f"of {model}", 9000, model)
    told = []
    for _ in range(2):
        services = Services(folders, lambda config: ScriptedEngine(config, EngineScript()), EngineConfig(),
                            read_quickly)
        tabs = Tabs(services, library.removed_readings(*services.removed_readings))
        told += [tabs.open("first", None).notice, tabs.open("second", None).notice]
        services.close()
    assert told[1:] == [None] * 3 and told[0][:2] == ("info", library.REMOVED_READINGS_TITLE)
    assert "1 of an earlier version" in told[0][2] and "MB" in told[0][2]
    (left,) = SnapshotStore(folders.saved_readings, 1).list()
    assert left.document == "of a checkpoint on another disk"


def test_another_language_than_the_models_is_said_above_the_chat(services: Services, tmp_path: Path) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "one.txt", 2), "one.txt")])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    model = services.queue.model
    for stored, follows, said in (("~de", False, document_head.ONLY_ENGLISH),
                                  ("en~de", False, document_head.ONLY_ENGLISH),
                                  ("fr-CA", True, document_head.OTHER_LANGUAGE)):
        services.library.update(view.document, language=stored)
        services.queue.model = replace(model, instructions=follows)
        wanted = said.format(language="French" if follows else "German", model=model.name)
        assert wanted in drawn_head(services, services.library.get(view.document))
    for stored in ("", "en", "en-GB~en"):
        services.library.update(view.document, language=stored)
        assert "This document is in" not in drawn_head(services, services.library.get(view.document))


def test_documents_of_one_name_say_when_they_came() -> None:
    now = time.time()
    alike = [replace(ENTRY, id=str(days), title="Lease", added_at=now - days * 86400) for days in (0, 40)]
    rows = [(entry, "ready") for entry in (*alike, replace(ENTRY, id="c", title="Other", added_at=now))]
    html = library.listing(rows, None, (), None)
    assert html.count("added ") == 2
    for entry in alike:
        assert f"added {library.day(entry.added_at, now)}" in html
