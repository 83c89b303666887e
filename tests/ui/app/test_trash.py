"""A deleted thing is hidden everywhere at once, comes back whole with Undo, and is gone for good after a while."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from little_books import asked, opened, wait_for, write_book

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import EngineConfig, SnapshotStore
from triforce_core.kv_cache.snapshot import SnapshotKey
from ui.app import folders as places
from ui.app.services import CONVERSATION_DELETED, DOCUMENT_DELETED, Services
from ui.app.tab_view import TabView
from ui.page.chat import transcript
from ui.page.export import exported
from ui.page.html import STOPPED


@pytest.fixture
def view(services: Services, tmp_path: Path) -> TabView:
    """A book is open in it, and one question was answered."""
    view = opened(services, tmp_path, "book.txt", 4)
    asked(services, view, "How many harbours?")
    return view


def found(services: Services) -> list[str]:
    return [hit.conversation.id for hit in services.conversations.search("harbours")]


def test_a_document_comes_back_with_everything(services: Services, view: TabView) -> None:
    document, talk = view.document, view.conversation
    before = services.library.get(document), services.conversations.answers(talk)
    services.choose_pages(view, "2-3")
    services.delete(view, document)
    assert view.document is None and services.library.entries() == [] and found(services) == []
    assert services.conversations.get(talk) is None and services.conversations.recent(document, 9) == []
    assert [item.title for item in services.trash.items()] == ["book"]
    services.undo(view)
    wait_for(lambda: services.phase(services.library.get(document)) == "ready")
    entry = services.library.get(document)
    assert (view.document, view.conversation) == (document, talk) and entry.chosen == "2-3"
    assert entry.added_at == before[0].added_at and services.conversations.answers(talk) == before[1]
    assert found(services) == [talk] and services.trash.items() == ()


def test_a_conversation_comes_back_where_it_was(services: Services, view: TabView) -> None:
    talk = view.conversation
    services.delete_conversation(view, talk)
    assert view.conversation is None and services.conversations.of(view.document) == [] and found(services) == []
    services.undo(view)
    assert view.conversation == talk and len(services.conversations.answers(talk)) == 1


def test_undo_takes_nobody_away_from_what_he_reads(services: Services, view: TabView, tmp_path: Path) -> None:
    first = view.document
    services.add(view, [(write_book(tmp_path, "other.txt", 3), "other.txt")])
    second = view.document
    services.delete(view, first)
    services.undo(view)
    assert view.document == second and {entry.id for entry in services.library.entries()} == {first, second}


def test_the_last_deleted_comes_back_first(services: Services, view: TabView) -> None:
    document, talk = view.document, view.conversation
    services.delete_conversation(view, talk)
    services.delete(view, document)
    assert [item.kind for item in services.trash.items()] == ["document", "conversation"]
    services.undo(view)
    assert view.document == document and services.conversations.get(talk) is None
    services.undo(view)
    assert services.conversations.get(talk) is not None


def test_after_a_while_it_is_gone(services: Services, view: TabView) -> None:
    services.trash.seconds = 0.05
    entry = services.library.get(view.document)
    file = services.library.file(entry)
    services.delete(view, entry.id)
    wait_for(lambda: not services.trash.items())
    wait_for(lambda: not file.exists())
    assert not services.database.rows("select * from answers")
    services.undo(view)
    assert services.library.entries() == []


def test_one_document_can_be_gone_at_once_and_the_others_still_come_back(services: Services, view: TabView,
                                                                         tmp_path: Path) -> None:
    """As a program deletes, which asks for no Undo, beside a person."""
    first = view.document
    services.add(view, [(write_book(tmp_path, "other.txt", 3), "other.txt")])
    second = view.document
    for document in (first, second):
        services.delete(view, document)
    services.trash.empty(of=second)
    assert [item.id for item in services.trash.items()] == [first]
    services.undo(view)
    assert [entry.id for entry in services.library.entries()] == [first]


def test_the_same_file_again_is_the_same_document(services: Services, view: TabView, tmp_path: Path) -> None:
    document, talk = view.document, view.conversation
    services.delete(view, document)
    services.add(view, [(tmp_path / "book.txt", "book.txt")])
    assert (view.document, view.conversation) == (document, talk) and services.trash.items() == ()


def test_no_saved_reading_of_any_page_choice_stays(services: Services, view: TabView) -> None:
    document = view.document
    for pages in ("2-3", "4", "1-4"):
        services.choose_pages(view, pages)
        wait_for(lambda: services.phase(services.library.get(document)) in ("ready", "resting", "unsaved"))
    services.library.begins_to_be_read(document, "unfinished")
    text = services.library.document(document)
    read = [text.id, text.pick(((2, 3),)).id, text.pick(((4, 4),)).id, "unfinished"]
    for kept in (*read, "of another document"):
        key = SnapshotKey(kept, "t", "m", "tokenizer", "float32", "1")
        list(SnapshotStore(services.folders.saved_readings, 1 << 30).save_steps(
            key, [(torch.ones(2, 4, 8), torch.ones(2, 4, 8))], read_seconds=1.0))
    services.delete(view, document)
    services.trash.empty()
    saved = SnapshotStore(services.folders.saved_readings, 1 << 30).list()
    assert [info.document for info in saved] == ["of another document"]


@pytest.mark.parametrize("what", ["document", "conversation"])
def test_what_is_deleted_while_it_answers_says_so(services: Services, view: TabView, script: EngineScript,
                                                  what: str) -> None:
    script.triforce_tokens_per_second = 20
    document, talk = view.document, view.conversation
    run = services.ask(view, "How many harbours and ships?")
    wait_for(lambda: run.accumulator.text)
    services.delete(view, document) if what == "document" else services.delete_conversation(view, talk)
    wait_for(lambda: run.ended)
    services.undo(view)
    answer = services.conversations.answers(talk)[-1]
    why = DOCUMENT_DELETED if what == "document" else CONVERSATION_DELETED
    assert (answer.state, answer.error) == ("stopped", why)
    for shown in (transcript([answer], str), exported(services, talk, "md")[2], exported(services, talk, "html")[2]):
        assert why in shown and STOPPED not in shown
    script.triforce_tokens_per_second = 4000
    wait_for(lambda: services.phase(services.library.get(document)) == "ready")
    run = services.ask(view, "And after that?")
    wait_for(lambda: run.accumulator.text)
    services.stop(view)
    wait_for(lambda: run.ended)
    assert run.error == ""


def test_vectors_of_its_passages_go_for_good_with_the_document(services: Services, view: TabView) -> None:
    document, evidence = services.library.document(view.document).id, services.queue._evidence
    services.delete(view, view.document)
    assert not evidence.forgotten  # Undo can bring it back
    services.trash.empty()
    assert evidence.forgotten == [document]


def test_what_an_ended_app_had_deleted_is_gone(services: Services, view: TabView, tmp_path: Path) -> None:
    services.delete(view, view.document)
    services.database.write("update documents set deleted_at = deleted_at")  # as after a crash: nothing was emptied
    again = Services(places.make_folders(tmp_path / "home"), ScriptedEngine, EngineConfig(), services.take_text)
    try:
        assert again.trash.items() == () and not again.database.rows("select * from conversations")
    finally:
        again.conversations.close()
