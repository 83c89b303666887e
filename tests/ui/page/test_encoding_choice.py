"""A text whose encoding is not clear: the page shows its readings, and one press reads it so."""

from __future__ import annotations

from pathlib import Path

from little_books import wait_for

from triforce_core import read_document
from ui.app.database import Database
from ui.app.extraction import TextExtractor
from ui.app.library import Library
from ui.page.document_head import head


def test_the_readings_are_shown_and_the_pressed_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Vor der Brücke steht ein Müller.".encode("mac-roman"))
    (tmp_path / "library").mkdir()
    library = Library(Database(tmp_path / "app.db"), tmp_path / "library")
    extractor = TextExtractor(library, read_document, lambda document: None)
    entry = library.add(path)
    extractor.extract(entry.id)
    wait_for(lambda: library.get(entry.id).state == "failed", 60.0)
    drawn = head(library.get(entry.id), "failed", readings=extractor.readings[entry.id])
    assert drawn.count('data-action="encoding"') == 3
    assert 'data-encoding="mac-roman"' in drawn and "Brücke" in drawn
    extractor.extract(entry.id, encoding="mac-roman")
    wait_for(lambda: library.get(entry.id).state == "ready", 60.0)
    assert "Brücke" in library.document(entry.id).pages[0].text and not extractor.readings
    extractor.close()
