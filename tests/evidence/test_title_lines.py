"""The lines on which chapters begin."""

from __future__ import annotations

from triforce_core.documents.document import Chapter
from triforce_core.evidence.title_lines import title_lines

TEXT = ["Chapter 1. Ropes", "1. Knots", "2. Splices", "1. Knots", "A knot holds.", "2. Splices",
        "A splice joins two ropes.", "Chapter 2. Sails", "1. Canvas", "Canvas is heavy."]


def found(chapters: list[Chapter], pages: list[int]) -> dict[int, str]:
    return {number: f"{line} {TEXT[line]}" for number, line in title_lines(chapters, TEXT, pages).items()}


def test_a_list_of_contents_is_no_chapter_and_a_first_section_below_its_chapter_is_one() -> None:
    chapters = [Chapter("Chapter 1. Ropes", 1, 1, 1), Chapter("1. Knots", 2, 1, 1), Chapter("2. Splices", 2, 1, 1),
                Chapter("Chapter 2. Sails", 1, 1, 1), Chapter("1. Canvas", 2, 1, 1)]
    assert found(chapters, [0] * len(TEXT)) == {0: "0 Chapter 1. Ropes", 1: "3 1. Knots", 2: "5 2. Splices",
                                                3: "7 Chapter 2. Sails", 4: "8 1. Canvas"}


def test_a_title_is_found_behind_the_page_that_the_outline_gives() -> None:
    chapters = [Chapter("Ropes", 1, 1, 2), Chapter("Knots", 2, 1, 1), Chapter("Splices", 2, 1, 1),
                Chapter("Sails", 1, 3, 3)]
    assert found(chapters, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2])[2] == "5 2. Splices"


def test_a_long_title_may_be_broken_and_one_that_stands_nowhere_is_left_out() -> None:
    lines = ["Before it.", "3.1 How are the ropes of a ship that sails", "in the north kept dry?", "They are tarred."]
    title = "How are the ropes of a ship that sails in the north kept dry?"
    chapters = [Chapter(title, 1, 1, 1), Chapter("Oars", 1, 1, 1)]
    assert title_lines(chapters, lines, [0] * 4) == {0: 1}
