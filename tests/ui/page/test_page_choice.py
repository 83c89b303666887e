"""Choosing chapters and pages: the list, the bar of the context, what is read, and where its shares stand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_words import ENTRY, EVIL
from little_books import make_document, wait_for, write_book

from triforce_core import Chapter, DocumentFit, QuoteEvent, RoundEvent, TriForceError, page_ranges, ranges_text
from triforce_core.events import QuoteOccurrence, QuotePlace
from triforce_core.metrics import page_in_file
from ui.app.accumulator import Accumulator
from ui.app.context_budget import Part, answer_room
from ui.app.database import Database
from ui.app.library import Library
from ui.app.runs import Run
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import html as charts
from ui.page import page_choice
from ui.page.strip import cited_pages

BOOK = replace(make_document(6), chapters=(
    Chapter(EVIL, 1, 1, 3), Chapter("Inside", 2, 2, 3), Chapter("Second", 1, 3, 5), Chapter("Last", 1, 6, 6)))
FIT = DocumentFit(600, 350, (100,) * 6)


def test_chapters_are_listed_with_what_they_take() -> None:
    listed = page_choice.chapter_list(BOOK, FIT, "1-3")
    assert "<img" not in listed and "&lt;img" in listed and 'data-chosen="1-3"' in listed
    assert re.findall(r'data-first="(\d)" data-last="(\d)" data-level="(\d)"', listed) == [
        ("1", "3", "1"), ("2", "3", "2"), ("3", "5", "1"), ("6", "6", "1")]
    assert re.findall(r"(\d+) tokens", listed) == ["300", "200", "300", "100"]
    words = [len(page.text.split()) for page in BOOK.pages]
    assert f"{sum(words[:3])} words" in page_choice.chapter_list(BOOK, None, "")
    assert page_choice.chapter_list(make_document(), FIT, "") == ""


def test_the_bar_adds_up() -> None:
    def widths(drawn: str) -> list[float]:
        return [float(width) for width in re.findall(r"<span class=\"tf-[^>]*width:([\d.]+)%", drawn)]

    drawn = page_choice.context_bar([Part(EVIL, 100), Part("B", 250, True)], 800, 200)
    assert widths(drawn) == [10.0, 25.0, 20.0, 45.0] and "tf-limit" not in drawn and "<img" not in drawn
    assert "about 250" in drawn and 'aria-label="about 350 of 800 tokens"' in drawn
    over = page_choice.context_bar([Part("A", 1000), Part("B", 200)], 800, 200)
    assert sum(widths(over)) == pytest.approx(100, abs=0.01) and "left:57.14%" in over and "<b>400</b>" in over
    assert charts.part_colour(0) == charts.part_colour(charts.PARTS) != charts.part_colour(1)


def test_room_is_what_the_context_has_beside_the_document() -> None:
    assert answer_room(FIT, 550) == 200 and answer_room(FIT, 0) == 0
    assert answer_room(replace(FIT, limited_by="memory"), 550) == 0


def test_shares_of_pages_stand_where_the_pages_are() -> None:
    run = Run("d", "q", ranges=((2, 3), (6, 6)))
    run.accumulator.add(RoundEvent(0, (1,), ("bonus",), (), {}, (0.5, 0.2, 0.3), 1.0))
    assert run.first_page == 2 and run.accumulator.page_shares() == (0.5, 0.2, 0.0, 0.0, 0.3)
    assert run.accumulator.trace.rounds[0][3][:3] == [[0, 0.5], [4, 0.3], [1, 0.2]]
    whole = Accumulator(((2, 4),))
    whole.add(RoundEvent(0, (1,), ("bonus",), (), {}, (0.5, 0.2, 0.3), 1.0))
    assert whole.page_shares() == (0.5, 0.2, 0.3)


def test_pages_of_ranges_are_numbered_as_in_the_file() -> None:
    """Quotations, attended passages and words: the third page of "2-3, 6-7, 9" is page 6."""
    ranges = ((2, 3), (6, 7), (9, 9))
    assert [page_in_file(page, ranges) for page in range(1, 6)] == [2, 3, 6, 7, 9] and page_in_file(4, ()) == 4
    run = Run("d", "q", ranges=ranges)
    across = QuoteOccurrence(0, 9, (QuotePlace(2, "3", 5, 9), QuotePlace(3, "6", 0, 4)))
    run.accumulator.add(QuoteEvent(0, 0, 9, True, 2, (across, QuoteOccurrence(20, 29, (QuotePlace(5, "9", 0, 9),)))))
    places = [place for found in run.quotes[0]["occurrences"] for place in found["places"]]
    assert [(place["page"], place["label"]) for place in places] == [(3, "3"), (6, "6"), (9, "9")]
    assert cited_pages({"quotes": run.quotes}) == {3, 6, 9}


@pytest.mark.parametrize(("typed", "said"), [
    ("2", "page 2"), ("2-3", "pages 2 to 3"), ("7, 2-3", "pages 2 to 3, 7"), ("1-2,3-4, 6", "pages 1 to 4, 6")])
def test_pages_in_words(typed: str, said: str) -> None:
    entry = replace(ENTRY, pages=8, chosen=ranges_text(page_ranges(typed, 8)))
    to = page_choice.TO
    said = said.replace(" to ", to)
    assert page_choice.which(entry.ranges) == said and page_choice.scope(entry) == f"{said} of 8"
    drawn = page_choice.range_words(entry, replace(FIT, page_tokens=(1, 10, 100, 1000, 1, 1, 10_000, 1)), typed)
    tokens = {"2": 10, "2-3": 110, "7, 2-3": 10_110, "1-2,3-4, 6": 1112}[typed]
    assert f"{said.capitalize()} of 8: " in drawn and f"{tokens:,}" in drawn


def test_several_ranges_are_read_and_asked_about(services: Services, tmp_path: Path) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "a.txt", pages=8), "a.txt")])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    whole = services.queue.opened[view.document].tokens
    with pytest.raises(TriForceError, match="1 to 8"):
        services.choose_pages(view, "2-9")
    services.choose_pages(view, "7, 2-3")
    entry = services.library.get(view.document)
    assert entry.chosen == "2-3, 7" and entry.ranges == ((2, 3), (7, 7))
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    assert services.queue.opened[entry.id].tokens < whole / 2
    run = services.ask(view, "How many ships?")
    wait_for(lambda: services.conversations.answer(run.id).state == "done")  # kept a moment after it ended
    shares = services.conversations.answers(view.conversation)[0].result["page_shares"]
    usual = services.conversations.answers(view.conversation)[0].result["usual_shares"]
    assert [share > 0 for share in usual] == [True, True, False, False, False, True]  # at the same places
    assert len(shares) == 6 and shares[2:5] == [0, 0, 0] and sum(shares) == pytest.approx(1, abs=0.01)
    services.choose_pages(view, "1-8")
    assert services.library.get(entry.id).chosen == ""


def test_chapters_are_kept_and_another_reading_forgets_the_choice(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    library = Library(Database(tmp_path / "db.sqlite"), tmp_path / "library")
    entry = library.add(write_book(tmp_path, "a.txt"))
    library.store(entry.id, BOOK)
    library.update(entry.id, chosen="2-3")
    library.store(entry.id, BOOK)
    assert library.get(entry.id).chosen == "2-3"
    library._read.clear()
    assert library.document(entry.id) == BOOK
    library.store(entry.id, make_document(4))
    assert library.get(entry.id).chosen == ""
