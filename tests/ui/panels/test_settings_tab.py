"""The settings tab: what it says of the open document."""

from __future__ import annotations

from pathlib import Path

from little_books import wait_for, write_book

from ui.panels import settings
from ui.state.services import Services
from ui.state.tab_view import TabView


def test_how_many_words_a_token_is_was_measured_on_the_document(services: Services, tmp_path: Path) -> None:
    view = TabView()
    (panel,) = [each for each in settings.panels(services) if each.name == "longest"]
    assert "100 tokens" not in panel.draw(view)["info"]
    services.add(view, [(write_book(tmp_path, "a.txt", pages=8), "a.txt")])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    entry, before = services.library.get(view.document), panel.key(TabView())
    tokens = services.queue.fits[view.document].tokens
    assert f"100 tokens are {round(100 * entry.words / tokens)} words" in panel.draw(view)["info"]
    assert panel.key(view) != before
