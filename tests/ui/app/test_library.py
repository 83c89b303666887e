"""Documents and conversations survive a restart, names never become paths, and a language is guessed or left out."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from little_books import make_document, wait_for, write_book

from triforce_core import Document, DocumentOpened, Page, TriForceError
from ui.app.conversations import Conversations
from ui.app.database import Database
from ui.app.library import Library, language
from ui.app.queue import APP_ENDED
from ui.app.services import Services
from ui.page import library as library_view
from ui.page.library import about, in_words


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    return tmp_path


def opened(home: Path) -> tuple[Library, Conversations]:
    database = Database(home / "db.sqlite")
    return Library(database, home / "library"), Conversations(database)


def test_content_is_the_identity(home: Path) -> None:
    library, _ = opened(home)
    first = library.add(write_book(home, "a.txt"))
    again = library.add(write_book(home, "b.txt"))
    assert first.id == again.id and len(library.entries()) == 1
    assert library.file(first).read_bytes() == (home / "a.txt").read_bytes()
    assert library.file(first).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/passwd", "..", "a/b\\c.pdf", "x.exe", "<img src=x>.txt"])
def test_names_are_for_display_only(home: Path, name: str) -> None:
    library, _ = opened(home)
    entry = library.add(write_book(home, "source.txt"), name)
    assert entry.name == name
    assert library.file(entry).parent == (home / "library" / entry.id).resolve()
    assert library.file(entry).name.startswith("original.")


@pytest.mark.parametrize(("content", "words"), [(None, "no such file"), (b"", "empty")])
def test_what_cannot_be_added_says_why(home: Path, content: bytes | None, words: str) -> None:
    library, _ = opened(home)
    if content is not None:
        (home / "f.txt").write_bytes(content)
    with pytest.raises(TriForceError, match=words):
        library.add(home / "f.txt")


def test_a_restart_keeps_everything(home: Path) -> None:
    library, talks = opened(home)
    entry = library.add(write_book(home, "a.txt"))
    library.store(entry.id, make_document())
    library.update(entry.id, chosen="2-4", read_seconds=41.0)
    talk = talks.new(entry.id, "What about the ships? " * 9)
    talks.begin("one", talk.id, "How many?")
    talks.save("one", text="Many.", token_ids=(1, 2), state="done", error="", result={"page_shares": [1.0]})
    talks.begin("two", talk.id, "And then?")
    talks.save("two", text="Then the", token_ids=(3,), state="running", error="", result={})

    library, talks = opened(home)
    talks.interrupted(APP_ENDED)
    entry = library.get(entry.id)
    assert entry and entry.state == "ready" and entry.pages == 6 and entry.read_seconds == 41.0
    document = library.document(entry.id)
    assert document == make_document()
    assert [page.label for page in document.pick(entry.ranges).pages] == ["2", "3", "4"]
    one, two = talks.answers(talk.id)
    assert one.text == "Many." and one.result == {"page_shares": [1.0]}
    assert (two.state, two.text, two.error) == ("failed", "Then the", APP_ENDED)
    assert len(talks.history(talk.id)) == 2
    assert len(talks.of(entry.id)[0].title) <= 60


def test_a_reading_of_pages_that_are_no_longer_chosen_is_not_the_figure_of_those_that_are(home: Path) -> None:
    library, _ = opened(home)
    entry = library.add(write_book(home, "a.txt", 4))
    library.store(entry.id, make_document(4))
    library.update(entry.id, chosen="2-3")
    for ranges, document_id, tokens in ((((2, 3),), "part", 40), (((1, 4),), "whole", 80)):
        library.was_read(entry.id, ranges, DocumentOpened(document_id, tokens, (), 1.0, 2.0, False, 99), "model")
    found = library.get(entry.id)
    assert (found.tokens, found.read_with, found.readings) == (40, "model", ("part", "whole"))
    assert library.reading_rate("model") == 40 / 2.0 and library.reading_rate("another") == 0.0


def test_delete_takes_the_conversations_along(home: Path) -> None:
    library, talks = opened(home)
    entry = library.add(write_book(home, "a.txt"))
    talk = talks.new(entry.id, "x")
    library.delete(entry.id)
    assert library.entries() == [] and talks.get(talk.id) is None
    assert not (home / "library" / entry.id).exists()


def test_a_damaged_text_file_means_extracting_again(home: Path) -> None:
    library, _ = opened(home)
    entry = library.add(write_book(home, "a.txt"))
    library.store(entry.id, make_document())
    (home / "library" / entry.id / "document.json").write_text("{")
    library, _ = opened(home)
    assert library.document(entry.id) is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_text(home: Path) -> None:
    """Names are bytes here; Python spells those that are no UTF-8 as halves of surrogate pairs."""
    library, _ = opened(home)
    library.add(write_book(home, os.fsdecode(b"lamp\xff.txt")))
    assert [entry.name for entry in library.entries()] == ["lamp\ufffd.txt"]


def test_what_was_left_out_is_kept_and_shown(home: Path) -> None:
    library, _ = opened(home)
    entry = library.add(write_book(home, "a.txt"))
    notes = ("3 pictures and other objects were not read.", "1 <b>comment</b> was left out.")
    library.store(entry.id, replace(make_document(), notes=notes))
    again, _ = opened(home)
    document, kept = again.document(entry.id), again.get(entry.id)
    assert document is not None and kept is not None and document.notes == kept.notes == notes
    shown = about(kept, 0, "", 0.0)
    for said in ("Left out", "3 pictures and other objects were not read.", "&lt;b&gt;comment"):
        assert said in shown
    assert "Left out" not in about(replace(kept, notes=()), 0, "", 0.0)


GERMAN = ("Es war eine dunkle Nacht, und der Wind kam von der See. Das Haus auf dem Berg war nicht zu sehen, auch die "
          "Lampe war aus, und wie es mit den Leuten im Dorf stand, das wusste noch keiner von ihnen.")


def book(tag: str = "", recognised: str = "") -> Document:
    return Document("t", "txt", (Page("1", GERMAN),), "test", language=tag, recognised=recognised)


def test_the_files_word_comes_first_and_a_doubt_is_told() -> None:
    german = book("de-AT", "de")
    assert in_words(language(german)) == "German (stated in the file)"
    wrong = book("en", "de")
    assert in_words(language(wrong)) == "English (stated in the file), but by its words probably German"
    assert in_words(language(book("", "de"))) == "probably German"
    assert in_words(language(book("fo"))) == "fo (stated in the file)", "a tag without a name stays"


def test_the_card_and_the_library_keep_it(services: Services, tmp_path: Path) -> None:
    entry = services.library.add(write_book(tmp_path, "a.txt"))
    services.extractor.extract(entry.id)
    wait_for(lambda: services.library.get(entry.id).state == "ready")
    services.library.store(entry.id, book("en", "de"))
    again = Library(services.database, services.folders.library)
    kept = again.document(entry.id)
    assert kept is not None and (kept.language, kept.recognised, kept.spoken) == ("en", "de", "de")
    assert again.get(entry.id).language == "en~de"
    html = library_view.about(again.get(entry.id), 0, "", 0.0)
    assert "<dt>Language</dt><dd>English (stated in the file), but by its words probably German</dd>" in html
    services.library.store(entry.id, make_document(1, words=10))
    assert "Language" not in library_view.about(services.library.get(entry.id), 0, "", 0.0)
