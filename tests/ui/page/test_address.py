"""Steps of Back and Forward that come faster than they are taken, and page turns that are heard too late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from little_books import wait_for, write_book

from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.app.tabs import of_view
from ui.page import layout, reader


class Watched:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self._lock, self.come = threading.Lock(), 0

    def __enter__(self) -> None:
        self.come += 1
        self._lock.acquire()

    def __exit__(self, *what: object) -> None:
        self._lock.release()


@pytest.fixture
def books(services: Services, tmp_path: Path) -> list[str]:
    """The addresses of two documents."""
    view, found = TabView(), []
    for name in ("one.txt", "two.txt"):
        services.add(view, [(write_book(tmp_path, name), name)])
        wait_for(lambda: services.library.get(view.document).state == "ready")
        found.append(of_view(view))
    return found


def drawn(services: Services, view: TabView) -> str:
    (panel,) = [panel for panel in layout.tab_panels(services) if panel.name == "address"]
    return panel.draw(view)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_steps_at_once_the_later_counts(services: Services, books: list[str], order: tuple[int, int],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    view, go, opened = TabView(), partial(layout.go, services), services.open
    view.stepping = Watched()
    heard_first, heard_second = ({"asked": str(asked), "address": books[asked - 1]} for asked in order)
    beside = threading.Thread(target=go, args=(view, heard_second))

    def while_the_other_comes(view: TabView, document: str) -> None:
        monkeypatch.setattr(services, "open", opened)
        beside.start()
        wait_for(lambda: view.stepping.come == 2 or not beside.is_alive())
        assert 'data-asked="0"' in drawn(services, view)
        opened(view, document)

    monkeypatch.setattr(services, "open", while_the_other_comes)
    go(view, heard_first)
    beside.join()
    assert of_view(view) == books[1] and 'data-asked="2"' in drawn(services, view)


def test_a_step_that_ends_while_it_is_drawn_is_not_answered_with_where_it_began(
        services: Services, books: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    view, go = TabView(), partial(layout.go, services)
    go(view, {"asked": "1", "address": books[0]})

    def then_a_step(view: TabView, name: Callable[[TabView], str] = of_view) -> str:
        before = name(view)
        go(view, {"asked": "2", "address": books[1]})
        return before

    monkeypatch.setattr(layout, "of_view", then_a_step)
    html = drawn(services, view)
    assert books[0] in html and 'data-asked="1"' in html


def test_a_step_that_fails_is_answered_all_the_same(services: Services, books: list[str],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    view, go = TabView(), partial(layout.go, services)
    monkeypatch.setattr(services, "open", lambda view, document: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        go(view, {"asked": "1", "address": books[0]})
    assert 'data-asked="1"' in drawn(services, view)
    monkeypatch.undo()
    go(view, {"asked": "2", "address": books[1]})
    assert of_view(view) == books[1]


def test_a_page_that_is_turned_after_another_was_opened_stays_as_it_is(services: Services, books: list[str]) -> None:
    view, go = TabView(), partial(layout.go, services)
    act = reader.actions(services)
    go(view, {"asked": "1", "address": f"{books[0]}&page=2"})
    here = {"document": view.document, "serial": str(view.openings)}
    act["turned"](view, {"page": "3", **here})
    assert view.page == 3
    go(view, {"asked": "2", "address": f"{books[1]}&page=5"})
    act["turned"](view, {"page": "4", **here})
    assert view.page == 5
    there = {"document": view.document, "serial": str(view.openings)}
    act["turned"](view, {"page": "", **there})
    act["turned"](view, {"page": "6", **there})
    assert view.page is None  # closed stays closed
