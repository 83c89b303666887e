"""Documents cut into passages, and where those stand on the pages."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.events import Passage, QuotePlace
from triforce_core.evidence.line_roles import Role
from triforce_core.evidence.passages import Text, units_of


def of(*pages: str) -> Document:
    return Document("The Title", "txt", tuple(Page(f"p{number}", text) for number, text in enumerate(pages)), "test")


def cut(*pages: str) -> list[Passage]:
    text = Text.of(of(*pages))
    return [text.passage(unit, unit.sentences) for unit in text.units("The Title")]


def spelt(document: Document, places: tuple[QuotePlace, ...]) -> list[str]:
    return [document.pages[place.page - 1].text[place.start : place.end] for place in places]


def test_a_paragraph_is_cut_into_runs_of_like_length() -> None:
    sentences = [f"Sentence {number} says this." for number in "abcdefg"]
    found = cut(" ".join(sentences))
    assert [one.text for one in found] == [" ".join(sentences[:3]), " ".join(sentences[3:6]), sentences[6]]


def test_a_passage_has_the_headings_above_it_without_the_title() -> None:
    found = cut("2 Fees\n\n2.1 Late payment\n\nWho pays late pays two euros.\n\n3 Places\n\nThe house is in Rome.")
    assert [one.path for one in found] == [("2 Fees", "2.1 Late payment"), ("3 Places",)]


def test_a_list_stands_whole_under_what_introduces_it() -> None:
    (lead, items) = cut("The tenant pays for:\n\n- the water of the house;\n- the light.\n- the heat.")
    assert lead.text == "The tenant pays for:" and items.lead_in == lead.text and items.kind == "list"
    assert items.text == "- the water of the house;\n- the light.\n- the heat."


def test_a_row_has_the_headings_of_its_table() -> None:
    found = cut("Year | Ships | Crews\n2001 | 40 | 12\n2002 | 41 | 13\n\nAfter the table the text goes on.")
    rows = [one for one in found if one.kind == "row"]
    assert [one.lead_in for one in rows] == ["", "Year | Ships | Crews", "Year | Ships | Crews"]
    assert found[-1].lead_in == ""


def test_places_spell_the_text_letter_by_letter() -> None:
    document = of("  The keeper came at noon. He counted the ships that\n\n", "were in the harbour then. He left.")
    text = Text.of(document)
    (unit,) = text.units("")
    found = text.passage(unit, [unit.sentences[1]])
    assert found.text == "The keeper came at noon. He counted the ships that were in the harbour then. He left."
    assert spelt(document, found.places) == ["The keeper came at noon. He counted the ships that",
                                             "were in the harbour then. He left."]
    assert spelt(document, found.marked) == ["He counted the ships that", "were in the harbour then."]
    assert [found.text[start:end] for start, end in found.marks] == [
        "He counted the ships that were in the harbour then."]
    assert [place.label for place in found.places] == ["p0", "p1"]


def test_neighbours_that_answer_are_marked_as_one() -> None:
    document = of("One thing is so. The second is not. The third may be.")
    text = Text.of(document)
    (unit,) = text.units("")
    found = text.passage(unit, [0, 1])
    assert len(found.marks) == len(found.marked) == 1
    assert spelt(document, found.marked) == ["One thing is so. The second is not."]


def test_long_lists_are_cut() -> None:
    lines = [f"- {'word ' * 30}" for _ in range(6)]
    units = units_of("", lines, list(range(6)))
    assert [len(unit.sentences) for unit in units] == [3, 3] and units[0].role is Role.ITEM


def test_a_row_of_one_cell_does_not_take_the_headings_away() -> None:
    lines = ["Station | Gulls | Oil", "North", "Pia's Rock | 41 | 12.5", "Wick | 7 | 3.0"]
    units = units_of("", lines, range(4))
    assert [(unit.role, unit.lead_in) for unit in units[1:]] == [(Role.ROW, lines[0])] * 3


def test_a_first_row_that_is_a_sentence_heads_nothing() -> None:
    lines = ["implicit | This option makes the package guess.", "explicit | This option is the opposite of it."]
    assert [unit.lead_in for unit in units_of("", lines, range(2))] == ["", ""]


def test_a_list_goes_on_with_its_own_lead_in_behind_a_list_inside_of_it() -> None:
    lines = ["A captain must have:", "1. the log of the ship,", "2. a letter, which must name:", "(a) the cargo,",
             "(b) the port:", "(i) of origin,", "(ii) of call;", "(c) the crew.", "3. a receipt."]
    units = units_of("", lines, range(len(lines)), most=1)
    leads = {lines[unit.sentences[0]]: unit.lead_in for unit in units}
    assert [leads[line] for line in lines] == ["", *lines[:1] * 2, *lines[2:3] * 2, *lines[4:5] * 2, lines[2], lines[0]]


@pytest.mark.parametrize("lead", ["The following are excluded:", "The papers that are needed are as follows.",
                                  "Die folgenden Papiere sind mitzubringen."])
@pytest.mark.parametrize("blank", [1, 2])  # lines from the lead-in to the list
def test_a_list_has_its_lead_in(lead: str, blank: int) -> None:
    sentences = ["The tower is old.", lead, "- mules without a lamp,", "- gulls.", "It is closed in winter."]
    lines = [0, 0, blank, blank + 1, blank + 3]
    units = units_of("", sentences, lines)
    assert [(unit.sentences, unit.lead_in) for unit in units] == [((0, 1), ""), ((2, 3), lead), ((4,), "")]
