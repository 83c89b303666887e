"""The settings tab: what it says of the open document."""

from __future__ import annotations

from pathlib import Path

from little_books import wait_for, write_book

from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import document_head, models, settings
from ui.page import figures as figures_panel
from ui.page import strip as strip_panel


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


def test_the_engine_is_told_of_in_settings_and_its_failure_above_the_chat(services: Services, monkeypatch) -> None:
    assert "engine" in {panel.name for panel in settings.panels(services)}
    assert "engine" not in {panel.name for tab in (figures_panel, strip_panel) for panel in tab.panels(services)}
    (notice,) = [panel for panel in document_head.panels(services) if panel.name == "notice"]
    view = TabView()
    wait_for(lambda: services.queue.state == "ready")
    before = notice.key(view)
    assert notice.draw(view) == ""
    monkeypatch.setattr(services.queue, "state", "failed")
    monkeypatch.setattr(services.queue, "problem", "no <weights>")
    assert "no &lt;weights&gt;" in notice.draw(view) and notice.key(view) != before
    for tab in (settings, models):  # it stands above every tab: said again there, it would stand twice
        for panel in tab.panels(services):
            assert "no &lt;weights&gt;" not in str(panel.draw(view)), panel.name
